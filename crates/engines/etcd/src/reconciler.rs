//! etcd's hands and eyes, as the loop wants them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_api::{EtcdCluster, labels, quantity};
use evenkeel_runtime::{
    Action, Error, EventSpec, Expectations, Explanation, Observation, ObserveFrom, Observed,
    Outcome, Plan, Reconciler, ResourceKey, SharedClock, SharedRandom, decision_log_meta,
};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::actions::etcd_action;
use crate::decide::Etcd;
use crate::desired::DesiredCluster;
use crate::effective_spec::{ClusterHistory, effective_spec};
use crate::execute::snapshot::SnapshotProgress;
use crate::names::{Lineage, ObjectNames, member_name, peer_host};
use crate::observe::etcd::{self, Endpoint, EtcdState, MemberTarget, SharedConnections};
use crate::observe::objects::{self, Caches, ClusterObjects};
use crate::observe::secrets::TlsSecrets;
use crate::observe::unreachable::UnreachableTracker;
use crate::observe::volumes::Volumes;
use crate::observe::{ClusterExtras, ObservedCluster, member_ref};
use crate::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait};
use crate::{execute, status};

/// What is written, and not watched.
pub(crate) const UNWATCHED: &[&str] = &["Secret"];

/// Runs etcd clusters in one scope.
pub struct EtcdReconciler {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) expectations: Expectations<ResourceKey>,
    pub(crate) tls_secrets: TlsSecrets,
    random: SharedRandom,
    caches: Caches,
    volumes: Volumes,
    unreachable: UnreachableTracker,
    connections: Mutex<HashMap<ResourceKey, SharedConnections>>,
    /// What came of the last read as clients make it.
    client_reads: Mutex<HashMap<ResourceKey, Observed<()>>>,
    /// From where on logs are being renewed.
    snapshots: Mutex<HashMap<ResourceKey, SnapshotProgress>>,
}

impl EtcdReconciler {
    /// With what the watches bring, and what is handed in. Secrets are read again after `secrets_interval`, since nobody watches
    /// them.
    pub fn new(
        client: Client,
        stores: Caches,
        secrets_interval: Duration,
        clock: SharedClock,
        random: SharedRandom,
    ) -> Self {
        Self {
            client,
            expectations: Expectations::new(clock.clone()),
            clock,
            random,
            caches: stores,
            tls_secrets: TlsSecrets::every(secrets_interval),
            volumes: Volumes::default(),
            unreachable: UnreachableTracker::default(),
            connections: Mutex::default(),
            client_reads: Mutex::default(),
            snapshots: Mutex::default(),
        }
    }

    /// The connections to a cluster's members.
    pub(crate) fn connections(&self, key: &ResourceKey) -> SharedConnections {
        let mut all = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_default().clone()
    }

    /// From where on a cluster's logs are being renewed, or what that becomes.
    pub(crate) fn update_snapshot(
        &self,
        key: &ResourceKey,
        becomes: impl FnOnce(Option<SnapshotProgress>) -> Option<SnapshotProgress>,
    ) -> Option<SnapshotProgress> {
        let mut all = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let becomes = becomes(all.remove(key));
        all.extend(becomes.map(|becomes| (key.clone(), becomes)));
        becomes
    }

    async fn observe_objects(
        &self,
        key: &ResourceKey,
        objects: ClusterObjects,
    ) -> Result<ObservedCluster, Error> {
        let size = quantity::bytes(&objects.resource.spec.storage.size).unwrap_or_default();
        let fixed = self
            .volumes
            .fixed_size_class(&self.client, size, &objects.claims)
            .await?;
        let class = objects.resource.spec.storage.class.as_deref();
        let missing_class = self
            .volumes
            .missing_class(&self.client, class, &objects.claims)
            .await?;
        let before = ClusterHistory::of(&objects).with_classes(fixed, missing_class.clone());
        let (desired, refused) =
            effective_spec(&objects.resource, &before).map_err(Error::invalid_spec)?;
        let now = self.clock.now();
        let times = (now, self.clock.uptime());
        let tls = self
            .tls_secrets
            .judge(&self.client, key, &desired, times, objects.fingerprint())
            .await?;
        let places = self
            .volumes
            .locations(&self.client, &self.caches.hostnames(), &objects.claims)
            .await?;
        let misplaced =
            self.volumes
                .misplaced(&self.caches, &desired.node_selector, &objects.claims);
        let hostnames = self.caches.hostnames_of(&objects.pods);
        let lineage = Lineage(u32::try_from(self.random.u64() >> 32).unwrap_or_default());
        let beside = ClusterExtras {
            places,
            misplaced,
            missing_class,
            hostnames,
            tls,
            now,
            lineage,
        };
        ObservedCluster::of(objects, (desired, refused), beside)
    }

