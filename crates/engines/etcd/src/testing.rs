//! Scenes for unit tests: the objects of a cluster as Kubernetes stores them, and the state of etcd. A test starts with a
//! converged scene and changes it.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::conditions::ConditionType;
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, labels};
use evenkeel_kit::testing::merge_json;
use evenkeel_kit::tls_secrets::{self, key_pair};
use evenkeel_kit::volumes::VolumeLocation;
use evenkeel_kit::{certificates, claims};
use evenkeel_runtime::{CacheSync, Engine, Observation, Observed, OwnedCache, Plan, UnixTime};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::runtime::reflector;
use serde_json::{Value, json};

use crate::build::{self, MemberRef, pod::PodParams, service, tls};
use crate::decide::Etcd;
use crate::desired::DesiredCluster;
use crate::facts::{
    EtcdFacts, ListedMember, MemberHealth, Membership, OwnedObject, StartMode, UnknownMember,
};
use crate::identity::{ClusterId, Identity, Intent, MemberId, SeedStorage, Uid};
use crate::names::{Epoch, Lineage, Serial, member_name};
use crate::observe::ObservedCluster;
use crate::observe::etcd::EtcdState;
use crate::observe::objects::Caches;
use crate::observe::secrets::TlsState;
use crate::plan::EtcdDisruption;
use crate::reconciler::EtcdReconciler;
use crate::view::quorum;

pub(crate) use evenkeel_kit::testing::change;

/// The time of every scene.
pub(crate) const NOW: UnixTime = UnixTime(1_800_000_000);
/// The uid of the resource.
pub(crate) const RESOURCE: Uid = Uid(1);
/// The lineage of the cluster.
pub(crate) const LINEAGE: Lineage = Lineage(7);
/// The cluster ID.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xcafe_0000_0000_0001);

/// Returns the resource `shop/orders` with version 3.6.16, three members, and these fields in its spec.
pub(crate) fn resource(spec: Value) -> EtcdCluster {
    let mut full_spec = json!({ "version": "3.6.16", "members": 3 });
    merge_json(&mut full_spec, spec);
    let metadata = json!({ "name": "orders", "namespace": "shop", "uid": RESOURCE.to_string(), "generation": 1 });
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": full_spec,
    }))
    .unwrap()
}

/// Returns the desired state of such a resource.
pub(crate) fn desired(spec: Value) -> DesiredCluster {
    DesiredCluster::of(&resource(spec)).unwrap()
}

/// Returns a member of the first epoch.
pub(crate) fn member(serial: u16) -> MemberRef {
    MemberRef {
        lineage: LINEAGE,
        epoch: Epoch::FIRST,
        serial: Serial(serial),
    }
}

/// Returns the name of a member.
pub(crate) fn name(serial: u16) -> String {
    member_name("orders", LINEAGE, Serial(serial))
}

/// Returns the ID that etcd gave a member.
pub(crate) fn id(serial: u16) -> MemberId {
    MemberId(0x8e9e_05c5_2164_6900 + u64::from(serial))
}

/// Returns the uid of a member's pod.
pub(crate) fn pod_uid(serial: u16) -> Uid {
    Uid(0x1_0000 + u128::from(serial))
}

/// Returns the uid of a member's PVC.
pub(crate) fn claim_uid(serial: u16) -> Uid {
    Uid(0x2_0000 + u128::from(serial))
}

/// Returns caches without any object.
pub(crate) fn empty_caches() -> Caches {
    Caches {
        clusters: reflector::store().0,
        pods: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        claims: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        identities: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        services: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        pdbs: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        schedules: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        restores: reflector::store().0,
        nodes: reflector::store().0,
        sync: CacheSync::default(),
    }
}

/// An observed cluster and the state of etcd.
pub(crate) struct Scene {
    pub(crate) observed: ObservedCluster,
    pub(crate) state: EtcdState,
}

