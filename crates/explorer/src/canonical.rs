//! Canonical names for model states. States that differ in names only are equivalent: uids matter by equality;
//! serials, epochs and incarnations of the resource matter by their order; and a cluster of which no disk holds data
//! does not matter. The search compares states in this form.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::{ClusterId, Identity, Intent, MembershipChange, SeedStorage, Uid};
use evenkeel_etcd::names::{Epoch, Serial};
use evenkeel_etcd::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};

use crate::effect::Effect;
use crate::model::{ClusterModel, DiskState, ModelCluster};
use crate::observe::resource_uid;
use crate::prune::prune_writes;

/// Returns the state under canonical names.
pub fn canonical(model: &ClusterModel) -> ClusterModel {
    let mut model = model.clone();
    canonicalize(&mut model);
    model
}

/// Replaces all names in the state by canonical ones.
pub fn canonicalize(model: &mut ClusterModel) {
    prune_writes(model);
    drop_unused_clusters(model);
    drop_unshared_nodes(model);
    let mut names = NameCollector::default();
    walk(model, &mut names);
    let bootstrapped = model
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    // Before the bootstrap is finished a gap between two serials shows that a member was lost; afterwards only the
    // order of serials matters. The test `names_do_not_change_the_possible_events` checks this.
    let serials = match (&model.identity, names.serials.first()) {
        _ if bootstrapped => SerialRenaming::Compact(names.serials),
        // All objects belong to the current epoch, so it can be treated as the first.
        (Some(identity), Some(first)) if *first == identity.seed && names.epochs.len() == 1 => {
            SerialRenaming::Shift(first.0)
        }
        _ => SerialRenaming::Shift(0),
    };
    // Epochs matter by their order as well. While an old epoch remains, its distance matters too.
    let epoch = match names.epochs.as_slice() {
        [only] if serials != SerialRenaming::Shift(0) => only.0 - 1,
        _ => 0,
    };
    let mut renaming = Renamer {
        uids: Vec::new(),
        resources: names.resources,
        serials,
        epoch,
    };
    walk(model, &mut renaming);
    model.next_uid = u8::try_from(renaming.uids.len() + 1).unwrap_or(u8::MAX);
}

/// Visits every name in a state and may change it.
trait NameVisitor {
    fn uid(&mut self, uid: &mut Uid);
    fn serial(&mut self, serial: &mut Serial);
    fn epoch(&mut self, epoch: &mut Epoch);
    fn resource(&mut self, resource: &mut Uid);
}

/// All names in a state, sorted.
#[derive(Default)]
struct NameCollector {
    serials: Vec<Serial>,
    epochs: Vec<Epoch>,
    resources: Vec<Uid>,
}

impl NameVisitor for NameCollector {
    fn uid(&mut self, _: &mut Uid) {}

    fn serial(&mut self, serial: &mut Serial) {
        insert_sorted(&mut self.serials, *serial);
    }

    fn epoch(&mut self, epoch: &mut Epoch) {
        insert_sorted(&mut self.epochs, *epoch);
    }

    fn resource(&mut self, resource: &mut Uid) {
        insert_sorted(&mut self.resources, *resource);
    }
}

fn insert_sorted<T: Ord>(sorted: &mut Vec<T>, one: T) {
    if let Err(place) = sorted.binary_search(&one) {
        sorted.insert(place, one);
    }
}

/// How serials are renamed.
#[derive(PartialEq, Eq)]
enum SerialRenaming {
    /// Reduces all serials by this number.
    Shift(u16),
    /// Renames these serials to 0, 1, 2, …
    Compact(Vec<Serial>),
}

struct Renamer {
    /// In the order of the first visit.
    uids: Vec<Uid>,
    resources: Vec<Uid>,
    serials: SerialRenaming,
    epoch: u16,
}

impl NameVisitor for Renamer {
    fn uid(&mut self, uid: &mut Uid) {
        let at = self
            .uids
            .iter()
            .position(|one| one == uid)
            .unwrap_or_else(|| {
                self.uids.push(*uid);
                self.uids.len() - 1
            });
        *uid = Uid(at as u128 + 1);
    }

