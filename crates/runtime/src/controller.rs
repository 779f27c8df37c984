//! The controller loop: observe (from caches), decide, confirm live, execute, publish status. Each resource is
//! reconciled by one worker at a time; failures back off per resource.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, Stream};
use kube::api::PostParams;
use kube::runtime::controller::{Action as KubeAction, Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::clock::{SharedClock, with_timeout};
use crate::decision_log::{ActionRecord, DecisionLog, DecisionOutcome, NewDecision, PlanRecord};
use crate::error::Error;
use crate::events::{EventRecorder, EventSpec};
use crate::execute::{ExecutionEnd, PlanExecution, RejectedActions};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::pass::{self, Next, PassConditions, PassState, RETRY_DELAY, Report};
use crate::plan::{Action, Plan, Requeue};
use crate::prober::{ProbeIntervals, Prober, ProberParts};
use crate::random::{SharedRandom, jitter};
use crate::reconciler::{ManagedResource, Observation, ObserveFrom, Reconciler, ResourceKey};
use crate::retries::RetryCounter;
use crate::watches::WatchedStore;

/// The number of resources that are reconciled concurrently. Higher than the number of cores: most reconciles wait for
/// answers, some for applications that do not answer, while other resources need a repair.
const MAX_CONCURRENT: u16 = 32;
/// The number of passes in one reconcile.
const MAX_PASSES: usize = 32;
/// The maximum duration of one reconcile.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of failed reconciles after which an error is not considered transient: the API server
/// may be unavailable for a moment.
const FAILURES_BEFORE_REPORT: u32 = 3;
/// The interval of reconciles from caches while the application is about to change. Decisions may depend on durations,
/// and no watch reports that time has passed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of reconciles from caches while no change is expected. They cost next to no
/// requests.
const RESYNC_INTERVAL: Duration = Duration::from_secs(600);

/// The parts of a controller.
pub(crate) struct ControllerParts<R: Reconciler> {
    /// The reconciler of the engine.
    pub(crate) reconciler: Arc<R>,
    /// The client that writes the status.
    pub(crate) client: Client,
    /// The leadership, required for every write.
    pub(crate) leadership: Leadership,
    /// The event recorder.
    pub(crate) events: EventRecorder,
    /// The metrics.
    pub(crate) metrics: Metrics,
    /// The clock.
    pub(crate) clock: SharedClock,
    /// The source of jitter.
    pub(crate) random: SharedRandom,
    /// The intervals at which the application is probed.
    pub(crate) probe_intervals: ProbeIntervals,
}

/// The streams that trigger reconciles.
pub struct Triggers<K: ManagedResource> {
    /// The resources.
    pub resources: WatchedStore<K>,
    /// The keys of resources whose objects changed.
    pub related: BoxStream<'static, ResourceKey>,
    /// Changes that may concern every resource.
    pub all: BoxStream<'static, ()>,
}

impl<K: ManagedResource> Triggers<K> {
    /// Returns the keys of changed and deleted resources, for another controller. They are emitted only while this
    /// controller polls its own triggers, and after the change is in the store.
    pub fn resource_changes(&mut self) -> BoxStream<'static, ResourceKey> {
        let (keys, changes) = mpsc::unbounded();
        let own = std::mem::replace(&mut self.resources.1, stream::pending().boxed());
        let own = own.inspect(move |changed| {
            if let Ok(resource) = changed {
                // The other controller may have ended.
                let _ = keys.unbounded_send(key_of(resource));
            }
        });
        self.resources.1 = own.boxed();
        changes.boxed()
    }
}

/// The controller of one engine.
struct ReconcileContext<R: Reconciler> {
    parts: ControllerParts<R>,
    prober: Prober<ResourceKey, R::ProbeResult>,
    backoff: Backoff<ResourceKey>,
    retries: RetryCounter,
    decision_log: DecisionLog,
    kind: String,
}

