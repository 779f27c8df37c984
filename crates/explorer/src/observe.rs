//! What an operator sees of the world when it looks live.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_etcd::facts::{
    self, DisruptionWindow, EtcdFacts, ListedMember, MemberHealth, Membership, OwnedBy,
};
use evenkeel_etcd::identity::{ClusterId, MemberId, Uid};
use evenkeel_etcd::names::{Lineage, Serial};
use evenkeel_runtime::{Observed, UnixTime};

use crate::starting::Starting;
use crate::world::{Stranger, World};

/// Now, in a world where things are new or old.
pub const NOW: UnixTime = UnixTime(1_000_000);
/// Longer ago than anybody's patience.
pub const LONG_AGO: UnixTime = UnixTime(0);

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
pub fn observe(world: &World, sight: Sight) -> EtcdFacts {
    let objects = sight != Sight::NoObjects;
    let claims = world
        .claims
        .iter()
        .map(|(serial, claim)| facts::ClaimFacts {
            serial: *serial,
            epoch: claim.epoch,
            uid: claim.uid,
            volume: claim.is_bound().then_some(claim.uid),
            joined_on: claim.joined_on,
            is_terminating: claim.former,
            topology: facts::VolumeTopology::Node(node(world, *serial)),
            is_lost: claim.lost,
            removed_at: None,
            last_version: Some(VERSION),
            is_owned: world.owned,
            requested_size: 0,
            resize_pending: false,
            has_wrong_class: claim.made_for != world.volumes_for(),
            is_misplaced: false,
        });
    let pods = world.pods.iter().map(|(serial, pod)| facts::PodFacts {
        serial: *serial,
        epoch: pod.epoch,
        uid: pod.uid,
        created_at: if pod.old { LONG_AGO } else { NOW },
        start_mode: pod.start.clone(),
        joined_gate: pod.gate,
        is_ready: ready(world, *serial),
        unready_since: (!ready(world, *serial)).then_some(if pod.old { LONG_AGO } else { NOW }),
        node: pod.seen.is_some().then(|| node(world, *serial)),
        unschedulable_since: world.is_kept_out(*serial).then_some(if pod.old {
            LONG_AGO
        } else {
            NOW
        }),
        template_hash: Some(pod.inputs.uid()),
        scheduling_hash: Uid(0),
        restart_request: None,
        version: Some(VERSION),
        is_idle: !pod.runs && (pod.seen.is_none() || (!pod.down && crashes(world, *serial))),
        crashing_since: crashes(world, *serial).then_some(if pod.old { LONG_AGO } else { NOW }),
        is_terminating: pod.deleting,
        is_finished: pod.finished,
        is_routed: pod.routed,
        is_owned: pod.owner == world.resource,
    });
    let deaf = sight == Sight::NoEtcd;
    EtcdFacts {
        now: NOW,
        new_lineage: Lineage(7),
        cluster: facts::ClusterFacts {
            resource_uid: resource_uid(world.resource),
            members: world.wanted,
            storage: world.storage,
            is_deleted: false,
            created_at: LONG_AGO,
            is_paused: false,
            status_cluster_id: None,
            max_learners: world.max_learners,
            bootstrap_timeout: Duration::from_secs(60),
            replace_after: Duration::from_secs(300),
            keep_removed_for: Duration::ZERO,
            owns_data: world.owned,
            disruption: DisruptionWindow::Allowed,
            version: VERSION,
            next_version: None,
            pod_template_hash: world.inputs.uid(),
            restart_request: None,
            volume_size: 0,
        },
        identity: world.identity.clone().into(),
        lineages: (!world.claims.is_empty() || !world.pods.is_empty())
            .then_some(Some(Lineage(7)))
            .into_iter()
            .collect(),
        claims: if objects {
            Observed::Present(claims.collect())
        } else {
            Observed::Unknown
        },
        pods: if objects {
            Observed::Present(pods.collect())
        } else {
            Observed::Unknown
        },
        membership: if deaf {
            Observed::Unknown
        } else {
            membership(world)
        },
        health: voices(world, deaf),
        unreachable_since: silent(world),
        drift: BTreeMap::new(),
        recheck_secrets_at: None,
        pdb_min_available: world.budget_min.map(Some).into(),
        spec_recorded: true,
        identity_owner: match (world.owned, world.former) {
            (false, _) => OwnedBy::Nobody,
            (true, false) => OwnedBy::Resource,
            (true, true) => OwnedBy::PreviousResource,
        },
        client_read: Observed::Unknown,
        details: BTreeMap::new(),
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
fn silent(world: &World) -> BTreeMap<Serial, UnixTime> {
    let Some((_, cluster)) = world.spokesman() else {
        return BTreeMap::new();
    };
    let members = world.clusters[cluster].members.keys();
    let silent = members.filter(|serial| world.running_in(**serial) != Some(cluster));
    let since = |serial: &Serial| world.pods.get(serial).is_some_and(|pod| pod.old);
    silent
        .map(|serial| (*serial, if since(serial) { LONG_AGO } else { NOW }))
        .collect()
}

/// Whether a pod's etcd would end as soon as it is started.
fn crashes(world: &World, serial: Serial) -> bool {
    let Some(pod) = world.pods.get(&serial) else {
        return false;
    };
    let tries = !pod.runs && !pod.down && !pod.deleting && !pod.finished && pod.seen.is_some();
    tries && world.disk(serial).is_some() && world.starting(serial) == Ok(Starting::Ends)
}

fn membership(world: &World) -> Observed<Membership> {
    let Some((teller, cluster)) = world.spokesman() else {
        return Observed::Unknown;
    };
    let members = world.clusters[cluster]
        .members
        .iter()
        .map(|(serial, member)| ListedMember {
            serial: *serial,
            id: id(*serial),
            is_learner: member.learner,
            has_started: member.started,
        });
    let stranger = world.clusters[cluster]
        .stranger
        .map(|stranger| facts::UnknownMember {
            id: STRANGER,
            is_learner: false,
            has_started: false,
            first_seen: if stranger == Stranger::Old {
                LONG_AGO
            } else {
                NOW
            },
        });
    let strangers = stranger.into_iter().collect();
    Observed::Present(Membership {
        reported_by: teller,
        members: members.collect(),
        unknown: strangers,
    })
}

fn voices(world: &World, deaf: bool) -> BTreeMap<Serial, Observed<MemberHealth>> {
    let voice = |serial: Serial| {
        if deaf {
            return Observed::Unknown;
        }
        let speaks = world
            .pods
            .get(&serial)
            .is_some_and(|pod| pod.speaks && !pod.unheard);
        let Some(cluster) = world.running_in(serial).filter(|_| speaks) else {
            return Observed::Absent;
        };
        let serves = world.serves(serial);
        Observed::Present(MemberHealth {
            cluster_id: ClusterId(u64::from(world.clusters[cluster].epoch.0)),
            member_id: id(serial),
            is_serving: serves,
            is_caught_up: serves,
            // Anybody may lead. The last is the least kind: it is the newest, who goes first.
            is_leader: world.leader() == Some(serial),
            version: Some(VERSION),
            db_size: 0,
        })
    };
    world
        .pods
        .keys()
        .map(|serial| (*serial, voice(*serial)))
        .collect()
}

fn id(serial: Serial) -> MemberId {
    MemberId(u64::from(serial.0) + 1)
}
