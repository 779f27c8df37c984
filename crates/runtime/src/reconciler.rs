//! The trait between the controller and an engine: observation, execution of an action, and
//! reports. It contains no decisions; these are in [`Engine::decide`].

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;

use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Engine;
use crate::decision_log::{Explanation, decision_log_meta};
use crate::error::Error;
use crate::events::EventSpec;
use crate::expectations::Expectations;
use crate::plan::{Action, Plan};

/// The namespace and the name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The source of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveFrom<'p, P> {
    /// The caches and this last probe result. Sufficient to see that the plan is a no-op.
    Cache(&'p P),
    /// The API server and the application. Every action requires a live observation.
    Live,
}

/// The observed state of a resource and its application.
pub struct Observation<R: Reconciler + ?Sized> {
    /// The facts for the decision.
    pub facts: <R::Engine as Engine>::Facts,
    /// The observed objects, whose uids and resourceVersions are the preconditions of the actions.
    pub objects: R::Objects,
    /// The answers of the application.
    pub probe_result: R::ProbeResult,
    /// Whether the API server and the application were queried for this observation.
    pub is_live: bool,
}

/// The result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action was executed.
    Done,
    /// A precondition failed: the object has changed, is gone, or exists already. The controller observes again.
    Conflict,
    /// The application or the API server declined the action for now, for this reason. The controller retries.
    RetryLater(String),
    /// A part of the action is done, described by this text. The controller continues at once.
    InProgress(String),
}

/// The bounds of a resource type.
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

impl<K> ManagedResource for K where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The observation, execution and reporting of one engine.
pub trait Reconciler: Send + Sync + 'static {
    /// The engine that decides.
    type Engine: Engine;
    /// The custom resource.
    type Resource: ManagedResource;
    /// The observed objects.
    type Objects: Send + Sync;
    /// The answers of the application. An answer that differs from the last triggers a reconcile, so it contains nothing
    /// that changes permanently, such as a time.
    type ProbeResult: Clone + PartialEq + Debug + Send + Sync + 'static;

    /// Returns the probe result for an application that does not answer in time.
    fn probe_timeout_result() -> Self::ProbeResult;

    /// Probes the application, outside of any reconcile. Returns `None` if the application could not be queried, which
    /// is no evidence about its state.
    fn probe(&self, key: ResourceKey) -> impl Future<Output = Option<Self::ProbeResult>> + Send;

    /// Observes a resource and all its objects. Returns `None` if the resource does not exist. An observation from
    /// caches may become live, if the caches lag behind the operator's writes.
    fn observe(
        &self,
        key: &ResourceKey,
        from: ObserveFrom<'_, Self::ProbeResult>,
    ) -> impl Future<Output = Result<Option<Observation<Self>>, Error>> + Send;

    /// Executes one action, with the observed objects as preconditions. `may_write` returns true while the lease is held
    /// and, for a disruption, while the observation is fresh. A call without preconditions checks it last, with no await
    /// between the check and the call.
    fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, Self::Engine>,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;

    /// Returns true if the disruption of a plan depends on this write. Prerequisites are executed first; if one fails,
    /// the disruption is not executed.
    fn is_prerequisite(action: &Action<'_, Self::Engine>) -> bool;

    /// Returns true if a plan without actions may be caused by a stale cache. The controller then observes live before
    /// it reports the plan: watches deliver changes of different kinds in any order.
    fn confirm_live(_plan: &Plan<Self::Engine>) -> bool {
        false
    }

    /// Returns the complete status of the resource, or `None` to leave it unchanged. `error` is an error that lasts.
    fn status(
        &self,
        observation: &Observation<Self>,
        plan: &Plan<Self::Engine>,
        error: Option<&Error>,
    ) -> Option<Value>;

    /// Returns true if the status is written after the disruption of this plan, before the next pass: users see a long
    /// operation, and the next decision on the status knows which operation the disruption belongs to.
    fn reports_progress(
        &self,
        _observation: &Observation<Self>,
        _plan: &Plan<Self::Engine>,
    ) -> bool {
        false
    }

    /// Returns the status of a resource that cannot be observed because of this error, or `None` to leave it unchanged.
    fn status_on_observe_error(&self, _resource: &Self::Resource, _error: &Error) -> Option<Value> {
        None
    }

    /// Returns the observed resource.
    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o Self::Resource;

    /// Returns the event for an action that was executed, if people should know of it.
    fn event_for(
        &self,
        _observation: &Observation<Self>,
        _action: &Action<'_, Self::Engine>,
    ) -> Option<EventSpec> {
        None
    }

    /// Returns the events about the observed state: warnings about problems, and the end of problems.
    fn state_events(
        &self,
        _observation: &Observation<Self>,
        _plan: &Plan<Self::Engine>,
    ) -> Vec<EventSpec> {
        Vec::new()
    }

    /// Returns the plan as sentences, for the decision log.
    fn explain(&self, observation: &Observation<Self>, plan: &Plan<Self::Engine>) -> Explanation;

    /// Returns the metadata of the ConfigMap with the decision log of a resource, or `None` for no decision log.
    fn decision_log_meta(&self, resource: &Self::Resource) -> Option<ObjectMeta> {
        Some(decision_log_meta(resource))
    }

    /// Returns the machine-readable name of an action, for logs, metrics and the decision log.
    fn action_name(action: &Action<'_, Self::Engine>) -> &'static str;

    /// Returns the target of the action, as JSON. The decision log treats two actions with the same
    /// name and target as the same action, so a target contains neither times nor random values.
    fn action_target(action: &Action<'_, Self::Engine>) -> Value {
        action.to_json()
    }

    /// Returns the expected writes. The controller adds the writes of the status and removes those of deleted resources.
    fn expectations(&self) -> &Expectations<ResourceKey>;

    /// Drops everything that is stored about a deleted resource, except the expectations.
    fn forget(&self, _key: &ResourceKey) {}
}
