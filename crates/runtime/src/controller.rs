//! The loop: look, decide, look again live, act, and tell. One resource at a time is in one pair of hands; what fails is
//! tried again with a backoff of its own.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use futures::{FutureExt, Stream};
use kube::api::PostParams;
use kube::runtime::controller::{Action as Next, Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::clock::{SharedClock, with_timeout};
use crate::decision_log::DecisionLog;
use crate::events::{EventRecorder, EventSpec};
use crate::execute::{Execution, ExecutionEnd, PlanScope, RejectedActions, execute_plan};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::prober::{ProbeIntervals, Prober, ProberParts};
use crate::random::{SharedRandom, jitter};
use crate::reconciler::{
    Action, Error, ManagedResource, Observation, ObserveFrom, Reconciler, ResourceKey,
};
use crate::retries::RetryCounter;
use crate::watches::WatchedStore;
use crate::{Engine, Plan, Requeue};

/// How many resources are worked on at once. More than there are cores: most of the time each waits for answers, and some wait long,
/// for applications that do not answer, while others need help.
const MAX_CONCURRENT: u16 = 32;
/// How many plans are carried out in one go before others get their turn.
const MAX_PASSES: usize = 32;
/// How long one go may take.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(120);
/// When the application declined something for now.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// When something is to be gone on with: others get their turn in between.
const CONTINUE_DELAY: Duration = Duration::from_millis(20);
/// How often in a row that may be before people are told, and it is tried more seldom.
const RETRIES_BEFORE_REPORT: u32 = 20;
/// How much more seldom.
const SLOW_RETRY_DELAY: Duration = Duration::from_secs(10);
/// How many plans in a row may come to nothing before there is a pause.
const MAX_NO_PROGRESS: usize = 3;
/// How often a resource that cannot be looked at, or for which something fails, is tried before people are told: the API server may be
/// away for a moment.
const FAILURES_BEFORE_REPORT: u32 = 3;
/// While the application is about to change by itself: a look at what is remembered. What is decided may also rest on how
/// long something has lasted, and nobody else tells that time has passed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// When nothing is expected: a look at what is remembered, which asks Kubernetes for next to nothing.
const RESYNC_INTERVAL: Duration = Duration::from_secs(600);

/// What the loop is handed.
pub struct ControllerParts<O: Reconciler> {
    /// The engine's hands and eyes.
    pub reconciler: Arc<O>,
    /// The client that writes status.
    pub client: Client,
    /// Who may act.
    pub leadership: Leadership,
    /// Where people are told.
    pub events: EventRecorder,
    /// What is counted.
    pub metrics: Metrics,
    /// The clock.
    pub clock: SharedClock,
    /// Chance.
    pub random: SharedRandom,
    /// How often the application is asked.
    pub probe_intervals: ProbeIntervals,
}

/// What makes the loop look at a resource.
pub struct Triggers<R: ManagedResource> {
    /// The resources themselves.
    pub resources: WatchedStore<R>,
    /// Which resources something was touched of.
    pub related: BoxStream<'static, ResourceKey>,
    /// Something that may concern every resource.
    pub all: BoxStream<'static, ()>,
}

/// The loop for one engine.
struct ReconcileContext<O: Reconciler> {
    parts: ControllerParts<O>,
    prober: Prober<ResourceKey, O::ProbeResult>,
    backoff: Backoff<ResourceKey>,
    retries: RetryCounter,
    decision_log: DecisionLog,
    kind: String,
}

/// Runs the loop for as long as it is not told to end; what is under way then is finished first.
pub async fn run_controller<O: Reconciler>(
    parts: ControllerParts<O>,
    wakers: Triggers<O::Resource>,
    shutdown: CancellationToken,
) {
    let this = Arc::new(ReconcileContext::new(parts));
    let (store, stream) = wakers.resources;
    let (forgetter, known) = (this.clone(), store.clone());
    // A resource that is gone is looked at no more: there is nothing left to do that Kubernetes does not do itself.
    let stream = stream.inspect(move |touched| {
        if let Ok(resource) = touched
            && known.get(&ObjectRef::from_obj(resource)).is_none()
        {
            forgetter.forget(&key_of(resource));
        }
    });
    let reference = |key: ResourceKey| ObjectRef::new(&key.name).within(&key.namespace);
    let ended = shutdown.clone();
    let controller = Controller::for_stream(stream, store)
        .with_config(Config::default().concurrency(MAX_CONCURRENT))
        .reconcile_on(wakers.related.map(reference))
        .reconcile_on(this.prober.changes().map(reference))
        .reconcile_all_on(wakers.all)
        .graceful_shutdown_on(async move { ended.cancelled().await });
    drain(controller.run(reconcile::<O>, error_policy::<O>, this.clone())).await;
}

/// What the controller itself complains about, beyond reconciles: resources that vanished before their turn.
async fn drain<T, E: Debug>(results: impl Stream<Item = Result<T, E>>) {
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        if let Err(error) = result {
            tracing::trace!(?error, "not reconciled");
        }
    }
}

