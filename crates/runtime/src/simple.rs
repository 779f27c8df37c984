//! The short way to an operator, for an application that is made of pods, claims, config maps and services: the author says
//! what is known of it ([`Application::facts`]), what is to be done ([`Application::decide`]) and how
//! ([`Application::act`]); the [`Keeper`] watches, looks, pins, explains and remembers. Who needs more than that implements
//! [`Operate`] itself, as the etcd engine does.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use futures::StreamExt;
use futures::stream::select_all;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::api::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::cache::{self, OwnedCache};
use crate::clock::SharedClock;
use crate::controller::{Triggers, key_of};
use crate::decision_log::Explanation;
use crate::engine::PlainData;
use crate::events::EventSpec;
use crate::expectations::{CachedVersion, Expectations, Expected, ObjectKey};
use crate::program::{self, Flags, ProgramInfo};
use crate::reconciler::{
    Action, Error, ManagedResource, Observation, ObserveFrom, Outcome, Reconciler, ResourceKey,
};
use crate::watches::{CacheSync, Watches};
use crate::writer::ObjectWriter;
use crate::{Engine, Plan};

/// An application, and what its administrator knows.
pub trait SimpleEngine: Send + Sync + Sized + 'static {
    /// In whose name people are told: a qualified name, such as `killernewdb.example/operator`.
    const NAME: &'static str;
    /// The label by which objects say whose they are: its value is the resource's name.
    const LABEL: &'static str;
    /// What users write.
    type Resource: ManagedResource;
    /// What the application says when it is asked; nothing, by default, is what it says when it is silent.
    type ProbeResult: Clone + PartialEq + Debug + Default + Send + Sync + 'static;
    /// All that is known, and what is not.
    type Facts: PlainData;
    /// One thing that can be done, as a sentence for people: "create the pod orders-1".
    type Action: PlainData + Display;
    /// A reason to wait, as a phrase for people: "orders-1 to answer".
    type Wait: PlainData + Display;
    /// The resource's status.
    type Status: Serialize;

    /// Asks the application. It must not take long: a second, say, for those that do not answer.
    fn probe(
        &self,
        _objects: &OwnedObjects<Self::Resource>,
    ) -> impl Future<Output = Self::ProbeResult> + Send {
        std::future::ready(Self::ProbeResult::default())
    }

    /// What was found and said, as facts.
    fn facts(objects: &OwnedObjects<Self::Resource>, answers: &Self::ProbeResult) -> Self::Facts;

    /// What is to be done now, from the facts alone: no clock, no chance, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<SimpleReconciler<Self>>;

    /// Returns the complete status of the resource, or `None` to leave it alone. Nothing in it may change by itself.
    fn status(facts: &Self::Facts, plan: &Plan<SimpleReconciler<Self>>) -> Option<Self::Status>;

    /// Does one thing. What cannot be pinned asks `holds` last, with nothing awaited between.
    fn execute(
        &self,
        hand: &ObjectWriter<'_>,
        objects: &OwnedObjects<Self::Resource>,
        deed: &Self::Action,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// All that belongs to a resource: what carries its label and has it as its controller. Whatever else has a name that is
/// wanted is somebody else's, and is never taken over.
#[derive(Clone, Debug)]
pub struct OwnedObjects<R> {
    /// The resource.
    pub resource: R,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// Its claims.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Its config maps, the log of decisions apart.
    pub config_maps: Vec<ConfigMap>,
    /// Its services.
    pub services: Vec<Service>,
    label: &'static str,
}

impl<R: ManagedResource> OwnedObjects<R> {
    /// What an object of this name needs to be found again, and to go with the resource.
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
        let owners = |meta: &ObjectMeta| meta.owner_references.clone().unwrap_or_default();
        let ours = |meta: &ObjectMeta| owners(meta).iter().any(|owner| owner.uid == uid);
        self.pods.retain(|object| ours(&object.metadata));
        self.claims.retain(|object| ours(&object.metadata));
        self.config_maps.retain(|object| ours(&object.metadata));
        self.services.retain(|object| ours(&object.metadata));
        self
    }
}

/// One object among others, by its name.
pub(crate) fn find_by_name<'o, K: Resource>(objects: &'o [K], name: &str) -> Option<&'o K> {
    objects
        .iter()
        .find(|object| object.meta().name.as_deref() == Some(name))
}

