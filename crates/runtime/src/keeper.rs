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

use crate::clock::SharedClock;
use crate::engine::Data;
use crate::events::Notice;
use crate::hand::Hand;
use crate::journal::Explained;
use crate::operate::{Action, Error, Key, Look, Managed, Operate, Outcome, Sight};
use crate::program::{self, Flags, Name};
use crate::run::{Wakers, key};
use crate::shelf::{self, Shelf};
use crate::streams::{Listed, Streams};
use crate::written::{Change, InStore, Ref, Written};
use crate::{Engine, Plan};

/// An application, and what its administrator knows.
pub trait Application: Send + Sync + Sized + 'static {
    /// In whose name people are told: a qualified name, such as `killernewdb.example/operator`.
    const NAME: &'static str;
    /// The label by which objects say whose they are: its value is the resource's name.
    const LABEL: &'static str;
    /// What users write.
    type Resource: Managed;
    /// What the application says when it is asked; nothing, by default, is what it says when it is silent.
    type Answers: Clone + PartialEq + Debug + Default + Send + Sync + 'static;
    /// All that is known, and what is not.
    type Facts: Data;
    /// One thing that can be done, as a sentence for people: "create the pod orders-1".
    type Deed: Data + Display;
    /// The resource's status, complete. Nothing in it may change by itself. What its field `waitingFor` says, a sentence or
    /// several, goes into the log of decisions.
    type Status: Data;

    /// Asks the application. It must not take long: a second, say, for those that do not answer.
    fn ask(&self, _objects: &Objects<Self::Resource>) -> impl Future<Output = Self::Answers> + Send {
        std::future::ready(Self::Answers::default())
    }

    /// What was found and said, as facts.
    fn facts(objects: &Objects<Self::Resource>, answers: &Self::Answers) -> Self::Facts;

    /// What is to be done now, from the facts alone: no clock, no chance, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<Keeper<Self>>;

    /// Does one thing. What cannot be pinned asks `holds` last, with nothing awaited between.
    fn act(
        &self,
        hand: &Hand<'_>,
        objects: &Objects<Self::Resource>,
        deed: &Self::Deed,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// All that belongs to a resource: what carries its label and has it as its controller. Whatever else has a name that is
/// wanted is somebody else's, and is never taken over.
#[derive(Clone, Debug)]
pub struct Objects<R> {
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

impl<R: Managed> Objects<R> {
    /// What an object of this name needs to be found again, and to go with the resource.
    pub fn own(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.resource.namespace(),
            labels: Some([(self.label.to_owned(), self.resource.name_any())].into()),
            owner_references: self.resource.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn without_strangers(mut self) -> Self {
        let Some(uid) = self.resource.uid() else { return self };
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
pub(crate) fn named<'o, K: Resource>(objects: &'o [K], name: &str) -> Option<&'o K> {
    objects.iter().find(|object| object.meta().name.as_deref() == Some(name))
}

impl<R> Objects<R> {
    /// A pod, by its name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        named(&self.pods, name)
    }

    /// A claim, by its name.
    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        named(&self.claims, name)
    }

    /// A config map, by its name.
    pub fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        named(&self.config_maps, name)
    }

    /// A service, by its name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        named(&self.services, name)
    }
}

/// Keeps an application: its hands and eyes, as the loop wants them.
pub struct Keeper<A: Application> {
    application: A,
    client: Client,
    written: Written<Key>,
    stores: Stores<A::Resource>,
}

struct Stores<R: Managed> {
    resources: Store<R>,
    pods: Shelf<Pod>,
    claims: Shelf<PersistentVolumeClaim>,
    config_maps: Shelf<ConfigMap>,
    services: Shelf<Service>,
    listed: Listed,
    label: &'static str,
}

impl<A: Application> Keeper<A> {
    /// Keeps what these watches bring; and what is to be polled for that.
    pub fn new(
        application: A,
        client: Client,
        clock: SharedClock,
        streams: &Streams,
    ) -> (Self, Wakers<A::Resource>) {
        let resources = streams.watch::<A::Resource>(None);
        let (pods, pods_touched) = Shelf::watch(streams, A::LABEL);
        let (claims, claims_touched) = Shelf::watch(streams, A::LABEL);
        let (config_maps, config_maps_touched) = Shelf::watch(streams, A::LABEL);
        let (services, services_touched) = Shelf::watch(streams, A::LABEL);
        let store = resources.0.clone();
        let (listed, label) = (streams.listed(), A::LABEL);
        let stores = Stores { resources: store, pods, claims, config_maps, services, listed, label };
        let touched = select_all([pods_touched, claims_touched, config_maps_touched, services_touched]);
        let all = futures::stream::pending().boxed();
        let wakers = Wakers { resources, touched: touched.boxed(), all };
        (Self { application, client, written: Written::new(clock), stores }, wakers)
    }

