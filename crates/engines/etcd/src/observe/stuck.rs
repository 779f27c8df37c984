//! Stuck members. A member that received all data as a snapshot does not serve before the raft log advances: etcd counts
//! applied entries from the first entry after the snapshot, considers itself thousands of entries behind, and rejects the
//! publication of its own name as one request too many, in a busy loop (seen on 3.6.16, in an idle cluster with more than
//! 5000 entries). Any new entry ends the loop; `execute` grants a short lease for that.

use evenkeel_runtime::Observed;

use super::etcd::{EtcdState, MemberTarget};
use crate::names::Serial;

/// Returns a member that may be stuck: its pod has an address, etcd lists it, and it does not answer. Whether it has a name
/// in the member list does not matter, because the name may have come with the snapshot.
pub(super) fn candidate<'m>(
    state: &EtcdState,
    members: &'m [MemberTarget],
) -> Option<&'m MemberTarget> {
    let membership = state.membership.present()?;
    let is_listed = |serial: Serial| {
        let mut members = membership.members.iter();
        members.any(|member| member.serial == serial)
    };
    let answers = |serial| state.health.get(&serial).is_some_and(Observed::is_present);
    members
        .iter()
        .find(|target| is_listed(target.serial) && !answers(target.serial))
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

    /// Returns the candidate of a cluster of two members, of which the first has started and these answer.
    fn candidate_with(second_has_started: bool, answering: &[u16]) -> Option<Serial> {
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
        candidate(&state, &[target(0), target(1)]).map(|target| target.serial)
    }

    #[test]
    fn only_a_listed_member_that_does_not_answer_may_be_stuck() {
        assert_eq!(candidate_with(false, &[0]), Some(Serial(1)));
        assert_eq!(candidate_with(false, &[0, 1]), None, "it answers");
        assert_eq!(
            candidate_with(true, &[0]),
            Some(Serial(1)),
            "its name came with the snapshot"
        );
        let targets = [target(0), target(1)];
        let unknown = candidate(&EtcdState::default(), &targets);
        assert!(unknown.is_none(), "the member list is unknown");
    }
}