impl Scene {
    /// Returns a converged cluster.
    pub(crate) fn converged(members: u16) -> Self {
        Self::with(members, json!({ "members": members }))
    }

    /// Returns a cluster of this many healthy members, with these fields in its spec.
    pub(crate) fn with(members: u16, spec: Value) -> Self {
        let mut scene = Self::nothing(spec);
        let state = &mut scene.state;
        state.membership = Observed::Present(Membership {
            reported_by: Serial(0),
            members: Vec::new(),
            unknown: Vec::new(),
        });
        state.leader = Some(id(0));
        state.client_read = Observed::Present(());
        let identity = Identity {
            lineage: LINEAGE,
            epoch: Epoch::FIRST,
            seed: Serial(0),
            seed_storage: Some(SeedStorage::Claim(claim_uid(0))),
            cluster_id: Some(CLUSTER),
            bootstrapped: true,
            next_serial: Serial(members),
            intent: None,
            replacements: BTreeSet::new(),
            snapshotted_version: None,
            highest_epoch: None,
            next_epoch: None,
            replaced: None,
            restore: None,
            resource_uid: RESOURCE,
        };
        scene.identify(identity);
        let desired = &scene.observed.desired;
        scene.observed.peer_service = Some(service::peer(desired).unwrap());
        scene.observed.client_service = Some(service::client(desired).unwrap());
        let min_available = u8::try_from(quorum(usize::from(members))).unwrap();
        scene.observed.pdb = Some(build::pod_disruption_budget(desired, min_available).unwrap());
        for serial in 0..members {
            scene.add_claim(serial, true);
            scene.add_pod(serial, &StartMode::ExistingData);
            scene.list_member(serial, false, true);
            scene.state(serial);
        }
        scene
    }

    /// Returns a cluster of three healthy members and a learner that joins.
    pub(crate) fn with_newcomer() -> Self {
        let mut scene = Self::with(3, json!({ "members": 4 }));
        scene.turn(|identity| identity.next_serial = Serial(4));
        scene.add_claim(3, false);
        scene.add_pod(
            3,
            &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
        );
        scene.list_member(3, true, false);
        scene
    }

    /// Returns a cluster whose resource was just created.
    pub(crate) fn nothing(spec: Value) -> Self {
        let resource = resource(spec);
        let observed = ObservedCluster {
            desired: DesiredCluster::of(&resource).unwrap(),
            rejection: None,
            resource,
            identity: None,
            identity_taken: false,
            pods: BTreeMap::new(),
            restore_pods: BTreeMap::new(),
            restore_request: None,
            source: None,
            claims: BTreeMap::new(),
            volume_locations: BTreeMap::new(),
            misplaced: BTreeSet::new(),
            missing_class: None,
            hostnames: BTreeMap::new(),
            nodes: None,
            volume_problems: BTreeMap::new(),
            peer_service: None,
            client_service: None,
            pdb: None,
            backup_schedule: None,
            tls: TlsState::default(),
            last_nudge: None,
            now: NOW,
            lineage: LINEAGE,
        };
        Self {
            observed,
            state: EtcdState::default(),
        }
    }

    /// Sets the identity.
    pub(crate) fn identify(&mut self, identity: Identity) {
        let mut object = build::identity(&self.observed.desired, &identity).unwrap();
        change(
            &mut object,
            json!({ "metadata": { "uid": Uid(2).to_string(), "resourceVersion": "20" } }),
        );
        self.observed.identity = Some((object, identity));
    }

    /// Changes the identity.
    pub(crate) fn turn(&mut self, change: impl FnOnce(&mut Identity)) {
        let (_, mut identity) = self.observed.identity.take().unwrap();
        change(&mut identity);
        self.identify(identity);
    }

