//! Which epoch this is: the identity is created once, adopted, or turned to a new epoch, and what an epoch that was
//! given up left behind goes before anything of the new one starts.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel::Seen;

use super::Verdict;
use crate::facts::{Claim, Facts, GoesWith, Object, Pod, Start};
use crate::identity::Identity;
use crate::names::{Epoch, Serial};
use crate::plan::{Create, Leaving, Step, Turn, Wait, What};
use crate::view::View;

/// The facts by member, or what must be done before there can be any.
pub(super) fn identify(facts: &Facts) -> Result<View<'_>, Verdict> {
    if facts.cluster.deleted {
        // Owned objects go with the resource, by Kubernetes' own hand. There is no finalizer: deleting a namespace
        // removes a namespaced operator first, and a finalizer would hang it for ever.
        return Err(Verdict::Pass);
    }
    if facts.cluster.paused {
        return Err(Verdict::Halt(Wait::Paused));
    }
    let (Seen::Present(claims), Seen::Present(pods)) = (&facts.claims, &facts.pods) else {
        return Err(Verdict::Halt(Wait::Reading(What::Objects)));
    };
    let identity = match &facts.identity {
        // Kubernetes deletes it, and all else that went with that resource, in an order of its own: whoever took it over would
        // find members without data (seen).
        Seen::Present(_) if facts.identity_goes == GoesWith::Former => {
            return Err(Verdict::Halt(former_goes(facts)));
        }
        Seen::Present(identity) => identity,
        Seen::Unknown if facts.amiss.contains_key(&Object::Identity) => {
            return Err(Verdict::Halt(Wait::NameTaken(Object::Identity)));
        }
        Seen::Unknown => return Err(Verdict::Halt(Wait::Reading(What::Identity))),
        Seen::Absent if all_is_going(facts, claims, pods) => return Err(Verdict::Halt(former_goes(facts))),
        // Unknown never counts as absent, and what is left of a cluster is never taken for a blank field.
        Seen::Absent if !facts.written.is_empty() => {
            return Err(match rebuilt(facts, claims, pods) {
                Some(identity) => Verdict::create(vec![Create::Identity(identity)]),
                None => Verdict::Halt(Wait::Contradiction),
            });
        }
        Seen::Absent => {
            return Err(match facts.cluster.known {
                Some(cluster) => Verdict::Halt(Wait::NothingLeft(cluster)),
                None => Verdict::create(vec![Create::Identity(first(facts))]),
            });
        }
    };
    // An identity that says nothing of a cluster which is there was created late, by somebody who did not see it: nothing is
    // begun beside that cluster.
    if !identity.sealed && facts.written.iter().any(|written| *written != Some(identity.lineage)) {
        return Err(Verdict::Halt(Wait::Contradiction));
    }
    if remembers_too_little(facts, identity, claims, pods) {
        return Err(brought_up_to_date(facts, identity, claims, pods));
    }
    if identity.resource != facts.cluster.resource {
        return Err(inherit(facts, identity));
    }
    // One that somebody put back from before does not know those who came since: they would be taken for strangers, and their
    // serials given to others.
    let claims_now = claims.iter().filter(|one| one.epoch == identity.epoch);
    let highest = highest(claims_now, pods.iter().filter(|one| one.epoch == identity.epoch));
    if let Some(highest) = highest.filter(|highest| identity.sealed && *highest >= identity.next) {
        return Err(Verdict::turn(identity, Turn::PassOver, |to| {
            to.next = Serial(highest.0.saturating_add(PASSED_OVER));
        }));
    }
    Ok(View::new(facts, identity, claims, pods))
}

/// Whether somebody has put an identity back from a time of which it remembers too little: before the epoch was sealed, or before it
/// was begun. Taken at its word, it would have what clients have written deleted with a bootstrap that failed.
fn remembers_too_little(facts: &Facts, identity: &Identity, claims: &[Claim], pods: &[Pod]) -> bool {
    let is_later = last(claims, pods).is_some_and(|last| last > identity.epoch);
    is_later || (!identity.sealed && was_sealed(facts, identity, claims, pods))
}

/// Whether an epoch must have been sealed: only then are pods routed to, are claims kept of former members, and does the status name the
/// cluster. And whoever has joined was given its serial before.
fn was_sealed(facts: &Facts, identity: &Identity, claims: &[Claim], pods: &[Pod]) -> bool {
    let joined = has_joined(identity.epoch, claims, pods);
    let mut pods = pods.iter().filter(|pod| pod.epoch == identity.epoch);
    let mut claims = claims.iter().filter(|claim| claim.epoch == identity.epoch);
    // Earlier operators named a cluster as soon as it was formed. One in which somebody may yet found it was not sealed, and in one
    // that was begun again nobody has joined yet.
    let founds = pods.clone().any(|pod| pod.start == Start::Found);
    let is_named = facts.cluster.known.is_some() && !founds && (joined || identity.epoch == Epoch::FIRST);
    let is_unknown = |claim: &Claim| claim.joined_on.is_some() && claim.serial >= identity.next;
    is_named || pods.any(|pod| pod.routed) || claims.any(|claim| claim.removed.is_some() || is_unknown(claim))
}

/// The identity as claims and pods tell it, if they tell of a cluster that was sealed. A sealed epoch is never left: where it has data of
/// its own, whatever says that it is of a later one is wrong.
fn brought_up_to_date(facts: &Facts, identity: &Identity, claims: &[Claim], pods: &[Pod]) -> Verdict {
    let founds = pods.iter().any(|pod| pod.start == Start::Found);
    let own = has_joined(identity.epoch, claims, pods);
    let is_believed = |rebuilt: &Identity| rebuilt.sealed && !founds && !(identity.sealed && own);
    match (rebuilt(facts, claims, pods).filter(is_believed), facts.cluster.known) {
        (Some(rebuilt), _) => Verdict::turn(identity, Turn::PassOver, |to| *to = rebuilt),
        (None, Some(cluster)) if claims.is_empty() && pods.is_empty() => {
            Verdict::Halt(Wait::NothingLeft(cluster))
        }
        (None, _) => Verdict::Halt(Wait::Contradiction),
    }
}

