//! What an operator sees of the world when it looks live.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel::{Seen, Time};
use evenkeel_api::Version;
use evenkeel_etcd::facts::{self, Disrupt, Facts, GoesWith, Membership, Registered, Voice};
use evenkeel_etcd::identity::{ClusterId, MemberId, Uid};
use evenkeel_etcd::names::{Lineage, Serial};

use crate::starting::Starting;
use crate::world::{Stranger, World};

/// Now, in a world where things are new or old.
pub const NOW: Time = Time(1_000_000);
/// Longer ago than anybody's patience.
pub const LONG_AGO: Time = Time(0);

/// The version of etcd that everybody runs.
const VERSION: Version = Version::new(3, 6, 16);

/// What etcd calls somebody else's member.
const STRANGER: MemberId = MemberId(1 << 32);

/// What is hidden from an operator when it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing.
    Clear,
    /// All of etcd: no member answers it.
    NoEtcd,
    /// Kubernetes' lists of claims and pods.
    NoObjects,
}

/// The uid of an incarnation of the resource.
pub fn resource_uid(resource: u8) -> Uid {
    Uid(1000 + u128::from(resource))
}

/// The facts, as an operator finds them.
pub fn observe(world: &World, sight: Sight) -> Facts {
    let objects = sight != Sight::NoObjects;
    let claims = world.claims.iter().map(|(serial, claim)| facts::Claim {
        serial: *serial,
        epoch: claim.epoch,
        uid: claim.uid,
        volume: claim.is_bound().then_some(claim.uid),
        joined_on: claim.joined_on,
        deleting: claim.former,
        reach: facts::Reach::Node(node(world, *serial)),
        lost: claim.lost,
        removed: None,
        version: Some(VERSION),
        owned: world.owned,
        size: 0,
        grows: false,
        moves: claim.made_for != world.volumes_for(),
        misplaced: false,
    });
    let pods = world.pods.iter().map(|(serial, pod)| facts::Pod {
        serial: *serial,
        epoch: pod.epoch,
        uid: pod.uid,
        created: if pod.old { LONG_AGO } else { NOW },
        start: pod.start.clone(),
        gate: pod.gate,
        ready: ready(world, *serial),
        unready: (!ready(world, *serial)).then_some(if pod.old { LONG_AGO } else { NOW }),
        node: pod.seen.is_some().then(|| node(world, *serial)),
        refused: world.is_kept_out(*serial).then_some(if pod.old { LONG_AGO } else { NOW }),
        inputs: Some(pod.inputs.uid()),
        placing: Uid(0),
        restart: None,
        version: Some(VERSION),
        idle: !pod.runs && (pod.seen.is_none() || (!pod.down && crashes(world, *serial))),
        crashing: crashes(world, *serial).then_some(if pod.old { LONG_AGO } else { NOW }),
        deleting: pod.deleting,
        finished: pod.finished,
        routed: pod.routed,
        owned: pod.owner == world.resource,
    });
    let deaf = sight == Sight::NoEtcd;
    Facts {
        now: NOW,
        fresh_lineage: Lineage(7),
        cluster: facts::Cluster {
            resource: resource_uid(world.resource),
            members: world.wanted,
            storage: world.storage,
            deleted: false,
            created: LONG_AGO,
            paused: false,
            known: None,
            max_learners: world.max_learners,
            patience: Duration::from_secs(60),
            replace_after: Duration::from_secs(300),
            keep_removed_for: Duration::ZERO,
            owns_data: world.owned,
            disrupt: Disrupt::Now,
            version: VERSION,
            next: None,
            inputs: world.inputs.uid(),
            restart: None,
            size: 0,
        },
        identity: world.identity.clone().into(),
        written: (!world.claims.is_empty() || !world.pods.is_empty())
            .then_some(Some(Lineage(7)))
            .into_iter()
            .collect(),
        claims: if objects { Seen::Present(claims.collect()) } else { Seen::Unknown },
        pods: if objects { Seen::Present(pods.collect()) } else { Seen::Unknown },
        membership: if deaf { Seen::Unknown } else { membership(world) },
        voices: voices(world, deaf),
        silent: silent(world),
        amiss: BTreeMap::new(),
        secrets_again: None,
        budget: world.budget_min.map(Some).into(),
        accepted: true,
        identity_goes: match (world.owned, world.former) {
            (false, _) => GoesWith::Nothing,
            (true, false) => GoesWith::Resource,
            (true, true) => GoesWith::Former,
        },
        served: Seen::Unknown,
        about: BTreeMap::new(),
    }
}

/// The node of a member's volume, and of its pod.
fn node(world: &World, serial: Serial) -> Uid {
    Uid(2000 + u128::from(world.place(serial).0))
}

/// Whether a kubelet says so.
pub(crate) fn ready(world: &World, serial: Serial) -> bool {
    let seen = world.pods.get(&serial).and_then(|pod| pod.seen.as_ref());
    world.serves(serial) && seen.is_some_and(|(_, gate)| *gate)
}

/// Members that neither the operator nor the leader hears: whoever does not run, for as long as its pod is there.
fn silent(world: &World) -> BTreeMap<Serial, Time> {
    let Some((_, cluster)) = world.spokesman() else { return BTreeMap::new() };
    let members = world.clusters[cluster].members.keys();
    let silent = members.filter(|serial| world.running_in(**serial) != Some(cluster));
    let since = |serial: &Serial| world.pods.get(serial).is_some_and(|pod| pod.old);
    silent.map(|serial| (*serial, if since(serial) { LONG_AGO } else { NOW })).collect()
}

/// Whether a pod's etcd would end as soon as it is started.
fn crashes(world: &World, serial: Serial) -> bool {
    let Some(pod) = world.pods.get(&serial) else { return false };
    let tries = !pod.runs && !pod.down && !pod.deleting && !pod.finished && pod.seen.is_some();
    tries && world.disk(serial).is_some() && world.starting(serial) == Ok(Starting::Ends)
}

fn membership(world: &World) -> Seen<Membership> {
    let Some((teller, cluster)) = world.spokesman() else { return Seen::Unknown };
    let members = world.clusters[cluster].members.iter().map(|(serial, member)| Registered {
        serial: *serial,
        id: id(*serial),
        learner: member.learner,
        started: member.started,
    });
    let stranger = world.clusters[cluster].stranger.map(|stranger| facts::Stranger {
        id: STRANGER,
        learner: false,
        started: false,
        since: if stranger == Stranger::Old { LONG_AGO } else { NOW },
    });
    let strangers = stranger.into_iter().collect();
    Seen::Present(Membership { told_by: teller, members: members.collect(), strangers })
}

fn voices(world: &World, deaf: bool) -> BTreeMap<Serial, Seen<Voice>> {
    let voice = |serial: Serial| {
        if deaf {
            return Seen::Unknown;
        }
        let speaks = world.pods.get(&serial).is_some_and(|pod| pod.speaks && !pod.unheard);
        let Some(cluster) = world.running_in(serial).filter(|_| speaks) else { return Seen::Absent };
        let serves = world.serves(serial);
        Seen::Present(Voice {
            cluster: ClusterId(u64::from(world.clusters[cluster].epoch.0)),
            id: id(serial),
            serves,
            caught_up: serves,
            // Anybody may lead. The last is the least kind: it is the newest, who goes first.
            leads: world.leader() == Some(serial),
            version: Some(VERSION),
            size: 0,
        })
    };
    world.pods.keys().map(|serial| (*serial, voice(*serial))).collect()
}

fn id(serial: Serial) -> MemberId {
    MemberId(u64::from(serial.0) + 1)
}