/// The key of a resource.
pub(crate) fn key_of<R: Resource>(resource: &R) -> ResourceKey {
    ResourceKey {
        namespace: resource.namespace().unwrap_or_default(),
        name: resource.name_any(),
    }
}

/// What came of a plan, in words.
fn describe_end(end: &ExecutionEnd, refused: Option<&Error>) -> String {
    match (end, refused) {
        (ExecutionEnd::Completed, Some(error)) => format!("not all of it was done: {error}"),
        _ => end.to_string(),
    }
}

/// That something was refused.
fn write_rejected(error: &Error) -> EventSpec {
    EventSpec::warning("WriteRefused", "Reconcile", error.to_string())
}

/// One go at a resource: several plans, one after the other.
struct PassState<E: Engine> {
    /// Whether the next look is a live one.
    is_live: bool,
    /// How many plans in a row came to nothing.
    no_progress: usize,
    last_plan: Option<Plan<E>>,
    /// How much of the next plan is to be carried out.
    scope: PlanScope,
    rejected: RejectedActions<E>,
}

impl<E: Engine> Default for PassState<E> {
    fn default() -> Self {
        let (extent, refused) = (PlanScope::Full, RejectedActions::new());
        Self {
            is_live: false,
            no_progress: 0,
            last_plan: None,
            scope: extent,
            rejected: refused,
        }
    }
}

impl<E: Engine> PassState<E> {
    /// Counts in what came of a plan, and says how that ended.
    fn record_result(&mut self, plan: &Plan<E>, carried: &mut Execution) -> ExecutionEnd {
        let whole = self.scope == PlanScope::Full;
        // Refusals that take long must not keep the step from ever going out: it is decided again, and goes first.
        let step_first = carried.is_late && self.rejected.error.is_some() && whole;
        self.scope = if step_first {
            PlanScope::DisruptionOnly
        } else {
            PlanScope::Full
        };
        // What was done to no effect, and what is always overtaken, must not be tried as fast as the machine goes.
        let again = whole
            && self
                .last_plan
                .as_ref()
                .is_some_and(|last| plan.same_actions(last));
        self.no_progress = if carried.done == 0 || again {
            self.no_progress + 1
        } else {
            0
        };
        match std::mem::take(&mut carried.end) {
            // Nothing is left but what was refused.
            ExecutionEnd::Completed if carried.done == 0 && whole && !carried.is_late => self
                .rejected
                .error
                .take()
                .map_or(ExecutionEnd::Completed, ExecutionEnd::Failed),
            end => end,
        }
    }
}

async fn reconcile<O: Reconciler>(
    resource: Arc<O::Resource>,
    this: Arc<ReconcileContext<O>>,
) -> Result<Next, Error> {
    let key = key_of(&*resource);
    let began = this.parts.clock.uptime();
    let went = with_timeout(
        &*this.parts.clock,
        RECONCILE_TIMEOUT,
        this.reconcile_passes(&resource, &key),
    )
    .await;
    let went = went.unwrap_or_else(|| {
        Err(Error::other(
            "finish",
            format!("it took longer than {} s", RECONCILE_TIMEOUT.as_secs()),
        ))
    });
    this.flush_decision_log(&resource, &key).await;
    let took = this.parts.clock.uptime().saturating_sub(began);
    this.parts.metrics.reconciled(
        &this.kind,
        if went.is_ok() { "done" } else { "failed" },
        took,
    );
    if went.is_ok() {
        this.backoff.succeeded(&key);
    }
    went
}

