//! A change of the membership that was begun is finished before another is begun. A call that was sent late is accepted
//! by etcd: after a successor had removed dead C, a thawed operator's "remove B" left one voter (tried).

use std::time::Duration;

use super::RuleResult;
use crate::identity::{Intent, MembershipChange};
use crate::plan::{EtcdDisruption, EtcdWait, IdentityChange};
use crate::view::{ClusterView, MemberView};

/// A call that went out this long ago has ended, one way or the other: calls have a deadline well below.
pub(crate) const EXPIRES_AFTER: Duration = Duration::from_secs(30);

/// Settles the open intent: done, repeated, or void.
pub(super) fn settle_intent(view: &ClusterView<'_>) -> RuleResult {
    let Some(intent) = &view.identity.intent else {
        return RuleResult::Pass;
    };
    if is_done(view, intent.change) {
        return close(view);
    }
    // Repeating it is harmless: whichever of the two calls comes second finds it done. But the world may have changed.
    let voters = (view.voter_serials(), view.unknown_voters());
    if voters == (intent.voters.clone(), intent.unknown_voters.clone())
        && is_still_valid(view, intent)
    {
        return RuleResult::with_intent(view, intent.clone());
    }
    if view.facts.now.since(intent.recorded_at) >= EXPIRES_AFTER {
        return close(view);
    }
    RuleResult::Block(EtcdWait::OpenIntent(Intent::clone(intent)))
}

fn close(view: &ClusterView<'_>) -> RuleResult {
    let mut to = view.identity.clone();
    to.intent = None;
    RuleResult::DisruptAndContinue(Box::new(EtcdDisruption::UpdateIdentity {
        from: view.identity.clone(),
        to,
        why: IdentityChange::SettleIntent,
    }))
}

fn is_done(view: &ClusterView<'_>, change: MembershipChange) -> bool {
    let entry = change
        .member()
        .and_then(|serial| view.members.get(&serial)?.listed);
    match change {
        MembershipChange::Add(_) => entry.is_some(),
        MembershipChange::Promote(_) => entry.is_none_or(|entry| !entry.is_learner),
        MembershipChange::Remove(_) => entry.is_none(),
        MembershipChange::RemoveUnknown(id) => {
            view.unknown_members.iter().all(|unknown| unknown.id != id)
        }
    }
}

fn is_still_valid(view: &ClusterView<'_>, intent: &Intent) -> bool {
    let change = intent.change;
    let member = change.member().and_then(|serial| view.members.get(&serial));
    match change {
        // etcd refuses an add while any voter is down (tried on 3.5.35, 3.6.16, 3.7.3): repeated for ever, it would keep the
        // dead from being removed.
        MembershipChange::Add(_) => {
            view.listed().count() < view.target_members()
                && view.voters().all(MemberView::is_serving)
        }
        MembershipChange::Promote(_) => member.is_some_and(|member| view.promotion_is_safe(member)),
        // One that has come back meanwhile stays.
        MembershipChange::Remove(_)
            if intent.is_replacement && member.is_some_and(|member| member.health.is_some()) =>
        {
            false
        }
        MembershipChange::Remove(serial) => view.removal_is_safe(serial),
        MembershipChange::RemoveUnknown(id) => {
            let mut unknown_members = view
                .unknown_members
                .iter()
                .filter(|unknown| unknown.id == id);
            unknown_members
                .any(|unknown| !unknown.has_started && view.unknown_removal_is_safe(unknown))
        }
    }
}
