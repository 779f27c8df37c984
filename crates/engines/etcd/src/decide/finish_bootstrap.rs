//! The end of bootstrap: from then on clients are routed, and no member starts as a new cluster in
//! this epoch. If the spec asks to keep the data, the resource stops owning it before.

use evenkeel_runtime::UnixTime;

use super::{Actions, RuleResult, add, change_membership, objects, update_identity};
use crate::facts::{OwnedBy, PodFacts, StartMode};
use crate::identity::MembershipChange;
use crate::plan::{EtcdWait, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView, quorum};

/// Finishes bootstrap when all desired members are voters, or when the timeout has passed for those
/// that do not start.
pub(super) fn finish_bootstrap(view: &ClusterView<'_>) -> RuleResult {
    if view.identity.bootstrapped {
        return RuleResult::Pass;
    }
    if !can_finish(view) {
        return match timeout_at(view) {
            Some(until) => RuleResult::Wait(EtcdWait::BootstrapTimeout(until)),
            None => RuleResult::Wait(EtcdWait::SeedStart(view.identity.seed)),
        };
    }
    // After bootstrap there is at most one learner: of several that do not start the newest is
    // removed, and added again later.
    let mut learners = view.learners();
    if let (Some(first), Some(_)) = (learners.next(), learners.next()) {
        let newest = view
            .learners()
            .filter(|learner| !learner.is_serving())
            .last();
        return match newest {
            Some(learner) => change_membership(view, MembershipChange::Remove(learner.serial)),
            None => RuleResult::Wait(EtcdWait::LearnerCatchUp(first.serial)),
        };
    }
    if view.owns_kept_data() {
        return release_data(view);
    }
    update_identity(view.identity, IdentityChange::FinishBootstrap, |to| {
        to.bootstrapped = true
    })
}

/// Removes the owner references of data that is kept when the resource is deleted: that of the
/// identity first. Claims without an identity would read as a bootstrapped cluster, and those that
/// Kubernetes has deleted with the resource as lost members.
fn release_data(view: &ClusterView<'_>) -> RuleResult {
    if view.facts.identity_owner == OwnedBy::Resource {
        return RuleResult::patch(objects::set_identity_owner(false));
    }
    RuleResult::Act(Box::new(Actions {
        patch: objects::set_claim_owners(view, false).collect(),
        ..Actions::default()
    }))
}

fn can_finish(view: &ClusterView<'_>) -> bool {
    let voters = view.voters().count();
    if voters == 0 {
        return false;
    }
    let is_complete =
        voters == usize::from(view.facts.cluster.members) && view.learners().next().is_none();
    let healthy = view.voters().filter(|member| member.is_serving()).count();
    let is_enough = timeout_expired(view) && healthy >= quorum(voters);
    let is_settled = |member: &MemberView<'_>| {
        (member.is_joined() && member.is_serving()) || (is_enough && may_be_missing(view, member))
    };
    (is_complete || is_enough) && view.voters().all(is_settled)
}

/// Returns true if bootstrap can finish without this voter: it is down and can start on its
/// existing data only. It comes back or is replaced afterwards. The seed cannot be missing: it has
/// a vote before its start mode is changed.
fn may_be_missing(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let starts_on_existing_data =
        |pod: &PodFacts| pod.start_mode == StartMode::ExistingData && pod.joined_gate;
    !member.is_serving()
        && member.serial != view.identity.seed
        && member.data == DataState::Intact
        && member.pod.is_none_or(starts_on_existing_data)
}

/// Returns true if bootstrap no longer waits for members that do not start.
pub(super) fn timeout_expired(view: &ClusterView<'_>) -> bool {
    timeout_at(view).is_some_and(|until| view.facts.now >= until)
}

/// Returns true if bootstrap ends with the members that there are: every desired member was added,
/// one more in the place of a member that did not start, and a learner still does not start. A
/// further member would only be removed again, and bootstrap would never finish.
pub(super) fn all_attempts_failed(view: &ClusterView<'_>) -> bool {
    let identity = view.identity;
    let attempts = identity.next_serial.0.saturating_sub(identity.seed.0);
    !identity.bootstrapped
        && attempts > u16::from(view.facts.cluster.members)
        && view
            .learners()
            .any(|learner| add::is_blocked(view, learner))
}

/// Returns when the bootstrap timeout ends, counted from the creation of the newest member's pod.
/// Prepared pods are not members yet and count only while etcd's list is unknown.
pub(super) fn timeout_at(view: &ClusterView<'_>) -> Option<UnixTime> {
    let created_at = |member: &MemberView<'_>| member.pod.map(|pod| pod.created_at);
    let newest = view.listed().filter_map(created_at).max();
    let newest = newest.or_else(|| view.members.values().filter_map(created_at).max());
    Some(newest?.after(view.facts.cluster.bootstrap_timeout))
}
