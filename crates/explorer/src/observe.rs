//! The facts that an operator observes in a model state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_etcd::facts::{
    self, DisruptionWindow, EtcdFacts, ListedMember, MemberHealth, Membership, OwnedBy,
    RestoreFailure, RestorePodFacts, RestorePodState, RestoreStep, SourceState, StuckMember,
};
use evenkeel_etcd::identity::{ClusterId, MemberId, Uid};
use evenkeel_etcd::names::{Lineage, Serial};
use evenkeel_runtime::{Observed, UnixTime};

use crate::etcd_start::StartResult;
use crate::model::{
    ClusterModel, ModelRestorePod, ModelRestoreState, NO_BACKUP, TemplateVariant, UnknownVoter,
    restore_of,
};

/// The current time. Every other time in the model is now or long ago.
pub const NOW: UnixTime = UnixTime(1_000_000);
/// A time after the end of every exploration.
const NEVER: UnixTime = UnixTime(2_000_000);
/// A time before every timeout.
pub const LONG_AGO: UnixTime = UnixTime(0);

/// The etcd version of all members.
const ETCD_VERSION: Version = Version::new(3, 6, 16);

/// The member ID of the unknown voter.
const UNKNOWN_VOTER_ID: MemberId = MemberId(1 << 32);

/// The part of the state that an operator can observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Everything.
    Full,
    /// Everything but etcd: no member answers.
    NoEtcd,
    /// Everything but the lists of claims and pods.
    NoObjects,
}

/// Returns the uid of an incarnation of the resource.
pub fn resource_uid(resource: u8) -> Uid {
    Uid(1000 + u128::from(resource))
}

