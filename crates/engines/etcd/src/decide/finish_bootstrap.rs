//! The end of the bootstrap. Only now are clients routed, and no member is ever started as a new cluster again in this
//! epoch.

use super::{RuleResult, add};
use crate::facts::{PodFacts, StartMode};
use crate::identity::MembershipChange;
use crate::plan::{EtcdWait, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView, quorum};

/// Seals an epoch when all wanted members are voters, or patience is over for those that cannot start.
pub(super) fn finish_bootstrap(view: &ClusterView<'_>) -> RuleResult {
    if view.identity.bootstrapped {
        return RuleResult::Pass;
    }
    let desired = usize::from(view.facts.cluster.members);
    let all = view.voters().count() == desired && view.learners().count() == 0;
    let (voters, healthy) = (
        view.voters().count(),
        view.voters().filter(|member| member.is_serving()).count(),
    );
    let enough = timeout_expired(view) && healthy >= quorum(voters);
    let settled = view.voters().all(|member| {
        (member.is_joined() && member.is_serving()) || (enough && is_missing(view, member))
    });
    if settled && voters > 0 && (all || enough) {
        // Once sealed there is one learner at most: of several that do not start, the newest go, and follow later.
        return match view
            .learners()
            .filter(|learner| !learner.is_serving())
            .last()
        {
            Some(learner) if view.learners().count() > 1 => {
                RuleResult::change_membership(view, MembershipChange::Remove(learner.serial))
            }
            None if view.learners().count() > 1 => {
                let learner = view
                    .learners()
                    .next()
                    .map_or(view.identity.seed, |learner| learner.serial);
                RuleResult::Wait(EtcdWait::LearnerCatchUp(learner))
            }
            _ => {
                RuleResult::update_identity(view.identity, IdentityChange::FinishBootstrap, |to| {
                    to.bootstrapped = true
                })
            }
        };
    }
    match timeout_at(view) {
        Some(until) => RuleResult::Wait(EtcdWait::BootstrapTimeout(until)),
        None => RuleResult::Wait(EtcdWait::SeedStart(view.identity.seed)),
    }
}

/// Whether a voter is down that can start on nothing but its own data: whoever was given its vote could by then start on nothing
/// else. It comes back, or is replaced, when clients are let in as well as before. The seed never was given its own.
fn is_missing(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let turned = |pod: &PodFacts| pod.start_mode == StartMode::ExistingData && pod.joined_gate;
    !member.is_serving()
        && member.serial != view.identity.seed
        && member.data == DataState::Intact
        && member.pod.is_none_or(turned)
}

/// Whether members that do not start are no longer waited for.
pub(super) fn timeout_expired(view: &ClusterView<'_>) -> bool {
    timeout_at(view).is_some_and(|until| view.facts.now >= until)
}

/// Whether the bootstrap ends with those who are there: everybody was tried, and one more in the place of one who did not start, and
/// somebody is waited for still. Whoever were added now would only go again, so that the epoch is never sealed.
pub(super) fn all_attempts_failed(view: &ClusterView<'_>) -> bool {
    let tried = view
        .identity
        .next_serial
        .0
        .saturating_sub(view.identity.seed.0);
    !view.identity.bootstrapped
        && tried > u16::from(view.facts.cluster.members)
        && view
            .learners()
            .any(|learner| add::is_blocked(view, learner))
}

/// Counted from the creation of the newest pod: whoever came last gets its time. Those who are only prepared are no members yet, and
/// nobody waits for them, if anybody knows who the members are.
pub(super) fn timeout_at(view: &ClusterView<'_>) -> Option<evenkeel_runtime::UnixTime> {
    let newest = |pods: &mut dyn Iterator<Item = &PodFacts>| pods.map(|pod| pod.created_at).max();
    let newest = newest(&mut view.listed().filter_map(|member| member.pod))
        .or_else(|| newest(&mut view.members.values().filter_map(|member| member.pod)));
    newest.map(|created| created.after(view.facts.cluster.bootstrap_timeout))
}
