//! What a cluster has beside its members: services, certificates, the disruption budget, and what goes with the resource.
//! Keeping these disturbs nobody and waits for nobody; but without names and certificates no member can start.

use super::{Verdict, Want};
use crate::facts::{Amiss, GoesWith, Object, Start, Storage};
use crate::identity::{Change, Intent};
use crate::plan::{Apply, Mark, Owned, Step, Wait};
use crate::view::{View, quorum};

/// Before anything starts: what members need is there, and is ours. An object of our name that is not ours is never
/// taken over.
pub(super) fn needed(view: &View<'_>) -> Verdict {
    let missing = view.facts.amiss.iter().any(|(_, amiss)| *amiss == Amiss::Missing);
    if let Some(authority) = lost(view) {
        return Verdict::Wait(Wait::AuthorityLost(authority));
    }
    match taken(view) {
        Some(object) if !view.identity.sealed => Verdict::Halt(Wait::NameTaken(object)),
        // What has joined already has what it needs mounted: healing goes on, and what is missing is made beside it.
        Some(object) => Verdict::Wait(Wait::NameTaken(object)),
        None if missing && (!view.identity.sealed || !somebody_runs(view)) => {
            Verdict::Want(Box::new(Want { apply: to_apply(view), ..Want::default() }))
        }
        None => Verdict::Pass,
    }
}

/// An authority that is gone. A new one at a stroke would part those who start from now on from those who run: etcd reads
/// certificates anew for each connection, and whom it trusts only when it starts.
fn lost(view: &View<'_>) -> Option<Object> {
    let mut missing = view.facts.amiss.iter().filter(|(_, amiss)| **amiss == Amiss::Missing);
    let authority = missing.find(|(object, _)| object.is_authority()).map(|(object, _)| *object);
    authority.filter(|_| view.identity.cluster.is_some() && somebody_runs(view))
}

/// Whether some member runs on the certificates that there were.
fn somebody_runs(view: &View<'_>) -> bool {
    let mut pods = view.members.values().filter_map(|member| member.pod);
    pods.any(|pod| !pod.deleting && !pod.finished && pod.start != Start::Held)
}

fn taken(view: &View<'_>) -> Option<Object> {
    view.facts.amiss.iter().find(|(_, amiss)| **amiss == Amiss::NotOurs).map(|(object, _)| *object)
}

fn to_apply(view: &View<'_>) -> Vec<Apply> {
    let lost = lost(view);
    // What a lost authority has signed cannot be made, nor what one that is somebody else's would have to sign.
    let not_ours = |object: Object| view.facts.amiss.get(&object) == Some(&Amiss::NotOurs);
    let made = |object: Object| {
        let signed = object.signed_by();
        (lost.is_none() || (lost != Some(object) && lost != signed)) && !signed.is_some_and(not_ours)
    };
    let ours = view.facts.amiss.iter().filter(|(object, amiss)| **amiss != Amiss::NotOurs && made(**object));
    ours.map(|(object, _)| Apply::Object(*object)).collect()
}

/// Adds what keeps the objects as they should be to whatever else is to be done.
pub(super) fn keep(view: &View<'_>, want: &mut Want) {
    if want.apply.is_empty() {
        want.apply = to_apply(view);
    }
    want.apply.extend(budget(view, want.step.as_ref()));
    want.mark.extend(owners(view));
    // What was accepted once stays in force when somebody writes what cannot be: by an older schema, or for a newer operator.
    // A step that writes the identity notes it along, and would be overtaken by a write of its own before it.
    want.mark.extend((!view.facts.accepted && want.step.is_none()).then_some(Mark::Accept));
}

/// Evictions must leave the quorum of the larger of the voters now and after what was begun: raised before, lowered
/// after. (Counting in percent, or by the wanted members, an edit 5→3 allowed three evictions at once; tried.)
fn budget(view: &View<'_>, step: Option<&Step>) -> Option<Apply> {
    let is_taken = view.facts.amiss.contains_key(&Object::Budget);
    if !view.registry || is_taken || view.facts.budget.is_unknown() {
        return None;
    }
    let begun = view.identity.intent.as_ref();
    let now = match step {
        Some(Step::Call { intent, .. }) => Some(intent),
        _ => None,
    };
    let gains = |intent: &&Intent| {
        let is_voter = |serial| view.voters().any(|voter| voter.serial == serial);
        matches!(intent.change, Change::Promote(serial) if !is_voter(serial))
    };
    let gained = begun.iter().chain(now.iter()).copied().any(|intent| gains(&intent));
    let voters = view.votes() + usize::from(gained);
    let min = u8::try_from(quorum(voters)).unwrap_or(u8::MAX);
    let from = view.facts.budget;
    (from.present() != Some(&Some(min))).then_some(Apply::Budget { from, min })
}

/// Pods belong to the resource always, else `kubectl drain` refuses them; identity and claims where the user wants it.
fn owners(view: &View<'_>) -> Vec<Mark> {
    let owned = view.facts.cluster.owns_data;
    let mut marks = Vec::new();
    if (view.facts.identity_goes == GoesWith::Resource) != owned {
        marks.push(Mark::Own { what: Owned::Identity, owned });
    }
    // Claims of a cluster that has none by its spec are somebody's data from before, and stay.
    let keeps = view.facts.cluster.storage == Storage::Persistent;
    let claims = view.members.values().filter_map(|member| member.claim).chain(view.kept.iter().copied());
    let claims = claims.filter(|claim| keeps && claim.owned != owned && !claim.deleting);
    marks.extend(claims.map(|claim| Mark::Own { what: Owned::Claim(claim.uid), owned }));
    let pods = view.members.values().filter_map(|member| member.pod);
    let pods = pods.filter(|pod| !pod.owned && !pod.deleting);
    marks.extend(pods.map(|pod| Mark::Own { what: Owned::Pod(pod.uid), owned: true }));
    marks
}
