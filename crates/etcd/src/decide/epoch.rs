//! Which epoch this is: the identity is created once, adopted, or turned to a new epoch, and what an epoch that was
//! given up left behind goes before anything of the new one starts.

use evenkeel::Seen;

use super::Verdict;
use crate::facts::Facts;
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
        Seen::Present(identity) => identity,
        Seen::Unknown => return Err(Verdict::Halt(Wait::Reading(What::Identity))),
        // Unknown never counts as absent, and what is left of a cluster is never taken for a blank field.
        Seen::Absent if !claims.is_empty() || !pods.is_empty() => {
            return Err(Verdict::Halt(Wait::IdentityMissing));
        }
        Seen::Absent => {
            return Err(match facts.cluster.known {
                Some(cluster) => Verdict::Halt(Wait::NothingLeft(cluster)),
                None => Verdict::create(vec![Create::Identity(first(facts))]),
            });
        }
    };
    if identity.resource != facts.cluster.resource {
        return Err(inherit(facts, identity));
    }
    Ok(View::new(facts, identity, claims, pods))
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
        resource: facts.cluster.resource,
    }
}

/// The resource was deleted and created again. A sealed cluster lives on under it; one whose bootstrap was not over is
/// begun again, since nobody can have written to it.
fn inherit(facts: &Facts, identity: &Identity) -> Verdict {
    let resource = facts.cluster.resource;
    if identity.sealed {
        return Verdict::turn(identity, Turn::Adopt, |to| to.resource = resource);
    }
    let serials = facts.pods.present().into_iter().flatten().map(|pod| pod.serial);
    let claims = facts.claims.present().into_iter().flatten().map(|claim| claim.serial);
    let highest = serials.chain(claims).max();
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
