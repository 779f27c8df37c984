//! Scenes for unit tests: a cluster's objects as Kubernetes would have them and the answers that etcd would give, from a
//! converged one that a test then breaks.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::conditions::ConditionType;
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, labels};
use evenkeel_runtime::{Engine, Observation, Observed, Plan, UnixTime};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::build::{self, MemberRef, pod::PodParams, service, tls};
use crate::certificates::{self, KeyPair};
use crate::decide::Etcd;
use crate::desired::DesiredCluster;
use crate::facts::{
    EtcdFacts, ListedMember, MemberHealth, Membership, OwnedObject, StartMode, UnknownMember,
};
use crate::identity::{ClusterId, Identity, Intent, MemberId, SeedStorage, Uid};
use crate::names::{Epoch, Lineage, Serial, member_name};
use crate::observe::ObservedCluster;
use crate::observe::etcd::EtcdState;
use crate::observe::secrets::{TlsState, key_pair};
use crate::observe::volumes::VolumeLocation;
use crate::plan::EtcdDisruption;
use crate::reconciler::EtcdReconciler;
use crate::view::quorum;

/// When scenes happen.
pub(crate) const NOW: UnixTime = UnixTime(1_800_000_000);
/// The resource in a scene.
pub(crate) const RESOURCE: Uid = Uid(1);
/// The history of the cluster in a scene.
pub(crate) const LINEAGE: Lineage = Lineage(7);
/// What etcd calls the cluster in a scene.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xcafe_0000_0000_0001);

/// `shop/orders`, with this in its spec beside the version.
pub(crate) fn resource(spec: Value) -> EtcdCluster {
    let mut whole = json!({ "version": "3.6.16", "members": 3 });
    merge_json(&mut whole, spec);
    let metadata = json!({ "name": "orders", "namespace": "shop", "uid": RESOURCE.to_string(), "generation": 1 });
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": whole,
    }))
    .unwrap()
}

/// What such a resource wants.
pub(crate) fn desired(spec: Value) -> DesiredCluster {
    DesiredCluster::of(&resource(spec)).unwrap()
}

/// A member of the scene's lineage, in its first epoch.
pub(crate) fn member(serial: u16) -> MemberRef {
    MemberRef {
        lineage: LINEAGE,
        epoch: Epoch::FIRST,
        serial: Serial(serial),
    }
}

/// What a member is called.
pub(crate) fn name(serial: u16) -> String {
    member_name("orders", LINEAGE, Serial(serial))
}

/// What etcd calls a member.
pub(crate) fn id(serial: u16) -> MemberId {
    MemberId(0x8e9e_05c5_2164_6900 + u64::from(serial))
}

/// The uid of a member's pod.
pub(crate) fn pod_uid(serial: u16) -> Uid {
    Uid(0x1_0000 + u128::from(serial))
}

/// The uid of a member's claim.
pub(crate) fn claim_uid(serial: u16) -> Uid {
    Uid(0x2_0000 + u128::from(serial))
}

/// Changes an object as if it were text: what `with` has replaces what is there, lists as a whole;
/// what it has as null goes.
pub(crate) fn change<K: Serialize + DeserializeOwned>(object: &mut K, with: Value) {
    let mut whole = serde_json::to_value(&*object).unwrap();
    merge_json(&mut whole, with);
    *object = serde_json::from_value(whole).unwrap();
}

