//! The bootstrap: one seed, alone in its list. A list of founders could be split by an edit or a late starter: static
//! bootstraps gave two serving halves, under one cluster ID even (tried).

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use super::{Actions, RuleResult, finish_bootstrap, identity};
use crate::facts::{ClaimFacts, PodFacts, StartMode, StorageKind};
use crate::identity::{MembershipChange, SeedStorage};
use crate::names::Serial;
use crate::plan::{EtcdCreate, EtcdPatch, EtcdWait, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView};

/// Starts the seed of an epoch that is not sealed, and begins again when it is lost.
pub(super) fn start_seed(view: &ClusterView<'_>) -> RuleResult {
    let (identity, seed) = (view.identity, view.identity.seed);
    if identity.bootstrapped {
        return RuleResult::Pass;
    }
    let member = view.members.get(&seed);
    if identity.seed_storage.is_some()
        && (member.is_none_or(|one| one.data == DataState::Lost) || has_failed(view))
    {
        // Nobody has written to it: no client is routed before the seal.
        return RuleResult::update_identity(identity, IdentityChange::SeedLost, |to| {
            identity::new_epoch(to, view.highest_serial())
        });
    }
    let claim = member.and_then(|one| one.claim);
    if identity.cluster_id.is_none() && member.is_some_and(|one| cannot_start(view, one)) {
        return RuleResult::update_identity(identity, IdentityChange::SeedStorageChanged, |to| {
            identity::new_epoch(to, view.highest_serial())
        });
    }
    let persistent = view.facts.cluster.storage == StorageKind::Persistent;
    match (claim, member.and_then(|one| one.pod)) {
        (None, _) if persistent => RuleResult::create(vec![EtcdCreate::Claim {
            serial: seed,
            epoch: identity.epoch,
        }]),
        // One that has joined comes back like any other.
        (Some(claim), None) if claim.joined_on.is_some() => RuleResult::Pass,
        (claim, None) => {
            let on = claim.map(|claim| claim.uid);
            RuleResult::create(vec![view.pod(seed, on, StartMode::Held)])
        }
        (claim, Some(pod)) => release_seed(view, claim, pod),
    }
}

/// How long a volume may take to be given before what it is to be like is looked at again.
const PROVISION_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether the seed waits for a volume that is no longer wanted so, and which it may never get: a class that does not exist, or
/// more than there is, was asked for, say, and taken back. Nobody must ever have been there.
fn cannot_start(view: &ClusterView<'_>, seed: &MemberView<'_>) -> bool {
    let cluster = &view.facts.cluster;
    let joined = |one: &MemberView<'_>| one.claim.is_some_and(|claim| claim.joined_on.is_some());
    let unwanted = |claim: &ClaimFacts| {
        claim.volume.is_none()
            && (claim.has_wrong_class || claim.requested_size > cluster.volume_size)
    };
    let waits = |pod: &PodFacts| view.facts.now.since(pod.created_at) >= PROVISION_TIMEOUT;
    cluster.status_cluster_id.is_none()
        && !view.members.values().any(joined)
        && seed.claim.is_some_and(unwanted)
        && seed.pod.is_some_and(waits)
}

/// While the seed is on its way, claims and pods of those who follow are created, waiting: their volumes are provided and
/// their sandboxes made meanwhile. They are no members; each is told to start when it has become one.
pub(super) fn prepare_members(view: &ClusterView<'_>, want: &mut Actions) {
    let (identity, persistent) = (
        view.identity,
        view.facts.cluster.storage == StorageKind::Persistent,
    );
    let seed_is_there = view
        .members
        .get(&identity.seed)
        .is_some_and(|seed| seed.pod.is_some());
    if !seed_is_there || !view.old_pods.is_empty() || !view.old_claims.is_empty() {
        return;
    }
    let epoch = identity.epoch;
    for serial in unprepared_serials(view) {
        let member = view.members.get(&serial);
        let claim = member.and_then(|member| member.claim);
        let on = claim.map(|claim| claim.uid);
        let create = match (claim, member.and_then(|member| member.pod)) {
            (None, _) if persistent => EtcdCreate::Claim { serial, epoch },
            (Some(claim), _) if claim.is_terminating => continue,
            (_, None) => view.pod(serial, on, StartMode::Held),
            (_, Some(_)) => continue,
        };
        if !want.create.contains(&create) {
            want.create.push(create);
        }
    }
}

