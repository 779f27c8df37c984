//! The Kubernetes objects of a simulated cluster, as the operator writes them, so that the whole path from objects to
//! facts is tested. The explorer's model supplies the state of pods, claims and etcd.

use std::collections::BTreeMap;
use std::sync::Mutex;

use evenkeel_api::{BackupSchedule, EtcdCluster, labels, quantity};
use evenkeel_etcd::Etcd;
use evenkeel_etcd::build::claim::claim;
use evenkeel_etcd::build::pod::{CONTAINER, PodParams, pod};
use evenkeel_etcd::build::tls::{self, Leaf};
use evenkeel_etcd::build::{self, MemberRef, service, start_mode};
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::effective_spec::{ClusterHistory, EffectiveSpec, effective_spec};
use evenkeel_etcd::facts::{self, EtcdFacts, OwnedBy, OwnedObject, StartMode};
use evenkeel_etcd::identity::{Identity, Uid};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::observe::ObservedCluster;
use evenkeel_etcd::observe::etcd::EtcdState;
use evenkeel_etcd::observe::objects::ClusterObjects;
use evenkeel_etcd::observe::secrets::{TlsState, evaluate};
use evenkeel_etcd::plan::{EtcdApply, EtcdCreate, EtcdPatch};
use evenkeel_explorer::model::{ClusterModel, FaultBudget, TemplateVariant};
use evenkeel_kit::certificates;
use evenkeel_kit::claims::{joined_on, removed_at};
use evenkeel_kit::identity_object::SPEC_KEY;
use evenkeel_kit::tls_secrets::{is_valid, key_pair};
use evenkeel_runtime::{Engine, Observed, Plan, UnixTime};
use k8s_openapi::ByteString;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus,
    PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod, PodCondition, PodStatus, Secret,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The cached result of checking the Secrets, which takes longer than everything else together.
#[derive(Default)]
struct TlsCache(Mutex<Option<CachedTlsState>>);

/// The certificates, the time of the check and its result.
type CachedTlsState = (Vec<Option<Leaf>>, UnixTime, TlsState);

impl Clone for TlsCache {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap().clone()))
    }
}

/// The objects of one cluster.
#[derive(Clone)]
pub(crate) struct KubeObjects {
    /// The stored resource.
    pub(crate) resource: EtcdCluster,
    /// The current time.
    pub(crate) now: UnixTime,
    /// The desired cluster at the last decision.
    desired: Option<DesiredCluster>,
    identity: Option<(Identity, ConfigMap)>,
    pods: BTreeMap<Uid, Pod>,
    claims: BTreeMap<Uid, PersistentVolumeClaim>,
    peer_service: Option<ServiceState>,
    client_service: Option<ServiceState>,
    backup_schedule: Option<BackupSchedule>,
    budget: Option<(u8, PodDisruptionBudget)>,
    secrets: BTreeMap<OwnedObject, Secret>,
    tls_state: TlsCache,
}

/// A Service, and its annotations that still have the value of its creation. Server-side apply does not remove those:
/// the create request used another field manager.
#[derive(Clone)]
struct ServiceState {
    there: Service,
    posted: BTreeMap<String, String>,
}

impl ServiceState {
    /// Patches annotations.
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
        let desired = built.metadata.annotations.clone().unwrap_or_default();
        match into {
            None => {
                *into = Some(Self {
                    there: built,
                    posted: desired,
                })
            }
            Some(Self { there, posted }) => {
                posted.retain(|key, value| desired.get(key).is_none_or(|desired| desired == value));
                *there = built;
                let all: BTreeMap<_, _> = posted.clone().into_iter().chain(desired).collect();
                there.metadata.annotations = (!all.is_empty()).then_some(all);
            }
        }
    }
}

/// Sets the metadata that the API server adds when an object is created.
fn created<K: Metadata<Ty = ObjectMeta>>(mut object: K, uid: Uid, now: UnixTime) -> K {
    let metadata = object.metadata_mut();
    metadata.uid = Some(uid.to_string());
    metadata.creation_timestamp = Some(Time(Timestamp::from_second(now.0).unwrap_or_default()));
    object
}

