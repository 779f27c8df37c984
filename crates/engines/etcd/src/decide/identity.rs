//! Which epoch this is: the identity is created once, adopted, or turned to a new epoch, and what an epoch that was
//! given up left behind goes before anything of the new one starts.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_runtime::Observed;

use super::RuleResult;
use crate::facts::{ClaimFacts, EtcdFacts, OwnedBy, OwnedObject, PodFacts, StartMode};
use crate::identity::Identity;
use crate::names::{Epoch, Serial};
use crate::plan::{
    DeleteReason, EtcdCreate, EtcdDisruption, EtcdWait, IdentityChange, UnreadableObjects,
};
use crate::view::ClusterView;

/// The facts by member, or what must be done before there can be any.
pub(super) fn identify(facts: &EtcdFacts) -> Result<ClusterView<'_>, RuleResult> {
    if facts.cluster.is_deleted {
        // Owned objects go with the resource, by Kubernetes' own hand. There is no finalizer: deleting a namespace
        // removes a namespaced operator first, and a finalizer would hang it for ever.
        return Err(RuleResult::Pass);
    }
    if facts.cluster.is_paused {
        return Err(RuleResult::Block(EtcdWait::Paused));
    }
    let (Observed::Present(claims), Observed::Present(pods)) = (&facts.claims, &facts.pods) else {
        return Err(RuleResult::Block(EtcdWait::Unreadable(
            UnreadableObjects::Objects,
        )));
    };
    let identity = match &facts.identity {
        // Kubernetes deletes it, and all else that went with that resource, in an order of its own: whoever took it over would
        // find members without data (seen).
        Observed::Present(_) if facts.identity_owner == OwnedBy::PreviousResource => {
            return Err(RuleResult::Block(previous_resource_deletion(facts)));
        }
        Observed::Present(identity) => identity,
        Observed::Unknown if facts.drift.contains_key(&OwnedObject::Identity) => {
            return Err(RuleResult::Block(EtcdWait::NameConflict(
                OwnedObject::Identity,
            )));
        }
        Observed::Unknown => {
            return Err(RuleResult::Block(EtcdWait::Unreadable(
                UnreadableObjects::Identity,
            )));
        }
        Observed::Absent if all_terminating(facts, claims, pods) => {
            return Err(RuleResult::Block(previous_resource_deletion(facts)));
        }
        // Unknown never counts as absent, and what is left of a cluster is never taken for a blank field.
        Observed::Absent if !facts.lineages.is_empty() => {
            return Err(match rebuild(facts, claims, pods) {
                Some(identity) => RuleResult::create(vec![EtcdCreate::Identity(identity)]),
                None => RuleResult::Block(EtcdWait::InconsistentObjects),
            });
        }
        Observed::Absent => {
            return Err(match facts.cluster.status_cluster_id {
                Some(cluster) => RuleResult::Block(EtcdWait::DataLost(cluster)),
                None => RuleResult::create(vec![EtcdCreate::Identity(new_identity(facts))]),
            });
        }
    };
    // An identity that says nothing of a cluster which is there was created late, by somebody who did not see it: nothing is
    // begun beside that cluster.
    if !identity.bootstrapped
        && facts
            .lineages
            .iter()
            .any(|written| *written != Some(identity.lineage))
    {
        return Err(RuleResult::Block(EtcdWait::InconsistentObjects));
    }
    if is_outdated(facts, identity, claims, pods) {
        return Err(repaired(facts, identity, claims, pods));
    }
    if identity.resource_uid != facts.cluster.resource_uid {
        return Err(adopt(facts, identity));
    }
    // One that somebody put back from before does not know those who came since: they would be taken for strangers, and their
    // serials given to others.
    let claims_now = claims.iter().filter(|one| one.epoch == identity.epoch);
    let highest = highest_serial(
        claims_now,
        pods.iter().filter(|one| one.epoch == identity.epoch),
    );
    if let Some(highest) =
        highest.filter(|highest| identity.bootstrapped && *highest >= identity.next_serial)
    {
        return Err(RuleResult::update_identity(
            identity,
            IdentityChange::Repair,
            |to| {
                to.next_serial = Serial(highest.0.saturating_add(SKIPPED_SERIALS));
            },
        ));
    }
    Ok(ClusterView::new(facts, identity, claims, pods))
}

