//! The bootstrap: one seed, alone in its list. A list of founders could be split by an edit or a late starter: static
//! bootstraps gave two serving halves, under one cluster ID even (tried).

use std::time::Duration;

use evenkeel::Time;

use super::{Verdict, Want, epoch, seal};
use crate::facts::{Claim, Pod, Start, Storage};
use crate::identity::{Change, SeedOn};
use crate::names::Serial;
use crate::plan::{Create, Mark, Turn, Wait};
use crate::view::{Data, Member, View};

/// Starts the seed of an epoch that is not sealed, and begins again when it is lost.
pub(super) fn start_seed(view: &View<'_>) -> Verdict {
    let (identity, seed) = (view.identity, view.identity.seed);
    if identity.sealed {
        return Verdict::Pass;
    }
    let member = view.members.get(&seed);
    if identity.seed_on.is_some() && (member.is_none_or(|one| one.data == Data::Gone) || stuck_for_good(view))
    {
        // Nobody has written to it: no client is routed before the seal.
        return Verdict::turn(identity, Turn::SeedLost, |to| epoch::begin_again(to, view.highest()));
    }
    let claim = member.and_then(|one| one.claim);
    if identity.cluster.is_none() && member.is_some_and(|one| is_in_vain(view, one)) {
        return Verdict::turn(identity, Turn::SeedMoves, |to| epoch::begin_again(to, view.highest()));
    }
    let persistent = view.facts.cluster.storage == Storage::Persistent;
    match (claim, member.and_then(|one| one.pod)) {
        (None, _) if persistent => {
            Verdict::create(vec![Create::Claim { serial: seed, epoch: identity.epoch }])
        }
        // One that has joined comes back like any other.
        (Some(claim), None) if claim.joined_on.is_some() => Verdict::Pass,
        (claim, None) => {
            let on = claim.map(|claim| claim.uid);
            Verdict::create(vec![view.pod(seed, on, Start::Held)])
        }
        (claim, Some(pod)) => release(view, claim, pod),
    }
}

/// How long a volume may take to be given before what it is to be like is looked at again.
const GIVEN: Duration = Duration::from_secs(30);

/// Whether the seed waits for a volume that is no longer wanted so, and which it may never get: a class that does not exist, or
/// more than there is, was asked for, say, and taken back. Nobody must ever have been there.
fn is_in_vain(view: &View<'_>, seed: &Member<'_>) -> bool {
    let cluster = &view.facts.cluster;
    let joined = |one: &Member<'_>| one.claim.is_some_and(|claim| claim.joined_on.is_some());
    let unwanted = |claim: &Claim| claim.volume.is_none() && (claim.moves || claim.size > cluster.size);
    let waits = |pod: &Pod| view.facts.now.since(pod.created) >= GIVEN;
    cluster.known.is_none()
        && !view.members.values().any(joined)
        && seed.claim.is_some_and(unwanted)
        && seed.pod.is_some_and(waits)
}

/// While the seed is on its way, claims and pods of those who follow are created, waiting: their volumes are provided and
/// their sandboxes made meanwhile. They are no members; each is told to start when it has become one.
pub(super) fn prepare(view: &View<'_>, want: &mut Want) {
    let (identity, persistent) = (view.identity, view.facts.cluster.storage == Storage::Persistent);
    let seed_is_there = view.members.get(&identity.seed).is_some_and(|seed| seed.pod.is_some());
    if !seed_is_there || !view.old_pods.is_empty() || !view.old_claims.is_empty() {
        return;
    }
    let epoch = identity.epoch;
    for serial in prepared(view) {
        let member = view.members.get(&serial);
        let claim = member.and_then(|member| member.claim);
        let on = claim.map(|claim| claim.uid);
        let create = match (claim, member.and_then(|member| member.pod)) {
            (None, _) if persistent => Create::Claim { serial, epoch },
            (Some(claim), _) if claim.deleting => continue,
            (_, None) => view.pod(serial, on, Start::Held),
            (_, Some(_)) => continue,
        };
        if !want.create.contains(&create) {
            want.create.push(create);
        }
    }
}