/// Returns the facts that an operator observes.
pub fn observe(model: &ClusterModel, visibility: Visibility) -> EtcdFacts {
    let can_list = visibility != Visibility::NoObjects;
    let claims = model
        .claims
        .iter()
        .map(|(serial, claim)| facts::ClaimFacts {
            serial: *serial,
            epoch: claim.epoch,
            uid: claim.uid,
            volume: claim.is_bound().then_some(claim.uid),
            created_at: LONG_AGO,
            joined_on: claim.joined_on,
            restored: claim.restored,
            replaced_until: claim.is_replaced.then_some(NEVER),
            is_terminating: claim.is_terminating,
            topology: facts::VolumeTopology::Node(node_uid(model, *serial)),
            on_cordoned_node: false,
            is_lost: claim.node_lost,
            removed_at: None,
            last_version: Some(ETCD_VERSION),
            is_owned: claim.is_owned && !claim.is_terminating,
            requested_size: 0,
            resize_pending: false,
            has_wrong_class: claim.volume_template != model.volume_template(),
            is_misplaced: false,
        });
    let pods = model.pods.iter().map(|(serial, pod)| facts::PodFacts {
        serial: *serial,
        epoch: pod.epoch,
        uid: pod.uid,
        created_at: if pod.is_old { LONG_AGO } else { NOW },
        start_mode: pod.start_mode.clone(),
        joined_gate: pod.joined_gate,
        is_ready: is_ready(model, *serial),
        unready_since: (!is_ready(model, *serial)).then_some(if pod.is_old {
            LONG_AGO
        } else {
            NOW
        }),
        node: pod.kubelet_view.is_some().then(|| node_uid(model, *serial)),
        on_cordoned_node: false,
        unschedulable_since: model.is_unschedulable(*serial).then_some(if pod.is_old {
            LONG_AGO
        } else {
            NOW
        }),
        template_hash: Some(pod.template.uid()),
        scheduling_hash: Uid(0),
        restart_request: None,
        version: Some(ETCD_VERSION),
        is_idle: !pod.is_running
            && (pod.kubelet_view.is_none() || (!pod.node_down && is_crash_looping(model, *serial))),
        crashing_since: is_crash_looping(model, *serial).then_some(if pod.is_old {
            LONG_AGO
        } else {
            NOW
        }),
        is_terminating: pod.is_terminating,
        is_finished: pod.is_finished,
        is_routed: pod.is_routed,
        is_owned: pod.owner_incarnation == model.incarnation,
    });
    let etcd_hidden = visibility == Visibility::NoEtcd;
    EtcdFacts {
        now: NOW,
        new_lineage: Lineage(7),
        cluster: facts::ClusterFacts {
            resource_uid: resource_uid(model.incarnation),
            members: model.desired_members,
            storage: model.storage,
            is_deleted: false,
            created_at: LONG_AGO,
            is_paused: false,
            status_cluster_id: None,
            max_learners: model.max_learners,
            bootstrap_timeout: Duration::from_secs(60),
            replace_after: Duration::from_secs(300),
            replace_drained_after: Duration::from_secs(3600),
            keep_removed_for: Duration::ZERO,
            owns_data: model.owns_data,
            disruption: DisruptionWindow::Allowed,
            version: ETCD_VERSION,
            next_version: None,
            pod_template_hash: model.template.uid(),
            restart_request: None,
            volume_size: 0,
            restore: restore_of(model.source),
        },
        restore_pods: model.restore_pods.iter().map(restore_pod).collect(),
        restore_request: model
            .restore
            .zip(model.identity.as_ref())
            .and_then(|(restore, identity)| restore.request(identity)),
        source: (model.source != NO_BACKUP || model.restores_in_place)
            .then_some(SourceState::Usable),
        identity: model.identity.clone().into(),
        lineages: (!model.claims.is_empty()
            || !model.pods.is_empty()
            || !model.restore_pods.is_empty())
        .then_some(Some(Lineage(7)))
        .into_iter()
        .collect(),
        claims: if can_list {
            Observed::Present(claims.collect())
        } else {
            Observed::Unknown
        },
        pods: if can_list {
            Observed::Present(pods.collect())
        } else {
            Observed::Unknown
        },
        membership: if etcd_hidden {
            Observed::Unknown
        } else {
            membership(model)
        },
        health: health(model, etcd_hidden),
        unreachable_since: unreachable_since(model),
        stuck: if etcd_hidden { None } else { stuck(model) },
        last_nudge: None,
        drift: BTreeMap::new(),
        recheck_secrets_at: None,
        pdb_min_available: model.pdb_min_available.map(Some).into(),
        spec_recorded: true,
        identity_owner: match (model.identity_owned, model.identity_terminating) {
            (_, true) => OwnedBy::PreviousResource,
            (true, false) => OwnedBy::Resource,
            (false, false) => OwnedBy::Unowned,
        },
        client_read: Observed::Unknown,
        alarms: BTreeSet::new(),
        details: BTreeMap::new(),
    }
}

fn restore_pod((serial, pod): (&Serial, &ModelRestorePod)) -> RestorePodFacts {
    let time = if pod.is_old { LONG_AGO } else { NOW };
    let failure = |step| {
        RestorePodState::Failed(RestoreFailure {
            at: time,
            step,
            is_transient: true,
            message: String::new(),
        })
    };
    RestorePodFacts {
        serial: *serial,
        epoch: pod.epoch,
        uid: pod.uid,
        claim: pod.claim,
        restore: pod.restore,
        created_at: time,
        state: match pod.state {
            ModelRestoreState::Held => RestorePodState::Held,
            ModelRestoreState::Running => RestorePodState::Running(RestoreStep::Fetch),
            ModelRestoreState::Succeeded => RestorePodState::Succeeded,
            ModelRestoreState::Failed => failure(RestoreStep::Fetch),
            ModelRestoreState::FailedToInstall => failure(RestoreStep::Install),
        },
        template_hash: Some(pod.template.uid()),
        is_idle: pod.state == ModelRestoreState::Held || pod.template == TemplateVariant::Broken,
        is_terminating: pod.is_terminating,
        problem: None,
    }
}

/// Returns the node of a member's volume and pod.
fn node_uid(model: &ClusterModel, serial: Serial) -> Uid {
    Uid(2000 + u128::from(model.node_of(serial).0))
}

/// Returns true if the kubelet reports the pod Ready.
pub(crate) fn is_ready(model: &ClusterModel, serial: Serial) -> bool {
    let view = model
        .pods
        .get(&serial)
        .and_then(|pod| pod.kubelet_view.as_ref());
    model.is_serving(serial) && view.is_some_and(|(_, gate)| *gate)
}