/// Whether somebody has put an identity back from a time of which it remembers too little: before the epoch was sealed, or before it
/// was begun. Taken at its word, it would have what clients have written deleted with a bootstrap that failed.
fn is_outdated(
    facts: &EtcdFacts,
    identity: &Identity,
    claims: &[ClaimFacts],
    pods: &[PodFacts],
) -> bool {
    let is_later = latest_epoch(claims, pods).is_some_and(|last| last > identity.epoch);
    is_later || (!identity.bootstrapped && was_bootstrapped(facts, identity, claims, pods))
}

/// Whether an epoch must have been sealed: only then are pods routed to, are claims kept of former members, and does the status name the
/// cluster. And whoever has joined was given its serial before.
fn was_bootstrapped(
    facts: &EtcdFacts,
    identity: &Identity,
    claims: &[ClaimFacts],
    pods: &[PodFacts],
) -> bool {
    let joined = has_joined(identity.epoch, claims, pods);
    let mut pods = pods.iter().filter(|pod| pod.epoch == identity.epoch);
    let mut claims = claims.iter().filter(|claim| claim.epoch == identity.epoch);
    // Earlier operators named a cluster as soon as it was formed. One in which somebody may yet found it was not sealed, and in one
    // that was begun again nobody has joined yet.
    let founds = pods
        .clone()
        .any(|pod| pod.start_mode == StartMode::Bootstrap);
    let is_named = facts.cluster.status_cluster_id.is_some()
        && !founds
        && (joined || identity.epoch == Epoch::FIRST);
    let is_unknown =
        |claim: &ClaimFacts| claim.joined_on.is_some() && claim.serial >= identity.next_serial;
    is_named
        || pods.any(|pod| pod.is_routed)
        || claims.any(|claim| claim.removed_at.is_some() || is_unknown(claim))
}

/// The identity as claims and pods tell it, if they tell of a cluster that was sealed. A sealed epoch is never left: where it has data of
/// its own, whatever says that it is of a later one is wrong.
fn repaired(
    facts: &EtcdFacts,
    identity: &Identity,
    claims: &[ClaimFacts],
    pods: &[PodFacts],
) -> RuleResult {
    let founds = pods
        .iter()
        .any(|pod| pod.start_mode == StartMode::Bootstrap);
    let own = has_joined(identity.epoch, claims, pods);
    let is_believed =
        |rebuilt: &Identity| rebuilt.bootstrapped && !founds && !(identity.bootstrapped && own);
    match (
        rebuild(facts, claims, pods).filter(is_believed),
        facts.cluster.status_cluster_id,
    ) {
        (Some(rebuilt), _) => {
            RuleResult::update_identity(identity, IdentityChange::Repair, |to| *to = rebuilt)
        }
        (None, Some(cluster)) if claims.is_empty() && pods.is_empty() => {
            RuleResult::Block(EtcdWait::DataLost(cluster))
        }
        (None, _) => RuleResult::Block(EtcdWait::InconsistentObjects),
    }
}

/// Whether anybody is known to have joined in an epoch.
fn has_joined(epoch: Epoch, claims: &[ClaimFacts], pods: &[PodFacts]) -> bool {
    claims
        .iter()
        .any(|claim| claim.epoch == epoch && claim.joined_on.is_some())
        || pods
            .iter()
            .any(|pod| pod.epoch == epoch && pod.start_mode == StartMode::ExistingData)
}

/// The last epoch that anything is of.
fn latest_epoch(claims: &[ClaimFacts], pods: &[PodFacts]) -> Option<Epoch> {
    claims
        .iter()
        .map(|claim| claim.epoch)
        .chain(pods.iter().map(|pod| pod.epoch))
        .max()
}

/// How long Kubernetes has to delete what went with a resource.
const DELETION_GRACE: Duration = Duration::from_secs(60);

fn previous_resource_deletion(facts: &EtcdFacts) -> EtcdWait {
    EtcdWait::PreviousResourceDeletion(facts.cluster.created_at.after(DELETION_GRACE))
}

/// Whether whatever there is without an identity is on its way out: no cluster is left to be taken up.
fn all_terminating(facts: &EtcdFacts, claims: &[ClaimFacts], pods: &[PodFacts]) -> bool {
    let readable = facts.lineages.iter().all(Option::is_some) && !facts.lineages.is_empty();
    readable
        && claims.iter().all(|claim| claim.is_terminating)
        && pods.iter().all(|pod| pod.is_terminating)
}