/// Runs a controller until `shutdown`. Reconciles in progress are finished first. If `shutdown` comes before the first
/// list of resources, the returned future never ends: kube waits for the store. The caller bounds the wait.
pub(crate) async fn run_controller<R: Reconciler>(
    parts: ControllerParts<R>,
    triggers: Triggers<R::Resource>,
    shutdown: CancellationToken,
) {
    let context = Arc::new(ReconcileContext::new(parts));
    let (store, stream) = triggers.resources;
    let (deleted_context, known) = (context.clone(), store.clone());
    // A deleted resource is not reconciled: Kubernetes deletes its objects.
    let stream = stream.inspect(move |changed| {
        if let Ok(resource) = changed
            && known.get(&ObjectRef::from_obj(resource)).is_none()
        {
            deleted_context.forget(&key_of(resource));
        }
    });
    let reference = |key: ResourceKey| ObjectRef::new(&key.name).within(&key.namespace);
    let controller = Controller::for_stream(stream, store)
        .with_config(Config::default().concurrency(MAX_CONCURRENT))
        .reconcile_on(triggers.related.map(reference))
        .reconcile_on(context.prober.changes().map(reference))
        .reconcile_all_on(triggers.all)
        .graceful_shutdown_on(async move { shutdown.cancelled().await });
    drain(controller.run(reconcile::<R>, error_policy::<R>, context)).await;
}

/// Polls the controller until its end. Its own errors are resources that were deleted before their reconcile.
async fn drain<T, E: Debug>(results: impl Stream<Item = Result<T, E>>) {
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        if let Err(error) = result {
            tracing::trace!(?error, "not reconciled");
        }
    }
}

/// Returns the key of a resource.
pub(crate) fn key_of<K: Resource>(resource: &K) -> ResourceKey {
    ResourceKey {
        namespace: resource.namespace().unwrap_or_default(),
        name: resource.name_any(),
    }
}

/// Returns the event for a failed write.
fn write_rejected(error: &Error) -> EventSpec {
    EventSpec::warning("WriteRejected", "Reconcile", error.to_string())
}

async fn reconcile<R: Reconciler>(
    resource: Arc<R::Resource>,
    context: Arc<ReconcileContext<R>>,
) -> Result<KubeAction, Error> {
    let key = key_of(&*resource);
    let started_at = context.parts.clock.uptime();
    let result = with_timeout(
        &*context.parts.clock,
        RECONCILE_TIMEOUT,
        context.reconcile_passes(&resource, &key),
    )
    .await
    .unwrap_or(Err(Error::ReconcileTimeout(RECONCILE_TIMEOUT)));
    context.flush_decision_log(&resource, &key).await;
    let duration = context.parts.clock.uptime().saturating_sub(started_at);
    let outcome = if result.is_ok() { "done" } else { "failed" };
    context
        .parts
        .metrics
        .reconciled(&context.kind, outcome, duration);
    if result.is_ok() {
        context.backoff.succeeded(&key);
    }
    result
}

fn error_policy<R: Reconciler>(
    resource: Arc<R::Resource>,
    error: &Error,
    context: Arc<ReconcileContext<R>>,
) -> KubeAction {
    let key = key_of(&*resource);
    let retry_in = context.backoff.failed(&key);
    tracing::warn!(resource = %key, %error, ?retry_in, "reconcile failed");
    KubeAction::requeue(retry_in)
}

/// Whether a status was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusWrite {
    /// The resource has the status, or is gone.
    Current,
    /// The resource was changed meanwhile.
    Conflict,
}