fn merge_json(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                match value {
                    Value::Null => {
                        under.remove(&key);
                    }
                    value => merge_json(under.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// What was found of a cluster, and what etcd said.
pub(crate) struct Scene {
    pub(crate) observed: ObservedCluster,
    pub(crate) state: EtcdState,
}

impl Scene {
    /// All as the spec says.
    pub(crate) fn converged(members: u16) -> Self {
        Self::with(members, json!({ "members": members }))
    }

    /// So many members, all well, and a spec that may want something else.
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
            resource_uid: RESOURCE,
        };
        scene.identify(identity);
        let desired = &scene.observed.desired;
        scene.observed.peer_service = Some(service::peer(desired).unwrap());
        scene.observed.client_service = Some(service::client(desired).unwrap());
        let least = u8::try_from(quorum(usize::from(members))).unwrap();
        scene.observed.pdb = Some(build::pod_disruption_budget(desired, least).unwrap());
        for serial in 0..members {
            scene.has_claim(serial, true);
            scene.has_pod(serial, &StartMode::ExistingData);
            scene.is_listed(serial, false, true);
            scene.state(serial);
        }
        scene
    }

    /// Three members, all well, and a fourth that is on its way.
    pub(crate) fn with_newcomer() -> Self {
        let mut scene = Self::with(3, json!({ "members": 4 }));
        scene.turn(|identity| identity.next_serial = Serial(4));
        scene.has_claim(3, false);
        scene.has_pod(
            3,
            &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
        );
        scene.is_listed(3, true, false);
        scene
    }

    /// A resource that was just created.
    pub(crate) fn nothing(spec: Value) -> Self {
        let resource = resource(spec);
        let observed = ObservedCluster {
            desired: DesiredCluster::of(&resource).unwrap(),
            rejection: None,
            resource,
            identity: None,
            identity_taken: false,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            volume_locations: BTreeMap::new(),
            misplaced: BTreeSet::new(),
            missing_class: None,
            hostnames: BTreeMap::new(),
            peer_service: None,
            client_service: None,
            pdb: None,
            tls: TlsState::default(),
            now: NOW,
            lineage: LINEAGE,
        };
        Self {
            observed,
            state: EtcdState::default(),
        }
    }

    /// Gives the cluster this identity.
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

    /// Has the bootstrap not be over: no clients are let in.
    pub(crate) fn is_unsealed(&mut self) {
        self.turn(|identity| identity.bootstrapped = false);
        for pod in self.observed.pods.values_mut() {
            change(
                pod,
                json!({ "metadata": { "labels": { labels::ROLE: null } } }),
            );
        }
    }

    /// Gives a member its claim, bound; and joined on if it has.
    pub(crate) fn has_claim(&mut self, serial: u16, joined: bool) {
        let Some(mut claim) = build::claim::claim(&self.observed.desired, member(serial)).unwrap()
        else {
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
            let on = build::claim::joined_on(uid, &volume);
            let version = &self.observed.desired.version;
            let written = json!({ labels::JOINED_VOLUME: on, labels::VERSION: version });
            change(
                &mut claim,
                json!({ "metadata": { "annotations": written } }),
            );
        }
        self.observed.claims.insert(uid, claim);
    }

    /// Gives a member its pod: up and ready if it starts on its own data, else as Kubernetes creates it.
    pub(crate) fn has_pod(&mut self, serial: u16, start: &StartMode) {
        let made = PodParams {
            member: member(serial),
            start: start.clone(),
            seed: false,
        };
        let mut pod = build::pod::pod(&self.observed.desired, &made).unwrap();
        let created = "2027-01-15T07:00:00Z";
        let metadata = json!({ "uid": pod_uid(serial).to_string(), "creationTimestamp": created,
            "resourceVersion": format!("{}", 40 + serial) });
        change(
            &mut pod,
            json!({ "metadata": metadata, "spec": { "nodeName": format!("node-{serial}") },
                "status": { "phase": "Running", "podIP": format!("10.0.0.{serial}") } }),
        );
        if *start == StartMode::ExistingData {
            let holds = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": created });
            let conditions = [labels::GATE_JOINED, "ContainersReady", "Ready"].map(holds);
            let runs = json!({ "name": build::pod::CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": created } } });
            change(
                &mut pod,
                json!({ "metadata": { "labels": { labels::ROLE: labels::ROLE_VOTER } },
                    "status": { "conditions": conditions, "containerStatuses": [runs] } }),
            );
        }
        self.observed.pods.insert(pod_uid(serial), pod);
    }

    /// Has etcd list a member.
    pub(crate) fn is_listed(&mut self, serial: u16, learner: bool, started: bool) {
        if let Observed::Present(told) = &mut self.state.membership {
            told.members.retain(|entry| entry.serial != Serial(serial));
            told.members.push(ListedMember {
                serial: Serial(serial),
                id: id(serial),
                is_learner: learner,
                has_started: started,
            });
            told.members.sort();
        }
    }

    /// Has the user want something else, with which no pod was built.
    pub(crate) fn is_edited(&mut self, spec: Value) {
        let mut whole = serde_json::to_value(&self.observed.resource.spec).unwrap();
        merge_json(&mut whole, spec);
        self.observed.resource.spec = serde_json::from_value(whole).unwrap();
        self.observed.desired = DesiredCluster::of(&self.observed.resource).unwrap();
    }

    /// Has a member's pod be built from what is wanted now.
    pub(crate) fn is_rebuilt(&mut self, serial: u16) {
        self.has_pod(serial, &StartMode::ExistingData);
        let version = self.observed.desired.version;
        change(
            self.claim(serial),
            json!({ "metadata": { "annotations": { labels::VERSION: version } } }),
        );
        if let Some(Observed::Present(health)) = self.state.health.get_mut(&Serial(serial)) {
            health.version = Some(version);
        }
    }

    /// Has one more member be there, a voter and well, built from what is wanted now.
    pub(crate) fn is_rebuilt_anew(&mut self, serial: u16) {
        self.has_claim(serial, true);
        self.has_pod(serial, &StartMode::ExistingData);
        self.is_listed(serial, false, true);
        self.state(serial);
    }

    /// Has a member's pod wait for an image that cannot be had.
    pub(crate) fn lacks_its_image(&mut self, serial: u16, seconds: i64) {
        self.is_out_of_reach(serial, seconds);
        let waits = json!({ "name": build::pod::CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff" } } });
        change(
            self.pod(serial),
            json!({ "status": { "containerStatuses": [waits] } }),
        );
    }

    /// Has etcd list a voter of somebody else's.
    pub(crate) fn has_stranger(&mut self, id: u64, started: bool) {
        if let Observed::Present(told) = &mut self.state.membership {
            told.unknown.push(UnknownMember {
                id: MemberId(id),
                is_learner: false,
                has_started: started,
                first_seen: NOW,
            });
        }
    }

    /// Has it written on a claim that its member was removed just now.
    pub(crate) fn is_marked_removed(&mut self, serial: u16) {
        let removed =
            json!({ labels::REMOVED_AT: build::claim::removed_at(claim_uid(serial), NOW) });
        change(
            self.claim(serial),
            json!({ "metadata": { "annotations": removed } }),
        );
    }

    /// Has nobody hear a member for so long, and Kubernetes not call its pod Ready.
    pub(crate) fn is_out_of_reach(&mut self, serial: u16, seconds: i64) {
        self.stops_answering(serial);
        let since = UnixTime(NOW.0 - seconds);
        self.state.unreachable_since.insert(Serial(serial), since);
        let since = jiff::Timestamp::from_second(since.0).unwrap().to_string();
        self.is_unready(serial, &since, json!({}));
    }

    /// Has Kubernetes find no node for a member's pod that was just created, and its volume be there.
    pub(crate) fn is_refused(&mut self, serial: u16, volume: Option<VolumeLocation>) {
        self.stops_answering(serial);
        let now = jiff::Timestamp::from_second(NOW.0).unwrap().to_string();
        let refused = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available", "lastTransitionTime": now });
        let created = json!({ "creationTimestamp": now });
        let status = json!({ "phase": "Pending", "conditions": [refused] });
        change(
            self.pod(serial),
            json!({ "metadata": created, "spec": { "nodeName": null }, "status": status }),
        );
        self.observed
            .volume_locations
            .extend(volume.map(|place| (name(serial), place)));
    }

    /// Has a member's container end at every start for so long.
    pub(crate) fn crashes(&mut self, serial: u16, seconds: i64) {
        self.stops_answering(serial);
        let since = jiff::Timestamp::from_second(NOW.0 - seconds)
            .unwrap()
            .to_string();
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let container = json!({ "name": "etcd", "restartCount": 5, "ready": false, "image": "", "imageID": "",
            "state": waiting });
        self.is_unready(serial, &since, json!({ "containerStatuses": [container] }));
    }

    fn is_unready(&mut self, serial: u16, since: &str, mut status: Value) {
        let condition = |kind: &str, holds: &str| json!({ "type": kind, "status": holds, "lastTransitionTime": since });
        let unready = ["Ready", "ContainersReady"].map(|kind| condition(kind, "False"));
        let [ready, containers] = unready;
        status["conditions"] = json!([condition(labels::GATE_JOINED, "True"), ready, containers]);
        change(self.pod(serial), json!({ "status": status }));
    }

    /// Has a member answer, and serve.
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

    /// Has a member answer no more.
    pub(crate) fn stops_answering(&mut self, serial: u16) {
        self.state.health.insert(Serial(serial), Observed::Unknown);
        self.state.versions.remove(&Serial(serial));
    }

    /// Has most members answer no more, so that etcd cannot be asked who they are.
    pub(crate) fn loses_its_quorum(&mut self, silent: &[u16]) {
        silent
            .iter()
            .for_each(|serial| self.stops_answering(*serial));
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

    /// All of it, as the loop hands it to whoever acts.
    pub(crate) fn observation(self) -> Observation<EtcdReconciler> {
        Observation {
            facts: self.facts(),
            objects: self.observed,
            probe_result: self.state,
            is_live: true,
        }
    }

    /// What etcd is to be asked for, if it is.
    pub(crate) fn asked(&self) -> Option<Intent> {
        match self.plan().disruption {
            Some(EtcdDisruption::ChangeMembership { intent, .. }) => Some(intent),
            _ => None,
        }
    }

    pub(crate) fn plan(&self) -> Plan<Etcd> {
        Etcd::decide(&self.facts())
    }

    /// What people are told.
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        crate::status::status(&self.observed, &self.facts(), &self.plan(), None)
    }

    /// Has people been told already, of this or of something else.
    pub(crate) fn was_told(&mut self, status: EtcdClusterStatus) {
        self.observed.resource.status = Some(status);
        self.observed.desired = DesiredCluster::of(&self.observed.resource).unwrap();
    }
}

/// Every Secret of a cluster as it should be, made at `made`.
pub(crate) fn secrets(desired: &DesiredCluster, made: UnixTime) -> BTreeMap<OwnedObject, Secret> {
    let mut all = BTreeMap::new();
    for object in tls::SECRETS {
        let secret = match tls::leaf(desired, object) {
            None => {
                let authority = certificates::generate_ca("a", made).unwrap();
                secret(desired, object, &authority, &authority.certificate)
            }
            Some(leaf) => {
                let by = key_pair(&all[&leaf.signed_by]).unwrap();
                secret(
                    desired,
                    object,
                    &certificates::sign_leaf(&leaf, &by, made).unwrap(),
                    &by.certificate,
                )
            }
        };
        all.insert(object, secret);
    }
    all
}

fn secret(
    desired: &DesiredCluster,
    object: OwnedObject,
    pair: &KeyPair,
    authority: &str,
) -> Secret {
    let mut secret: Secret = serde_json::from_value(json!({ "metadata": {
        "name": tls::secret_name(desired, object).unwrap(),
        "uid": Uid(3).to_string(),
        "resourceVersion": "50",
        "labels": build::common_labels(desired),
        "ownerReferences": [build::owner_reference(desired)],
    } }))
    .unwrap();
    let texts = [
        ("ca.crt", authority),
        ("tls.crt", &pair.certificate),
        ("tls.key", &pair.key),
    ];
    secret.data = Some(
        texts
            .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
            .into(),
    );
    secret
}

/// A condition: whether it holds, why, and the sentence.
pub(crate) fn condition(status: &EtcdClusterStatus, about: ConditionType) -> (&str, &str, &str) {
    let condition = status
        .conditions
        .iter()
        .find(|one| one.type_ == about.to_string())
        .unwrap();
    (&condition.status, &condition.reason, &condition.message)
}