fn new_identity(facts: &EtcdFacts) -> Identity {
    Identity {
        lineage: facts.new_lineage,
        epoch: Epoch::FIRST,
        seed: Serial(0),
        seed_storage: None,
        cluster_id: None,
        bootstrapped: false,
        next_serial: Serial(1),
        intent: None,
        replacements: BTreeSet::new(),
        snapshotted_version: None,
        resource_uid: facts.cluster.resource_uid,
    }
}

/// The highest serial that anything of these is called by.
fn highest_serial<'f>(
    claims: impl Iterator<Item = &'f ClaimFacts>,
    pods: impl Iterator<Item = &'f PodFacts>,
) -> Option<Serial> {
    claims
        .map(|claim| claim.serial)
        .chain(pods.map(|pod| pod.serial))
        .max()
}

/// How many serials are passed over when an identity is rebuilt: of a member that left nothing behind, but is still in etcd's
/// list, nobody knows the serial.
const SKIPPED_SERIALS: u16 = 16;

/// The identity, from what is written on claims and pods, if they say the same. Whether the epoch was sealed follows from
/// whether anybody is known to have joined: one that was not sealed has nobody's data, and begins again.
fn rebuild(facts: &EtcdFacts, claims: &[ClaimFacts], pods: &[PodFacts]) -> Option<Identity> {
    let mut written = facts.lineages.iter();
    let (Some(Some(lineage)), None) = (written.next(), written.next()) else {
        return None;
    };
    let epoch = latest_epoch(claims, pods)?;
    let highest = highest_serial(claims.iter(), pods.iter())?;
    let of_member = |claim: &ClaimFacts| {
        claim.epoch == epoch && claim.joined_on.is_some() && claim.removed_at.is_none()
    };
    let joined = claims.iter().any(of_member)
        || pods
            .iter()
            .any(|pod| pod.epoch == epoch && pod.start_mode == StartMode::ExistingData);
    let mut identity = Identity {
        lineage: *lineage,
        epoch,
        next_serial: highest.next(),
        ..new_identity(facts)
    };
    if joined {
        identity.cluster_id = facts.cluster.status_cluster_id;
        identity.bootstrapped = true;
        identity.next_serial = Serial(highest.0.saturating_add(SKIPPED_SERIALS));
        return Some(identity);
    }
    new_epoch(&mut identity, Some(highest));
    // What former members left is nobody's to delete but a person's, when nobody knows what it was part of.
    let former = claims.iter().any(|claim| claim.removed_at.is_some());
    (facts.cluster.status_cluster_id.is_none() && !former).then_some(identity)
}

/// The resource was deleted and created again. A sealed cluster lives on under it; one whose bootstrap was not over is
/// begun again, since nobody can have written to it.
fn adopt(facts: &EtcdFacts, identity: &Identity) -> RuleResult {
    let resource = facts.cluster.resource_uid;
    if identity.bootstrapped {
        return RuleResult::update_identity(identity, IdentityChange::Adopt, |to| {
            to.resource_uid = resource
        });
    }
    let (claims, pods) = (facts.claims.present(), facts.pods.present());
    let highest = highest_serial(claims.into_iter().flatten(), pods.into_iter().flatten());
    RuleResult::update_identity(identity, IdentityChange::ResourceReplaced, |to| {
        new_epoch(to, highest);
        to.resource_uid = resource;
    })
}

/// A new epoch, with a seed under a new name: one that nothing is called by that was prepared for the old one.
pub(super) fn new_epoch(identity: &mut Identity, highest: Option<Serial>) {
    identity.epoch = identity.epoch.next();
    identity.seed = identity
        .next_serial
        .max(highest.map_or(Serial(0), Serial::next));
    identity.next_serial = identity.seed.next();
    identity.seed_storage = None;
    identity.cluster_id = None;
    identity.intent = None;
}

/// Two epochs never serve at once: all pods of the old one are gone before the new one begins, then its claims go.
pub(super) fn delete_old_epochs(view: &ClusterView<'_>) -> RuleResult {
    if let Some(pod) = view.old_pods.iter().find(|pod| !pod.is_terminating) {
        return RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::OldEpoch,
        });
    }
    if !view.old_pods.is_empty() {
        return RuleResult::Block(EtcdWait::OldEpochDeletion);
    }
    match view.old_claims.iter().find(|claim| !claim.is_terminating) {
        Some(claim) => RuleResult::disruption(EtcdDisruption::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: DeleteReason::OldEpoch,
        }),
        None => RuleResult::Pass,
    }
}
