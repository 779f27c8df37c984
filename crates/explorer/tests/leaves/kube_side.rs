//! What Kubernetes holds of a cluster beside the world: the resource and each object as it was written, so that an operator's
//! whole way from objects to facts is walked. The world tells what became of pods, claims and etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use evenkeel_api::{EtcdCluster, labels, quantity};
use evenkeel_etcd::Etcd;
use evenkeel_etcd::build::claim::{claim, joined_on, removed_at};
use evenkeel_etcd::build::pod::{CONTAINER, PodParams, pod};
use evenkeel_etcd::build::tls::{self, Leaf};
use evenkeel_etcd::build::{self, MemberRef, service, start_mode};
use evenkeel_etcd::certificates;
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::effective_spec::{ClusterHistory, effective_spec};
use evenkeel_etcd::facts::{self, EtcdFacts, OwnedObject, StartMode};
use evenkeel_etcd::identity::{Identity, Uid};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::observe::etcd::EtcdState;
use evenkeel_etcd::observe::objects::ClusterObjects;
use evenkeel_etcd::observe::secrets::{TlsState, is_valid, judge, key_pair};
use evenkeel_etcd::observe::{ClusterExtras, ObservedCluster};
use evenkeel_etcd::plan::{EtcdApply, EtcdPatch, OwnerTarget};
use evenkeel_runtime::{Engine, Observed, Plan, UnixTime};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus,
    PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod, PodCondition, PodStatus, Secret,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What of a look at the Secrets is remembered: it takes longer than all else together.
#[derive(Default)]
struct Remembered(Mutex<Option<Looked>>);

/// For which certificates, when, and what it came to.
type Looked = (Vec<Option<Leaf>>, UnixTime, TlsState);

impl Clone for Remembered {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap().clone()))
    }
}

/// What Kubernetes holds.
#[derive(Clone)]
pub(crate) struct Kube {
    /// The resource, as it is stored.
    pub(crate) resource: EtcdCluster,
    /// What time it is.
    pub(crate) now: UnixTime,
    /// What was in force when anything was last decided.
    wanted: Option<DesiredCluster>,
    identity: Option<(Identity, ConfigMap)>,
    pods: BTreeMap<Uid, Pod>,
    claims: BTreeMap<Uid, PersistentVolumeClaim>,
    peer_service: Option<Applied>,
    client_service: Option<Applied>,
    budget: Option<(u8, PodDisruptionBudget)>,
    secrets: BTreeMap<OwnedObject, Secret>,
    judged: Remembered,
}

/// A Service, and which of its annotations are still as it was created with: those stay when they are no longer applied, since
/// whoever created it is another manager of fields than whoever applies, though both are us.
#[derive(Clone)]
struct Applied {
    there: Service,
    posted: BTreeMap<String, String>,
}

impl Applied {
    /// A change of annotations that is nobody's but ours.
    fn patch(&mut self, annotations: &Value) {
        let there = self.there.metadata.annotations.get_or_insert_default();
        for (key, value) in annotations.as_object().into_iter().flatten() {
            self.posted.remove(key);
            match value.as_str() {
                Some(value) => drop(there.insert(key.clone(), value.to_owned())),
                None => drop(there.remove(key)),
            }
        }
        if there.is_empty() {
            self.there.metadata.annotations = None;
        }
    }

    fn write(into: &mut Option<Self>, built: Service) {
        let wanted = built.metadata.annotations.clone().unwrap_or_default();
        match into {
            None => {
                *into = Some(Self {
                    there: built,
                    posted: wanted,
                })
            }
            Some(Self { there, posted }) => {
                posted.retain(|key, value| wanted.get(key).is_none_or(|wanted| wanted == value));
                *there = built;
                let all: BTreeMap<_, _> = posted.clone().into_iter().chain(wanted).collect();
                there.metadata.annotations = (!all.is_empty()).then_some(all);
            }
        }
    }
}

/// The same object with this in it.
fn with<K: Serialize + DeserializeOwned>(object: &K, over: Value) -> K {
    let mut whole = serde_json::to_value(object).unwrap();
    lay_over(&mut whole, over);
    serde_json::from_value(whole).unwrap()
}

fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            over.into_iter()
                .for_each(|(key, value)| lay_over(under.entry(key).or_insert(Value::Null), value));
        }
        (under, over) => *under = over,
    }
}

fn at(time: UnixTime) -> Value {
    json!(
        Timestamp::from_second(time.0)
            .unwrap_or_default()
            .to_string()
    )
}

impl Kube {
    pub(crate) fn with(resource: EtcdCluster, now: UnixTime) -> Self {
        Self {
            resource,
            now,
            wanted: None,
            identity: None,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            peer_service: None,
            client_service: None,
            budget: None,
            secrets: BTreeMap::new(),
            judged: Remembered::default(),
        }
    }

    /// The resource is gone, and with it what Kubernetes deletes then: pods apart, of which the world knows, and the disruption
    /// budget, which is there again as soon as it is missed.
    pub(crate) fn is_created_again(&mut self, resource: EtcdCluster) {
        let owners = self
            .budget
            .iter_mut()
            .flat_map(|(_, budget)| budget.metadata.owner_references.iter_mut().flatten());
        owners.for_each(|owner| owner.uid = resource.metadata.uid.clone().unwrap_or_default());
        (self.peer_service, self.client_service) = (None, None);
        self.secrets.clear();
        self.judged = Remembered::default();
        self.resource = resource;
    }

    /// What an operator finds, and the facts that it makes of it.
    pub(crate) fn look(&self, told: &EtcdFacts) -> Result<(ObservedCluster, EtcdFacts), String> {
        let objects = self.objects(told);
        let before = ClusterHistory::of(&objects);
        let (wanted, refused) =
            effective_spec(&objects.resource, &before).map_err(|why| why.to_string())?;
        let tls = self.judged(&wanted);
        let (places, hostnames) = (BTreeMap::new(), BTreeMap::new());
        let beside = ClusterExtras {
            places,
            misplaced: BTreeSet::new(),
            missing_class: None,
            hostnames,
            tls,
            now: self.now,
            lineage: told.new_lineage,
        };
        let found = ObservedCluster::of(objects, (wanted, refused), beside)
            .map_err(|why| why.to_string())?;
        let facts = found.facts(&self.answers(told));
        Ok((found, facts))
    }

    /// What is decided now.
    pub(crate) fn plan(&self, told: &EtcdFacts) -> Result<Plan<Etcd>, String> {
        Ok(Etcd::decide(&self.look(told)?.1))
    }

    fn judged(&self, wanted: &DesiredCluster) -> TlsState {
        let leaves: Vec<_> = tls::SECRETS
            .iter()
            .map(|object| tls::leaf(wanted, *object))
            .collect();
        let mut remembered = self.judged.0.lock().unwrap();
        match &*remembered {
            Some((of, at, judged)) if *of == leaves && *at == self.now => judged.clone(),
            _ => {
                let judged = judge(wanted, &self.secrets, self.now);
                *remembered = Some((leaves, self.now, judged.clone()));
                judged
            }
        }
    }

    /// What etcd says. It is the version that its pod was built with, where members say that.
    fn answers(&self, told: &EtcdFacts) -> EtcdState {
        let mut answers = EtcdState::from_facts(told);
        for (serial, voice) in &mut answers.health {
            let Observed::Present(said) = &*voice else {
                continue;
            };
            let of = told
                .pods
                .present()
                .into_iter()
                .flatten()
                .find(|pod| pod.serial == *serial);
            let built = of.and_then(|pod| self.pods.get(&pod.uid)?.metadata.annotations.clone());
            let mut said = serde_json::to_value(said).unwrap();
            said["version"] = json!(built.and_then(|all| all.get(labels::VERSION).cloned()));
            *voice = Observed::Present(serde_json::from_value(said).unwrap());
        }
        if answers.membership.is_present() {
            answers.client_read = Observed::Present(());
        }
        answers
    }