impl<R> OwnedObjects<R> {
    /// A pod, by its name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        find_by_name(&self.pods, name)
    }

    /// A claim, by its name.
    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        find_by_name(&self.claims, name)
    }

    /// A config map, by its name.
    pub fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        find_by_name(&self.config_maps, name)
    }

    /// A service, by its name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        find_by_name(&self.services, name)
    }
}

/// Keeps an application: its hands and eyes, as the loop wants them.
pub struct SimpleReconciler<A: SimpleEngine> {
    application: A,
    client: Client,
    written: Expectations<ResourceKey>,
    stores: Caches<A::Resource>,
}

struct Caches<R: ManagedResource> {
    resources: Store<R>,
    pods: OwnedCache<Pod>,
    claims: OwnedCache<PersistentVolumeClaim>,
    config_maps: OwnedCache<ConfigMap>,
    services: OwnedCache<Service>,
    listed: CacheSync,
    label: &'static str,
}

impl<A: SimpleEngine> SimpleReconciler<A> {
    /// Keeps what these watches bring; and what is to be polled for that.
    pub fn new(
        application: A,
        client: Client,
        clock: SharedClock,
        streams: &Watches,
    ) -> (Self, Triggers<A::Resource>) {
        let resources = streams.watch::<A::Resource>(None);
        let (pods, pods_touched) = OwnedCache::watch(streams, A::LABEL);
        let (claims, claims_touched) = OwnedCache::watch(streams, A::LABEL);
        let (config_maps, config_maps_touched) = OwnedCache::watch(streams, A::LABEL);
        let (services, services_touched) = OwnedCache::watch(streams, A::LABEL);
        let store = resources.0.clone();
        let (listed, label) = (streams.listed(), A::LABEL);
        let stores = Caches {
            resources: store,
            pods,
            claims,
            config_maps,
            services,
            listed,
            label,
        };
        let touched = select_all([
            pods_touched,
            claims_touched,
            config_maps_touched,
            services_touched,
        ]);
        let all = futures::stream::pending().boxed();
        let wakers = Triggers {
            resources,
            related: touched.boxed(),
            all,
        };
        (
            Self {
                application,
                client,
                written: Expectations::new(clock),
                stores,
            },
            wakers,
        )
    }

    /// Runs a whole program that keeps the application: its `main` has nothing left to do.
    pub fn main(name: ProgramInfo, application: impl Fn() -> A) -> ExitCode {
        let command = Flags::augment_args(Command::new(name.program).version(name.version));
        let flags = match Flags::from_arg_matches(&command.get_matches()) {
            Ok(flags) => flags,
            Err(error) => error.exit(),
        };
        program::main(name, flags, |means, scope| {
            tracing::info!(?scope, "looking after {}", A::Resource::plural(&()));
            let streams = means.streams(scope);
            let (client, clock) = (means.client.clone(), means.clock.clone());
            let (keeper, wakers) = Self::new(application(), client, clock, &streams);
            means.looping(A::NAME, keeper, (&streams, wakers))
        })
    }
}

impl<R: ManagedResource> Caches<R> {
    fn cached(&self, key: &ResourceKey) -> Option<OwnedObjects<R>> {
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

    async fn live(
        &self,
        client: &Client,
        key: &ResourceKey,
    ) -> Result<Option<OwnedObjects<R>>, Error> {
        let (resource, pods, claims, config_maps, services) = tokio::try_join!(
            cache::read::<R>(client, key, &key.name),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
            cache::list(client, key, self.label),
        )?;
        let label = self.label;
        let found = |resource| OwnedObjects {
            resource,
            pods,
            claims,
            config_maps,
            services,
            label,
        };
        Ok(resource.map(|resource| found(resource).retain_owned()))
    }

    fn version(&self, key: &ResourceKey, what: &ObjectKey) -> Option<CachedVersion> {
        match what.kind.as_str() {
            "Pod" => self.pods.version(key, &what.name),
            "PersistentVolumeClaim" => self.claims.version(key, &what.name),
            "ConfigMap" => self.config_maps.version(key, &what.name),
            "Service" => self.services.version(key, &what.name),
            kind if kind == R::kind(&()) => cache::version(&self.resources, key, &what.name),
            _ => None,
        }
    }
}

impl<A: SimpleEngine> Engine for SimpleReconciler<A> {
    type Facts = A::Facts;
    type Create = A::Action;
    type Apply = A::Action;
    type Patch = A::Action;
    type Disruption = A::Action;
    type Wait = A::Wait;