/// The serials of those who are to follow the seed and are no members yet; none once the epoch is sealed.
pub(super) fn unprepared_serials(view: &ClusterView<'_>) -> impl Iterator<Item = Serial> + use<> {
    // One whose adding was begun has used up its serial, and is as good as there.
    let begun = view.identity.intent.as_ref().is_some_and(|intent| {
        matches!(intent.change, MembershipChange::Add(serial) if view.listed().all(|member| member.serial != serial))
    });
    let (next, there) = (
        view.identity.next_serial.0,
        view.listed().count().max(1) + usize::from(begun),
    );
    let room = usize::from(view.facts.cluster.members).saturating_sub(there);
    // Of a cluster that was formed and does not answer nobody knows how many are there.
    let unknown = view.identity.cluster_id.is_some() && !view.membership_known;
    let room = if view.identity.bootstrapped || unknown {
        0
    } else {
        u16::try_from(room).unwrap_or_default()
    };
    (next..next.saturating_add(room)).map(Serial)
}

/// Lets the seed found its cluster, on exactly what was written down. It is created waiting, and told to found by a patch
/// that is pinned to its uid: a founder can therefore not be created late, by an operator that was frozen meanwhile.
fn release_seed(view: &ClusterView<'_>, claim: Option<&ClaimFacts>, pod: &PodFacts) -> RuleResult {
    let identity = view.identity;
    if identity.seed_storage.is_none() {
        let on = claim.map_or(SeedStorage::Pod(pod.uid), |claim| {
            SeedStorage::Claim(claim.uid)
        });
        return RuleResult::update_identity(identity, IdentityChange::StartSeed, |to| {
            to.seed_storage = Some(on)
        });
    }
    if pod.start_mode != StartMode::Held || pod.is_terminating {
        return RuleResult::Pass;
    }
    let to = if identity.cluster_id.is_some() {
        StartMode::ExistingData
    } else {
        StartMode::Bootstrap
    };
    RuleResult::patch(EtcdPatch::SetStartMode {
        pod: pod.uid,
        from: StartMode::Held,
        to,
    })
}

/// Before the seal: etcd does not answer, and a vote may be lost for good. That is so when a member's data is gone; or, after
/// patience, when the seed finds no quorum, and nothing is left of some member, or some never got to note what it joined on, or
/// somebody's directory was emptied, so that it crashes at every start.
fn has_failed(view: &ClusterView<'_>) -> bool {
    if view.membership_known || view.identity.cluster_id.is_none() {
        return false;
    }
    let everyone = || {
        (view.identity.seed.0..view.identity.next_serial.0)
            .map(|serial| view.members.get(&Serial(serial)))
    };
    let gone = everyone()
        .flatten()
        .any(|member| member.data == DataState::Lost);
    let missing = everyone().any(|member| member.is_none());
    // One that was started without a quorum says nothing, not even who it is, until there is one (tried on 3.5.35, 3.6.16,
    // 3.7.3): that its pod stands and does not crash is all there is to see.
    let seed_is_up = seed_pod(view).is_some_and(|pod| {
        pod.crashing_since.is_none()
            && !pod.is_finished
            && !pod.is_terminating
            && pod.start_mode != StartMode::Held
    });
    let unsure = everyone()
        .flatten()
        .any(|member| !member.is_joined() && member.health.is_none());
    let crashing = everyone()
        .flatten()
        .any(|member| member.pod.is_some_and(|pod| pod.crashing_since.is_some()));
    let is_over = seed_grace_ends(view).is_some_and(|until| view.facts.now >= until);
    gone || (is_over && (missing || (seed_is_up && unsure) || crashing))
}

/// Until when a bootstrap is waited for in which etcd has formed a cluster and does not answer: for everybody's start, and for the seed,
/// whose silence for a moment tells nothing.
pub(super) fn seed_grace_ends(view: &ClusterView<'_>) -> Option<UnixTime> {
    if view.identity.bootstrapped || view.membership_known || view.identity.cluster_id.is_none() {
        return None;
    }
    let unready = seed_pod(view).and_then(|pod| pod.unready_since)?;
    Some(
        finish_bootstrap::timeout_at(view)?
            .max(unready.after(view.facts.cluster.bootstrap_timeout)),
    )
}

fn seed_pod<'f>(view: &ClusterView<'f>) -> Option<&'f PodFacts> {
    view.members
        .get(&view.identity.seed)
        .and_then(|seed| seed.pod)
}

/// Notes which cluster the seed has formed.
pub(super) fn record_cluster(view: &ClusterView<'_>) -> RuleResult {
    if view.identity.cluster_id.is_some() {
        return RuleResult::Pass;
    }
    // Sealed and without one it was rebuilt: whoever is a member knows.
    let mut members = view.members.values();
    let seed = members.find(|member| {
        member.serial == view.identity.seed || (view.identity.bootstrapped && member.has_joined())
    });
    match seed
        .filter(|member| member.has_joined())
        .and_then(|member| member.health)
    {
        Some(health) => {
            let cluster = health.cluster_id;
            RuleResult::update_identity(
                view.identity,
                IdentityChange::RecordCluster(cluster),
                |to| to.cluster_id = Some(cluster),
            )
        }
        None => RuleResult::Block(EtcdWait::SeedStart(view.identity.seed)),
    }
}
