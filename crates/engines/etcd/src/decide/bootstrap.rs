//! Bootstrap: one seed, alone in its member list. A static list of several members could be split
//! by an edit or a late start: such bootstraps produced two serving halves, even under one cluster
//! ID (tried).

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use super::{Actions, RuleResult, finish_bootstrap, identity, restore, update_identity};
use crate::facts::{ClaimFacts, PodFacts, StartMode, StorageKind};
use crate::identity::{MembershipChange, RestoreOrigin, SeedStorage};
use crate::names::Serial;
use crate::plan::{EtcdPatch, EtcdWait, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView};

/// How long a volume may take to be provisioned before a changed spec restarts the bootstrap.
const PROVISION_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the seed of an epoch, and begins a new epoch if the bootstrap has failed.
pub(super) fn start_seed(view: &ClusterView<'_>) -> RuleResult {
    let identity = view.identity;
    if identity.bootstrapped {
        return RuleResult::Pass;
    }
    // No client has written: clients are routed only after bootstrap is finished.
    let origin = identity.restore.as_ref();
    if !origin.is_some_and(RestoreOrigin::is_in_place)
        && identity.restore != view.facts.cluster.restore
    {
        return restart(view, IdentityChange::SourceChanged);
    }
    if BootstrapFailure::of(view).is_some() {
        return restart(view, IdentityChange::SeedLost);
    }
    let seed = view.members.get(&identity.seed);
    if identity.cluster_id.is_none() && seed.is_some_and(|seed| has_outdated_claim(view, seed)) {
        return restart(view, IdentityChange::SeedStorageChanged);
    }
    if let Some(origin) = &identity.restore {
        match restore::fill_seed(view, origin) {
            RuleResult::Pass => {}
            result => return result,
        }
    }
    let is_persistent = view.facts.cluster.storage == StorageKind::Persistent;
    let claim = seed.and_then(|seed| seed.claim);
    let pod = seed.and_then(|seed| seed.pod);
    match (claim, pod) {
        (None, _) if is_persistent => RuleResult::create(vec![view.claim(identity.seed)]),
        // A seed that has joined is recreated like any other member.
        (Some(claim), None) if claim.joined_on.is_some() => RuleResult::Pass,
        (claim, None) => {
            let claim = claim.map(|claim| claim.uid);
            RuleResult::create(vec![view.pod(identity.seed, claim, StartMode::Held)])
        }
        (claim, Some(pod)) => release_seed(view, claim, pod),
    }
}

/// Begins a new epoch.
pub(super) fn restart(view: &ClusterView<'_>, why: IdentityChange) -> RuleResult {
    update_identity(view.identity, why, |to| {
        identity::new_epoch(view.facts, to, view.highest_serial())
    })
}

/// The reason why an unfinished bootstrap cannot succeed any more. Apart from [`Self::SeedLost`]
/// and [`Self::SeedCrashing`], etcd has formed a cluster and does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootstrapFailure {
    /// The seed was allowed to start, and its data is gone.
    SeedLost,
    /// After the timeout: a restored seed crashes at every start, as on a directory that was
    /// emptied. It never starts with `new`.
    SeedCrashing,
    /// The data of a member is lost, and its vote with it.
    DataLost,
    /// After the timeout: neither the pod nor the claim of a member exists.
    MemberMissing,
    /// After the timeout: a member crashes at every start, as on a directory that was emptied.
    MemberCrashing,
    /// After the timeout: the seed runs without a quorum, and a member has not recorded the volume
    /// that it joined on.
    JoinUnrecorded,
}