/// Whether anybody is known to have joined in an epoch.
fn has_joined(epoch: Epoch, claims: &[Claim], pods: &[Pod]) -> bool {
    claims.iter().any(|claim| claim.epoch == epoch && claim.joined_on.is_some())
        || pods.iter().any(|pod| pod.epoch == epoch && pod.start == Start::OwnData)
}

/// The last epoch that anything is of.
fn last(claims: &[Claim], pods: &[Pod]) -> Option<Epoch> {
    claims.iter().map(|claim| claim.epoch).chain(pods.iter().map(|pod| pod.epoch)).max()
}

/// How long Kubernetes has to delete what went with a resource.
const LEAVING: Duration = Duration::from_secs(60);

fn former_goes(facts: &Facts) -> Wait {
    Wait::FormerGoes(facts.cluster.created.after(LEAVING))
}

/// Whether whatever there is without an identity is on its way out: no cluster is left to be taken up.
fn all_is_going(facts: &Facts, claims: &[Claim], pods: &[Pod]) -> bool {
    let readable = facts.written.iter().all(Option::is_some) && !facts.written.is_empty();
    readable && claims.iter().all(|claim| claim.deleting) && pods.iter().all(|pod| pod.deleting)
}

fn first(facts: &Facts) -> Identity {
    Identity {
        lineage: facts.fresh_lineage,
        epoch: Epoch::FIRST,
        seed: Serial(0),
        seed_on: None,
        cluster: None,
        sealed: false,
        next: Serial(1),
        intent: None,
        replaced: BTreeSet::new(),
        renewed: None,
        resource: facts.cluster.resource,
    }
}

/// The highest serial that anything of these is called by.
fn highest<'f>(
    claims: impl Iterator<Item = &'f Claim>,
    pods: impl Iterator<Item = &'f Pod>,
) -> Option<Serial> {
    claims.map(|claim| claim.serial).chain(pods.map(|pod| pod.serial)).max()
}

/// How many serials are passed over when an identity is rebuilt: of a member that left nothing behind, but is still in etcd's
/// list, nobody knows the serial.
const PASSED_OVER: u16 = 16;

/// The identity, from what is written on claims and pods, if they say the same. Whether the epoch was sealed follows from
/// whether anybody is known to have joined: one that was not sealed has nobody's data, and begins again.
fn rebuilt(facts: &Facts, claims: &[Claim], pods: &[Pod]) -> Option<Identity> {
    let mut written = facts.written.iter();
    let (Some(Some(lineage)), None) = (written.next(), written.next()) else { return None };
    let epoch = last(claims, pods)?;
    let highest = highest(claims.iter(), pods.iter())?;
    let of_member =
        |claim: &Claim| claim.epoch == epoch && claim.joined_on.is_some() && claim.removed.is_none();
    let joined = claims.iter().any(of_member)
        || pods.iter().any(|pod| pod.epoch == epoch && pod.start == Start::OwnData);
    let mut identity = Identity { lineage: *lineage, epoch, next: highest.next(), ..first(facts) };
    if joined {
        identity.cluster = facts.cluster.known;
        identity.sealed = true;
        identity.next = Serial(highest.0.saturating_add(PASSED_OVER));
        return Some(identity);
    }
    begin_again(&mut identity, Some(highest));
    // What former members left is nobody's to delete but a person's, when nobody knows what it was part of.
    let former = claims.iter().any(|claim| claim.removed.is_some());
    (facts.cluster.known.is_none() && !former).then_some(identity)
}

/// The resource was deleted and created again. A sealed cluster lives on under it; one whose bootstrap was not over is
/// begun again, since nobody can have written to it.
fn inherit(facts: &Facts, identity: &Identity) -> Verdict {
    let resource = facts.cluster.resource;
    if identity.sealed {
        return Verdict::turn(identity, Turn::Adopt, |to| to.resource = resource);
    }
    let (claims, pods) = (facts.claims.present(), facts.pods.present());
    let highest = highest(claims.into_iter().flatten(), pods.into_iter().flatten());
    Verdict::turn(identity, Turn::ResourceReplaced, |to| {
        begin_again(to, highest);
        to.resource = resource;
    })
}

/// A new epoch, with a seed under a new name: one that nothing is called by that was prepared for the old one.
pub(super) fn begin_again(identity: &mut Identity, highest: Option<Serial>) {
    identity.epoch = identity.epoch.next();
    identity.seed = identity.next.max(highest.map_or(Serial(0), Serial::next));
    identity.next = identity.seed.next();
    identity.seed_on = None;
    identity.cluster = None;
    identity.intent = None;
}

/// Two epochs never serve at once: all pods of the old one are gone before the new one begins, then its claims go.
pub(super) fn clear(view: &View<'_>) -> Verdict {
    if let Some(pod) = view.old_pods.iter().find(|pod| !pod.deleting) {
        return Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::OldEpoch });
    }
    if !view.old_pods.is_empty() {
        return Verdict::Halt(Wait::OldEpochGoes);
    }
    match view.old_claims.iter().find(|claim| !claim.deleting) {
        Some(claim) => Verdict::step(Step::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: Leaving::OldEpoch,
        }),
        None => Verdict::Pass,
    }
}
