//! The short way to an operator, for an application made of Pods, PersistentVolumeClaims, ConfigMaps and Services: the
//! author implements [`SimpleEngine`] (facts, decision, execution), and [`SimpleReconciler`] watches, observes and
//! explains. An operator that needs other kinds implements [`Reconciler`] itself, as the etcd engine does.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::process::ExitCode;

use clap::Parser;
use futures::StreamExt;
use futures::stream::select_all;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::api::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::Engine;
use crate::cache::{self, OwnedCache};
use crate::clock::SharedClock;
use crate::controller::{Triggers, key_of};
use crate::decision_log::Explanation;
use crate::engine::PlainData;
use crate::error::Error;
use crate::events::EventSpec;
use crate::expectations::{CachedVersion, Expectations, ObjectKey};
use crate::plan::{Action, Plan};
use crate::program::{self, Flags, ProgramInfo};
use crate::reconciler::{
    ManagedResource, Observation, ObserveFrom, Outcome, Reconciler, ResourceKey,
};
use crate::watches::{CacheSync, Watches};
use crate::writer::ObjectWriter;

/// The knowledge of how to run one application.
pub trait SimpleEngine: Send + Sync + Sized + 'static {
    /// The name of the controller in events and as a field manager: a qualified name, such as
    /// `killernewdb.example/operator`.
    const NAME: &'static str;
    /// The key of the label on all objects of a resource. Its value is the name of the resource.
    const LABEL: &'static str;
    /// The custom resource.
    type Resource: ManagedResource;
    /// The answers of the application. The default value stands for an application that does not answer.
    type ProbeResult: Clone + PartialEq + Debug + Default + Send + Sync + 'static;
    /// Everything that is known, and everything that is not known.
    type Facts: PlainData;
    /// An action, displayed as an imperative: "create Pod orders-1".
    type Action: PlainData + Display;
    /// A reason to wait, displayed as a summary: "orders-1 to answer".
    type Wait: PlainData + Display;
    /// The status of the resource.
    type Status: Serialize;

    /// Probes the application. A probe ends within a few seconds, even if the application does not answer.
    fn probe(
        &self,
        _objects: &OwnedObjects<Self::Resource>,
    ) -> impl Future<Output = Self::ProbeResult> + Send {
        std::future::ready(Self::ProbeResult::default())
    }

    /// Returns the facts in the observed objects and the answers of the application.
    fn facts(
        objects: &OwnedObjects<Self::Resource>,
        probe_result: &Self::ProbeResult,
    ) -> Self::Facts;

    /// Returns the plan for these facts. Pure: no clock, no randomness, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<SimpleReconciler<Self>>;

    /// Returns the complete status of the resource, or `None` to leave it unchanged. It contains nothing that changes by
    /// itself, such as a time.
    fn status(facts: &Self::Facts, plan: &Plan<SimpleReconciler<Self>>) -> Option<Self::Status>;

    /// Executes one action. A call without preconditions checks `may_write` last, with no await between the check and
    /// the call.
    fn execute(
        &self,
        writer: &ObjectWriter<'_>,
        objects: &OwnedObjects<Self::Resource>,
        action: &Self::Action,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// A resource and its objects: those that carry its label and have the resource as an owner. Objects of other owners are
/// never changed, whatever their names are.
#[derive(Clone, Debug)]
pub struct OwnedObjects<K> {
    /// The resource.
    pub resource: K,
    /// The Pods.
    pub pods: Vec<Pod>,
    /// The PersistentVolumeClaims.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The ConfigMaps, without the decision log.
    pub config_maps: Vec<ConfigMap>,
    /// The Services.
    pub services: Vec<Service>,
    label: &'static str,
}

impl<K: ManagedResource> OwnedObjects<K> {
    /// Returns the metadata of an object of this resource: its namespace, label and owner reference.
    pub fn owned_metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.resource.namespace(),
            labels: Some([(self.label.to_owned(), self.resource.name_any())].into()),
            owner_references: self
                .resource
                .controller_owner_ref(&())
                .map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn retain_owned(mut self) -> Self {
        let Some(uid) = self.resource.uid() else {
            return self;
        };
        let is_owned = |meta: &ObjectMeta| {
            let mut owners = meta.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == uid)
        };
        self.pods.retain(|object| is_owned(&object.metadata));
        self.claims.retain(|object| is_owned(&object.metadata));
        self.config_maps.retain(|object| is_owned(&object.metadata));
        self.services.retain(|object| is_owned(&object.metadata));
        self
    }
}