    /// Makes bootstrap unfinished: no clients are routed.
    pub(crate) fn make_bootstrap_unfinished(&mut self) {
        self.turn(|identity| identity.bootstrapped = false);
        for pod in self.observed.pods.values_mut() {
            change(
                pod,
                json!({ "metadata": { "labels": { labels::ROLE: null } } }),
            );
        }
    }

    /// Adds the bound PVC of a member, with the joined volume recorded if the member has joined.
    pub(crate) fn add_claim(&mut self, serial: u16, joined: bool) {
        let desired = &self.observed.desired;
        let claim = build::claim::claim(desired, member(serial), desired.owns_data());
        let Some(mut claim) = claim.unwrap() else {
            return;
        };
        let (uid, volume) = (claim_uid(serial), format!("pv-{serial}"));
        change(
            &mut claim,
            json!({
                "metadata": { "uid": uid.to_string(), "resourceVersion": format!("{}", 30 + serial) },
                "spec": { "volumeName": volume },
                "status": { "phase": "Bound" },
            }),
        );
        if joined {
            let joined_on = claims::joined_on(uid, &volume);
            let version = &self.observed.desired.version;
            let annotations = json!({ labels::JOINED_VOLUME: joined_on, labels::VERSION: version });
            change(
                &mut claim,
                json!({ "metadata": { "annotations": annotations } }),
            );
        }
        self.observed.claims.insert(uid, claim);
    }