impl KubeObjects {
    pub(crate) fn new(resource: EtcdCluster, now: UnixTime) -> Self {
        Self {
            resource,
            now,
            desired: None,
            identity: None,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            peer_service: None,
            client_service: None,
            backup_schedule: None,
            budget: None,
            secrets: BTreeMap::new(),
            tls_state: TlsCache::default(),
        }
    }

    /// Recreates the resource. Kubernetes deletes the owned objects, except pods, which the model tracks, and the
    /// PodDisruptionBudget, which is recreated at once.
    pub(crate) fn recreate(&mut self, resource: EtcdCluster) {
        let owners = self
            .budget
            .iter_mut()
            .flat_map(|(_, budget)| budget.metadata.owner_references.iter_mut().flatten());
        owners.for_each(|owner| owner.uid = resource.metadata.uid.clone().unwrap_or_default());
        (self.peer_service, self.client_service) = (None, None);
        self.backup_schedule = None;
        self.secrets.clear();
        self.tls_state = TlsCache::default();
        self.resource = resource;
    }

    /// Returns the observed cluster and its facts.
    pub(crate) fn observe(
        &self,
        facts: &EtcdFacts,
    ) -> Result<(ObservedCluster, EtcdFacts), String> {
        let objects = self.objects(facts);
        let before = ClusterHistory::of(&objects);
        let EffectiveSpec { desired, rejection } =
            effective_spec(&objects.resource, &before).map_err(|why| why.to_string())?;
        let tls = self.tls_state(&desired);
        let observed =
            ObservedCluster::new(objects, desired, rejection, self.now, facts.new_lineage)
                .map_err(|why| why.to_string())?;
        let observed = ObservedCluster { tls, ..observed };
        let facts = observed.facts(&self.etcd_state(facts));
        Ok((observed, facts))
    }

    /// Returns the plan for the current state.
    pub(crate) fn plan(&self, facts: &EtcdFacts) -> Result<Plan<Etcd>, String> {
        Ok(Etcd::decide(&self.observe(facts)?.1))
    }

    fn tls_state(&self, desired: &DesiredCluster) -> TlsState {
        let leaves: Vec<_> = tls::SECRETS
            .iter()
            .map(|object| tls::leaf(desired, *object))
            .collect();
        let mut cached = self.tls_state.0.lock().unwrap();
        match &*cached {
            Some((of, at, tls_state)) if *of == leaves && *at == self.now => tls_state.clone(),
            _ => {
                let tls_state = evaluate(desired, &self.secrets, self.now);
                *cached = Some((leaves, self.now, tls_state.clone()));
                tls_state
            }
        }
    }

    /// Returns the state of etcd. Each reachable member reports the version of its pod.
    fn etcd_state(&self, facts: &EtcdFacts) -> EtcdState {
        let mut etcd_state = EtcdState::from_facts(facts);
        for (serial, health) in &mut etcd_state.health {
            let Observed::Present(reported) = &*health else {
                continue;
            };
            let of = facts
                .pods
                .present()
                .into_iter()
                .flatten()
                .find(|pod| pod.serial == *serial);
            let built = of.and_then(|pod| self.pods.get(&pod.uid)?.metadata.annotations.clone());
            let mut reported = serde_json::to_value(reported).unwrap();
            reported["version"] = json!(built.and_then(|all| all.get(labels::VERSION).cloned()));
            *health = Observed::Present(serde_json::from_value(reported).unwrap());
        }
        if etcd_state.membership.is_present() {
            etcd_state.client_read = Observed::Present(());
        }
        etcd_state
    }

    /// Returns all objects with their status from the model.
    pub(crate) fn objects(&self, facts: &EtcdFacts) -> ClusterObjects {
        let pods = facts.pods.present().into_iter().flatten();
        let claims = facts.claims.present().into_iter().flatten();
        ClusterObjects {
            resource: self.resource.clone(),
            identity: self.identity_object(facts),
            pods: pods.map(|fact| self.pod(facts.new_lineage, fact)).collect(),
            restore_pods: Vec::new(),
            claims: claims.map(|fact| self.claim(fact)).collect(),
            peer_service: self
                .peer_service
                .as_ref()
                .map(|service| service.there.clone()),
            client_service: self
                .client_service
                .as_ref()
                .map(|service| service.there.clone()),
            pdb: self.budget.as_ref().map(|(_, budget)| budget.clone()),
            backup_schedule: self.backup_schedule.clone(),
            restores: Vec::new(),
        }
    }