impl<R: Reconciler> ReconcileContext<R> {
    fn new(parts: ControllerParts<R>) -> Self {
        let kind = R::Resource::kind(&()).into_owned();
        let (reconciler, leadership) = (parts.reconciler.clone(), parts.leadership.clone());
        let prober = Prober::new(ProberParts {
            kind: kind.clone(),
            probe: Box::new(move |key: ResourceKey| {
                let reconciler = reconciler.clone();
                async move { reconciler.probe(key).await }.boxed()
            }),
            timeout_result: R::probe_timeout_result(),
            enabled: Box::new(move || leadership.is_leader()),
            intervals: parts.probe_intervals.clone(),
            clock: parts.clock.clone(),
            random: parts.random.clone(),
            metrics: parts.metrics.clone(),
        });
        let backoff = Backoff::new(parts.random.clone());
        let decision_log = DecisionLog::new(
            parts.client.clone(),
            parts.clock.clone(),
            parts.events.instance(),
        );
        Self {
            parts,
            prober,
            backoff,
            retries: RetryCounter::default(),
            decision_log,
            kind,
        }
    }

    fn forget(&self, key: &ResourceKey) {
        self.prober.forget(key);
        self.parts.reconciler.forget(key);
        self.parts.reconciler.expectations().forget(key);
        self.decision_log.forget(key);
        self.backoff.succeeded(key);
        self.retries.forget(key);
    }

    /// Observes, decides and executes until the plan is a no-op or has to wait.
    async fn reconcile_passes(
        &self,
        resource: &R::Resource,
        key: &ResourceKey,
    ) -> Result<KubeAction, Error> {
        self.prober.watch(key);
        if self.parts.reconciler.decision_log_meta(resource).is_some() {
            self.decision_log.open(key);
        }
        let mut state = PassState::default();
        let mut rejected = RejectedActions::default();
        let mut last_plan: Option<Plan<R::Engine>> = None;
        for _ in 0..MAX_PASSES {
            if !self.parts.leadership.is_leader() {
                return Ok(KubeAction::await_change());
            }
            let observation = match self.observe(key, state.is_live).await {
                Ok(observation) => observation,
                Err(error) => {
                    self.report_observe_error(resource, key, &error).await;
                    return Err(error);
                }
            };
            let Some(observation) = observation else {
                self.forget(key);
                return Ok(KubeAction::await_change());
            };
            let observed_at = self.parts.clock.uptime();
            let plan = R::Engine::decide(&observation.facts);
            let needs_live = !plan.is_noop() || R::confirm_live(&plan);
            if !observation.is_live && needs_live {
                state.is_live = true;
                continue;
            }
            if plan.is_noop() {
                return self.finish(key, &observation, &plan).await;
            }
            let execution = PlanExecution {
                parts: &self.parts,
                observation: &observation,
                observed_at,
                plan: &plan,
                scope: state.scope,
            };
            let execution = execution.run(&mut rejected).await;
            let conditions =
                self.conditions(key, &observation, &plan, last_plan.as_ref(), &execution.end);
            let end = pass::next(state, &execution, &conditions);
            self.record_decision(key, &observation, &plan, end.outcome, &execution.events);
            self.report_end(&observation, &plan, end.report, execution.events)
                .await?;
            state = match end.next {
                Next::Continue(state) => state,
                Next::Requeue(delay) => return Ok(KubeAction::requeue(delay)),
                Next::Fail(error) => {
                    if plan.requeue == Requeue::Poll {
                        self.prober.expect_change(key);
                    }
                    return Err(error);
                }
            };
            last_plan = Some(plan);
        }
        Ok(KubeAction::requeue(RETRY_DELAY))
    }

    /// Ends a reconcile whose plan has no actions.
    async fn finish(
        &self,
        key: &ResourceKey,
        observation: &Observation<R>,
        plan: &Plan<R::Engine>,
    ) -> Result<KubeAction, Error> {
        self.retries.forget(key);
        self.record_decision(key, observation, plan, DecisionOutcome::default(), &[]);
        let written = self.report(observation, plan, Vec::new(), None).await?;
        let next = self.requeue(key, plan.requeue);
        Ok(match written {
            StatusWrite::Current => next,
            StatusWrite::Conflict => KubeAction::requeue(RETRY_DELAY),
        })
    }

