//! The etcd engine as the controller drives it: observation, probes, execution and status of EtcdClusters.

use std::time::Duration;

use evenkeel_api::{EtcdCluster, labels, quantity};
use evenkeel_kit::PerResource;
use evenkeel_kit::nodes;
use evenkeel_kit::tls_secrets::ObservedAt;
use evenkeel_kit::volumes::{self, StorageClasses};
use evenkeel_runtime::{
    Action, Error, EventSpec, Expectations, Explanation, Observation, ObserveFrom, Outcome, Plan,
    Reconciler, ResourceKey, SharedClock, SharedRandom, decision_log_meta,
};
use kube::api::ObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::actions::etcd_action;
use crate::build::tls;
use crate::decide::Etcd;
use crate::effective_spec::{ClusterHistory, EffectiveSpec, effective_spec};
use crate::execute::{self, ExecuteContext, ExecuteDeps};
use crate::facts::StuckMember;
use crate::memory::{ClusterMemory, ProbeMemory};
use crate::names::{ENGINE, Lineage, ObjectNames};
use crate::observe::endpoints::{member_targets, service_endpoint};
use crate::observe::etcd::{self, ClusterQuery, EtcdState};
use crate::observe::objects::{self, Caches, ClusterObjects};
use crate::observe::source::RestoreSource;
use crate::observe::{MemberIndex, ObservedCluster};
use crate::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait};
use crate::status;

/// Reconciles the EtcdClusters of one scope.
pub struct EtcdReconciler {
    client: Client,
    clock: SharedClock,
    random: SharedRandom,
    caches: Caches,
    expectations: Expectations<ResourceKey>,
    storage_classes: StorageClasses,
    /// The time after which Secrets are read again.
    secrets_interval: Duration,
    memory: PerResource<ClusterMemory>,
    agent_image: Option<String>,
}

/// Whether a query of etcd is part of a probe or of a live observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryKind {
    /// A probe may take seconds: it also reads through the client Service and searches for a stuck member.
    Probe,
    /// A live observation uses the last probe's results for both.
    Live,
}

impl EtcdReconciler {
    /// Returns a reconciler that reads `caches`. Secrets are not watched; they are read again after `secrets_interval`.
    pub fn new(
        client: Client,
        caches: Caches,
        secrets_interval: Duration,
        clock: SharedClock,
        random: SharedRandom,
    ) -> Self {
        Self {
            client,
            expectations: Expectations::new(clock.clone()),
            clock,
            random,
            caches,
            storage_classes: StorageClasses::default(),
            secrets_interval,
            memory: PerResource::default(),
            agent_image: None,
        }
    }

    /// Sets the image of the agent, which restores backups.
    #[must_use]
    pub fn with_agent_image(self, agent_image: Option<String>) -> Self {
        Self {
            agent_image,
            ..self
        }
    }