    fn decide(facts: &A::Facts) -> Plan<Self> {
        A::decide(facts)
    }
}

fn action_of<'p, A: SimpleEngine>(action: &Action<'p, SimpleReconciler<A>>) -> &'p A::Action {
    let (Action::Create(deed)
    | Action::Patch(deed)
    | Action::Apply(deed)
    | Action::Disruption(deed)) = action;
    deed
}

impl<A: SimpleEngine> Reconciler for SimpleReconciler<A> {
    type Engine = Self;
    type Resource = A::Resource;
    type Objects = OwnedObjects<A::Resource>;
    type ProbeResult = A::ProbeResult;

    fn probe_timeout_result() -> A::ProbeResult {
        A::ProbeResult::default()
    }

    async fn probe(&self, key: ResourceKey) -> Option<A::ProbeResult> {
        let found = self
            .stores
            .cached(&key)
            .filter(|_| self.stores.listed.is_complete())?;
        Some(self.application.probe(&found).await)
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        look: ObserveFrom<'_, A::ProbeResult>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let remembered = match look {
            ObserveFrom::Cache(answers) if self.stores.listed.is_complete() => Some(answers),
            _ => None,
        };
        let remembered = remembered.filter(|_| {
            self.written
                .satisfied(key, |what| self.stores.version(key, what))
        });
        let found = match remembered {
            Some(_) => self.stores.cached(key),
            None => self.stores.live(&self.client, key).await?,
        };
        // What belongs to a resource that goes, goes with it: there is nothing left to do.
        let Some(found) = found.filter(|found| found.resource.meta().deletion_timestamp.is_none())
        else {
            return Ok(None);
        };
        let probed = match remembered {
            Some(answers) => answers.clone(),
            None => self.application.probe(&found).await,
        };
        Ok(Some(Observation {
            facts: A::facts(&found, &probed),
            objects: found,
            probe_result: probed,
            is_live: remembered.is_none(),
        }))
    }

    async fn execute(
        &self,
        sight: &Observation<Self>,
        action: &Action<'_, Self>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let key = key_of(&sight.objects.resource);
        let hand = ObjectWriter {
            client: &self.client,
            expectations: &self.written,
            key: &key,
            field_manager: A::NAME,
            unwatched_kinds: &[],
        };
        self.application
            .execute(&hand, &sight.objects, action_of(action), holds)
            .await
    }

    /// What one thing is refused holds up no other: what rests on it is decided once it is seen.
    fn is_prerequisite(action: &Action<'_, Self>) -> bool {
        matches!(action, Action::Disruption(_))
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        plan: &Plan<Self>,
        _rejected: Option<&Error>,
    ) -> Option<Value> {
        serde_json::to_value(A::status(&observation.facts, plan)?).ok()
    }

    fn resource<'s>(&self, sight: &'s Observation<Self>) -> &'s A::Resource {
        &sight.objects.resource
    }

    fn event_for(
        &self,
        _sight: &Observation<Self>,
        action: &Action<'_, Self>,
    ) -> Option<EventSpec> {
        let reason = match action {
            Action::Create(_) => "Created",
            Action::Disruption(_) => "Done",
            Action::Apply(_) | Action::Patch(_) => return None,
        };
        Some(EventSpec::normal(
            reason,
            "Reconcile",
            action_of(action).to_string(),
        ))
    }

    fn warning_events(&self, _sight: &Observation<Self>, _plan: &Plan<Self>) -> Vec<EventSpec> {
        Vec::new()
    }

    fn explain(&self, _sight: &Observation<Self>, plan: &Plan<Self>) -> Explanation {
        let does = plan
            .actions()
            .map(|action| action_of(&action).to_string())
            .collect();
        Explanation {
            actions: does,
            reasons: Vec::new(),
            waits: plan.waits.iter().map(ToString::to_string).collect(),
        }
    }

    fn action_name(action: &Action<'_, Self>) -> &'static str {
        match action {
            Action::Create(_) => "create",
            Action::Patch(_) => "mark",
            Action::Apply(_) => "apply",
            Action::Disruption(_) => "step",
        }
    }

    fn on_status_written(&self, resource: &A::Resource) {
        let what = ObjectKey {
            kind: A::Resource::kind(&()).into_owned(),
            name: resource.name_any(),
        };
        let version = resource.resource_version().unwrap_or_default();
        self.written
            .expect(&key_of(resource), what, Expected::Stored { version });
    }

    fn forget(&self, key: &ResourceKey) {
        self.written.retain(|other| other != key);
    }
}

#[cfg(test)]
#[path = "simple_tests.rs"]
mod tests;