    /// Runs a whole program that keeps the application: its `main` has nothing left to do.
    pub fn main(name: Name, application: impl Fn() -> A) -> ExitCode {
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

impl<R: Managed> Stores<R> {
    fn find(&self, key: &Key) -> Option<Objects<R>> {
        let objects = Objects {
            resource: (*shelf::get(&self.resources, key, &key.name)?).clone(),
            pods: self.pods.of(key),
            claims: self.claims.of(key),
            config_maps: self.config_maps.of(key),
            services: self.services.of(key),
            label: self.label,
        };
        Some(objects.without_strangers())
    }

    async fn live(&self, client: &Client, key: &Key) -> Result<Option<Objects<R>>, Error> {
        let (resource, pods, claims, config_maps, services) = tokio::try_join!(
            shelf::read::<R>(client, key, &key.name),
            shelf::list(client, key, self.label),
            shelf::list(client, key, self.label),
            shelf::list(client, key, self.label),
            shelf::list(client, key, self.label),
        )?;
        let label = self.label;
        let found = |resource| Objects { resource, pods, claims, config_maps, services, label };
        Ok(resource.map(|resource| found(resource).without_strangers()))
    }

    fn version(&self, key: &Key, what: &Ref) -> Option<InStore> {
        match what.kind.as_str() {
            "Pod" => self.pods.version(key, &what.name),
            "PersistentVolumeClaim" => self.claims.version(key, &what.name),
            "ConfigMap" => self.config_maps.version(key, &what.name),
            "Service" => self.services.version(key, &what.name),
            kind if kind == R::kind(&()) => shelf::version(&self.resources, key, &what.name),
            _ => None,
        }
    }
}

impl<A: Application> Engine for Keeper<A> {
    type Facts = A::Facts;
    type Create = A::Deed;
    type Apply = A::Deed;
    type Mark = A::Deed;
    type Step = A::Deed;
    type Status = A::Status;

    fn decide(facts: &A::Facts) -> Plan<Self> {
        A::decide(facts)
    }
}

/// What a status says is waited for.
fn waits(status: &impl Serialize) -> Vec<String> {
    let status = serde_json::to_value(status).unwrap_or_default();
    match &status["waitingFor"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
        _ => Vec::new(),
    }
}

fn deed<'p, A: Application>(action: &Action<'p, Keeper<A>>) -> &'p A::Deed {
    let (Action::Create(deed) | Action::Mark(deed) | Action::Apply(deed) | Action::Step(deed)) = action;
    deed
}

impl<A: Application> Operate for Keeper<A> {
    type Engine = Self;
    type Resource = A::Resource;
    type Found = Objects<A::Resource>;
    type Probed = A::Answers;

    fn silence() -> A::Answers {
        A::Answers::default()
    }

    async fn probe(&self, key: Key) -> Option<A::Answers> {
        let found = self.stores.find(&key).filter(|_| self.stores.listed.is_complete())?;
        Some(self.application.ask(&found).await)
    }

    async fn look(&self, key: &Key, look: Look<'_, A::Answers>) -> Result<Option<Sight<Self>>, Error> {
        let remembered = match look {
            Look::Remembered(answers) if self.stores.listed.is_complete() => Some(answers),
            _ => None,
        };
        let remembered = remembered.filter(|_| self.written.seen(key, |what| self.stores.version(key, what)));
        let found = match remembered {
            Some(_) => self.stores.find(key),
            None => self.stores.live(&self.client, key).await?,
        };
        // What belongs to a resource that goes, goes with it: there is nothing left to do.
        let Some(found) = found.filter(|found| found.resource.meta().deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let probed = match remembered {
            Some(answers) => answers.clone(),
            None => self.application.ask(&found).await,
        };
        Ok(Some(Sight { facts: A::facts(&found, &probed), found, probed, live: remembered.is_none() }))
    }

    async fn act(
        &self,
        sight: &Sight<Self>,
        action: &Action<'_, Self>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let key = key(&sight.found.resource);
        let hand = Hand {
            client: &self.client,
            written: &self.written,
            key: &key,
            manager: A::NAME,
            unwatched: &[],
        };
        self.application.act(&hand, &sight.found, deed(action), holds).await
    }

    /// What one thing is refused holds up no other: what rests on it is decided once it is seen.
    fn rests_on(action: &Action<'_, Self>) -> bool {
        matches!(action, Action::Step(_))
    }

    fn status(&self, _sight: &Sight<Self>, plan: &Plan<Self>, _refused: Option<&Error>) -> Option<Value> {
        serde_json::to_value(&plan.status).ok().filter(Value::is_object)
    }

    fn resource<'s>(&self, sight: &'s Sight<Self>) -> &'s A::Resource {
        &sight.found.resource
    }

    fn notice(&self, _sight: &Sight<Self>, action: &Action<'_, Self>) -> Option<Notice> {
        let reason = match action {
            Action::Create(_) => "Created",
            Action::Step(_) => "Done",
            Action::Apply(_) | Action::Mark(_) => return None,
        };
        Some(Notice::normal(reason, "Reconcile", deed(action).to_string()))
    }

    fn troubles(&self, _sight: &Sight<Self>, _plan: &Plan<Self>) -> Vec<Notice> {
        Vec::new()
    }

    fn explain(&self, _sight: &Sight<Self>, plan: &Plan<Self>) -> Explained {
        let does = plan.actions().map(|action| deed(&action).to_string()).collect();
        Explained { does, because: Vec::new(), waits_for: waits(&plan.status) }
    }

    fn name(action: &Action<'_, Self>) -> &'static str {
        match action {
            Action::Create(_) => "create",
            Action::Mark(_) => "mark",
            Action::Apply(_) => "apply",
            Action::Step(_) => "step",
        }
    }

    fn told(&self, resource: &A::Resource) {
        let what = Ref { kind: A::Resource::kind(&()).into_owned(), name: resource.name_any() };
        let version = resource.resource_version().unwrap_or_default();
        self.written.note(&key(resource), what, Change::Stored { version });
    }

    fn forget(&self, key: &Key) {
        self.written.retain(|other| other != key);
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