fn error_policy<O: Reconciler>(
    resource: Arc<O::Resource>,
    error: &Error,
    this: Arc<ReconcileContext<O>>,
) -> Next {
    let key = key_of(&*resource);
    let wait = this.backoff.failed(&key);
    tracing::warn!(resource = %key, %error, again_in = ?wait, "could not reconcile");
    Next::requeue(wait)
}

impl<O: Reconciler> ReconcileContext<O> {
    fn new(parts: ControllerParts<O>) -> Self {
        let kind = O::Resource::kind(&()).into_owned();
        let (asked, leads) = (parts.reconciler.clone(), parts.leadership.clone());
        let prober = Prober::new(ProberParts {
            kind: kind.clone(),
            probe: Box::new(move |key: ResourceKey| {
                let asked = asked.clone();
                async move { asked.probe(key).await }.boxed()
            }),
            timeout_result: O::probe_timeout_result(),
            enabled: Box::new(move || leads.is_leader()),
            intervals: parts.probe_intervals.clone(),
            clock: parts.clock.clone(),
            random: parts.random.clone(),
            metrics: parts.metrics.clone(),
        });
        let backoff = Backoff::new(parts.random.clone());
        let journal = DecisionLog::new(
            parts.client.clone(),
            parts.clock.clone(),
            parts.events.instance(),
        );
        Self {
            parts,
            prober,
            backoff,
            retries: RetryCounter::default(),
            decision_log: journal,
            kind,
        }
    }

    fn forget(&self, key: &ResourceKey) {
        self.prober.forget(key);
        self.parts.reconciler.forget(key);
        self.decision_log.forget(key);
        self.backoff.succeeded(key);
        self.retries.forget(key);
    }

    /// Looks, and acts until there is nothing more to be done now.
    async fn reconcile_passes(
        &self,
        resource: &O::Resource,
        key: &ResourceKey,
    ) -> Result<Next, Error> {
        self.prober.watch(key);
        if self.parts.reconciler.decision_log_meta(resource).is_some() {
            self.decision_log.open(key);
        }
        let mut going = PassState::default();
        for _ in 0..MAX_PASSES {
            if !self.parts.leadership.is_leader() {
                return Ok(Next::await_change());
            }
            let sight = match self.observe(key, going.is_live).await {
                Ok(sight) => sight,
                Err(error) => {
                    self.report_observe_error(resource, key, &error).await;
                    return Err(error);
                }
            };
            let Some(sight) = sight else {
                self.forget(key);
                return Ok(Next::await_change());
            };
            let seen = self.parts.clock.uptime();
            let plan = <O::Engine as Engine>::decide(&sight.facts);
            let doubted = plan.is_noop() && O::confirm_live(&plan);
            if !sight.is_live && (doubted || !plan.is_noop()) {
                going.is_live = true;
                continue;
            }
            if plan.is_noop() {
                self.retries.forget(key);
                self.record_decision(key, (&sight, &plan), (String::new(), &[]));
                let told = self.report(&sight, (&plan, None), Vec::new()).await?;
                let next = self.requeue(key, plan.requeue);
                return Ok(if told {
                    next
                } else {
                    Next::requeue(RETRY_DELAY)
                });
            }
            if let Some(next) = self.execute(key, &sight, (&plan, seen), &mut going).await? {
                return Ok(next);
            }
            (going.last_plan, going.is_live) = (Some(plan), true);
        }
        Ok(Next::requeue(RETRY_DELAY))
    }