    fn serial(&mut self, serial: &mut Serial) {
        match &self.serials {
            SerialRenaming::Shift(by) => serial.0 -= by,
            SerialRenaming::Compact(all) => {
                let at = all.binary_search(serial).unwrap_or_default();
                serial.0 = u16::try_from(at).unwrap_or(u16::MAX);
            }
        }
    }

    fn epoch(&mut self, epoch: &mut Epoch) {
        epoch.0 -= self.epoch;
    }

    fn resource(&mut self, resource: &mut Uid) {
        let at = self.resources.binary_search(resource).unwrap_or_default();
        *resource = resource_uid(u8::try_from(at).unwrap_or(u8::MAX));
    }
}

/// Drops the node of another member where no other object needs that node: it is then equivalent to a node of its
/// own.
fn drop_unshared_nodes(model: &mut ClusterModel) {
    let serials: BTreeSet<Serial> = model
        .claims
        .keys()
        .chain(model.pods.keys())
        .copied()
        .collect();
    let mut users: BTreeMap<Serial, usize> = BTreeMap::new();
    for serial in &serials {
        *users.entry(model.node_of(*serial)).or_default() += 1;
    }
    for claim in model.claims.values_mut() {
        claim.shares_node_of = claim
            .shares_node_of
            .filter(|place| users.get(place).is_some_and(|count| *count > 1));
    }
}

fn drop_unused_clusters(model: &mut ClusterModel) {
    let current = model.identity.as_ref().map(|identity| identity.epoch);
    let disks = model
        .claims
        .values()
        .map(|claim| claim.disk)
        .chain(model.pods.values().map(|pod| pod.disk));
    let used: BTreeSet<u8> = disks
        .filter_map(|disk| match disk {
            DiskState::Data { cluster, .. } => Some(cluster),
            DiskState::Restored(_) | DiskState::Empty => None,
        })
        .collect();
    let is_used =
        |at: u8, cluster: &ModelCluster| used.contains(&at) || Some(cluster.epoch) == current;
    if (0..)
        .zip(&model.clusters)
        .all(|(at, cluster)| is_used(at, cluster))
    {
        return;
    }
    let mut kept = Vec::new();
    let mut index = BTreeMap::new();
    for (at, cluster) in model.clusters.iter().enumerate() {
        let at = u8::try_from(at).unwrap_or(u8::MAX);
        if is_used(at, cluster) {
            index.insert(at, u8::try_from(kept.len()).unwrap_or(u8::MAX));
            kept.push(cluster.clone());
        }
    }
    model.clusters = kept;
    let disks = model.claims.values_mut().map(|claim| &mut claim.disk);
    for disk in disks.chain(model.pods.values_mut().map(|pod| &mut pod.disk)) {
        if let DiskState::Data { cluster, .. } = disk {
            *cluster = index.get(cluster).copied().unwrap_or(*cluster);
        }
    }
}

fn walk(model: &mut ClusterModel, visitor: &mut dyn NameVisitor) {
    walk_resource(&mut model.incarnation, visitor);
    if let Some(identity) = &mut model.identity {
        walk_identity(identity, visitor);
    }
    if let Some(restore) = &mut model.restore {
        visitor.epoch(&mut restore.replaces);
    }
    walk_map(&mut model.claims, visitor, |claim, visitor| {
        visitor.epoch(&mut claim.epoch);
        visitor.uid(&mut claim.uid);
        if let Some((uid, volume)) = &mut claim.joined_on {
            visitor.uid(uid);
            visitor.uid(volume);
        }
        if let Some(restored) = &mut claim.restored {
            visitor.uid(&mut restored.claim);
            visitor.uid(&mut restored.volume);
        }
        walk_disk(&mut claim.disk, visitor);
        claim
            .shares_node_of
            .iter_mut()
            .for_each(|of| visitor.serial(of));
    });
    walk_map(&mut model.pods, visitor, |pod, visitor| {
        visitor.epoch(&mut pod.epoch);
        visitor.uid(&mut pod.uid);
        walk_resource(&mut pod.owner_incarnation, visitor);
        walk_start(&mut pod.start_mode, visitor);
        if let Some((start, _)) = &mut pod.kubelet_view {
            walk_start(start, visitor);
        }
        walk_disk(&mut pod.disk, visitor);
    });
    walk_map(&mut model.restore_pods, visitor, |pod, visitor| {
        visitor.epoch(&mut pod.epoch);
        visitor.uid(&mut pod.uid);
        visitor.uid(&mut pod.claim);
    });
    for cluster in &mut model.clusters {
        visitor.epoch(&mut cluster.epoch);
        walk_map(&mut cluster.members, visitor, |_, _| {});
        cluster
            .logged_change
            .iter_mut()
            .for_each(|change| walk_change(change, visitor));
    }
    for effect in model
        .pending_writes
        .iter_mut()
        .chain(&mut model.late_writes)
    {
        walk_effect(effect, visitor);
    }
}