    /// All objects, with what became of them in the world.
    pub(crate) fn objects(&self, told: &EtcdFacts) -> ClusterObjects {
        let pods = told.pods.present().into_iter().flatten();
        let claims = told.claims.present().into_iter().flatten();
        ClusterObjects {
            resource: self.resource.clone(),
            identity: self.identity.as_ref().map(|(_, object)| object.clone()),
            pods: pods.map(|fact| self.pod(told.new_lineage, fact)).collect(),
            claims: claims.map(|fact| self.claim(fact)).collect(),
            peer_service: self
                .peer_service
                .as_ref()
                .map(|service| service.there.clone()),
            client_service: self
                .client_service
                .as_ref()
                .map(|service| service.there.clone()),
            budget: self.budget.as_ref().map(|(_, budget)| budget.clone()),
        }
    }

    // Objects are changed field by field here, since this is what takes the time of all tests.

    fn pod(&self, lineage: Lineage, fact: &facts::PodFacts) -> Pod {
        let wanted = self.wanted.as_ref().unwrap();
        let mut pod = self.pods[&fact.uid].clone();
        let since = pod.metadata.creation_timestamp.clone();
        let condition = |kind: &str, holds: bool| PodCondition {
            type_: kind.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            last_transition_time: since.clone(),
            ..PodCondition::default()
        };
        let state = ContainerState {
            waiting: fact.is_idle.then(ContainerStateWaiting::default),
            running: (!fact.is_idle).then(ContainerStateRunning::default),
            terminated: None,
        };
        let etcd = ContainerStatus {
            name: CONTAINER.to_owned(),
            ready: fact.is_ready,
            state: Some(state),
            ..ContainerStatus::default()
        };
        let conditions = [
            condition(labels::GATE_JOINED, fact.joined_gate),
            condition("ContainersReady", fact.is_ready),
            condition("Ready", fact.is_ready),
        ];
        pod.status = Some(PodStatus {
            phase: Some(if fact.is_idle { "Pending" } else { "Running" }.to_owned()),
            conditions: Some(conditions.into()),
            container_statuses: Some(vec![etcd]),
            ..PodStatus::default()
        });
        let how = start_mode::annotations(wanted, lineage, fact.serial, &fact.start_mode);
        pod.metadata.annotations.get_or_insert_default().extend(how);
        if fact.is_routed {
            let role = (labels::ROLE.to_owned(), labels::ROLE_VOTER.to_owned());
            pod.metadata.labels.get_or_insert_default().extend([role]);
        }
        pod.metadata.deletion_timestamp = since.filter(|_| fact.is_terminating);
        pod.spec.get_or_insert_default().node_name = fact.node.map(|node| node.to_string());
        pod
    }

    fn claim(&self, fact: &facts::ClaimFacts) -> PersistentVolumeClaim {
        let volume = format!("pv-{}", fact.uid);
        let mut claim = self.claims[&fact.uid].clone();
        if fact.joined_on.is_some() {
            let on = (
                labels::JOINED_VOLUME.to_owned(),
                joined_on(fact.uid, &volume),
            );
            claim
                .metadata
                .annotations
                .get_or_insert_default()
                .extend([on]);
        }
        claim.spec.get_or_insert_default().volume_name = Some(volume);
        // What is asked for is given at once.
        let asked = claim.spec.as_ref().and_then(|spec| spec.resources.clone());
        let (bound, capacity) = (
            Some("Bound".to_owned()),
            asked.and_then(|asked| asked.requests),
        );
        claim.status = Some(PersistentVolumeClaimStatus {
            phase: bound,
            capacity,
            ..PersistentVolumeClaimStatus::default()
        });
        claim
    }