/// Returns the listed members that neither the operator nor the leader can reach: those that do not run.
fn unreachable_since(model: &ClusterModel) -> BTreeMap<Serial, UnixTime> {
    let Some((_, cluster)) = model.reachable_voter() else {
        return BTreeMap::new();
    };
    let members = model.clusters[cluster].members.keys();
    let stopped = members.filter(|serial| model.running_cluster(**serial) != Some(cluster));
    let is_old = |serial: &Serial| model.pods.get(serial).is_some_and(|pod| pod.is_old);
    stopped
        .map(|serial| (*serial, if is_old(serial) { LONG_AGO } else { NOW }))
        .collect()
}

/// Returns a stuck member that the operator can reach, if it also reaches the leader.
fn stuck(model: &ClusterModel) -> Option<StuckMember> {
    let is_reachable = |serial: &Serial| {
        let pod = model.pods.get(serial);
        pod.is_some_and(|pod| !pod.is_unreachable)
    };
    let leader = model.leader().filter(is_reachable)?;
    let cluster = &model.clusters[model.running_cluster(leader)?];
    let mut members = cluster.members.keys().copied();
    let serial = members.find(|serial| model.is_stuck(*serial) && is_reachable(serial))?;
    Some(StuckMember {
        serial,
        since: LONG_AGO,
    })
}

/// Returns true if a pod's etcd exits at every start.
fn is_crash_looping(model: &ClusterModel, serial: Serial) -> bool {
    let Some(pod) = model.pods.get(&serial) else {
        return false;
    };
    let restarts = !pod.is_running
        && !pod.node_down
        && !pod.is_terminating
        && !pod.is_finished
        && pod.kubelet_view.is_some();
    restarts && model.disk(serial).is_some() && model.start_result(serial) == Ok(StartResult::Exits)
}

fn membership(model: &ClusterModel) -> Observed<Membership> {
    let Some((voter, cluster)) = model.reachable_voter() else {
        return Observed::Unknown;
    };
    let members = model.clusters[cluster]
        .members
        .iter()
        .map(|(serial, member)| ListedMember {
            serial: *serial,
            id: member_id(*serial),
            is_learner: member.is_learner,
            has_started: member.has_started,
        });
    let unknown_voter =
        model.clusters[cluster]
            .unknown_voter
            .map(|unknown_voter| facts::UnknownMember {
                id: UNKNOWN_VOTER_ID,
                is_learner: false,
                has_started: false,
                first_seen: if unknown_voter == UnknownVoter::Old {
                    LONG_AGO
                } else {
                    NOW
                },
            });
    let unknown_members = unknown_voter.into_iter().collect();
    Observed::Present(Membership {
        reported_by: voter,
        members: members.collect(),
        unknown: unknown_members,
    })
}

fn health(model: &ClusterModel, etcd_hidden: bool) -> BTreeMap<Serial, Observed<MemberHealth>> {
    let member = |serial: Serial| {
        if etcd_hidden {
            return Observed::Unknown;
        }
        let answers = model
            .pods
            .get(&serial)
            .is_some_and(|pod| pod.is_responsive && !pod.is_unreachable);
        let Some(cluster) = model.running_cluster(serial).filter(|_| answers) else {
            return Observed::Absent;
        };
        let is_serving = model.is_serving(serial);
        Observed::Present(MemberHealth {
            cluster_id: ClusterId(u64::from(model.clusters[cluster].epoch.0)),
            member_id: member_id(serial),
            is_serving,
            is_caught_up: is_serving,
            // Any voter may lead. The last one is the worst case: it is the newest member, which is removed first.
            is_leader: model.leader() == Some(serial),
            version: Some(ETCD_VERSION),
            db_size: 0,
        })
    };
    model
        .pods
        .keys()
        .map(|serial| (*serial, member(*serial)))
        .collect()
}

fn member_id(serial: Serial) -> MemberId {
    MemberId(u64::from(serial.0) + 1)
}
