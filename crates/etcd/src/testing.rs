//! Scenes for unit tests: a cluster's objects as Kubernetes would have them and the answers that etcd would give, from a
//! converged one that a test then breaks.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel::{Engine, Plan, Seen, Sight, Time};
use evenkeel_api::conditions::ConditionType;
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, labels};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::build::{self, Member, pod::Made, service, tls};
use crate::certificates::{self, Pair};
use crate::decide::Etcd;
use crate::facts::{Facts, Membership, Object, Registered, Start, Stranger, Voice};
use crate::identity::{ClusterId, Identity, Intent, MemberId, SeedOn, Uid};
use crate::names::{Epoch, Lineage, Serial, member_name};
use crate::observe::Found;
use crate::observe::ask::Answers;
use crate::observe::secrets::{Judged, pair};
use crate::observe::volumes::Place;
use crate::operator::Operator;
use crate::plan::Step;
use crate::view::quorum;
use crate::wanted::Wanted;

/// When scenes happen.
pub(crate) const NOW: Time = Time(1_800_000_000);
/// The resource in a scene.
pub(crate) const RESOURCE: Uid = Uid(1);
/// The history of the cluster in a scene.
pub(crate) const LINEAGE: Lineage = Lineage(7);
/// What etcd calls the cluster in a scene.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xcafe_0000_0000_0001);

/// `shop/orders`, with this in its spec beside the version.
pub(crate) fn resource(spec: Value) -> EtcdCluster {
    let mut whole = json!({ "version": "3.6.16", "members": 3 });
    lay_over(&mut whole, spec);
    let metadata =
        json!({ "name": "orders", "namespace": "shop", "uid": RESOURCE.to_string(), "generation": 1 });
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": whole,
    }))
    .unwrap()
}

/// What such a resource wants.
pub(crate) fn wanted(spec: Value) -> Wanted {
    Wanted::of(&resource(spec)).unwrap()
}

/// A member of the scene's lineage, in its first epoch.
pub(crate) fn member(serial: u16) -> Member {
    Member { lineage: LINEAGE, epoch: Epoch::FIRST, serial: Serial(serial) }
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
    lay_over(&mut whole, with);
    *object = serde_json::from_value(whole).unwrap();
}

fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                match value {
                    Value::Null => {
                        under.remove(&key);
                    }
                    value => lay_over(under.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// What was found of a cluster, and what etcd said.
pub(crate) struct Scene {
    pub(crate) found: Found,
    pub(crate) answers: Answers,
}

impl Scene {
    /// All as the spec says.
    pub(crate) fn converged(members: u16) -> Self {
        Self::with(members, json!({ "members": members }))
    }

    /// So many members, all well, and a spec that may want something else.
    pub(crate) fn with(members: u16, spec: Value) -> Self {
        let mut scene = Self::nothing(spec);
        let answers = &mut scene.answers;
        answers.membership =
            Seen::Present(Membership { told_by: Serial(0), members: Vec::new(), strangers: Vec::new() });
        answers.leader = Some(id(0));
        answers.served = Seen::Present(());
        let identity = Identity {
            lineage: LINEAGE,
            epoch: Epoch::FIRST,
            seed: Serial(0),
            seed_on: Some(SeedOn::Claim(claim_uid(0))),
            cluster: Some(CLUSTER),
            sealed: true,
            next: Serial(members),
            intent: None,
            replaced: BTreeSet::new(),
            renewed: None,
            resource: RESOURCE,
        };
        scene.identify(identity);
        let wanted = &scene.found.wanted;
        scene.found.peer_service = Some(service::peer(wanted).unwrap());
        scene.found.client_service = Some(service::client(wanted).unwrap());
        let least = u8::try_from(quorum(usize::from(members))).unwrap();
        scene.found.budget = Some(build::budget(wanted, least).unwrap());
        for serial in 0..members {
            scene.has_claim(serial, true);
            scene.has_pod(serial, &Start::OwnData);
            scene.is_listed(serial, false, true);
            scene.speaks(serial);
        }
        scene
    }

    /// Three members, all well, and a fourth that is on its way.
    pub(crate) fn with_newcomer() -> Self {
        let mut scene = Self::with(3, json!({ "members": 4 }));
        scene.turn(|identity| identity.next = Serial(4));
        scene.has_claim(3, false);
        scene.has_pod(3, &Start::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()));
        scene.is_listed(3, true, false);
        scene
    }

    /// A resource that was just created.
    pub(crate) fn nothing(spec: Value) -> Self {
        let resource = resource(spec);
        let found = Found {
            wanted: Wanted::of(&resource).unwrap(),
            refused: None,
            resource,
            identity: None,
            identity_taken: false,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            places: BTreeMap::new(),
            misplaced: BTreeSet::new(),
            missing_class: None,
            hostnames: BTreeMap::new(),
            peer_service: None,
            client_service: None,
            budget: None,
            tls: Judged::default(),
            now: NOW,
            lineage: LINEAGE,
        };
        Self { found, answers: Answers::default() }
    }

    /// Gives the cluster this identity.
    pub(crate) fn identify(&mut self, identity: Identity) {
        let mut object = build::identity(&self.found.wanted, &identity).unwrap();
        change(&mut object, json!({ "metadata": { "uid": Uid(2).to_string(), "resourceVersion": "20" } }));
        self.found.identity = Some((object, identity));
    }

    /// Changes the identity.
    pub(crate) fn turn(&mut self, change: impl FnOnce(&mut Identity)) {
        let (_, mut identity) = self.found.identity.take().unwrap();
        change(&mut identity);
        self.identify(identity);
    }

    /// Has the bootstrap not be over: no clients are let in.
    pub(crate) fn is_unsealed(&mut self) {
        self.turn(|identity| identity.sealed = false);
        for pod in self.found.pods.values_mut() {
            change(pod, json!({ "metadata": { "labels": { labels::ROLE: null } } }));
        }
    }

    /// Gives a member its claim, bound; and joined on if it has.
    pub(crate) fn has_claim(&mut self, serial: u16, joined: bool) {
        let Some(mut claim) = build::claim::claim(&self.found.wanted, member(serial)).unwrap() else {
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
            let version = &self.found.wanted.version;
            let written = json!({ labels::JOINED_ON: on, labels::VERSION: version });
            change(&mut claim, json!({ "metadata": { "annotations": written } }));
        }
        self.found.claims.insert(uid, claim);
    }

    /// Gives a member its pod: up and ready if it starts on its own data, else as Kubernetes creates it.
    pub(crate) fn has_pod(&mut self, serial: u16, start: &Start) {
        let made = Made { member: member(serial), start: start.clone(), seed: false };
        let mut pod = build::pod::pod(&self.found.wanted, &made).unwrap();
        let created = "2027-01-15T07:00:00Z";
        let metadata = json!({ "uid": pod_uid(serial).to_string(), "creationTimestamp": created,
            "resourceVersion": format!("{}", 40 + serial) });
        change(
            &mut pod,
            json!({ "metadata": metadata, "spec": { "nodeName": format!("node-{serial}") },
                "status": { "phase": "Running", "podIP": format!("10.0.0.{serial}") } }),
        );
        if *start == Start::OwnData {
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
        self.found.pods.insert(pod_uid(serial), pod);
    }

    /// Has etcd list a member.
    pub(crate) fn is_listed(&mut self, serial: u16, learner: bool, started: bool) {
        if let Seen::Present(told) = &mut self.answers.membership {
            told.members.retain(|entry| entry.serial != Serial(serial));
            told.members.push(Registered { serial: Serial(serial), id: id(serial), learner, started });
            told.members.sort();
        }
    }

    /// Has the user want something else, with which no pod was built.
    pub(crate) fn is_edited(&mut self, spec: Value) {
        let mut whole = serde_json::to_value(&self.found.resource.spec).unwrap();
        lay_over(&mut whole, spec);
        self.found.resource.spec = serde_json::from_value(whole).unwrap();
        self.found.wanted = Wanted::of(&self.found.resource).unwrap();
    }

    /// Has a member's pod be built from what is wanted now.
    pub(crate) fn is_rebuilt(&mut self, serial: u16) {
        self.has_pod(serial, &Start::OwnData);
        let version = self.found.wanted.version;
        change(self.claim(serial), json!({ "metadata": { "annotations": { labels::VERSION: version } } }));
        if let Some(Seen::Present(voice)) = self.answers.voices.get_mut(&Serial(serial)) {
            voice.version = Some(version);
        }
    }

    /// Has one more member be there, a voter and well, built from what is wanted now.
    pub(crate) fn is_rebuilt_anew(&mut self, serial: u16) {
        self.has_claim(serial, true);
        self.has_pod(serial, &Start::OwnData);
        self.is_listed(serial, false, true);
        self.speaks(serial);
    }

    /// Has a member's pod wait for an image that cannot be had.
    pub(crate) fn lacks_its_image(&mut self, serial: u16, seconds: i64) {
        self.is_out_of_reach(serial, seconds);
        let waits = json!({ "name": build::pod::CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff" } } });
        change(self.pod(serial), json!({ "status": { "containerStatuses": [waits] } }));
    }

    /// Has etcd list a voter of somebody else's.
    pub(crate) fn has_stranger(&mut self, id: u64, started: bool) {
        if let Seen::Present(told) = &mut self.answers.membership {
            told.strangers.push(Stranger { id: MemberId(id), learner: false, started, since: NOW });
        }
    }

    /// Has it written on a claim that its member was removed just now.
    pub(crate) fn is_marked_removed(&mut self, serial: u16) {
        let removed = json!({ labels::REMOVED_AT: build::claim::removed_at(claim_uid(serial), NOW) });
        change(self.claim(serial), json!({ "metadata": { "annotations": removed } }));
    }

    /// Has nobody hear a member for so long, and Kubernetes not call its pod Ready.
    pub(crate) fn is_out_of_reach(&mut self, serial: u16, seconds: i64) {
        self.falls_silent(serial);
        let since = Time(NOW.0 - seconds);
        self.answers.silent.insert(Serial(serial), since);
        let since = jiff::Timestamp::from_second(since.0).unwrap().to_string();
        self.is_unready(serial, &since, json!({}));
    }

    /// Has Kubernetes find no node for a member's pod that was just created, and its volume be there.
    pub(crate) fn is_refused(&mut self, serial: u16, volume: Option<Place>) {
        self.falls_silent(serial);
        let now = jiff::Timestamp::from_second(NOW.0).unwrap().to_string();
        let refused = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available", "lastTransitionTime": now });
        let created = json!({ "creationTimestamp": now });
        let status = json!({ "phase": "Pending", "conditions": [refused] });
        change(
            self.pod(serial),
            json!({ "metadata": created, "spec": { "nodeName": null }, "status": status }),
        );
        self.found.places.extend(volume.map(|place| (name(serial), place)));
    }

    /// Has a member's container end at every start for so long.
    pub(crate) fn crashes(&mut self, serial: u16, seconds: i64) {
        self.falls_silent(serial);
        let since = jiff::Timestamp::from_second(NOW.0 - seconds).unwrap().to_string();
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let container = json!({ "name": "etcd", "restartCount": 5, "ready": false, "image": "", "imageID": "",
            "state": waiting });
        self.is_unready(serial, &since, json!({ "containerStatuses": [container] }));
    }

    fn is_unready(&mut self, serial: u16, since: &str, mut status: Value) {
        let condition =
            |kind: &str, holds: &str| json!({ "type": kind, "status": holds, "lastTransitionTime": since });
        let unready = ["Ready", "ContainersReady"].map(|kind| condition(kind, "False"));
        let [ready, containers] = unready;
        status["conditions"] = json!([condition(labels::GATE_JOINED, "True"), ready, containers]);
        change(self.pod(serial), json!({ "status": status }));
    }

    /// Has a member answer, and serve.
    pub(crate) fn speaks(&mut self, serial: u16) {
        let voice = Voice {
            cluster: CLUSTER,
            id: id(serial),
            serves: true,
            caught_up: true,
            leads: serial == 0,
            version: Some(self.found.wanted.version),
            size: 20 << 20,
        };
        self.answers.voices.insert(Serial(serial), Seen::Present(voice));
        self.answers.versions.insert(Serial(serial), "3.6.16".to_owned());
    }

    /// Has a member answer no more.
    pub(crate) fn falls_silent(&mut self, serial: u16) {
        self.answers.voices.insert(Serial(serial), Seen::Unknown);
        self.answers.versions.remove(&Serial(serial));
    }

    /// Has most members answer no more, so that etcd cannot be asked who they are.
    pub(crate) fn loses_its_quorum(&mut self, silent: &[u16]) {
        silent.iter().for_each(|serial| self.falls_silent(*serial));
        for voice in self.answers.voices.values_mut() {
            if let Seen::Present(voice) = voice {
                voice.serves = false;
            }
        }
        self.answers.membership = Seen::Unknown;
        self.answers.leader = None;
        self.answers.served = Seen::Absent;
    }

    pub(crate) fn pod(&mut self, serial: u16) -> &mut Pod {
        self.found.pods.get_mut(&pod_uid(serial)).unwrap()
    }

    pub(crate) fn claim(&mut self, serial: u16) -> &mut PersistentVolumeClaim {
        self.found.claims.get_mut(&claim_uid(serial)).unwrap()
    }

    pub(crate) fn facts(&self) -> Facts {
        self.found.facts(&self.answers)
    }

    /// All of it, as the loop hands it to whoever acts.
    pub(crate) fn sight(self) -> Sight<Operator> {
        Sight { facts: self.facts(), found: self.found, probed: self.answers, live: true }
    }

    /// What etcd is to be asked for, if it is.
    pub(crate) fn asked(&self) -> Option<Intent> {
        match self.plan().step {
            Some(Step::Call { intent, .. }) => Some(intent),
            _ => None,
        }
    }

    pub(crate) fn plan(&self) -> Plan<Etcd> {
        Etcd::decide(&self.facts())
    }

    /// What people are told.
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        crate::tell::status(&self.found, &self.facts(), &self.plan(), None)
    }

    /// Has people been told already, of this or of something else.
    pub(crate) fn was_told(&mut self, status: EtcdClusterStatus) {
        self.found.resource.status = Some(status);
        self.found.wanted = Wanted::of(&self.found.resource).unwrap();
    }
}

/// Every Secret of a cluster as it should be, made at `made`.
pub(crate) fn secrets(wanted: &Wanted, made: Time) -> BTreeMap<Object, Secret> {
    let mut all = BTreeMap::new();
    for object in tls::SECRETS {
        let secret = match tls::leaf(wanted, object) {
            None => {
                let authority = certificates::authority("a", made).unwrap();
                secret(wanted, object, &authority, &authority.certificate)
            }
            Some(leaf) => {
                let by = pair(&all[&leaf.signed_by]).unwrap();
                secret(wanted, object, &certificates::signed(&leaf, &by, made).unwrap(), &by.certificate)
            }
        };
        all.insert(object, secret);
    }
    all
}

fn secret(wanted: &Wanted, object: Object, pair: &Pair, authority: &str) -> Secret {
    let mut secret: Secret = serde_json::from_value(json!({ "metadata": {
        "name": tls::secret_name(wanted, object).unwrap(),
        "uid": Uid(3).to_string(),
        "resourceVersion": "50",
        "labels": build::common_labels(wanted),
        "ownerReferences": [build::owner(wanted)],
    } }))
    .unwrap();
    let texts = [("ca.crt", authority), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)];
    secret.data =
        Some(texts.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec()))).into());
    secret
}

/// A condition: whether it holds, why, and the sentence.
pub(crate) fn condition(status: &EtcdClusterStatus, about: ConditionType) -> (&str, &str, &str) {
    let condition = status.conditions.iter().find(|one| one.type_ == about.to_string()).unwrap();
    (&condition.status, &condition.reason, &condition.message)
}