    /// Asks etcd, as far as there is any to be asked. Whether clients are served is for the prober to find out: through a
    /// Service whose last connection died that takes seconds, which healing does not have.
    async fn query_etcd(
        &self,
        key: &ResourceKey,
        observed: &ObservedCluster,
        as_clients: bool,
    ) -> EtcdState {
        let (Some(access), Some(register), Some((_, identity))) = (
            &observed.tls.credentials,
            observed.member_index(),
            &observed.identity,
        ) else {
            return EtcdState::default();
        };
        if observed.belongs_to_previous_resource() {
            // What is still served is about to be deleted: nobody is to take that for this resource's.
            return EtcdState::default();
        }
        let members: Vec<MemberTarget> = observed
            .pods
            .values()
            .filter_map(|pod| member_target(observed, pod))
            .collect();
        let service = observed
            .client_service
            .as_ref()
            .filter(|_| as_clients && identity.bootstrapped);
        let service = service.and_then(|service| service_endpoint(&observed.desired, service));
        let connections = self.connections(key);
        let mut state = etcd::query_cluster(
            &connections,
            access,
            (&members, service.as_ref()),
            &register,
            observed.now,
        )
        .await;
        self.unreachable.record(key, &mut state);
        let mut served = self
            .client_reads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if as_clients {
            served.insert(key.clone(), state.client_read);
        } else if identity.bootstrapped && state.membership.is_present() {
            // Nobody is served, whatever was so a moment ago, when no member answers.
            state.client_read = served.get(key).copied().unwrap_or_default();
        }
        state
    }
}

/// Where a member of the current epoch can be asked, once its pod has an address.
fn member_target(observed: &ObservedCluster, pod: &Pod) -> Option<MemberTarget> {
    let (_, identity) = observed.identity.as_ref()?;
    let member = member_ref(&pod.metadata)?;
    if member.lineage != identity.lineage || member.epoch != identity.epoch {
        return None;
    }
    let start = crate::build::start_mode::read(pod, member.serial, |_| None);
    Some(MemberTarget {
        serial: member.serial,
        endpoint: endpoint(&observed.desired, pod)?,
        is_seed: start == crate::facts::StartMode::Bootstrap,
    })
}

/// Where a pod's etcd answers clients.
pub(crate) fn endpoint(desired: &DesiredCluster, pod: &Pod) -> Option<Endpoint> {
    let member = member_ref(&pod.metadata)?;
    let address = pod
        .status
        .as_ref()?
        .pod_ip
        .clone()
        .filter(|address| !address.is_empty())?;
    let name = member_name(&desired.name, member.lineage, member.serial);
    Some(Endpoint {
        address,
        name: peer_host(&desired.name, &desired.namespace, &name),
    })
}

fn service_endpoint(desired: &DesiredCluster, service: &Service) -> Option<Endpoint> {
    let address = service
        .spec
        .as_ref()?
        .cluster_ip
        .clone()
        .filter(|address| address != "None")?;
    Some(Endpoint {
        address,
        name: format!(
            "{}.{}.svc",
            desired.names().client_service(),
            desired.namespace
        ),
    })
}

impl Reconciler for EtcdReconciler {
    type Engine = Etcd;
    type Resource = EtcdCluster;
    type Objects = ObservedCluster;
    type ProbeResult = EtcdState;

    fn probe_timeout_result() -> EtcdState {
        EtcdState::default()
    }

