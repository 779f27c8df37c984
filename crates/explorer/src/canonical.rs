//! Worlds that differ in names only are one. Uids matter by being equal or not; serials, epochs and incarnations of the
//! resource, by their order; and a cluster that no disk remembers does not matter at all. States are told apart by this form.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::{Identity, Intent, MembershipChange, SeedStorage, Uid};
use evenkeel_etcd::names::{Epoch, Serial};
use evenkeel_etcd::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};

use crate::doomed::drop_doomed;
use crate::effect::Effect;
use crate::observe::resource_uid;
use crate::world::{Cluster, Disk, World};

/// The same world under the names that every world of its kind has.
pub fn canonical(world: &World) -> World {
    let mut world = world.clone();
    rename(&mut world);
    world
}

/// Gives a world the names that every world of its kind has.
pub fn rename(world: &mut World) {
    drop_doomed(world);
    drop_forgotten_clusters(world);
    drop_vacant_places(world);
    let mut census = Census::default();
    walk(world, &mut census);
    let sealed = world
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    // Before the seal a serial that is missing between two others tells that a member was lost; after it, serials matter
    // by their order alone. `names_do_not_matter_to_what_is_decided` sees that this is so.
    let serials = match (&world.identity, census.serials.first()) {
        _ if sealed => Serials::InARow(census.serials),
        // Everything is of the epoch that is: it could as well be the first.
        (Some(identity), Some(first)) if *first == identity.seed && census.epochs.len() == 1 => {
            Serials::Less(first.0)
        }
        _ => Serials::Less(0),
    };
    // Epochs, too, matter by their order; while there is an old one, so does how far back it lies.
    let epoch = match census.epochs.as_slice() {
        [only] if serials != Serials::Less(0) => only.0 - 1,
        _ => 0,
    };
    let mut renaming = Rename {
        uids: Vec::new(),
        resources: census.resources,
        serials,
        epoch,
    };
    walk(world, &mut renaming);
    world.next_uid = u8::try_from(renaming.uids.len() + 1).unwrap_or(u8::MAX);
}

/// Meets every name in a world, and may change it.
trait Visitor {
    fn uid(&mut self, uid: &mut Uid);
    fn serial(&mut self, serial: &mut Serial);
    fn epoch(&mut self, epoch: &mut Epoch);
    fn resource(&mut self, resource: &mut Uid);
}

/// All names there are, in order.
#[derive(Default)]
struct Census {
    serials: Vec<Serial>,
    epochs: Vec<Epoch>,
    resources: Vec<Uid>,
}

impl Visitor for Census {
    fn uid(&mut self, _: &mut Uid) {}

    fn serial(&mut self, serial: &mut Serial) {
        include(&mut self.serials, *serial);
    }

    fn epoch(&mut self, epoch: &mut Epoch) {
        include(&mut self.epochs, *epoch);
    }

    fn resource(&mut self, resource: &mut Uid) {
        include(&mut self.resources, *resource);
    }
}

fn include<T: Ord>(sorted: &mut Vec<T>, one: T) {
    if let Err(place) = sorted.binary_search(&one) {
        sorted.insert(place, one);
    }
}

/// How serials are renamed.
#[derive(PartialEq, Eq)]
enum Serials {
    /// All by so many less.
    Less(u16),
    /// These, to the first ones.
    InARow(Vec<Serial>),
}

struct Rename {
    /// In the order in which they are met.
    uids: Vec<Uid>,
    resources: Vec<Uid>,
    serials: Serials,
    epoch: u16,
}

