//! Conditions of a cluster, and the reasons that they give. Users and alerts match on them, so a released reason
//! keeps its meaning.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use strum::{Display, EnumIter, EnumMessage, IntoEnumIterator, IntoStaticStr};

/// The type of a condition, in the order in which a status lists them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter, IntoStaticStr,
)]
pub enum ConditionType {
    /// Clients can read and write: a linearizable read through the client Service succeeds.
    Ready,
    /// The operator is changing the cluster.
    Progressing,
    /// A problem persists for longer than its recovery should take.
    Degraded,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The operator does not know: before the first probe, and while the cluster cannot be queried.
    Unknown,
}

/// The reason of a condition. The doc comments are the meanings on the reference page.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Display,
    EnumIter,
    EnumMessage,
    IntoStaticStr,
)]
pub enum Reason {
    /// A linearizable read through the client Service succeeded.
    Serving,
    /// Reads through the client Service fail although a quorum of members is healthy.
    NotServing,
    /// The cluster has not been probed yet, or cannot be probed.
    ProbePending,
    /// Fewer voters than a quorum respond.
    QuorumLost,
    /// The operator restarts a member without which the others have no quorum, as the spec asks for.
    Restarting,
    /// etcd has raised the alarm NOSPACE: the database has reached its quota, and etcd rejects writes.
    NoSpace,
    /// etcd has raised the alarm CORRUPT: members have different data, and etcd rejects requests.
    DataCorrupt,
    /// The cluster is being created, and clients are not routed to it yet.
    Bootstrapping,
    /// A restore replaces the data of the cluster, or prepares that.
    Restoring,
    /// The resource is being deleted.
    Deleting,
    /// The cluster matches its spec.
    Converged,
    /// `spec.paused` is set, so the operator changes nothing.
    Paused,
    /// Members are being added or removed to match `spec.members`.
    Scaling,
    /// A member is being recovered or replaced.
    Recovering,
    /// Members are being restarted one by one with another version.
    Upgrading,
    /// Members are being restarted one by one with a changed spec, or other objects of the cluster are being updated.
    Updating,
    /// The operator waits. The message states the reason.
    Waiting,
    /// No problem is known.
    AsExpected,
    /// The bootstrap takes longer than expected.
    BootstrapStalled,
    /// The backup that a new cluster is to begin with cannot be restored.
    RestoreFailed,
    /// A member does not serve.
    MemberDown,
    /// A member does not serve, and its node is not Ready or does not exist any more.
    NodeNotReady,
    /// A member does not serve because its node is cordoned, as by `kubectl drain`, and its volume is on that node.
    NodeCordoned,
    /// A member does not start because its volume is full.
    VolumeFull,
    /// The StorageClass of a member's PersistentVolumeClaim does not exist, or none is set and there is no default.
    StorageClassNotFound,
    /// The volume of a member is not provisioned.
    VolumeNotProvisioned,
    /// The pod of a member cannot be scheduled.
    Unschedulable,
    /// PersistentVolumeClaims or pods of the cluster contradict each other, so the operator changes none of them.
    InconsistentObjects,
    /// The status names an etcd cluster of which no data is left.
    DataLost,
    /// etcd lists a member that the operator did not add.
    UnknownMember,
    /// A member does not become Ready with the changed spec. The rollout stops, and the other members are not changed.
    RolloutStopped,
    /// The limit of replacements per hour is reached, so the next replacement waits.
    TooManyReplacements,
    /// An object with a name that the cluster needs exists and does not belong to the cluster.
    NameConflict,
    /// The Secret of a CA is missing while members use certificates that it issued.
    CAMissing,
    /// A field of the spec is invalid. Its last accepted value stays in effect.
    InvalidSpec,
    /// The Kubernetes API or etcd cannot be queried, so the operator decides nothing.
    ObserveFailed,
    /// The Kubernetes API rejected a write of the operator.
    WriteRejected,
}

impl Reason {
    /// Returns all reasons in the order of the reference page.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Returns the reason as it is written in a status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the meaning, for the reference page.
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns the conditions that can have this reason, each with the status that it then has.
    pub fn conditions(self) -> &'static [(ConditionType, ConditionStatus)] {
        use ConditionStatus::{False, True, Unknown};
        use ConditionType::{Degraded, Progressing, Ready};
        match self {
            Self::Serving => &[(Ready, True)],
            Self::ProbePending => &[(Ready, Unknown)],
            Self::Restarting => &[(Ready, False)],
            Self::NotServing | Self::QuorumLost | Self::NoSpace | Self::DataCorrupt => {
                &[(Ready, False), (Degraded, True)]
            }
            Self::Bootstrapping | Self::Restoring | Self::Deleting => {
                &[(Ready, False), (Progressing, True)]
            }
            Self::Converged | Self::Paused | Self::Waiting => &[(Progressing, False)],
            Self::Scaling | Self::Recovering | Self::Upgrading | Self::Updating => {
                &[(Progressing, True)]
            }
            Self::AsExpected => &[(Degraded, False)],
            Self::BootstrapStalled
            | Self::RestoreFailed
            | Self::MemberDown
            | Self::NodeNotReady
            | Self::NodeCordoned
            | Self::VolumeFull
            | Self::StorageClassNotFound
            | Self::VolumeNotProvisioned
            | Self::Unschedulable
            | Self::InconsistentObjects
            | Self::DataLost
            | Self::UnknownMember
            | Self::RolloutStopped
            | Self::TooManyReplacements
            | Self::NameConflict
            | Self::CAMissing
            | Self::InvalidSpec
            | Self::ObserveFailed
            | Self::WriteRejected => &[(Degraded, True)],
        }
    }
}