    /// Takes in what the world has come to: what was created is written as the operator builds it.
    pub(crate) fn follow(&mut self, told: &EtcdFacts) {
        let pods = told.pods.present().map(Vec::as_slice).unwrap_or_default();
        let claims = told.claims.present().map(Vec::as_slice).unwrap_or_default();
        self.pods
            .retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        self.claims
            .retain(|uid, _| claims.iter().any(|claim| claim.uid == *uid));
        let (Some(wanted), Some(identity)) = (self.wanted.clone(), told.identity.present()) else {
            return;
        };
        if self
            .identity
            .as_ref()
            .is_none_or(|(was, _)| was != identity)
        {
            let object = self.identity.take().map(|(_, object)| object);
            let built = build::identity(&wanted, identity).unwrap();
            let object = match object {
                None => with(&built, json!({ "metadata": { "uid": Uid(2).to_string() } })),
                // Whoever swaps it notes the spec along.
                Some(object) => ConfigMap {
                    data: built.data,
                    ..object
                },
            };
            self.identity = Some((identity.clone(), object));
        }
        let member = |epoch, serial| MemberRef {
            lineage: identity.lineage,
            epoch,
            serial,
        };
        let new = |uid: Uid, now| json!({ "metadata": { "uid": uid.to_string(), "creationTimestamp": at(now) } });
        for fact in claims {
            self.claims.entry(fact.uid).or_insert_with(|| {
                let built = claim(&wanted, member(fact.epoch, fact.serial))
                    .unwrap()
                    .unwrap();
                with(&built, new(fact.uid, self.now))
            });
        }
        for fact in pods {
            self.pods.entry(fact.uid).or_insert_with(|| {
                let seed = fact.start_mode == StartMode::Held
                    && fact.serial == identity.seed
                    && !identity.bootstrapped;
                let made = PodParams {
                    member: member(fact.epoch, fact.serial),
                    start: fact.start_mode.clone(),
                    seed,
                };
                with(&pod(&wanted, &made).unwrap(), new(fact.uid, self.now))
            });
        }
        let min = told.pdb_min_available.present().copied().flatten();
        if let Some(min) = min.filter(|min| self.budget.as_ref().is_none_or(|(was, _)| was != min))
        {
            self.budget = Some((min, build::pod_disruption_budget(&wanted, min).unwrap()));
        }
    }

    /// Notes what is in force, for what is written next.
    pub(crate) fn decides(&mut self, told: &EtcdFacts) -> Result<(), String> {
        self.wanted = Some(self.look(told)?.0.desired);
        Ok(())
    }

    /// Carries out what the world knows nothing of; says how much that was.
    pub(crate) fn carry_out(
        &mut self,
        told: &EtcdFacts,
        plan: &Plan<Etcd>,
    ) -> Result<usize, String> {
        let (marks, applies): (Vec<_>, Vec<_>) = (
            plan.patch.iter().filter(|mark| is_beside(mark)).collect(),
            plan.apply
                .iter()
                .filter(|apply| matches!(apply, EtcdApply::Object(_)))
                .collect(),
        );
        let wanted = self.look(told)?.0.desired;
        marks.iter().for_each(|what| self.mark(&wanted, what));
        for what in &applies {
            self.apply(&wanted, what)?;
        }
        Ok(marks.len() + applies.len())
    }

    fn mark(&mut self, wanted: &DesiredCluster, what: &EtcdPatch) {
        let note = |metadata: &mut ObjectMeta, key: &str, value: String| {
            metadata
                .annotations
                .get_or_insert_default()
                .insert(key.to_owned(), value);
        };
        match what {
            EtcdPatch::RecordSpec => {
                let (_, object) = self.identity.as_mut().unwrap();
                object
                    .data
                    .get_or_insert_default()
                    .insert(build::SPEC_KEY.to_owned(), wanted.spec.clone());
            }
            EtcdPatch::RecordVersion { claim, version } => {
                note(
                    &mut self.claims.get_mut(claim).unwrap().metadata,
                    labels::VERSION,
                    version.to_string(),
                );
            }
            EtcdPatch::RecordRemoval { claim: of, at } => {
                let metadata = &mut self.claims.get_mut(of).unwrap().metadata;
                match at {
                    Some(at) => note(metadata, labels::REMOVED_AT, removed_at(*of, *at)),
                    None => drop(
                        metadata
                            .annotations
                            .get_or_insert_default()
                            .remove(labels::REMOVED_AT),
                    ),
                }
            }
            EtcdPatch::ResizeVolume { claim, to } => {
                let larger = json!({ "requests": { "storage": quantity::binary(*to) } });
                let claim = self.claims.get_mut(claim).unwrap();
                *claim = with(claim, json!({ "spec": { "resources": larger } }));
            }
            EtcdPatch::SetOwner { target, owned } => {
                let metadata = match target {
                    OwnerTarget::Claim(of) => &mut self.claims.get_mut(of).unwrap().metadata,
                    _ => &mut self.identity.as_mut().unwrap().1.metadata,
                };
                let owners = if *owned {
                    json!([build::owner_reference(wanted)])
                } else {
                    json!([])
                };
                metadata.owner_references = serde_json::from_value(owners).unwrap();
            }
            other => unreachable!("the world knows of {other:?}"),
        }
    }

