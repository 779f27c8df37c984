//! Who comes first where there is no room for all. What a node has room for is given to whoever asks first; a voter that was
//! evicted may then find a newcomer in its place, and can go nowhere else if its volume is there (seen, twice: once the newcomer
//! was asked to make way too late, and took the place for good). Whoever has a vote comes first.

use super::RuleResult;
use crate::facts::StartMode;
use crate::identity::MembershipChange;
use crate::plan::{DeleteReason, EtcdDisruption};
use crate::view::ClusterView;

/// Has a newcomer that no node takes yet make way for a voter that needs a place. One that has a voter's place and costs the
/// quorum goes from it, too, although etcd cannot be asked to remove it: it was never told to start on its own data, so it has
/// no vote.
pub(super) fn free_node_for_voter(view: &ClusterView<'_>) -> RuleResult {
    let needed = view.any_voter_needs_node();
    let waits = view
        .learners()
        .filter(|member| needed && member.is_unstarted_learner());
    let waits = waits
        .filter_map(|member| member.pod)
        .find(|pod| pod.node.is_none() && !pod.is_terminating);
    let unlisted = view
        .members
        .values()
        .filter(|member| !view.membership_known && view.blocks_a_voter(member));
    let mut joining = unlisted.filter_map(|member| member.pod);
    let in_place =
        || joining.find(|pod| matches!(pod.start_mode, StartMode::Join(_)) && !pod.is_terminating);
    match waits.or_else(in_place) {
        Some(pod) => RuleResult::DisruptAndContinue(Box::new(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::FreesNode,
        })),
        None => RuleResult::Pass,
    }
}

/// Removes a learner that has a voter's place. Its pod alone would not do: its volume may be there by now, and it would be back.
/// Another is added when all voters are well.
pub(super) fn remove_blocking_learner(view: &ClusterView<'_>) -> RuleResult {
    match view.learners().find(|learner| view.blocks_a_voter(learner)) {
        Some(learner) if view.removal_is_safe(learner.serial) => {
            RuleResult::change_membership(view, MembershipChange::Remove(learner.serial))
        }
        _ => RuleResult::Pass,
    }
}
