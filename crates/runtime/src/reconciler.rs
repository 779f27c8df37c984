//! The hands and eyes of an engine: how it looks, and how it carries out what was decided. Thin: all knowledge is in
//! [`Engine::decide`].

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;

use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decision_log::{Explanation, decision_log_meta};
use crate::events::EventSpec;
use crate::{Engine, Plan};

/// One resource: its namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Where it is.
    pub namespace: String,
    /// What it is called there.
    pub name: String,
}

impl std::fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveFrom<'p, P> {
    /// At what the watches have brought, and what the application said last. Enough to see that all is well.
    Cache(&'p P),
    /// At everything itself, now. Nothing is done on less.
    Live,
}

/// What was seen.
pub struct Observation<O: Reconciler + ?Sized> {
    /// As facts, for deciding.
    pub facts: <O::Engine as Engine>::Facts,
    /// As it was found, for acting: with what pins a plan to it.
    pub objects: O::Objects,
    /// What the application said.
    pub probe_result: O::ProbeResult,
    /// Whether everything was looked at itself: nothing is done on less.
    pub is_live: bool,
}

/// One thing to be carried out.
#[derive(Debug)]
pub enum Action<'p, E: Engine + ?Sized> {
    /// Something that must never exist twice.
    Create(&'p E::Create),
    /// Something that disturbs nobody.
    Patch(&'p E::Patch),
    /// Something that should exist as described.
    Apply(&'p E::Apply),
    /// Something that may disturb.
    Disruption(&'p E::Disruption),
}

impl<E: Engine + ?Sized> Plan<E> {
    /// All that is to be carried out, in order. What creates and marks comes first: it is what heals.
    pub fn actions(&self) -> impl Iterator<Item = Action<'_, E>> {
        let create = self.create.iter().map(Action::Create);
        let mark = self.patch.iter().map(Action::Patch);
        let apply = self.apply.iter().map(Action::Apply);
        create
            .chain(mark)
            .chain(apply)
            .chain(self.disruption.iter().map(Action::Disruption))
    }
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// What it was decided on has changed: the rest of the plan is dropped, and everything is looked at again.
    Conflict,
    /// The application declines it for now, with its words: it is tried again shortly.
    RetryLater(String),
    /// It takes longer than one go may: this much is done, in words, and it is gone on with at once.
    InProgress(String),
}

/// Something could not be looked at or carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kubernetes did not do what it was asked for.
    #[error("cannot {doing}: {}", plainly(why))]
    Kubernetes {
        /// What it was asked for, as in "create the pod orders-k7f2x".
        doing: String,
        /// What it said.
        #[source]
        why: Box<kube::Error>,
    },
    /// It was declined for now, again and again.
    #[error("it was declined {times} times: {why}")]
    RetriesExhausted {
        /// Who said what.
        why: String,
        /// How often.
        times: u32,
    },
    /// Anything else.
    #[error("cannot {doing}: {why}")]
    Other {
        /// What was tried.
        doing: String,
        /// What came of it.
        why: String,
    },
}

/// What Kubernetes said, for people: kube repeats its whole answer as Rust would print it.
fn plainly(why: &kube::Error) -> String {
    match why {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

impl Error {
    /// Kubernetes did not do what it was asked for.
    pub fn kubernetes(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |why| Self::Kubernetes {
            doing,
            why: Box::new(why),
        }
    }

    /// Whether somebody said no for a reason that stands: a quota, a webhook, a missing right, a disruption budget that never lets
    /// anybody go. What Kubernetes had no time for, or was overtaken, it may do the next time.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Kubernetes { why, .. } => {
                matches!(&**why, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
            }
            Self::RetriesExhausted { .. } => true,
            Self::Other { .. } => false,
        }
    }

    /// What was tried, without the words in which it failed.
    pub(crate) fn summary(&self) -> Self {
        let doing = match self {
            Self::Kubernetes { doing, .. } | Self::Other { doing, .. } => doing.clone(),
            Self::RetriesExhausted { .. } => "do what is declined".to_owned(),
        };
        Self::other(doing, "it fails again and again, and the events say why")
    }

    /// Anything else.
    pub fn other(doing: impl Into<String>, why: impl ToString) -> Self {
        Self::Other {
            doing: doing.into(),
            why: why.to_string(),
        }
    }
}

/// What the loop needs of a resource type.
pub trait ManagedResource:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<R> ManagedResource for R where
    R: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// An engine that can look and act.
pub trait Reconciler: Send + Sync + 'static {
    /// What decides.
    type Engine: Engine;
    /// What users write.
    type Resource: ManagedResource;
    /// The objects as they were looked at.
    type Objects: Send + Sync;
    /// What the application says when it is asked. Equal answers wake nobody: nothing that changes by itself is in it.
    type ProbeResult: Clone + PartialEq + Debug + Send + Sync + 'static;

    /// What stands for an application that does not answer at all.
    fn probe_timeout_result() -> Self::ProbeResult;

    /// Asks the application, outside of any reconcile; nothing if it could not be asked, which says nothing about it.
    fn probe(&self, key: ResourceKey) -> impl Future<Output = Option<Self::ProbeResult>> + Send;

    /// Looks at everything that belongs to a resource; `None` when there is no such resource. Asked for what is remembered,
    /// it may look live all the same: when the stores have not caught up with its own writes.
    fn observe(
        &self,
        key: &ResourceKey,
        look: ObserveFrom<'_, Self::ProbeResult>,
    ) -> impl Future<Output = Result<Option<Observation<Self>>, Error>> + Send;

    /// Carries out one thing, pinned to what was found. `holds` says whether the lease is still held and, for a step, what it
    /// rests on was seen a moment ago: what cannot be pinned asks it last, with nothing awaited between.
    fn execute(
        &self,
        sight: &Observation<Self>,
        action: &Action<'_, Self::Engine>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;

    /// Whether what follows in the plan rests on this: refused, it ends the plan. Otherwise the rest is done all the same.
    fn is_prerequisite(action: &Action<'_, Self::Engine>) -> bool;

    /// Whether a plan that does nothing may do so only because something was not seen yet: what watches bring comes in any
    /// order. It is then decided again on a live look.
    fn confirm_live(_plan: &Plan<Self::Engine>) -> bool {
        false
    }

    /// The resource's status, complete, as it should be now; `None` leaves it alone.
    fn status(
        &self,
        sight: &Observation<Self>,
        plan: &Plan<Self::Engine>,
        refused: Option<&Error>,
    ) -> Option<serde_json::Value>;

    /// The status of a resource that could not be looked at, for this reason; `None` leaves it alone.
    fn status_on_observe_error(
        &self,
        _resource: &Self::Resource,
        _why: &Error,
    ) -> Option<serde_json::Value> {
        None
    }

    /// The resource as it was found, for its status and for events about it.
    fn resource<'s>(&self, sight: &'s Observation<Self>) -> &'s Self::Resource;

    /// What to tell people once an action is done; most marks are not worth an event.
    fn event_for(
        &self,
        sight: &Observation<Self>,
        action: &Action<'_, Self::Engine>,
    ) -> Option<EventSpec>;

    /// What to tell people about what is waited for, when it is worth an event.
    fn warning_events(
        &self,
        sight: &Observation<Self>,
        plan: &Plan<Self::Engine>,
    ) -> Vec<EventSpec>;

    /// What a plan comes to, as sentences: for the log of decisions.
    fn explain(&self, sight: &Observation<Self>, plan: &Plan<Self::Engine>) -> Explanation;

    /// The ConfigMap in which a resource's decisions are kept, nothing in it yet; none to keep none.
    fn decision_log_meta(&self, resource: &Self::Resource) -> Option<ObjectMeta> {
        Some(decision_log_meta(resource))
    }

    /// A word for an action, for logs and metrics.
    fn action_name(action: &Action<'_, Self::Engine>) -> &'static str;

    /// Its status was written: this is how the resource is now.
    fn on_status_written(&self, resource: &Self::Resource);

    /// A resource is gone: what was remembered of it can be forgotten.
    fn forget(&self, key: &ResourceKey);
}