    /// Returns the means to execute actions for a resource.
    fn means<'a>(&'a self, key: &'a ResourceKey, memory: &'a ClusterMemory) -> ExecuteDeps<'a> {
        ExecuteDeps {
            client: &self.client,
            clock: &self.clock,
            expectations: &self.expectations,
            key,
            memory,
            agent_image: self.agent_image.as_deref(),
        }
    }

    /// Returns the observed cluster: its objects, the effective spec, and facts about volumes, nodes and Secrets.
    async fn observe_objects(
        &self,
        key: &ResourceKey,
        objects: ClusterObjects,
    ) -> Result<ObservedCluster, Error> {
        let memory = self.memory.get(key);
        let (client, node_cache) = (&self.client, &self.caches.nodes);
        let (now, uptime) = (self.clock.now(), self.clock.uptime());
        let storage = &objects.resource.spec.storage;
        let size = quantity::bytes(&storage.size).unwrap_or_default();
        let fixed_size_class = self
            .storage_classes
            .fixed_size_class(client, uptime, size, &objects.claims)
            .await?;
        let missing_class = self
            .storage_classes
            .missing_class(client, uptime, storage.class.as_deref(), &objects.claims)
            .await?;
        let history =
            ClusterHistory::of(&objects).with_classes(fixed_size_class, missing_class.clone());
        let EffectiveSpec { desired, rejection } =
            effective_spec(&objects.resource, &history).map_err(Error::invalid_spec)?;
        let at = ObservedAt {
            now,
            uptime,
            fingerprint: objects.fingerprint(),
        };
        let tls = memory
            .tls
            .evaluate(client, &tls::spec(&desired), at, self.secrets_interval)
            .await?;
        let volume_locations = memory
            .volumes
            .locations(client, &volumes::hostnames(node_cache), &objects.claims)
            .await?;
        let misplaced = memory.volumes.misplaced(
            &volumes::node_labels(node_cache),
            &desired.node_selector,
            &objects.claims,
        );
        let hostnames = volumes::hostnames_of_pods(node_cache, &objects.pods);
        let volume_problems = memory
            .volume_events
            .problems(client, now, uptime, &objects.claims)
            .await;
        let lineage = Lineage(u32::try_from(self.random.u64() >> 32).unwrap_or_default());
        let observed = ObservedCluster::new(objects, desired, rejection, now, lineage)?;
        let source = match observed.restore_origin() {
            Some(origin) => {
                let version = observed.desired.version;
                let read = RestoreSource::read(client, key, origin, version).await;
                Some(RestoreSource {
                    has_agent_image: self.agent_image.is_some(),
                    ..read
                })
            }
            None => None,
        };
        Ok(ObservedCluster {
            source,
            volume_locations,
            misplaced,
            missing_class,
            hostnames,
            nodes: nodes::states(node_cache),
            volume_problems,
            tls,
            last_nudge: *memory.last_nudge.lock(),
            ..observed
        })
    }

    /// Queries etcd if there is an identity and a certificate. A cluster of a deleted resource is
    /// not queried: it still serves, but its objects are about to be deleted.
    async fn query_etcd(
        &self,
        key: &ResourceKey,
        observed: &ObservedCluster,
        kind: QueryKind,
    ) -> EtcdState {
        let (Some(credentials), Some((_, identity))) =
            (&observed.tls.credentials, &observed.identity)
        else {
            return EtcdState::default();
        };
        if observed.belongs_to_previous_resource() {
            return EtcdState::default();
        }
        let memory = self.memory.get(key);
        let service = observed
            .client_service
            .as_ref()
            .filter(|_| kind == QueryKind::Probe && identity.bootstrapped)
            .and_then(|service| service_endpoint(&observed.desired, service));
        let mut state = etcd::query_cluster(&ClusterQuery {
            connections: &memory.connections,
            credentials,
            members: &member_targets(observed),
            service: service.as_ref(),
            index: &MemberIndex::of(&observed.desired, identity),
            now: observed.now,
        })
        .await;
        let cordoned = observed.members_on_cordoned_nodes();
        memory.member_times.lock().record(&mut state, cordoned);
        match kind {
            QueryKind::Probe => {
                let mut last_probe = memory.last_probe.lock();
                state.stuck = since_first_probe(state.stuck, last_probe.stuck);
                *last_probe = ProbeMemory {
                    client_read: state.client_read,
                    stuck: state.stuck,
                };
            }
            // Without a quorum the results of the last probe are outdated.
            QueryKind::Live if identity.bootstrapped && state.membership.is_present() => {
                add_probe_results(&mut state, *memory.last_probe.lock());
            }
            QueryKind::Live => {}
        }
        state
    }
}

/// Returns the stuck member with the time of the first of the consecutive probes that found it.
fn since_first_probe(stuck: Option<StuckMember>, last: Option<StuckMember>) -> Option<StuckMember> {
    let stuck = stuck?;
    let is_same = |last: &StuckMember| last.serial == stuck.serial;
    Some(last.filter(is_same).unwrap_or(stuck))
}