fn find_by_name<'o, K: Resource>(objects: &'o [K], name: &str) -> Option<&'o K> {
    objects
        .iter()
        .find(|object| object.meta().name.as_deref() == Some(name))
}

impl<K> OwnedObjects<K> {
    /// Returns a Pod by its name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        find_by_name(&self.pods, name)
    }

    /// Returns a PersistentVolumeClaim by its name.
    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        find_by_name(&self.claims, name)
    }

    /// Returns a ConfigMap by its name.
    pub fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        find_by_name(&self.config_maps, name)
    }

    /// Returns a Service by its name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        find_by_name(&self.services, name)
    }
}

/// The [`Reconciler`] of a [`SimpleEngine`].
pub struct SimpleReconciler<E: SimpleEngine> {
    engine: E,
    client: Client,
    expectations: Expectations<ResourceKey>,
    caches: Caches<E::Resource>,
}

struct Caches<K: ManagedResource> {
    resources: Store<K>,
    pods: OwnedCache<Pod>,
    claims: OwnedCache<PersistentVolumeClaim>,
    config_maps: OwnedCache<ConfigMap>,
    services: OwnedCache<Service>,
    sync: CacheSync,
    label: &'static str,
}

/// The flags of a program with one [`SimpleEngine`].
#[derive(Debug, Parser)]
struct SimpleFlags {
    #[command(flatten)]
    program: Flags,
}

impl<E: SimpleEngine> SimpleReconciler<E> {
    /// Returns a reconciler over these watches, and the triggers for its controller.
    pub fn new(
        engine: E,
        client: Client,
        clock: SharedClock,
        watches: &Watches,
    ) -> (Self, Triggers<E::Resource>) {
        let resources = watches.watch::<E::Resource>(None);
        let (pods, changed_pods) = OwnedCache::watch(watches, E::LABEL);
        let (claims, changed_claims) = OwnedCache::watch(watches, E::LABEL);
        let (config_maps, changed_config_maps) = OwnedCache::watch(watches, E::LABEL);
        let (services, changed_services) = OwnedCache::watch(watches, E::LABEL);
        let caches = Caches {
            resources: resources.0.clone(),
            pods,
            claims,
            config_maps,
            services,
            sync: watches.cache_sync(),
            label: E::LABEL,
        };
        let changed = [
            changed_pods,
            changed_claims,
            changed_config_maps,
            changed_services,
        ];
        let triggers = Triggers {
            resources,
            related: select_all(changed).boxed(),
            all: futures::stream::pending().boxed(),
        };
        let reconciler = Self {
            engine,
            client,
            expectations: Expectations::new(clock),
            caches,
        };
        (reconciler, triggers)
    }

    /// Runs a program with this engine: the complete `main` of an operator.
    pub fn main(info: ProgramInfo, engine: impl Fn() -> E) -> ExitCode {
        let flags: SimpleFlags = program::parse(&info);
        program::main(info, flags.program, |context, scope| {
            tracing::info!(?scope, resource = %E::Resource::plural(&()), "starting controller");
            let watches = context.watches(scope);
            let (client, clock) = (context.client.clone(), context.clock.clone());
            let (reconciler, triggers) = Self::new(engine(), client, clock, &watches);
            vec![context.controller(E::NAME, reconciler, &watches, triggers)]
        })
    }
}

impl<K: ManagedResource> Caches<K> {
    fn cached(&self, key: &ResourceKey) -> Option<OwnedObjects<K>> {
        let objects = OwnedObjects {
            resource: (*cache::get(&self.resources, key, &key.name)?).clone(),
            pods: self.pods.owned_by(key),
            claims: self.claims.owned_by(key),
            config_maps: self.config_maps.owned_by(key),
            services: self.services.owned_by(key),
            label: self.label,
        };
        Some(objects.retain_owned())
    }

    async fn read_live(
        &self,
        client: &Client,
        key: &ResourceKey,
    ) -> Result<Option<OwnedObjects<K>>, Error> {
        let (resource, pods, claims, config_maps, services) = tokio::try_join!(
            cache::read::<K>(client, key, &key.name),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
        )?;
        let objects = resource.map(|resource| OwnedObjects {
            resource,
            pods,
            claims,
            config_maps,
            services,
            label: self.label,
        });
        Ok(objects.map(OwnedObjects::retain_owned))
    }

    fn version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        match object.kind.as_str() {
            "Pod" => self.pods.version(key, &object.name),
            "PersistentVolumeClaim" => self.claims.version(key, &object.name),
            "ConfigMap" => self.config_maps.version(key, &object.name),
            "Service" => self.services.version(key, &object.name),
            kind if kind == K::kind(&()) => cache::version(&self.resources, key, &object.name),
            _ => None,
        }
    }
}