    /// Carries out a plan; says when to go on, if not at once.
    async fn execute(
        &self,
        key: &ResourceKey,
        sight: &Observation<O>,
        (plan, seen): (&Plan<O::Engine>, Duration),
        going: &mut PassState<O::Engine>,
    ) -> Result<Option<Next>, Error> {
        let extent = going.scope;
        let mut carried = execute_plan(
            &self.parts,
            sight,
            (plan, seen),
            (extent, &mut going.rejected),
        )
        .await;
        let (end, notices) = (going.record_result(plan, &mut carried), carried.events);
        let refused = going.rejected.error.as_ref();
        self.record_decision(key, (sight, plan), (describe_end(&end, refused), &notices));
        match end {
            ExecutionEnd::RetryLater(declined) => {
                tracing::info!(resource = %key, declined, "not yet");
                let step = plan
                    .disruption
                    .as_ref()
                    .map_or("", |step| O::action_name(&Action::Disruption(step)));
                let lasts = self.retries.increment(key, step) >= RETRIES_BEFORE_REPORT;
                let error = lasts.then_some(Error::RetriesExhausted {
                    why: declined,
                    times: RETRIES_BEFORE_REPORT,
                });
                let mut notices = notices;
                notices.extend(refused.filter(|_| lasts).map(write_rejected));
                self.report(sight, (plan, error.as_ref().or(refused)), notices)
                    .await?;
                return Ok(Some(Next::requeue(if lasts {
                    SLOW_RETRY_DELAY
                } else {
                    RETRY_DELAY
                })));
            }
            ExecutionEnd::InProgress(how_far) => {
                tracing::info!(resource = %key, how_far, "it goes on");
                self.retries.forget(key);
                self.report(sight, (plan, refused), notices).await?;
                return Ok(Some(Next::requeue(CONTINUE_DELAY)));
            }
            // Somebody else leads now, and tells.
            ExecutionEnd::Failed(error) if !self.parts.leadership.is_leader() => return Err(error),
            ExecutionEnd::Failed(error) => {
                // What could not be done is no reason to leave people with an old status, or to ask the application seldom.
                let beside = going
                    .rejected
                    .error
                    .take()
                    .filter(|beside| beside.is_rejected() && !error.is_rejected());
                let error = beside.unwrap_or(error);
                self.report(sight, (plan, Some(&error)), notices).await?;
                if plan.requeue == Requeue::Poll {
                    self.prober.expect_change(key);
                }
                return Err(error);
            }
            ExecutionEnd::Completed => {
                self.retries.forget(key);
                self.publish_events(sight, &notices).await;
            }
            ExecutionEnd::Conflict => self.publish_events(sight, &notices).await,
        }
        if going.no_progress >= MAX_NO_PROGRESS {
            let again = || Error::other("get on", "the same is to be done again and again");
            let error = going.rejected.error.take().unwrap_or_else(again);
            let stands = Some(&error)
                .filter(|error| error.is_rejected() || self.is_failing_persistently(key));
            self.report(sight, (plan, stands), Vec::new()).await?;
            return Err(error);
        }
        Ok(None)
    }

    /// Whether a resource has failed so often that it is not for a moment.
    fn is_failing_persistently(&self, key: &ResourceKey) -> bool {
        self.backoff.failures_of(key) >= FAILURES_BEFORE_REPORT
    }

    /// Notes what was decided, and what came of it.
    fn record_decision(
        &self,
        key: &ResourceKey,
        (sight, plan): (&Observation<O>, &Plan<O::Engine>),
        (outcome, notices): (String, &[EventSpec]),
    ) {
        let explained = self.parts.reconciler.explain(sight, plan);
        let events = notices
            .iter()
            .map(|notice| format!("{}: {}", notice.reason, notice.note))
            .collect();
        self.decision_log
            .record(key, explained, (outcome, events), &sight.facts);
    }

    /// Writes down what was noted, as long as it is there for somebody to read.
    async fn flush_decision_log(&self, resource: &O::Resource, key: &ResourceKey) {
        let goes = resource.meta().deletion_timestamp.is_some();
        if let Some(meta) = self.parts.reconciler.decision_log_meta(resource)
            && !goes
            && self.parts.leadership.is_leader()
            && let Some(trouble) = self.decision_log.flush(key, meta).await
        {
            let notice = EventSpec::warning("DecisionsNotKept", "Reconcile", trouble);
            self.parts
                .events
                .publish(&resource.object_ref(&()), &notice)
                .await;
        }
    }

    async fn publish_events(&self, sight: &Observation<O>, notices: &[EventSpec]) {
        if self.parts.leadership.is_leader() {
            let regarding = self.parts.reconciler.resource(sight).object_ref(&());
            self.parts.events.publish_all(&regarding, notices).await;
        }
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        live: bool,
    ) -> Result<Option<Observation<O>>, Error> {
        let remembered = if live { None } else { self.prober.last(key) };
        let look = remembered
            .as_ref()
            .map_or(ObserveFrom::Live, |(probed, _)| ObserveFrom::Cache(probed));
        let sight = self.parts.reconciler.observe(key, look).await?;
        if let Some(sight) = sight.as_ref().filter(|sight| sight.is_live) {
            self.prober.record(key, sight.probe_result.clone());
        }
        Ok(sight)
    }