    /// Adds the pod of a member: Ready if it starts on existing data, else as Kubernetes creates it.
    pub(crate) fn add_pod(&mut self, serial: u16, start: &StartMode) {
        let params = PodParams {
            member: member(serial),
            start: start.clone(),
            seed: false,
        };
        let mut pod = build::pod::pod(&self.observed.desired, &params).unwrap();
        let created = "2027-01-15T07:00:00Z";
        let metadata = json!({ "uid": pod_uid(serial).to_string(), "creationTimestamp": created,
            "resourceVersion": format!("{}", 40 + serial) });
        change(
            &mut pod,
            json!({ "metadata": metadata, "spec": { "nodeName": format!("node-{serial}") },
                "status": { "phase": "Running", "podIP": format!("10.0.0.{serial}") } }),
        );
        if *start == StartMode::ExistingData {
            let is_true = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": created });
            let conditions = [labels::GATE_JOINED, "ContainersReady", "Ready"].map(is_true);
            let running = json!({ "name": build::pod::CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": created } } });
            change(
                &mut pod,
                json!({ "metadata": { "labels": { labels::ROLE: labels::ROLE_VOTER } },
                    "status": { "conditions": conditions, "containerStatuses": [running] } }),
            );
        }
        self.observed.pods.insert(pod_uid(serial), pod);
    }

    /// Adds a member to etcd's member list.
    pub(crate) fn list_member(&mut self, serial: u16, learner: bool, started: bool) {
        if let Observed::Present(membership) = &mut self.state.membership {
            membership
                .members
                .retain(|entry| entry.serial != Serial(serial));
            membership.members.push(ListedMember {
                serial: Serial(serial),
                id: id(serial),
                is_learner: learner,
                has_started: started,
            });
            membership.members.sort();
        }
    }

    /// Edits the spec. No pod was built from the new one.
    pub(crate) fn edit_spec(&mut self, spec: Value) {
        let mut edited = serde_json::to_value(&self.observed.resource.spec).unwrap();
        merge_json(&mut edited, spec);
        self.observed.resource.spec = serde_json::from_value(edited).unwrap();
        self.observed.desired = DesiredCluster::of(&self.observed.resource).unwrap();
    }

    /// Replaces a member's pod by one that was built from the current spec.
    pub(crate) fn rebuild_pod(&mut self, serial: u16) {
        self.add_pod(serial, &StartMode::ExistingData);
        let version = self.observed.desired.version;
        change(
            self.claim(serial),
            json!({ "metadata": { "annotations": { labels::VERSION: version } } }),
        );
        if let Some(Observed::Present(health)) = self.state.health.get_mut(&Serial(serial)) {
            health.version = Some(version);
        }
    }

    /// Adds a healthy voter whose pod was built from the current spec.
    pub(crate) fn add_current_voter(&mut self, serial: u16) {
        self.add_claim(serial, true);
        self.add_pod(serial, &StartMode::ExistingData);
        self.list_member(serial, false, true);
        self.state(serial);
    }

    /// Makes a member's pod wait for an image that cannot be pulled.
    pub(crate) fn lose_image(&mut self, serial: u16, seconds: i64) {
        self.make_unreachable(serial, seconds);
        let waiting = json!({ "name": build::pod::CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff" } } });
        change(
            self.pod(serial),
            json!({ "status": { "containerStatuses": [waiting] } }),
        );
    }

    /// Adds an unknown voter to etcd's member list.
    pub(crate) fn add_unknown_member(&mut self, id: u64, started: bool) {
        if let Observed::Present(membership) = &mut self.state.membership {
            membership.unknown.push(UnknownMember {
                id: MemberId(id),
                is_learner: false,
                has_started: started,
                first_seen: NOW,
            });
        }
    }

    /// Records on a PVC that its member was removed at [`NOW`].
    pub(crate) fn mark_removed(&mut self, serial: u16) {
        let removed = json!({ labels::REMOVED_AT: claims::removed_at(claim_uid(serial), NOW) });
        change(
            self.claim(serial),
            json!({ "metadata": { "annotations": removed } }),
        );
    }

    /// Makes a member unreachable for this many seconds, and its pod not Ready.
    pub(crate) fn make_unreachable(&mut self, serial: u16, seconds: i64) {
        self.stop_answering(serial);
        let since = UnixTime(NOW.0 - seconds);
        self.state.unreachable_since.insert(Serial(serial), since);
        let since = jiff::Timestamp::from_second(since.0).unwrap().to_string();
        self.make_unready(serial, &since, json!({}));
    }

    /// Makes a member's new pod unschedulable, with its volume at this location.
    pub(crate) fn make_unschedulable(&mut self, serial: u16, volume: Option<VolumeLocation>) {
        self.stop_answering(serial);
        let now = jiff::Timestamp::from_second(NOW.0).unwrap().to_string();
        let unschedulable = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available", "lastTransitionTime": now });
        let created = json!({ "creationTimestamp": now });
        let status = json!({ "phase": "Pending", "conditions": [unschedulable] });
        change(
            self.pod(serial),
            json!({ "metadata": created, "spec": { "nodeName": null }, "status": status }),
        );
        self.observed
            .volume_locations
            .extend(volume.map(|location| (name(serial), location)));
    }

    /// Makes a member's container crash for this many seconds.
    pub(crate) fn crashes(&mut self, serial: u16, seconds: i64) {
        self.stop_answering(serial);
        let since = jiff::Timestamp::from_second(NOW.0 - seconds)
            .unwrap()
            .to_string();
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let container = json!({ "name": "etcd", "restartCount": 5, "ready": false, "image": "", "imageID": "",
            "state": waiting });
        self.make_unready(serial, &since, json!({ "containerStatuses": [container] }));
    }

    /// Makes a member's pod not Ready since this time, with these fields in its status.
    pub(crate) fn make_unready(&mut self, serial: u16, since: &str, mut status: Value) {
        let condition = |kind: &str, holds: &str| json!({ "type": kind, "status": holds, "lastTransitionTime": since });
        let unready = ["Ready", "ContainersReady"].map(|kind| condition(kind, "False"));
        let [ready, containers] = unready;
        status["conditions"] = json!([condition(labels::GATE_JOINED, "True"), ready, containers]);
        change(self.pod(serial), json!({ "status": status }));
    }

    /// Makes a member answer and serve.
    pub(crate) fn state(&mut self, serial: u16) {
        let health = MemberHealth {
            cluster_id: CLUSTER,
            member_id: id(serial),
            is_serving: true,
            is_caught_up: true,
            is_leader: serial == 0,
            version: Some(self.observed.desired.version),
            db_size: 20 << 20,
        };
        self.state
            .health
            .insert(Serial(serial), Observed::Present(health));
        self.state
            .versions
            .insert(Serial(serial), "3.6.16".to_owned());
    }

    /// Makes a member not answer.
    pub(crate) fn stop_answering(&mut self, serial: u16) {
        self.state.health.insert(Serial(serial), Observed::Unknown);
        self.state.versions.remove(&Serial(serial));
    }

    /// Makes these members not answer and the others not serve, so that the member list is unknown.
    pub(crate) fn lose_quorum(&mut self, not_answering: &[u16]) {
        not_answering
            .iter()
            .for_each(|serial| self.stop_answering(*serial));
        for health in self.state.health.values_mut() {
            if let Observed::Present(health) = health {
                health.is_serving = false;
            }
        }
        self.state.membership = Observed::Unknown;
        self.state.leader = None;
        self.state.client_read = Observed::Absent;
    }

    pub(crate) fn pod(&mut self, serial: u16) -> &mut Pod {
        self.observed.pods.get_mut(&pod_uid(serial)).unwrap()
    }

    pub(crate) fn claim(&mut self, serial: u16) -> &mut PersistentVolumeClaim {
        self.observed.claims.get_mut(&claim_uid(serial)).unwrap()
    }

    pub(crate) fn facts(&self) -> EtcdFacts {
        self.observed.facts(&self.state)
    }

    /// Returns the observation as the controller passes it to actions.
    pub(crate) fn observation(self) -> Observation<EtcdReconciler> {
        Observation {
            facts: self.facts(),
            objects: self.observed,
            probe_result: self.state,
            is_live: true,
        }
    }

    /// Returns the membership change in the plan.
    pub(crate) fn asked(&self) -> Option<Intent> {
        match self.plan().disruption {
            Some(EtcdDisruption::ChangeMembership { intent, .. }) => Some(intent),
            _ => None,
        }
    }

    pub(crate) fn plan(&self) -> Plan<Etcd> {
        Etcd::decide(&self.facts())
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        crate::status::status(&self.observed, &self.facts(), &self.plan(), None)
    }

    /// Sets the status of the resource.
    pub(crate) fn set_status(&mut self, status: EtcdClusterStatus) {
        self.observed.resource.status = Some(status);
        self.observed.desired = DesiredCluster::of(&self.observed.resource).unwrap();
    }
}

/// Returns every TLS Secret of a cluster, generated at this time.
pub(crate) fn secrets(desired: &DesiredCluster, at: UnixTime) -> BTreeMap<OwnedObject, Secret> {
    let mut secrets = BTreeMap::new();
    for spec in tls::spec(desired).secrets {
        let (pair, ca) = match &spec.leaf {
            None => {
                let ca = certificates::generate_ca("ca", at).unwrap();
                (ca.clone(), ca.certificate)
            }
            Some(leaf) => {
                let ca = key_pair(&secrets[&leaf.signed_by]).unwrap();
                let pair = certificates::sign_leaf(leaf, &ca, at).unwrap();
                (pair, ca.certificate)
            }
        };
        let cluster = desired.cluster_ref();
        let mut secret = tls_secrets::build(cluster, &spec.name, &pair, &ca, None).unwrap();
        let metadata = json!({ "uid": Uid(3).to_string(), "resourceVersion": "50" });
        change(&mut secret, json!({ "metadata": metadata }));
        secrets.insert(spec.key, secret);
    }
    secrets
}

/// Returns the status, reason and message of a condition.
pub(crate) fn condition(status: &EtcdClusterStatus, type_: ConditionType) -> (&str, &str, &str) {
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_.to_string())
        .unwrap();
    (&condition.status, &condition.reason, &condition.message)
}
