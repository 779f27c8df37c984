//! The open intent: the operator settles a membership change that has begun before it begins
//! another. etcd accepts a call that arrives late: another operator had removed the dead member C
//! when the late call "remove B" of a frozen operator arrived, and one voter was left (tried).

use std::time::Duration;

use super::{RuleResult, with_intent};
use crate::identity::{Intent, MembershipChange};
use crate::plan::{EtcdDisruption, EtcdWait, IdentityChange};
use crate::view::{ClusterView, MemberView};

/// The age at which the call of an intent has certainly ended: well above the deadline of calls.
pub(crate) const EXPIRES_AFTER: Duration = Duration::from_secs(30);

/// Settles the open intent: it is done, repeated, or no longer valid.
pub(super) fn settle_intent(view: &ClusterView<'_>) -> RuleResult {
    let Some(intent) = &view.identity.intent else {
        return RuleResult::Pass;
    };
    if is_done(view, intent.change) {
        return close(view);
    }
    // A repeated call is harmless: the second of the two finds the change done. The conditions may
    // have changed, though.
    let voters_unchanged =
        view.voter_serials() == intent.voters && view.unknown_voters() == intent.unknown_voters;
    if voters_unchanged && is_still_valid(view, intent) {
        return with_intent(view, intent.clone());
    }
    if view.facts.now.since(intent.recorded_at) >= EXPIRES_AFTER {
        return close(view);
    }
    RuleResult::Block(EtcdWait::OpenIntent(intent.clone()))
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
    let listed = change
        .member()
        .and_then(|serial| view.members.get(&serial)?.listed);
    match change {
        MembershipChange::Add(_) => listed.is_some(),
        MembershipChange::Promote(_) => listed.is_none_or(|listed| !listed.is_learner),
        MembershipChange::Remove(_) => listed.is_none(),
        MembershipChange::RemoveUnknown(id) => {
            view.unknown_members.iter().all(|unknown| unknown.id != id)
        }
    }
}

fn is_still_valid(view: &ClusterView<'_>, intent: &Intent) -> bool {
    let change = intent.change;
    let member = change.member().and_then(|serial| view.members.get(&serial));
    match change {
        // etcd rejects an add while a voter is down (tried on 3.5.35, 3.6.16, 3.7.3): repeated for
        // ever, it would keep the dead voter from being removed.
        MembershipChange::Add(_) => {
            view.listed().count() < view.target_members()
                && view.voters().all(MemberView::is_serving)
        }
        MembershipChange::Promote(_) => member.is_some_and(|member| view.promotion_is_safe(member)),
        // A member that is reachable again is not removed.
        MembershipChange::Remove(_)
            if intent.is_replacement && member.is_some_and(|member| member.health.is_some()) =>
        {
            false
        }
        MembershipChange::Remove(serial) => view.removal_is_safe(serial),
        MembershipChange::RemoveUnknown(id) => view.unknown_members.iter().any(|unknown| {
            unknown.id == id && !unknown.has_started && view.unknown_removal_is_safe(unknown)
        }),
    }
}