    fn apply(&mut self, wanted: &DesiredCluster, what: &EtcdApply) -> Result<(), String> {
        let EtcdApply::Object(object) = what else {
            unreachable!("the world knows of {what:?}")
        };
        match object {
            OwnedObject::PeerService => {
                Applied::write(
                    &mut self.peer_service,
                    service::peer(wanted).map_err(|why| why.to_string())?,
                );
            }
            OwnedObject::ClientService => {
                let built = service::client(wanted).map_err(|why| why.to_string())?;
                if let Some(service) = &mut self.client_service
                    && let Some(without) =
                        service::stale_annotations(&service.there.metadata, &built.metadata)
                {
                    service.patch(&without);
                    return Ok(());
                }
                Applied::write(&mut self.client_service, built);
            }
            secret => self.make_secret(wanted, *secret)?,
        }
        Ok(())
    }

    fn make_secret(&mut self, wanted: &DesiredCluster, object: OwnedObject) -> Result<(), String> {
        let failed = |why: certificates::CertificateError| why.to_string();
        let (made, authority) = match tls::leaf(wanted, object) {
            None => {
                let made = certificates::generate_ca("an authority", self.now).map_err(failed)?;
                (made.clone(), made.certificate)
            }
            Some(leaf) => {
                let Some(by) = self.secrets.get(&leaf.signed_by).and_then(key_pair) else {
                    return Ok(());
                };
                let there = self.secrets.get(&object);
                if there
                    .is_some_and(|there| is_valid(there, &leaf, Some(&by.certificate), self.now))
                {
                    return Ok(());
                }
                (
                    certificates::sign_leaf(&leaf, &by, self.now).map_err(failed)?,
                    by.certificate,
                )
            }
        };
        let mut secret: Secret = serde_json::from_value(json!({ "metadata": {
            "name": tls::secret_name(wanted, object),
            "labels": build::common_labels(wanted),
            "ownerReferences": [build::owner_reference(wanted)],
        } }))
        .unwrap();
        let texts = [
            ("ca.crt", authority),
            ("tls.crt", made.certificate),
            ("tls.key", made.key),
        ];
        secret.data = Some(
            texts
                .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
                .into(),
        );
        self.secrets.insert(object, secret);
        *self.judged.0.lock().unwrap() = None;
        Ok(())
    }

    /// The names that the servers' certificate is good for.
    pub(crate) fn server_names(&self, wanted: &DesiredCluster) -> Option<Vec<String>> {
        let leaf = tls::leaf(wanted, OwnedObject::ServerTls)?;
        let by = self.secrets.get(&leaf.signed_by).and_then(key_pair)?;
        let there = self.secrets.get(&OwnedObject::ServerTls)?;
        is_valid(there, &leaf, Some(&by.certificate), self.now).then_some(leaf.names)
    }
}

/// Whether a mark is of something that the world does not hold.
pub(crate) fn is_beside(mark: &EtcdPatch) -> bool {
    match mark {
        EtcdPatch::RecordSpec
        | EtcdPatch::RecordVersion { .. }
        | EtcdPatch::RecordRemoval { .. }
        | EtcdPatch::ResizeVolume { .. } => true,
        EtcdPatch::SetOwner { target, .. } => !matches!(target, OwnerTarget::Pod(_)),
        _ => false,
    }
}