impl Visitor for Rename {
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
            Serials::Less(by) => serial.0 -= by,
            Serials::InARow(all) => {
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

/// A place that nobody else will ask for is like one of one's own.
fn drop_vacant_places(world: &mut World) {
    let asked: BTreeSet<Serial> = world
        .claims
        .keys()
        .chain(world.pods.keys())
        .copied()
        .collect();
    let mut taken: BTreeMap<Serial, usize> = BTreeMap::new();
    for serial in &asked {
        *taken.entry(world.place(*serial)).or_default() += 1;
    }
    for claim in world.claims.values_mut() {
        claim.took = claim
            .took
            .filter(|place| taken.get(place).is_some_and(|count| *count > 1));
    }
}

fn drop_forgotten_clusters(world: &mut World) {
    let current = world.identity.as_ref().map(|identity| identity.epoch);
    let disks = world
        .claims
        .values()
        .map(|claim| claim.disk)
        .chain(world.pods.values().map(|pod| pod.disk));
    let used: BTreeSet<u8> = disks
        .filter_map(|disk| match disk {
            Disk::Data { cluster, .. } => Some(cluster),
            Disk::Empty => None,
        })
        .collect();
    let is_kept = |at: u8, cluster: &Cluster| used.contains(&at) || Some(cluster.epoch) == current;
    if (0..)
        .zip(&world.clusters)
        .all(|(at, cluster)| is_kept(at, cluster))
    {
        return;
    }
    let mut kept = Vec::new();
    let mut index = BTreeMap::new();
    for (at, cluster) in world.clusters.iter().enumerate() {
        let at = u8::try_from(at).unwrap_or(u8::MAX);
        if is_kept(at, cluster) {
            index.insert(at, u8::try_from(kept.len()).unwrap_or(u8::MAX));
            kept.push(cluster.clone());
        }
    }
    world.clusters = kept;
    let disks = world.claims.values_mut().map(|claim| &mut claim.disk);
    for disk in disks.chain(world.pods.values_mut().map(|pod| &mut pod.disk)) {
        if let Disk::Data { cluster, .. } = disk {
            *cluster = index.get(cluster).copied().unwrap_or(*cluster);
        }
    }
}

fn walk(world: &mut World, visitor: &mut dyn Visitor) {
    walk_resource(&mut world.resource, visitor);
    if let Some(identity) = &mut world.identity {
        walk_identity(identity, visitor);
    }
    walk_map(&mut world.claims, visitor, |claim, visitor| {
        visitor.epoch(&mut claim.epoch);
        visitor.uid(&mut claim.uid);
        if let Some((uid, volume)) = &mut claim.joined_on {
            visitor.uid(uid);
            visitor.uid(volume);
        }
        walk_disk(&mut claim.disk, visitor);
        claim.took.iter_mut().for_each(|of| visitor.serial(of));
    });
    walk_map(&mut world.pods, visitor, |pod, visitor| {
        visitor.epoch(&mut pod.epoch);
        visitor.uid(&mut pod.uid);
        walk_resource(&mut pod.owner, visitor);
        walk_start(&mut pod.start, visitor);
        if let Some((start, _)) = &mut pod.seen {
            walk_start(start, visitor);
        }
        walk_disk(&mut pod.disk, visitor);
    });
    for cluster in &mut world.clusters {
        visitor.epoch(&mut cluster.epoch);
        walk_map(&mut cluster.members, visitor, |_, _| {});
        cluster
            .in_log
            .iter_mut()
            .for_each(|change| walk_change(change, visitor));
    }
    for effect in world.pending.iter_mut().chain(&mut world.late) {
        walk_effect(effect, visitor);
    }
}

fn walk_resource(number: &mut u8, visitor: &mut dyn Visitor) {
    let mut resource = resource_uid(*number);
    visitor.resource(&mut resource);
    *number = u8::try_from(resource.0 - resource_uid(0).0).unwrap_or(u8::MAX);
}

/// Visits the serials and what they stand for; most worlds keep their serials, and their maps.
fn walk_map<V>(
    map: &mut BTreeMap<Serial, V>,
    visitor: &mut dyn Visitor,
    mut each: impl FnMut(&mut V, &mut dyn Visitor),
) {
    let mut moved = false;
    for (serial, value) in map.iter_mut() {
        moved |= visited(*serial, visitor) != *serial;
        each(value, visitor);
    }
    if moved {
        let old = std::mem::take(map);
        map.extend(
            old.into_iter()
                .map(|(serial, value)| (visited(serial, visitor), value)),
        );
    }
}

fn walk_set(set: &mut BTreeSet<Serial>, visitor: &mut dyn Visitor) {
    let moved = set
        .iter()
        .filter(|serial| visited(**serial, visitor) != **serial)
        .count()
        > 0;
    if moved {
        *set = set.iter().map(|serial| visited(*serial, visitor)).collect();
    }
}

fn visited(mut serial: Serial, visitor: &mut dyn Visitor) -> Serial {
    visitor.serial(&mut serial);
    serial
}

fn walk_start(start: &mut StartMode, visitor: &mut dyn Visitor) {
    if let StartMode::Join(list) = start {
        walk_set(list, visitor);
    }
}

fn walk_disk(disk: &mut Disk, visitor: &mut dyn Visitor) {
    if let Disk::Data { serial, .. } = disk {
        visitor.serial(serial);
    }
}

fn walk_change(change: &mut MembershipChange, visitor: &mut dyn Visitor) {
    match change {
        MembershipChange::Add(serial)
        | MembershipChange::Promote(serial)
        | MembershipChange::Remove(serial) => visitor.serial(serial),
        MembershipChange::RemoveUnknown(_) => {}
    }
}

fn walk_intent(intent: &mut Intent, visitor: &mut dyn Visitor) {
    walk_change(&mut intent.change, visitor);
    walk_set(&mut intent.voters, visitor);
}

fn walk_identity(identity: &mut Identity, visitor: &mut dyn Visitor) {
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
    // What etcd calls a cluster follows from its epoch in this world.
    if let Some(cluster) = &mut identity.cluster_id {
        let mut epoch = Epoch(u16::try_from(cluster.0).unwrap_or(u16::MAX));
        visitor.epoch(&mut epoch);
        cluster.0 = u64::from(epoch.0);
    }
}

fn walk_effect(effect: &mut Effect, visitor: &mut dyn Visitor) {
    match effect {
        Effect::Create(EtcdCreate::Identity(identity)) => walk_identity(identity, visitor),
        Effect::Create(EtcdCreate::Claim { serial, epoch }) => {
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
        Effect::Mark(EtcdPatch::SetStartMode { pod, from, to }) => {
            visitor.uid(pod);
            walk_start(from, visitor);
            walk_start(to, visitor);
        }
        Effect::Mark(EtcdPatch::MarkJoined { pod, from }) => {
            visitor.uid(pod);
            walk_start(from, visitor);
        }
        Effect::Mark(
            EtcdPatch::RecordRemoval { claim, .. }
            | EtcdPatch::RecordVersion { claim, .. }
            | EtcdPatch::ResizeVolume { claim, .. },
        ) => visitor.uid(claim),
        Effect::Mark(EtcdPatch::RecordJoinedVolume { claim, volume }) => {
            visitor.uid(claim);
            visitor.uid(volume);
        }
        Effect::Mark(
            EtcdPatch::AttachClients { pod: uid }
            | EtcdPatch::DetachClients { pod: uid }
            | EtcdPatch::RecordTemplateHash { pod: uid, .. }
            | EtcdPatch::SetOwner {
                target: OwnerTarget::Pod(uid) | OwnerTarget::Claim(uid),
                ..
            },
        ) => visitor.uid(uid),
        Effect::Mark(
            EtcdPatch::RecordSpec
            | EtcdPatch::SetOwner {
                target: OwnerTarget::Identity,
                ..
            },
        )
        | Effect::Apply(_) => {}
        Effect::Swap { from, to } => {
            walk_identity(from, visitor);
            walk_identity(to, visitor);
        }
        Effect::Ask(intent) => walk_intent(intent, visitor),
        Effect::Delete(
            EtcdDisruption::DeletePod {
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
