//! Conditions of the resources for backups. Each status has one condition per type.

use evenkeel_runtime::UnixTime;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The new value of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCondition {
    /// The type.
    pub(crate) type_: &'static str,
    /// The status: `True`, `False` or `Unknown`.
    pub(crate) status: &'static str,
    /// The machine-readable reason.
    pub(crate) reason: String,
    /// The fact, the consequence and the remedy.
    pub(crate) message: String,
}

/// Returns the conditions with the new value of one. The transition time changes only with the status.
pub(crate) fn set(
    conditions: &[Condition],
    new: NewCondition,
    generation: Option<i64>,
    now: UnixTime,
) -> Vec<Condition> {
    let unchanged = find(conditions, new.type_).filter(|old| old.status == new.status);
    let since = unchanged.map_or_else(|| time(now), |old| old.last_transition_time.clone());
    let others = conditions.iter().filter(|other| other.type_ != new.type_);
    let condition = Condition {
        type_: new.type_.to_owned(),
        status: new.status.to_owned(),
        reason: new.reason,
        message: new.message,
        observed_generation: generation,
        last_transition_time: since,
    };
    std::iter::once(condition).chain(others.cloned()).collect()
}

/// Returns a condition by its type.
pub(crate) fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns a time as objects have it.
pub(crate) fn time(time: UnixTime) -> Time {
    Time(Timestamp::from_second(time.0).unwrap_or_default())
}

/// Returns a time of an object.
pub(crate) fn unix(time: &Time) -> UnixTime {
    UnixTime(time.0.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: &'static str) -> NewCondition {
        NewCondition {
            type_: "Ready",
            status,
            reason: "Available".to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let first = set(&[], ready("True"), Some(1), UnixTime(10));
        let same = set(&first, ready("True"), Some(2), UnixTime(20));
        assert_eq!(unix(&same[0].last_transition_time), UnixTime(10));
        assert_eq!(same[0].observed_generation, Some(2));
        let changed = set(&same, ready("False"), Some(2), UnixTime(30));
        assert_eq!(unix(&changed[0].last_transition_time), UnixTime(30));
        assert_eq!(changed.len(), 1);
    }

    #[test]
    fn conditions_of_other_types_are_kept() {
        let other = NewCondition {
            type_: "Other",
            ..ready("True")
        };
        let conditions = set(
            &set(&[], other, None, UnixTime(1)),
            ready("True"),
            None,
            UnixTime(2),
        );
        assert!(find(&conditions, "Other").is_some() && find(&conditions, "Ready").is_some());
    }
}