impl BootstrapFailure {
    pub(super) fn of(view: &ClusterView<'_>) -> Option<Self> {
        let identity = view.identity;
        identity.seed_storage?;
        let seed = view.members.get(&identity.seed);
        if seed.is_none_or(|seed| seed.data == DataState::Lost) {
            return Some(Self::SeedLost);
        }
        if restored_seed_fails_at(view).is_some_and(|at| view.facts.now >= at) {
            return Some(Self::SeedCrashing);
        }
        if view.membership_known || identity.cluster_id.is_none() {
            return None;
        }
        let serials = (identity.seed.0..identity.next_serial.0).map(Serial);
        let members: Vec<_> = serials.map(|serial| view.members.get(&serial)).collect();
        let mut existing = members.iter().copied().flatten();
        if existing
            .clone()
            .any(|member| member.data == DataState::Lost)
        {
            return Some(Self::DataLost);
        }
        if seed_grace_ends(view).is_none_or(|until| view.facts.now < until) {
            return None;
        }
        if members.iter().any(Option::is_none) {
            return Some(Self::MemberMissing);
        }
        if existing
            .clone()
            .any(|member| member.pod.is_some_and(|pod| pod.crashing_since.is_some()))
        {
            return Some(Self::MemberCrashing);
        }
        let is_unrecorded =
            |member: &MemberView<'_>| !member.is_joined() && member.health.is_none();
        if seed_runs(view) && existing.any(is_unrecorded) {
            return Some(Self::JoinUnrecorded);
        }
        None
    }
}

/// Returns when a restored seed that crashes counts as failed, if it has not formed a cluster yet.
pub(super) fn restored_seed_fails_at(view: &ClusterView<'_>) -> Option<UnixTime> {
    let identity = view.identity;
    if identity.bootstrapped || identity.restore.is_none() || identity.cluster_id.is_some() {
        return None;
    }
    let crashing_since = seed_pod(view)?.crashing_since?;
    Some(crashing_since.after(view.facts.cluster.bootstrap_timeout))
}

/// Returns true if the seed's pod runs. An etcd that starts without a quorum does not answer, not
/// even with its member ID, until there is one (tried on 3.5.35, 3.6.16, 3.7.3): a pod that does
/// not crash is the only sign.
fn seed_runs(view: &ClusterView<'_>) -> bool {
    seed_pod(view).is_some_and(|pod| {
        pod.crashing_since.is_none()
            && !pod.is_finished
            && !pod.is_terminating
            && pod.start_mode != StartMode::Held
    })
}

/// Returns true if the seed waits for a volume that the spec no longer asks for and that may never
/// be provisioned: of a class that does not exist, or larger than the available capacity. No member
/// may have joined before.
fn has_outdated_claim(view: &ClusterView<'_>, seed: &MemberView<'_>) -> bool {
    let cluster = &view.facts.cluster;
    if cluster.status_cluster_id.is_some() {
        return false;
    }
    let has_joined = |claim: &ClaimFacts| claim.joined_on.is_some();
    if view
        .members
        .values()
        .any(|member| member.claim.is_some_and(has_joined))
    {
        return false;
    }
    let is_unwanted = seed.claim.is_some_and(|claim| {
        claim.volume.is_none()
            && (claim.has_wrong_class || claim.requested_size > cluster.volume_size)
    });
    let restore_pod = restore::current_pod(view);
    let created_at = seed.pod.map(|pod| pod.created_at);
    let has_waited = created_at
        .or(restore_pod.map(|pod| pod.created_at))
        .is_some_and(|created_at| view.facts.now.since(created_at) >= PROVISION_TIMEOUT);
    is_unwanted && has_waited
}

/// Creates claims and held pods of the members that follow the seed: volumes and sandboxes are
/// provisioned while the seed starts. They are not members yet; each pod gets its start mode once
/// etcd lists its member.
pub(super) fn prepare_members(view: &ClusterView<'_>, actions: &mut Actions) {
    let seed = view.members.get(&view.identity.seed);
    let seed_has_pod = seed.is_some_and(|seed| seed.pod.is_some());
    if !seed_has_pod || !view.old_pods.is_empty() || !view.old_claims.is_empty() {
        return;
    }
    let is_persistent = view.facts.cluster.storage == StorageKind::Persistent;
    for serial in unprepared_serials(view) {
        let member = view.members.get(&serial);
        let claim = member.and_then(|member| member.claim);
        let pod = member.and_then(|member| member.pod);
        let create = match (claim, pod) {
            (None, _) if is_persistent => view.claim(serial),
            (Some(claim), _) if claim.is_terminating => continue,
            (_, Some(_)) => continue,
            (claim, None) => view.pod(serial, claim.map(|claim| claim.uid), StartMode::Held),
        };
        if !actions.create.contains(&create) {
            actions.create.push(create);
        }
    }
}