/// The new value of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// The type of the condition.
    pub condition: ConditionType,
    /// The status.
    pub status: ConditionStatus,
    /// The machine-readable reason.
    pub reason: Reason,
    /// The message for users, with the action that they can take.
    pub message: String,
}

/// Returns the conditions of a status after these updates, for the spec of this generation.
///
/// The transition time changes only with the status, not with the reason or message. Conditions without an update are
/// kept. The operator's own conditions come first and in a fixed order, so that equal updates give an equal status.
pub fn merge(
    old: &[Condition],
    updates: Vec<ConditionUpdate>,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut merged = old.to_vec();
    for update in updates {
        let type_ = update.condition.to_string();
        let status = update.status.to_string();
        let unchanged = merged
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status);
        let since = unchanged
            .map_or(now, |condition| &condition.last_transition_time)
            .clone();
        merged.retain(|condition| condition.type_ != type_);
        merged.push(Condition {
            type_,
            status,
            reason: update.reason.to_string(),
            message: update.message,
            observed_generation: generation,
            last_transition_time: since,
        });
    }
    merged.sort_by_key(|condition| rank(&condition.type_));
    merged
}

/// Returns the position of a condition. Conditions of other controllers come last and keep their order, since the sort
/// is stable.
fn rank(type_: &str) -> usize {
    ConditionType::iter()
        .position(|own| <&str>::from(own) == type_)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::ConditionStatus::{False, True};
    use super::ConditionType::{Degraded, Progressing, Ready};
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn update(
        condition: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: &str,
    ) -> ConditionUpdate {
        ConditionUpdate {
            condition,
            status,
            reason,
            message: message.to_owned(),
        }
    }

    fn serving() -> Vec<ConditionUpdate> {
        vec![
            update(Degraded, False, Reason::AsExpected, ""),
            update(Ready, True, Reason::Serving, "a read succeeded"),
            update(Progressing, False, Reason::Converged, ""),
        ]
    }

    #[test]
    fn new_conditions_are_sorted_and_begin_now() {
        let conditions = merge(&[], serving(), Some(1), &at(10));
        let types: Vec<_> = conditions.iter().map(|it| it.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Progressing", "Degraded"]);
        assert!(
            conditions
                .iter()
                .all(|it| it.last_transition_time == at(10))
        );
        assert!(
            conditions
                .iter()
                .all(|it| it.observed_generation == Some(1))
        );
        assert_eq!(
            (&*conditions[0].status, &*conditions[0].reason),
            ("True", "Serving")
        );
    }

    #[test]
    fn the_same_updates_later_change_nothing() {
        let first = merge(&[], serving(), Some(1), &at(10));
        let mut updates = serving();
        updates.reverse();
        assert_eq!(merge(&first, updates, Some(1), &at(99)), first);
    }

    #[test]
    fn only_a_new_status_changes_the_transition_time() {
        let first = merge(&[], serving(), Some(1), &at(10));
        let waiting = update(Progressing, False, Reason::Waiting, "for a node");
        let second = merge(&first, vec![waiting], Some(2), &at(20));
        assert_eq!(
            (&*second[1].reason, second[1].observed_generation),
            ("Waiting", Some(2))
        );
        assert_eq!(second[1].last_transition_time, at(10));

        let lost = update(Ready, False, Reason::QuorumLost, "1 of 3 members responds");
        let third = merge(&second, vec![lost], Some(2), &at(30));
        assert_eq!(
            (&*third[0].status, &third[0].last_transition_time),
            ("False", &at(30))
        );
        assert_eq!(third[2], first[2]);
    }

    #[test]
    fn conditions_of_other_controllers_stay_last() {
        let other = Condition {
            type_: "Audited".to_owned(),
            status: "True".to_owned(),
            reason: "Manual".to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: at(1),
        };
        let conditions = merge(std::slice::from_ref(&other), serving(), Some(1), &at(10));
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[3], other);
    }

    #[test]
    fn reasons_are_valid_in_kubernetes_and_documented() {
        for reason in Reason::all() {
            let word = reason.as_str();
            assert!(
                word.starts_with(|it: char| it.is_ascii_uppercase()),
                "{word}"
            );
            assert!(word.chars().all(|it| it.is_ascii_alphanumeric()), "{word}");
            let meaning = reason.meaning();
            assert!(
                meaning.ends_with('.') && !meaning.contains('\n'),
                "{word}: {meaning:?}"
            );
            assert!(!reason.conditions().is_empty(), "{word}");
        }
    }
}
