//! The validated policy of a BackupSchedule.

use std::time::Duration;

use evenkeel_api::{BackupPolicy, IfMissed, KeepPolicy, Rejection, duration};

use super::cron::{self, Cron};

/// A validated policy.
#[derive(Clone, Debug)]
pub struct ValidPolicy {
    /// The times of backups.
    pub backups: Cron,
    /// The times of drills, if any.
    pub drills: Option<Cron>,
    /// What happens if backups were missed.
    pub if_missed: IfMissed,
    /// How long a backup may take.
    pub deadline: Duration,
    /// Which backups are kept.
    pub keep: KeepPolicy,
}

impl ValidPolicy {
    /// Validates the parts of a policy that the schema cannot check.
    pub fn new(policy: &BackupPolicy) -> Result<Self, Rejection> {
        let zone = cron::time_zone(&policy.time_zone)
            .map_err(|reason| Rejection::new("spec.timeZone", reason))?;
        let backups = Cron::parse(&policy.schedule, zone.clone())
            .map_err(|reason| Rejection::new("spec.schedule", reason))?;
        let drills = policy.drill.as_ref().map(|drill| Cron::parse(drill, zone));
        let drills = drills
            .transpose()
            .map_err(|reason| Rejection::new("spec.drill", reason))?;
        let deadline = match duration::parse(&policy.deadline) {
            Ok(Some(deadline)) => deadline,
            Ok(None) => return Err(Rejection::new("spec.deadline", "must not be 0")),
            Err(error) => return Err(Rejection::new("spec.deadline", error.to_string())),
        };
        Ok(Self {
            backups,
            drills,
            if_missed: policy.if_missed,
            deadline,
            keep: policy.keep.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rejected(policy: serde_json::Value) -> &'static str {
        let policy: BackupPolicy = serde_json::from_value(policy).unwrap();
        ValidPolicy::new(&policy).map_or_else(|rejection| rejection.field, |_| "")
    }

    #[test]
    fn each_invalid_field_is_named() {
        let valid = json!({ "store": "prod", "schedule": "@daily", "drill": "@weekly", "timeZone": "Europe/Berlin" });
        assert_eq!(rejected(valid.clone()), "");
        for (field, value) in [
            ("schedule", "0 0 30 2 *"),
            ("drill", "0 0 31 2 *"),
            ("timeZone", "Berlin"),
            ("deadline", "0"),
            ("deadline", "soon"),
        ] {
            let mut policy = valid.clone();
            policy[field] = json!(value);
            assert_eq!(rejected(policy), format!("spec.{field}"));
        }
    }
}