    /// Writes the status if it says something new, and tells people what they should know. Says whether that is
    /// done: what was refused is tried again.
    async fn report(
        &self,
        sight: &Observation<O>,
        (plan, refused): (&Plan<O::Engine>, Option<&Error>),
        mut notices: Vec<EventSpec>,
    ) -> Result<bool, Error> {
        let resource = self.parts.reconciler.resource(sight);
        let told = refused.filter(|error| !matches!(error, Error::RetriesExhausted { .. }));
        notices.extend(told.map(write_rejected));
        notices.extend(self.parts.reconciler.warning_events(sight, plan));
        self.publish_events(sight, &notices).await;
        // What fails once may pass. What fails again and again, as with a webhook that is away, stands like a refusal. In which words
        // it fails may change each time, which would be news, and wake us: events have them.
        let lasts = self.is_failing_persistently(&key_of(resource));
        let failing = refused
            .filter(|error| lasts && !error.is_rejected())
            .map(Error::summary);
        let refused = failing
            .as_ref()
            .or(refused.filter(|error| error.is_rejected()));
        match self.parts.reconciler.status(sight, plan, refused) {
            Some(status) => self.write_status(resource, status).await,
            None => Ok(true),
        }
    }

    /// Tells that a resource cannot be looked at, and why: in its status and as an event. What the API server says may pass;
    /// anything else does not by itself.
    async fn report_observe_error(&self, resource: &O::Resource, key: &ResourceKey, error: &Error) {
        let passing =
            matches!(error, Error::Kubernetes { .. }) && !self.is_failing_persistently(key);
        if passing || !self.parts.leadership.is_leader() {
            return;
        }
        let notice = EventSpec::warning("CannotLook", "Reconcile", error.to_string());
        self.parts
            .events
            .publish(&resource.object_ref(&()), &notice)
            .await;
        if let Some(status) = self
            .parts
            .reconciler
            .status_on_observe_error(resource, error)
            && let Err(error) = self.write_status(resource, status).await
        {
            tracing::debug!(resource = %key, %error, "nor can its status be written");
        }
    }

    async fn write_status(
        &self,
        resource: &O::Resource,
        status: serde_json::Value,
    ) -> Result<bool, Error> {
        let mut whole = serde_json::to_value(resource)
            .map_err(|error| Error::other("write its status", error))?;
        if whole.get("status") == Some(&status) || !self.parts.leadership.is_leader() {
            return Ok(true);
        }
        whole["status"] = status;
        let changed: O::Resource = serde_json::from_value(whole)
            .map_err(|error| Error::other("write its status", error))?;
        let api: Api<O::Resource> = Api::namespaced(
            self.parts.client.clone(),
            &resource.namespace().unwrap_or_default(),
        );
        match api
            .replace_status(&resource.name_any(), &PostParams::default(), &changed)
            .await
        {
            Ok(written) => {
                self.parts.reconciler.on_status_written(&written);
                Ok(true)
            }
            // Somebody has changed it meanwhile. That change wakes us, if there is one: what answers so need not be right.
            Err(kube::Error::Api(refused)) if refused.code == 409 => Ok(false),
            Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(true),
            Err(error) => Err(Error::kubernetes("write its status")(error)),
        }
    }

    fn requeue(&self, key: &ResourceKey, wake: Requeue) -> Next {
        match wake {
            Requeue::Poll => self.prober.expect_change(key),
            Requeue::OnChange | Requeue::At(_) => self.prober.settled(key),
        }
        let longest = jitter(RESYNC_INTERVAL, &*self.parts.random);
        match wake {
            Requeue::At(time) => {
                // A little later: durations in objects count in whole seconds.
                let wait = time.since(self.parts.clock.now()) + Duration::from_millis(100);
                Next::requeue(wait.min(longest))
            }
            Requeue::Poll => Next::requeue(POLL_INTERVAL),
            Requeue::OnChange => Next::requeue(longest),
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