/// Returns the serials of the members that follow the seed and that etcd does not list yet; none
/// once bootstrap is finished.
pub(super) fn unprepared_serials(view: &ClusterView<'_>) -> impl Iterator<Item = Serial> + use<> {
    let identity = view.identity;
    // A member that is being added has used its serial, and counts as listed.
    let is_being_added = identity
        .intent
        .as_ref()
        .is_some_and(|intent| match intent.change {
            MembershipChange::Add(serial) => view.listed().all(|member| member.serial != serial),
            _ => false,
        });
    let listed = view.listed().count().max(1) + usize::from(is_being_added);
    let missing = usize::from(view.facts.cluster.members).saturating_sub(listed);
    // Without etcd's list the number of members of a formed cluster is unknown.
    let is_unknown = identity.cluster_id.is_some() && !view.membership_known;
    let missing = if identity.bootstrapped || is_unknown {
        0
    } else {
        u16::try_from(missing).unwrap_or_default()
    };
    let next = identity.next_serial.0;
    (next..next.saturating_add(missing)).map(Serial)
}

/// Records the storage of the seed, then lets its held pod form the cluster, by a patch with a
/// precondition on the pod's uid: an operator that was frozen meanwhile cannot create a second seed
/// late.
fn release_seed(view: &ClusterView<'_>, claim: Option<&ClaimFacts>, pod: &PodFacts) -> RuleResult {
    let identity = view.identity;
    if identity.seed_storage.is_none() {
        let storage = claim.map_or(SeedStorage::Pod(pod.uid), |claim| {
            SeedStorage::Claim(claim.uid)
        });
        return update_identity(identity, IdentityChange::StartSeed, |to| {
            to.seed_storage = Some(storage)
        });
    }
    if pod.start_mode != StartMode::Held || pod.is_terminating {
        return RuleResult::Pass;
    }
    let to = if identity.restore.is_some() {
        // Never `new`: on an empty directory the seed of a restored epoch must not start.
        StartMode::Restored
    } else if identity.cluster_id.is_some() {
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

/// Returns when a bootstrap whose etcd has formed a cluster and does not answer counts as failed:
/// after the timeout of all members and after that of the seed, which may be unreachable for a
/// moment.
pub(super) fn seed_grace_ends(view: &ClusterView<'_>) -> Option<UnixTime> {
    if view.identity.bootstrapped || view.membership_known || view.identity.cluster_id.is_none() {
        return None;
    }
    let unready_since = seed_pod(view)?.unready_since?;
    let seed_timeout = unready_since.after(view.facts.cluster.bootstrap_timeout);
    Some(finish_bootstrap::timeout_at(view)?.max(seed_timeout))
}

fn seed_pod<'f>(view: &ClusterView<'f>) -> Option<&'f PodFacts> {
    view.members.get(&view.identity.seed)?.pod
}

/// Records the ID of the cluster that the seed has formed.
pub(super) fn record_cluster(view: &ClusterView<'_>) -> RuleResult {
    if view.identity.cluster_id.is_some() {
        return RuleResult::Pass;
    }
    // A bootstrapped identity without a cluster ID was rebuilt: any member that has joined reports
    // the ID.
    let reporter = view.members.values().find(|member| {
        member.serial == view.identity.seed || (view.identity.bootstrapped && member.has_joined())
    });
    let health = reporter
        .filter(|member| member.has_joined())
        .and_then(|member| member.health);
    match health {
        Some(health) => update_identity(
            view.identity,
            IdentityChange::RecordCluster(health.cluster_id),
            |to| to.cluster_id = Some(health.cluster_id),
        ),
        None => RuleResult::Block(EtcdWait::SeedStart(view.identity.seed)),
    }
}