fn walk_resource(number: &mut u8, visitor: &mut dyn NameVisitor) {
    let mut resource = resource_uid(*number);
    visitor.resource(&mut resource);
    *number = u8::try_from(resource.0 - resource_uid(0).0).unwrap_or(u8::MAX);
}

/// Visits the serials and values of a map. The map is rebuilt only if a serial changes.
fn walk_map<V>(
    map: &mut BTreeMap<Serial, V>,
    visitor: &mut dyn NameVisitor,
    mut each: impl FnMut(&mut V, &mut dyn NameVisitor),
) {
    let mut moved = false;
    for (serial, value) in map.iter_mut() {
        moved |= renamed_serial(*serial, visitor) != *serial;
        each(value, visitor);
    }
    if moved {
        let old = std::mem::take(map);
        map.extend(
            old.into_iter()
                .map(|(serial, value)| (renamed_serial(serial, visitor), value)),
        );
    }
}

fn walk_set(set: &mut BTreeSet<Serial>, visitor: &mut dyn NameVisitor) {
    let moved = set
        .iter()
        .filter(|serial| renamed_serial(**serial, visitor) != **serial)
        .count()
        > 0;
    if moved {
        *set = set
            .iter()
            .map(|serial| renamed_serial(*serial, visitor))
            .collect();
    }
}

fn renamed_serial(mut serial: Serial, visitor: &mut dyn NameVisitor) -> Serial {
    visitor.serial(&mut serial);
    serial
}

fn walk_start(start: &mut StartMode, visitor: &mut dyn NameVisitor) {
    if let StartMode::Join(list) = start {
        walk_set(list, visitor);
    }
}

fn walk_disk(disk: &mut DiskState, visitor: &mut dyn NameVisitor) {
    if let DiskState::Data { serial, .. } = disk {
        visitor.serial(serial);
    }
}

fn walk_change(change: &mut MembershipChange, visitor: &mut dyn NameVisitor) {
    match change {
        MembershipChange::Add(serial)
        | MembershipChange::Promote(serial)
        | MembershipChange::Remove(serial) => visitor.serial(serial),
        MembershipChange::RemoveUnknown(_) => {}
    }
}

fn walk_intent(intent: &mut Intent, visitor: &mut dyn NameVisitor) {
    walk_change(&mut intent.change, visitor);
    walk_set(&mut intent.voters, visitor);
}

fn walk_identity(identity: &mut Identity, visitor: &mut dyn NameVisitor) {
    visitor.resource(&mut identity.resource_uid);
    visitor.epoch(&mut identity.epoch);
    visitor.serial(&mut identity.seed);
    visitor.serial(&mut identity.next_serial);
    if let Some(SeedStorage::Claim(uid) | SeedStorage::Pod(uid)) = &mut identity.seed_storage {
        visitor.uid(uid);
    }
    if let Some(intent) = &mut identity.intent {
        walk_intent(intent, visitor);
    }
    if let Some(epoch) = &mut identity.highest_epoch {
        visitor.epoch(epoch);
    }
    if let Some(next) = &mut identity.next_epoch {
        visitor.epoch(&mut next.epoch);
        visitor.serial(&mut next.seed);
    }
    if let Some(replaced) = &mut identity.replaced {
        visitor.epoch(&mut replaced.epoch);
        visitor.serial(&mut replaced.seed);
        if let Some(SeedStorage::Claim(uid) | SeedStorage::Pod(uid)) = &mut replaced.seed_storage {
            visitor.uid(uid);
        }
        if let Some(cluster) = &mut replaced.cluster_id {
            walk_cluster_id(cluster, visitor);
        }
    }
    if let Some(cluster) = &mut identity.cluster_id {
        walk_cluster_id(cluster, visitor);
    }
}