/// Adds the results of the last probe to a live observation.
fn add_probe_results(state: &mut EtcdState, last_probe: ProbeMemory) {
    state.client_read = last_probe.client_read;
    state.stuck = last_probe.stuck.filter(|stuck| {
        let health = state.health.get(&stuck.serial);
        !health.is_some_and(|health| health.is_present())
    });
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
        let observed = match self.observe_objects(&key, objects).await {
            Ok(observed) => observed,
            Err(error) => {
                tracing::debug!(resource = %key, %error, "probe skipped, failed to observe objects");
                return None;
            }
        };
        Some(self.query_etcd(&key, &observed, QueryKind::Probe).await)
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        from: ObserveFrom<'_, EtcdState>,
    ) -> Result<Option<Observation<Self>>, Error> {
        if let ObserveFrom::Cache(state) = from
            && self.caches.sync.is_complete()
            && self
                .expectations
                .satisfied(key, |object| self.caches.version(key, object))
        {
            let Some(objects) = self.caches.cached(key) else {
                return Ok(None);
            };
            let observed = self.observe_objects(key, objects).await?;
            return Ok(Some(Observation {
                facts: observed.facts(state),
                objects: observed,
                probe_result: state.clone(),
                is_live: false,
            }));
        }
        let Some(objects) = objects::read_live(&self.client, key).await? else {
            return Ok(None);
        };
        let observed = self.observe_objects(key, objects).await?;
        let state = self.query_etcd(key, &observed, QueryKind::Live).await;
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
        holds_lease: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let observed = &observation.objects;
        let key = ResourceKey {
            namespace: observed.desired.namespace.clone(),
            name: observed.desired.name.clone(),
        };
        let memory = self.memory.get(&key);
        let means = self.means(&key, &memory);
        let context = ExecuteContext::new(&means, observed, &observation.facts, holds_lease);
        execute::execute(&context, action).await
    }

    fn is_prerequisite(action: &Action<'_, Etcd>) -> bool {
        etcd_action(action).is_prerequisite()
    }

    fn confirm_live(plan: &Plan<Etcd>) -> bool {
        plan.waits.iter().any(EtcdWait::needs_live_confirmation)
    }

    fn status_on_observe_error(&self, resource: &EtcdCluster, error: &Error) -> Option<Value> {
        serde_json::to_value(status::observe_error_status(
            resource,
            self.clock.now(),
            error,
        ))
        .ok()
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        plan: &Plan<Etcd>,
        rejection: Option<&Error>,
    ) -> Option<Value> {
        let status = status::status(&observation.objects, &observation.facts, plan, rejection);
        serde_json::to_value(status).ok()
    }

    /// During bootstrap there are no clients, and each of its steps takes less time than a write of the status.
    fn reports_progress(&self, observation: &Observation<Self>, _plan: &Plan<Etcd>) -> bool {
        let identity = observation.facts.identity.present();
        identity.is_some_and(|identity| identity.bootstrapped)
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

    fn state_events(&self, observation: &Observation<Self>, plan: &Plan<Etcd>) -> Vec<EventSpec> {
        status::state_events(&observation.objects, &observation.facts, plan)
    }

    fn explain(&self, observation: &Observation<Self>, plan: &Plan<Etcd>) -> Explanation {
        status::explain(&observation.objects, &observation.facts, plan)
    }

    fn decision_log_meta(&self, resource: &EtcdCluster) -> Option<ObjectMeta> {
        // The decision log has no cluster label: objects with it are watched, and each write would trigger a reconcile.
        let labels = [
            (labels::APP_MANAGED_BY, labels::MANAGER),
            (labels::APP_NAME, ENGINE.engine),
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
            Action::Create(
                EtcdCreate::Claim { serial, .. }
                | EtcdCreate::Pod { serial, .. }
                | EtcdCreate::RestorePod { serial, .. },
            ) => {
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
        self.memory.forget(key);
    }
}