/// The serials of those who are to follow the seed and are no members yet; none once the epoch is sealed.
pub(super) fn prepared(view: &View<'_>) -> impl Iterator<Item = Serial> + use<> {
    // One whose adding was begun has used up its serial, and is as good as there.
    let begun = view.identity.intent.as_ref().is_some_and(|intent| {
        matches!(intent.change, Change::Add(serial) if view.registered().all(|member| member.serial != serial))
    });
    let (next, there) = (view.identity.next.0, view.registered().count().max(1) + usize::from(begun));
    let room = usize::from(view.facts.cluster.members).saturating_sub(there);
    // Of a cluster that was formed and does not answer nobody knows how many are there.
    let unknown = view.identity.cluster.is_some() && !view.registry;
    let room = if view.identity.sealed || unknown { 0 } else { u16::try_from(room).unwrap_or_default() };
    (next..next.saturating_add(room)).map(Serial)
}

/// Lets the seed found its cluster, on exactly what was written down. It is created waiting, and told to found by a patch
/// that is pinned to its uid: a founder can therefore not be created late, by an operator that was frozen meanwhile.
fn release(view: &View<'_>, claim: Option<&Claim>, pod: &Pod) -> Verdict {
    let identity = view.identity;
    if identity.seed_on.is_none() {
        let on = claim.map_or(SeedOn::Pod(pod.uid), |claim| SeedOn::Claim(claim.uid));
        return Verdict::turn(identity, Turn::SeedStarts, |to| to.seed_on = Some(on));
    }
    if pod.start != Start::Held || pod.deleting {
        return Verdict::Pass;
    }
    let to = if identity.cluster.is_some() { Start::OwnData } else { Start::Found };
    Verdict::mark(Mark::Start { pod: pod.uid, from: Start::Held, to })
}

/// Before the seal: etcd does not answer, and a vote may be lost for good. That is so when a member's data is gone; or, after
/// patience, when the seed finds no quorum, and nothing is left of some member, or some never got to note what it joined on, or
/// somebody's directory was emptied, so that it crashes at every start.
fn stuck_for_good(view: &View<'_>) -> bool {
    if view.registry || view.identity.cluster.is_none() {
        return false;
    }
    let everyone =
        || (view.identity.seed.0..view.identity.next.0).map(|serial| view.members.get(&Serial(serial)));
    let gone = everyone().flatten().any(|member| member.data == Data::Gone);
    let missing = everyone().any(|member| member.is_none());
    // One that was started without a quorum says nothing, not even who it is, until there is one (tried on 3.5.35, 3.6.16,
    // 3.7.3): that its pod stands and does not crash is all there is to see.
    let seed_is_up = seed_pod(view).is_some_and(|pod| {
        pod.crashing.is_none() && !pod.finished && !pod.deleting && pod.start != Start::Held
    });
    let unsure = everyone().flatten().any(|member| !member.is_settled() && member.voice.is_none());
    let crashing = everyone().flatten().any(|member| member.pod.is_some_and(|pod| pod.crashing.is_some()));
    let is_over = silent_until(view).is_some_and(|until| view.facts.now >= until);
    gone || (is_over && (missing || (seed_is_up && unsure) || crashing))
}

/// Until when a bootstrap is waited for in which etcd has formed a cluster and does not answer: for everybody's start, and for the seed,
/// whose silence for a moment tells nothing.
pub(super) fn silent_until(view: &View<'_>) -> Option<Time> {
    if view.identity.sealed || view.registry || view.identity.cluster.is_none() {
        return None;
    }
    let unready = seed_pod(view).and_then(|pod| pod.unready)?;
    Some(seal::until(view)?.max(unready.after(view.facts.cluster.patience)))
}

fn seed_pod<'f>(view: &View<'f>) -> Option<&'f Pod> {
    view.members.get(&view.identity.seed).and_then(|seed| seed.pod)
}

/// Notes which cluster the seed has formed.
pub(super) fn note_cluster(view: &View<'_>) -> Verdict {
    if view.identity.cluster.is_some() {
        return Verdict::Pass;
    }
    // Sealed and without one it was rebuilt: whoever is a member knows.
    let mut members = view.members.values();
    let seed = members
        .find(|member| member.serial == view.identity.seed || (view.identity.sealed && member.has_joined()));
    match seed.filter(|member| member.has_joined()).and_then(|member| member.voice) {
        Some(voice) => {
            let cluster = voice.cluster;
            Verdict::turn(view.identity, Turn::Formed(cluster), |to| to.cluster = Some(cluster))
        }
        None => Verdict::Halt(Wait::SeedStarts(view.identity.seed)),
    }
}