    /// Returns the owner references of an object.
    fn owners(&self, is_owned: bool) -> Option<Vec<OwnerReference>> {
        let desired = self.desired.as_ref().filter(|_| is_owned);
        let owners: Vec<_> = desired.map(build::owner_reference).into_iter().collect();
        serde_json::from_value(json!(owners)).unwrap()
    }

    fn identity_object(&self, facts: &EtcdFacts) -> Option<ConfigMap> {
        let (_, object) = self.identity.as_ref()?;
        let mut object = object.clone();
        object.metadata.owner_references = self.owners(facts.identity_owner == OwnedBy::Resource);
        Some(object)
    }

    // Objects are changed field by field because this code dominates the run time of the tests.

    fn pod(&self, lineage: Lineage, fact: &facts::PodFacts) -> Pod {
        let desired = self.desired.as_ref().unwrap();
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
        let how = start_mode::annotations(desired, lineage, fact.serial, &fact.start_mode);
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
        claim.metadata.owner_references = self.owners(fact.is_owned);
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
        // A requested size is granted at once.
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

    /// Follows the model: creates the objects that the model has created, as the operator builds them.
    pub(crate) fn sync(&mut self, facts: &EtcdFacts) {
        let pods = facts.pods.present().map(Vec::as_slice).unwrap_or_default();
        let claims = facts
            .claims
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default();
        self.pods
            .retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        self.claims
            .retain(|uid, _| claims.iter().any(|claim| claim.uid == *uid));
        let (Some(desired), Some(identity)) = (self.desired.clone(), facts.identity.present())
        else {
            return;
        };
        if self
            .identity
            .as_ref()
            .is_none_or(|(was, _)| was != identity)
        {
            let object = self.identity.take().map(|(_, object)| object);
            let built = build::identity(&desired, identity).unwrap();
            let object = match object {
                None => {
                    let mut built = built;
                    built.metadata.uid = Some(Uid(2).to_string());
                    built
                }
                // An update of the identity keeps the recorded spec.
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
        for fact in claims {
            self.claims.entry(fact.uid).or_insert_with(|| {
                let built = claim(&desired, member(fact.epoch, fact.serial), fact.is_owned)
                    .unwrap()
                    .unwrap();
                created(built, fact.uid, self.now)
            });
        }
        for fact in pods {
            self.pods.entry(fact.uid).or_insert_with(|| {
                let seed = fact.start_mode == StartMode::Held
                    && fact.serial == identity.seed
                    && !identity.bootstrapped;
                let params = PodParams {
                    member: member(fact.epoch, fact.serial),
                    start: fact.start_mode.clone(),
                    seed,
                };
                created(pod(&desired, &params).unwrap(), fact.uid, self.now)
            });
        }
        let min = facts.pdb_min_available.present().copied().flatten();
        if let Some(min) = min.filter(|min| self.budget.as_ref().is_none_or(|(was, _)| was != min))
        {
            self.budget = Some((min, build::pod_disruption_budget(&desired, min).unwrap()));
        }
    }

    /// Records the desired cluster for the next writes.
    pub(crate) fn record_desired(&mut self, facts: &EtcdFacts) -> Result<(), String> {
        self.desired = Some(self.observe(facts)?.0.desired);
        Ok(())
    }

    /// Executes the actions that are outside the model. Returns their number.
    pub(crate) fn execute(
        &mut self,
        facts: &EtcdFacts,
        plan: &Plan<Etcd>,
    ) -> Result<usize, String> {
        let (patches, applies): (Vec<_>, Vec<_>) = (
            plan.patch
                .iter()
                .filter(|patch| is_outside_model(patch))
                .collect(),
            plan.apply
                .iter()
                .filter(|apply| matches!(apply, EtcdApply::Object(_)))
                .collect(),
        );
        let desired = self.observe(facts)?.0.desired;
        patches.iter().for_each(|what| self.patch(&desired, what));
        for what in &applies {
            self.apply(&desired, what)?;
        }
        Ok(patches.len() + applies.len())
    }

    fn patch(&mut self, desired: &DesiredCluster, what: &EtcdPatch) {
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
                    .insert(SPEC_KEY.to_owned(), desired.spec.clone());
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
                let spec = self.claims.get_mut(claim).unwrap().spec.as_mut();
                let resources = spec.unwrap().resources.get_or_insert_default();
                let size = Quantity(quantity::binary(*to));
                resources
                    .requests
                    .get_or_insert_default()
                    .insert("storage".to_owned(), size);
            }
            other => unreachable!("{other:?} is part of the model"),
        }
    }

    fn apply(&mut self, desired: &DesiredCluster, what: &EtcdApply) -> Result<(), String> {
        let EtcdApply::Object(object) = what else {
            unreachable!("{what:?} is part of the model")
        };
        match object {
            OwnedObject::PeerService => {
                ServiceState::write(
                    &mut self.peer_service,
                    service::peer(desired).map_err(|why| why.to_string())?,
                );
            }
            OwnedObject::ClientService => {
                let built = service::client(desired).map_err(|why| why.to_string())?;
                if let Some(service) = &mut self.client_service
                    && let Some(without) =
                        service::stale_annotations(&service.there.metadata, &built.metadata)
                {
                    service.patch(&without);
                    return Ok(());
                }
                ServiceState::write(&mut self.client_service, built);
            }
            OwnedObject::BackupSchedule => {
                self.backup_schedule =
                    build::backup_schedule(desired).map_err(|why| why.to_string())?;
            }
            secret => self.make_secret(desired, *secret)?,
        }
        Ok(())
    }

    fn make_secret(&mut self, desired: &DesiredCluster, object: OwnedObject) -> Result<(), String> {
        let failed = |why: certificates::CertificateError| why.to_string();
        let (pair, authority) = match tls::leaf(desired, object) {
            None => {
                let pair = certificates::generate_ca("test CA", self.now).map_err(failed)?;
                (pair.clone(), pair.certificate)
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
            "name": tls::secret_name(desired, object),
            "labels": build::common_labels(desired),
            "ownerReferences": [build::owner_reference(desired)],
        } }))
        .unwrap();
        let texts = [
            ("ca.crt", authority),
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
        ];
        secret.data = Some(
            texts
                .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
                .into(),
        );
        self.secrets.insert(object, secret);
        *self.tls_state.0.lock().unwrap() = None;
        Ok(())
    }

    /// Returns the names in the server certificate, if it is valid.
    pub(crate) fn server_names(&self, desired: &DesiredCluster) -> Option<Vec<String>> {
        let leaf = tls::leaf(desired, OwnedObject::ServerTls)?;
        let by = self.secrets.get(&leaf.signed_by).and_then(key_pair)?;
        let there = self.secrets.get(&OwnedObject::ServerTls)?;
        is_valid(there, &leaf, Some(&by.certificate), self.now).then_some(leaf.names)
    }
}