/// Visits a cluster ID. In the model it is the epoch.
fn walk_cluster_id(cluster: &mut ClusterId, visitor: &mut dyn NameVisitor) {
    let mut epoch = Epoch(u16::try_from(cluster.0).unwrap_or(u16::MAX));
    visitor.epoch(&mut epoch);
    cluster.0 = u64::from(epoch.0);
}

fn walk_effect(effect: &mut Effect, visitor: &mut dyn NameVisitor) {
    match effect {
        Effect::Create(EtcdCreate::Identity(identity)) => walk_identity(identity, visitor),
        Effect::Create(EtcdCreate::Claim {
            serial,
            epoch,
            owned: _,
        }) => {
            visitor.serial(serial);
            visitor.epoch(epoch);
        }
        Effect::Create(EtcdCreate::Pod {
            serial,
            epoch,
            claim: on,
            start_mode: start,
            template_hash: _,
        }) => {
            visitor.serial(serial);
            visitor.epoch(epoch);
            on.iter_mut().for_each(|uid| visitor.uid(uid));
            walk_start(start, visitor);
        }
        Effect::Create(EtcdCreate::RestorePod {
            serial,
            epoch,
            claim,
            restore: _,
            template_hash: _,
        }) => {
            visitor.serial(serial);
            visitor.epoch(epoch);
            visitor.uid(claim);
        }
        Effect::Patch(EtcdPatch::SetStartMode { pod, from, to }) => {
            visitor.uid(pod);
            walk_start(from, visitor);
            walk_start(to, visitor);
        }
        Effect::Patch(EtcdPatch::MarkJoined { pod, from }) => {
            visitor.uid(pod);
            walk_start(from, visitor);
        }
        Effect::Patch(
            EtcdPatch::RecordRemoval { claim, .. }
            | EtcdPatch::RecordReplaced { claim, .. }
            | EtcdPatch::RecordVersion { claim, .. }
            | EtcdPatch::ResizeVolume { claim, .. },
        ) => visitor.uid(claim),
        Effect::Patch(
            EtcdPatch::RecordJoinedVolume { claim, volume }
            | EtcdPatch::RecordRestored { claim, volume, .. },
        ) => {
            visitor.uid(claim);
            visitor.uid(volume);
        }
        Effect::Patch(
            EtcdPatch::AttachClients { pod: uid }
            | EtcdPatch::DetachClients { pod: uid }
            | EtcdPatch::ReleaseRestorePod { pod: uid }
            | EtcdPatch::RecordTemplateHash { pod: uid, .. }
            | EtcdPatch::SetOwner {
                target: OwnerTarget::Pod(uid) | OwnerTarget::Claim(uid),
                ..
            },
        ) => visitor.uid(uid),
        Effect::Patch(EtcdPatch::NudgeMember { member }) => visitor.serial(member),
        Effect::Patch(
            EtcdPatch::RecordSpec
            | EtcdPatch::SetOwner {
                target: OwnerTarget::Identity,
                ..
            },
        )
        | Effect::Apply(_) => {}
        Effect::UpdateIdentity { from, to } => {
            walk_identity(from, visitor);
            walk_identity(to, visitor);
        }
        Effect::ChangeMembership(intent) => walk_intent(intent, visitor),
        Effect::Delete(
            EtcdDisruption::DeletePod {
                pod: uid, serial, ..
            }
            | EtcdDisruption::DeleteRestorePod {
                pod: uid, serial, ..
            }
            | EtcdDisruption::DeleteClaim {
                claim: uid, serial, ..
            },
        ) => {
            visitor.uid(uid);
            visitor.serial(serial);
        }
        Effect::Delete(EtcdDisruption::RestartMember {
            pod,
            serial,
            transfer_to,
            via_eviction: _,
        }) => {
            visitor.uid(pod);
            visitor.serial(serial);
            transfer_to
                .iter_mut()
                .for_each(|transfer_to| visitor.serial(transfer_to));
        }
        Effect::Delete(_) => {}
    }
}
