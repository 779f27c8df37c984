//! Before some versions are entered, every member takes a snapshot of its log.
//!
//! At a start etcd replays its log from its last snapshot on, and a log that is seldom written to goes far back: to entries of a
//! minor before the last, which a later one no longer reads. 3.7 panics at every start on a log with entries of 3.5 (tried:
//! 3.5.35, 3.6.16 and 3.7.3 on one directory). So the version is taken over only when the log of every member begins after all
//! had left the earlier minor; see [`evenkeel_api::releases::wants_renewed_log`].

use super::Verdict;
use crate::plan::{Step, Wait};
use crate::view::{Member, View};

/// Has the logs renewed when another version waits for that, and all members run the one before.
pub(super) fn logs(view: &View<'_>) -> Verdict {
    let wanted = view.facts.cluster.version;
    if view.facts.cluster.next.is_none() || !view.identity.sealed || !view.registry {
        return Verdict::Pass;
    }
    if !view.strangers.is_empty() {
        // Nobody here knows what they run, and what they write.
        return Verdict::Wait(Wait::Strangers(view.strangers.to_vec()));
    }
    let runs_it = |member: &Member<'_>| {
        let says = member.voice.and_then(|voice| voice.version);
        says.is_some_and(|says| (says.major, says.minor) == (wanted.major, wanted.minor))
    };
    // Everybody who may ever start again has to take part. Who has not started yet gets what was written since.
    let is_ready = |member: &Member<'_>| {
        member.serves() && member.is_settled() && runs_it(member) && !view.is_outdated(member)
    };
    if let Some(member) = view.registered().find(|member| !is_ready(member) && !member.is_unplaced()) {
        return Verdict::Wait(Wait::NotRenewed(member.serial));
    }
    let mut to = view.identity.clone();
    to.renewed = Some(wanted);
    Verdict::step(Step::Renew { from: view.identity.clone(), to })
}
