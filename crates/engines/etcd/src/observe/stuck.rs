//! Stuck members. A member that received all data as a snapshot does not serve before the raft log
//! advances: etcd counts applied entries from the first entry after the snapshot, considers itself
//! thousands of entries behind, and rejects the publication of its own name with "too many
//! requests", in a busy loop (seen on 3.6.16, in an idle cluster with more than 5000 entries). Any
//! new entry ends the loop: see `decide/nudge.rs`.

use evenkeel_runtime::Observed;

use super::etcd::{EtcdState, MemberTarget};
use crate::names::Serial;

/// Returns the members that may be stuck: their pods have addresses, etcd lists them, and they do not answer. Whether a
/// member has a name in the member list does not matter, because the name may have come with the snapshot.
pub(super) fn candidates<'m>(
    state: &EtcdState,
    members: &'m [MemberTarget],
) -> impl Iterator<Item = &'m MemberTarget> {
    let is_listed = |serial: Serial| {
        let listed = state.membership.present().into_iter();
        let mut members = listed.flat_map(|membership| &membership.members);
        members.any(|member| member.serial == serial)
    };
    let answers = |serial| state.health.get(&serial).is_some_and(Observed::is_present);
    members
        .iter()
        .filter(move |target| is_listed(target.serial) && !answers(target.serial))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Endpoint;
    use crate::facts::{ListedMember, MemberHealth, Membership};
    use crate::identity::{ClusterId, MemberId};

    fn target(serial: u16) -> MemberTarget {
        MemberTarget {
            serial: Serial(serial),
            endpoint: Endpoint {
                address: "10.0.0.1".to_owned(),
                name: "orders".to_owned(),
            },
            is_seed: false,
        }
    }

    fn listed(serial: u16, has_started: bool) -> ListedMember {
        ListedMember {
            serial: Serial(serial),
            id: MemberId(u64::from(serial)),
            is_learner: !has_started,
            has_started,
        }
    }

    /// Returns the candidates in a cluster of two members, of which the first has started and these answer.
    fn candidates_with(second_has_started: bool, answering: &[u16]) -> Vec<Serial> {
        let health = MemberHealth {
            cluster_id: ClusterId(1),
            member_id: MemberId(1),
            is_serving: true,
            is_caught_up: true,
            is_leader: false,
            version: None,
            db_size: 0,
        };
        let health = answering
            .iter()
            .map(|serial| (Serial(*serial), Observed::Present(health.clone())));
        let membership = Membership {
            reported_by: Serial(0),
            members: vec![listed(0, true), listed(1, second_has_started)],
            unknown: Vec::new(),
        };
        let state = EtcdState {
            membership: Observed::Present(membership),
            health: health.collect(),
            ..EtcdState::default()
        };
        candidates(&state, &[target(0), target(1)])
            .map(|target| target.serial)
            .collect()
    }

    #[test]
    fn only_a_listed_member_that_does_not_answer_may_be_stuck() {
        assert_eq!(candidates_with(false, &[0]), [Serial(1)]);
        assert_eq!(candidates_with(false, &[0, 1]), [], "it answers");
        assert_eq!(
            candidates_with(true, &[0]),
            [Serial(1)],
            "its name came with the snapshot"
        );
        assert_eq!(
            candidates_with(true, &[]),
            [Serial(0), Serial(1)],
            "a member that does not run does not hide a stuck one"
        );
        let targets = [target(0), target(1)];
        let unknown = candidates(&EtcdState::default(), &targets).count();
        assert_eq!(unknown, 0, "the member list is unknown");
    }
}