    async fn probe(&self, key: ResourceKey) -> Option<EtcdState> {
        let objects = self
            .caches
            .cached(&key)
            .filter(|_| self.caches.sync.is_complete())?;
        match self.observe_objects(&key, objects).await {
            Ok(observed) => Some(self.query_etcd(&key, &observed, true).await),
            Err(error) => {
                tracing::debug!(resource = %key, %error, "not asked");
                None
            }
        }
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        look: ObserveFrom<'_, EtcdState>,
    ) -> Result<Option<Observation<Self>>, Error> {
        if let ObserveFrom::Cache(state) = look
            && self.caches.sync.is_complete()
            && self
                .expectations
                .satisfied(key, |what| self.caches.version(key, what))
        {
            let Some(objects) = self.caches.cached(key) else {
                return Ok(None);
            };
            let observed = self.observe_objects(key, objects).await?;
            let facts = observed.facts(state);
            return Ok(Some(Observation {
                facts,
                objects: observed,
                probe_result: state.clone(),
                is_live: false,
            }));
        }
        let Some(objects) = objects::read_live(&self.client, key).await? else {
            return Ok(None);
        };
        let observed = self.observe_objects(key, objects).await?;
        let state = self.query_etcd(key, &observed, false).await;
        Ok(Some(Observation {
            facts: observed.facts(&state),
            objects: observed,
            probe_result: state,
            is_live: true,
        }))
    }

    async fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, Etcd>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        execute::execute(self, observation, action, holds).await
    }

    fn is_prerequisite(action: &Action<'_, Etcd>) -> bool {
        etcd_action(action).is_prerequisite()
    }

    fn confirm_live(plan: &Plan<Etcd>) -> bool {
        plan.waits.iter().any(EtcdWait::needs_live_confirmation)
    }

    fn status_on_observe_error(&self, resource: &EtcdCluster, why: &Error) -> Option<Value> {
        serde_json::to_value(status::observe_error_status(
            resource,
            self.clock.now(),
            why,
        ))
        .ok()
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        plan: &Plan<Etcd>,
        refused: Option<&Error>,
    ) -> Option<Value> {
        let status = status::status(&observation.objects, &observation.facts, plan, refused);
        serde_json::to_value(status).ok()
    }

    fn resource<'s>(&self, observation: &'s Observation<Self>) -> &'s EtcdCluster {
        &observation.objects.resource
    }

    fn event_for(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, Etcd>,
    ) -> Option<EventSpec> {
        etcd_action(action).event(&observation.objects)
    }

    fn warning_events(&self, observation: &Observation<Self>, plan: &Plan<Etcd>) -> Vec<EventSpec> {
        status::warning_events(&observation.objects, &observation.facts, plan)
    }

    fn explain(&self, observation: &Observation<Self>, plan: &Plan<Etcd>) -> Explanation {
        status::explain(&observation.objects, &observation.facts, plan)
    }

    fn decision_log_meta(&self, resource: &EtcdCluster) -> Option<ObjectMeta> {
        // Not the label that everything else of a cluster has: what carries it is watched, and wakes the loop.
        let labels = [
            (labels::APP_MANAGED_BY, labels::MANAGER),
            (labels::APP_NAME, "etcd"),
        ];
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        Some(ObjectMeta {
            name: Some(ObjectNames(&resource.name_any()).decision_log()),
            labels: Some(labels),
            ..decision_log_meta(resource)
        })
    }

    fn action_name(action: &Action<'_, Etcd>) -> &'static str {
        etcd_action(action).name()
    }

    /// Returns the target without times and random values: an action that is retried is the same action.
    fn action_target(action: &Action<'_, Etcd>) -> Value {
        match action {
            Action::Create(EtcdCreate::Identity(_)) => Value::Null,
            Action::Create(EtcdCreate::Claim { serial, .. } | EtcdCreate::Pod { serial, .. }) => {
                json!({ "serial": serial })
            }
            Action::Patch(EtcdPatch::RecordRemoval { claim, .. }) => json!({ "claim": claim }),
            Action::Disruption(EtcdDisruption::UpdateIdentity { why, .. }) => {
                json!({ "change": why })
            }
            Action::Disruption(EtcdDisruption::ChangeMembership { intent, .. }) => {
                json!({ "intent": intent })
            }
            Action::Disruption(EtcdDisruption::ForceSnapshot { .. }) => Value::Null,
            Action::Patch(_) | Action::Apply(_) | Action::Disruption(_) => action.to_json(),
        }
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }

    fn forget(&self, key: &ResourceKey) {
        self.tls_secrets.forget(key);
        self.unreachable.forget(key);
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        self.client_reads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}