impl<E: SimpleEngine> Engine for SimpleReconciler<E> {
    type Facts = E::Facts;
    type Create = E::Action;
    type Apply = E::Action;
    type Patch = E::Action;
    type Disruption = E::Action;
    type Wait = E::Wait;

    fn decide(facts: &E::Facts) -> Plan<Self> {
        E::decide(facts)
    }
}

fn inner<'p, E: SimpleEngine>(action: &Action<'p, SimpleReconciler<E>>) -> &'p E::Action {
    let (Action::Create(inner)
    | Action::Patch(inner)
    | Action::Apply(inner)
    | Action::Disruption(inner)) = action;
    inner
}

impl<E: SimpleEngine> Reconciler for SimpleReconciler<E> {
    type Engine = Self;
    type Resource = E::Resource;
    type Objects = OwnedObjects<E::Resource>;
    type ProbeResult = E::ProbeResult;

    fn probe_timeout_result() -> E::ProbeResult {
        E::ProbeResult::default()
    }

    async fn probe(&self, key: ResourceKey) -> Option<E::ProbeResult> {
        if !self.caches.sync.is_complete() {
            return None;
        }
        let objects = self.caches.cached(&key)?;
        Some(self.engine.probe(&objects).await)
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        from: ObserveFrom<'_, E::ProbeResult>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let is_current = || {
            let version = |object: &ObjectKey| self.caches.version(key, object);
            self.caches.sync.is_complete() && self.expectations.satisfied(key, version)
        };
        let cached_result = match from {
            ObserveFrom::Cache(result) if is_current() => Some(result.clone()),
            ObserveFrom::Cache(_) | ObserveFrom::Live => None,
        };
        let is_live = cached_result.is_none();
        let objects = if is_live {
            self.caches.read_live(&self.client, key).await?
        } else {
            self.caches.cached(key)
        };
        let is_terminating = |objects: &OwnedObjects<E::Resource>| {
            objects.resource.meta().deletion_timestamp.is_some()
        };
        // Kubernetes deletes the objects of a Terminating resource: the engine does not act.
        let Some(objects) = objects.filter(|objects| !is_terminating(objects)) else {
            return Ok(None);
        };
        let probe_result = match cached_result {
            Some(result) => result,
            None => self.engine.probe(&objects).await,
        };
        Ok(Some(Observation {
            facts: E::facts(&objects, &probe_result),
            objects,
            probe_result,
            is_live,
        }))
    }

    async fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, Self>,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let objects = &observation.objects;
        let key = key_of(&objects.resource);
        let writer = ObjectWriter {
            client: &self.client,
            expectations: &self.expectations,
            key: &key,
            field_manager: E::NAME,
            unwatched_kinds: &[],
        };
        self.engine
            .execute(&writer, objects, inner(action), may_write)
            .await
    }

    /// No write is a prerequisite: `decide` plans a disruption only after it observes the writes
    /// that the disruption depends on.
    fn is_prerequisite(_action: &Action<'_, Self>) -> bool {
        false
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        plan: &Plan<Self>,
        _error: Option<&Error>,
    ) -> Option<Value> {
        serde_json::to_value(E::status(&observation.facts, plan)?).ok()
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o E::Resource {
        &observation.objects.resource
    }

    fn event_for(
        &self,
        _observation: &Observation<Self>,
        action: &Action<'_, Self>,
    ) -> Option<EventSpec> {
        let reason = match action {
            Action::Create(_) => "Created",
            Action::Disruption(_) => "Executed",
            Action::Apply(_) | Action::Patch(_) => return None,
        };
        let note = inner(action).to_string();
        Some(EventSpec::normal(reason, "Reconcile", note))
    }

    fn explain(&self, _observation: &Observation<Self>, plan: &Plan<Self>) -> Explanation {
        let actions = plan.actions().map(|action| inner(&action).to_string());
        Explanation {
            actions: actions.collect(),
            reasons: Vec::new(),
            waits: plan.waits.iter().map(ToString::to_string).collect(),
        }
    }

    fn action_name(action: &Action<'_, Self>) -> &'static str {
        match action {
            Action::Create(_) => "create",
            Action::Patch(_) => "patch",
            Action::Apply(_) => "apply",
            Action::Disruption(_) => "disruption",
        }
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }
}

#[cfg(test)]
#[path = "simple_tests.rs"]
pub(crate) mod tests;