    /// Counts declined attempts, and returns the conditions for [`pass::next`].
    fn conditions(
        &self,
        key: &ResourceKey,
        observation: &Observation<R>,
        plan: &Plan<R::Engine>,
        last_plan: Option<&Plan<R::Engine>>,
        end: &ExecutionEnd,
    ) -> PassConditions {
        let disruption = plan.disruption.as_ref();
        let disruption = disruption.map_or("", |one| R::action_name(&Action::Disruption(one)));
        let declined_attempts = match end {
            ExecutionEnd::RetryLater(_) => self.retries.increment(key, disruption),
            ExecutionEnd::Completed | ExecutionEnd::InProgress(_) => {
                self.retries.forget(key);
                0
            }
            ExecutionEnd::Conflict | ExecutionEnd::Failed(_) => 0,
        };
        PassConditions {
            is_same_plan: last_plan.is_some_and(|last| plan.same_actions(last)),
            is_leader: self.parts.leadership.is_leader(),
            disruption,
            declined_attempts,
            is_failing_persistently: self.is_failing_persistently(key),
            reports_progress: self.parts.reconciler.reports_progress(observation, plan),
        }
    }

    /// Returns true if a resource has failed in so many reconciles that the failure is not transient.
    fn is_failing_persistently(&self, key: &ResourceKey) -> bool {
        self.backoff.failures_of(key) >= FAILURES_BEFORE_REPORT
    }