/// Returns the model of a new resource, without faults.
pub(crate) fn model_of(resource: &EtcdCluster, now: UnixTime) -> ClusterModel {
    let desired = DesiredCluster::of(resource).unwrap().facts(now);
    let model = ClusterModel::new(
        desired.members,
        desired.storage,
        desired.max_learners,
        FaultBudget::NONE,
    );
    if desired.owns_data {
        model.with_owned_data()
    } else {
        model
    }
}

/// Returns the part of a plan that the model represents. etcd runs with every template of the cases; the objects carry
/// its hash.
pub(crate) fn within_model(plan: &Plan<Etcd>) -> Plan<Etcd> {
    let mut plan = plan.clone();
    plan.patch.retain(|patch| !is_outside_model(patch));
    plan.apply
        .retain(|apply| !matches!(apply, EtcdApply::Object(_)));
    for create in &mut plan.create {
        if let EtcdCreate::Pod { template_hash, .. } = create {
            *template_hash = TemplateVariant::Original.uid();
        }
    }
    plan
}

/// Returns true if the model does not contain the field that the patch changes.
fn is_outside_model(patch: &EtcdPatch) -> bool {
    matches!(
        patch,
        EtcdPatch::RecordSpec
            | EtcdPatch::RecordVersion { .. }
            | EtcdPatch::RecordRemoval { .. }
            | EtcdPatch::ResizeVolume { .. }
    )
}
