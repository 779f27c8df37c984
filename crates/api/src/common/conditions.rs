//! The conditions of a cluster and the reasons they give. People and alerts go by these words, so a reason that was
//! released keeps its meaning.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Whether clients can read and write: a linearizable read through the client Service succeeds.
    Ready,
    /// Whether something is being changed.
    Progressing,
    /// Whether something is amiss that does not mend itself in the time it should take.
    Degraded,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows: at first sight, and when whoever could tell does not answer.
    Unknown,
}

/// Declares [`Reason`] so that the word in a status is always the name in the code.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Why a condition holds or does not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[doc = $doc])* $name,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As it stands in a status.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Which conditions give it, and what it means: `Ready: a read as clients do it succeeded.`
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

reasons! {
    /// Ready: a read as clients do it succeeded.
    Serving,
    /// Ready, not: reads as clients do them fail though most members are there.
    NotServing,
    /// Ready, unknown: nobody has asked yet, or it cannot be asked.
    NotAsked,
    /// Ready, not, and Degraded: too few voters answer for a majority.
    QuorumLost,
    /// Ready, not, and Progressing: the cluster is being created, and clients are not let in yet.
    Bootstrapping,
    /// Ready, not, and Progressing: the resource is being deleted.
    Deleting,
    /// Progressing, not: everything is as the spec says.
    Converged,
    /// Progressing, not: the spec says that nothing is to be done.
    Paused,
    /// Progressing: members are being added or removed to match the spec.
    Scaling,
    /// Progressing: a member is being brought back or replaced.
    Healing,
    /// Progressing: members are brought to another version of etcd, one by one.
    Upgrading,
    /// Progressing: members are restarted one by one as the spec has them now; or Services, certificates or the disruption budget
    /// are being brought up to date.
    Updating,
    /// Progressing, not: something must happen first; the message names it.
    Waiting,
    /// Degraded, not: nothing is amiss.
    AsExpected,
    /// Degraded: the bootstrap waits for longer than it should.
    BootstrapWaiting,
    /// Degraded: a member does not serve.
    MemberDown,
    /// Degraded: no node takes a member's pod.
    Unschedulable,
    /// Degraded: volumes or pods of this cluster were found that contradict each other, so none is touched.
    VolumesFound,
    /// Degraded: the status names an etcd cluster of which nothing is left.
    DataLost,
    /// Degraded: etcd lists a member that Evenkeel does not know.
    UnknownMember,
    /// Degraded: a member does not come back as the spec has it now; the others go on as they were.
    RolloutStopped,
    /// Degraded: so many members were replaced within an hour that the next one waits.
    TooManyReplacements,
    /// Degraded: an object of a name that is needed exists and is not this cluster's.
    NameTaken,
    /// Degraded: an authority is gone while members run on its certificates.
    AuthorityLost,
    /// Degraded: a field of the spec cannot be accepted; its last accepted value stays in force.
    SpecRefused,
    /// Degraded: Kubernetes or etcd cannot be asked, so nothing is decided.
    CannotRead,
    /// Degraded: Kubernetes refused something that Evenkeel wrote.
    WriteRefused,
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
        })
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is to be said of a condition now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which condition.
    pub about: ConditionType,
    /// Whether it holds.
    pub holds: Holds,
    /// Why.
    pub reason: Reason,
    /// The same for people, with what they can do.
    pub message: String,
}

/// The conditions of a status once this was said of the spec of this generation. The time of a condition is when it
/// last began or ceased to hold, so a new reason or message leaves it. Conditions that nothing was said of stay as
/// they are; ours come first and in their order, so that the same words give the same status, byte for byte.
pub fn merge(
    old: &[Condition],
    said: Vec<Said>,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut merged = old.to_vec();
    for Said {
        about,
        holds,
        reason,
        message,
    } in said
    {
        let (type_, status) = (about.to_string(), holds.to_string());
        let before = merged
            .iter()
            .find(|it| it.type_ == type_ && it.status == status);
        let since = before.map_or(now, |it| &it.last_transition_time).clone();
        merged.retain(|it| it.type_ != type_);
        merged.push(Condition {
            type_,
            status,
            reason: reason.to_string(),
            message,
            observed_generation: generation,
            last_transition_time: since,
        });
    }
    merged.sort_by_key(|it| rank(&it.type_));
    merged
}

/// Ours first; those of others keep their order, since the sort is stable.
fn rank(type_: &str) -> usize {
    let ours = [
        ConditionType::Ready,
        ConditionType::Progressing,
        ConditionType::Degraded,
    ];
    ours.iter()
        .position(|it| it.to_string() == type_)
        .unwrap_or(ours.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn say(about: ConditionType, holds: Holds, reason: Reason, message: &str) -> Said {
        Said {
            about,
            holds,
            reason,
            message: message.to_owned(),
        }
    }

    fn serving() -> Vec<Said> {
        vec![
            say(
                ConditionType::Degraded,
                Holds::False,
                Reason::AsExpected,
                "",
            ),
            say(
                ConditionType::Ready,
                Holds::True,
                Reason::Serving,
                "a read succeeded",
            ),
            say(
                ConditionType::Progressing,
                Holds::False,
                Reason::Converged,
                "",
            ),
        ]
    }

    #[test]
    fn what_is_said_for_the_first_time_holds_from_now_on_and_stands_in_order() {
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
    fn saying_the_same_later_changes_nothing() {
        let first = merge(&[], serving(), Some(1), &at(10));
        let mut said = serving();
        said.reverse();
        assert_eq!(merge(&first, said, Some(1), &at(99)), first);
    }

    #[test]
    fn a_new_reason_or_generation_leaves_the_time_and_a_new_verdict_moves_it() {
        let first = merge(&[], serving(), Some(1), &at(10));
        let waiting = say(
            ConditionType::Progressing,
            Holds::False,
            Reason::Waiting,
            "for a node",
        );
        let second = merge(&first, vec![waiting], Some(2), &at(20));
        assert_eq!(
            (&*second[1].reason, second[1].observed_generation),
            ("Waiting", Some(2))
        );
        assert_eq!(second[1].last_transition_time, at(10));

        let lost = say(
            ConditionType::Ready,
            Holds::False,
            Reason::QuorumLost,
            "one of three answers",
        );
        let third = merge(&second, vec![lost], Some(2), &at(30));
        assert_eq!(
            (&*third[0].status, &third[0].last_transition_time),
            ("False", &at(30))
        );
        assert_eq!(third[2], first[2]);
    }

    #[test]
    fn conditions_of_others_stay_behind_ours() {
        let other = Condition {
            type_: "Audited".to_owned(),
            status: "True".to_owned(),
            reason: "ByHand".to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: at(1),
        };
        let conditions = merge(std::slice::from_ref(&other), serving(), Some(1), &at(10));
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[3], other);
    }

    #[test]
    fn reasons_are_words_that_kubernetes_accepts() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            assert!(
                word.starts_with(|it: char| it.is_ascii_uppercase()),
                "{word}"
            );
            assert!(word.chars().all(|it| it.is_ascii_alphanumeric()), "{word}");
            let (conditions, means) = reason.about().split_once(": ").unwrap_or_default();
            assert!(
                conditions.len() > 4 && means.ends_with('.'),
                "{word}: {}",
                reason.about()
            );
        }
    }
}