    /// Adds a decision and its result to the decision log.
    fn record_decision(
        &self,
        key: &ResourceKey,
        observation: &Observation<R>,
        plan: &Plan<R::Engine>,
        outcome: DecisionOutcome,
        events: &[EventSpec],
    ) {
        let action = |action: Action<'_, R::Engine>| ActionRecord {
            name: R::action_name(&action).to_owned(),
            target: R::action_target(&action),
        };
        let waits = plan.waits.iter();
        let record = PlanRecord {
            actions: plan.actions().map(action).collect(),
            waits: waits
                .map(|wait| serde_json::to_value(wait).unwrap_or_default())
                .collect(),
        };
        let events = events
            .iter()
            .map(|event| format!("{}: {}", event.reason, event.note))
            .collect();
        let decision = NewDecision {
            plan: record,
            explanation: self.parts.reconciler.explain(observation, plan),
            outcome,
            events,
            facts_version: R::Engine::FACTS_VERSION,
        };
        self.decision_log.record(key, decision, &observation.facts);
    }

    /// Writes the decision log, unless the resource is being deleted.
    async fn flush_decision_log(&self, resource: &R::Resource, key: &ResourceKey) {
        let is_terminating = resource.meta().deletion_timestamp.is_some();
        if let Some(meta) = self.parts.reconciler.decision_log_meta(resource)
            && !is_terminating
            && self.parts.leadership.is_leader()
            && let Some(problem) = self.decision_log.flush(key, meta).await
        {
            let event = EventSpec::warning("DecisionLogNotWritten", "Reconcile", problem);
            self.parts
                .events
                .publish(&resource.object_ref(&()), &event)
                .await;
        }
    }

    async fn publish_events(&self, observation: &Observation<R>, events: &[EventSpec]) {
        if self.parts.leadership.is_leader() {
            let regarding = self.parts.reconciler.resource(observation).object_ref(&());
            self.parts.events.publish_all(&regarding, events).await;
        }
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        is_live: bool,
    ) -> Result<Option<Observation<R>>, Error> {
        let last = if is_live { None } else { self.prober.last(key) };
        let from = last
            .as_ref()
            .map_or(ObserveFrom::Live, |last| ObserveFrom::Cache(&last.result));
        let observation = self.parts.reconciler.observe(key, from).await?;
        if let Some(observation) = observation.as_ref().filter(|one| one.is_live) {
            self.prober.record(key, observation.probe_result.clone());
        }
        Ok(observation)
    }

    /// Reports the end of a pass.
    async fn report_end(
        &self,
        observation: &Observation<R>,
        plan: &Plan<R::Engine>,
        report: Report,
        mut events: Vec<EventSpec>,
    ) -> Result<(), Error> {
        match report {
            Report::Nothing => {}
            Report::Events => self.publish_events(observation, &events).await,
            Report::Progress => {
                // A write that fails must not stop the actions; the end of the reconcile reports it.
                if let Err(error) = self.report(observation, plan, events, None).await {
                    tracing::debug!(%error, "failed to report progress");
                }
            }
            Report::Status {
                event_error,
                status_error,
            } => {
                events.extend(event_error.as_ref().map(write_rejected));
                self.report(observation, plan, events, status_error.as_ref())
                    .await?;
            }
        }
        Ok(())
    }

    /// Publishes these events and those for the waits, and writes the status if it differs.
    async fn report(
        &self,
        observation: &Observation<R>,
        plan: &Plan<R::Engine>,
        mut events: Vec<EventSpec>,
        status_error: Option<&Error>,
    ) -> Result<StatusWrite, Error> {
        let reconciler = &self.parts.reconciler;
        events.extend(reconciler.state_events(observation, plan));
        self.publish_events(observation, &events).await;
        match reconciler.status(observation, plan, status_error) {
            Some(status) => {
                self.write_status(reconciler.resource(observation), status)
                    .await
            }
            None => Ok(StatusWrite::Current),
        }
    }

    /// Reports an error of the observation as an event and in the status. Errors of the API server are reported once
    /// they last.
    async fn report_observe_error(&self, resource: &R::Resource, key: &ResourceKey, error: &Error) {
        let may_pass = error.is_transient() && !self.is_failing_persistently(key);
        if may_pass || !self.parts.leadership.is_leader() {
            return;
        }
        let event = EventSpec::warning("ObserveFailed", "Reconcile", error.to_string());
        self.parts
            .events
            .publish(&resource.object_ref(&()), &event)
            .await;
        if let Some(status) = self
            .parts
            .reconciler
            .status_on_observe_error(resource, error)
            && let Err(error) = self.write_status(resource, status).await
        {
            tracing::debug!(resource = %key, %error, "failed to write status after observe error");
        }
    }

    async fn write_status(
        &self,
        resource: &R::Resource,
        status: serde_json::Value,
    ) -> Result<StatusWrite, Error> {
        let serialize_error = |error| Error::other("serialize the status", error);
        let mut object = serde_json::to_value(resource).map_err(serialize_error)?;
        if object.get("status") == Some(&status) || !self.parts.leadership.is_leader() {
            return Ok(StatusWrite::Current);
        }
        object["status"] = status;
        let changed: R::Resource = serde_json::from_value(object).map_err(serialize_error)?;
        let (key, kind) = (key_of(resource), &self.kind);
        let api: Api<R::Resource> = Api::namespaced(self.parts.client.clone(), &key.namespace);
        match api
            .replace_status(&key.name, &PostParams::default(), &changed)
            .await
        {
            Ok(written) => {
                self.parts
                    .reconciler
                    .expectations()
                    .expect_stored(&key, &written);
                Ok(StatusWrite::Current)
            }
            // The change that caused the conflict normally triggers a reconcile. The retry does not depend on that.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(StatusWrite::Conflict),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(StatusWrite::Current),
            Err(error) => {
                let action = format!("write the status of {kind} {}", key.name);
                Err(Error::kubernetes(action)(error))
            }
        }
    }

    fn requeue(&self, key: &ResourceKey, requeue: Requeue) -> KubeAction {
        match requeue {
            Requeue::Poll => self.prober.expect_change(key),
            Requeue::OnChange | Requeue::At(_) => self.prober.settled(key),
        }
        let longest = jitter(RESYNC_INTERVAL, &*self.parts.random);
        match requeue {
            Requeue::At(time) => {
                // 100 ms later: timestamps in objects have a resolution of one second.
                let wait = time.since(self.parts.clock.now()) + Duration::from_millis(100);
                KubeAction::requeue(wait.min(longest))
            }
            Requeue::Poll => KubeAction::requeue(POLL_INTERVAL),
            Requeue::OnChange => KubeAction::requeue(longest),
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
