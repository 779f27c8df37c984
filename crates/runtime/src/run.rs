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
use crate::carry::{Carried, End, Extent, Refused, carry_out};
use crate::clock::{SharedClock, within};
use crate::declined::Declined;
use crate::events::{Events, Notice};
use crate::journal::Journal;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::operate::{Action, Error, Key, Look, Managed, Operate, Sight};
use crate::prober::{Prober, ProberParts, Rhythm};
use crate::random::{SharedRandom, jitter};
use crate::streams::Touched;
use crate::{Engine, Plan, Wake};

/// How many resources are worked on at once. More than there are cores: most of the time each waits for answers, and some wait long,
/// for applications that do not answer, while others need help.
const AT_ONCE: u16 = 32;
/// How many plans are carried out in one go before others get their turn.
const ROUNDS: usize = 32;
/// How long one go may take.
const LIMIT: Duration = Duration::from_secs(120);
/// When the application declined something for now.
const SHORTLY: Duration = Duration::from_millis(500);
/// When something is to be gone on with: others get their turn in between.
const AT_ONCE_AGAIN: Duration = Duration::from_millis(20);
/// How often in a row that may be before people are told, and it is tried more seldom.
const DECLINED: u32 = 20;
/// How much more seldom.
const SELDOM: Duration = Duration::from_secs(10);
/// How many plans in a row may come to nothing before there is a pause.
const IN_VAIN: usize = 3;
/// How often a resource that cannot be looked at, or for which something fails, is tried before people are told: the API server may be
/// away for a moment.
const UNSEEN: u32 = 3;
/// While the application is about to change by itself: a look at what is remembered. What is decided may also rest on how
/// long something has lasted, and nobody else tells that time has passed.
const MEANWHILE: Duration = Duration::from_secs(5);
/// When nothing is expected: a look at what is remembered, which asks Kubernetes for next to nothing.
const NOW_AND_THEN: Duration = Duration::from_secs(600);

/// What the loop is handed.
pub struct Parts<O: Operate> {
    /// The engine's hands and eyes.
    pub operate: Arc<O>,
    /// The client that writes status.
    pub client: Client,
    /// Who may act.
    pub leadership: Leadership,
    /// Where people are told.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
    /// The clock.
    pub clock: SharedClock,
    /// Chance.
    pub random: SharedRandom,
    /// How often the application is asked.
    pub rhythm: Rhythm,
}

/// What makes the loop look at a resource.
pub struct Wakers<R: Managed> {
    /// The resources themselves.
    pub resources: Touched<R>,
    /// Which resources something was touched of.
    pub touched: BoxStream<'static, Key>,
    /// Something that may concern every resource.
    pub all: BoxStream<'static, ()>,
}

/// The loop for one engine.
struct Loop<O: Operate> {
    parts: Parts<O>,
    prober: Prober<Key, O::Probed>,
    backoff: Backoff<Key>,
    declined: Declined,
    journal: Journal,
    kind: String,
}

/// Runs the loop for as long as it is not told to end; what is under way then is finished first.
pub async fn run<O: Operate>(parts: Parts<O>, wakers: Wakers<O::Resource>, shutdown: CancellationToken) {
    let this = Arc::new(Loop::new(parts));
    let (store, stream) = wakers.resources;
    let (forgetter, known) = (this.clone(), store.clone());
    // A resource that is gone is looked at no more: there is nothing left to do that Kubernetes does not do itself.
    let stream = stream.inspect(move |touched| {
        if let Ok(resource) = touched
            && known.get(&ObjectRef::from_obj(resource)).is_none()
        {
            forgetter.forget(&key(resource));
        }
    });
    let reference = |key: Key| ObjectRef::new(&key.name).within(&key.namespace);
    let ended = shutdown.clone();
    let controller = Controller::for_stream(stream, store)
        .with_config(Config::default().concurrency(AT_ONCE))
        .reconcile_on(wakers.touched.map(reference))
        .reconcile_on(this.prober.changes().map(reference))
        .reconcile_all_on(wakers.all)
        .graceful_shutdown_on(async move { ended.cancelled().await });
    watch(controller.run(reconcile::<O>, fail::<O>, this.clone())).await;
}

/// What the controller itself complains about, beyond reconciles: resources that vanished before their turn.
async fn watch<T, E: Debug>(results: impl Stream<Item = Result<T, E>>) {
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        if let Err(error) = result {
            tracing::trace!(?error, "not reconciled");
        }
    }
}

/// The key of a resource.
pub(crate) fn key<R: Resource>(resource: &R) -> Key {
    Key { namespace: resource.namespace().unwrap_or_default(), name: resource.name_any() }
}

/// What came of a plan, in words.
fn outcome(end: &End, refused: Option<&Error>) -> String {
    match (end, refused) {
        (End::Whole, Some(error)) => format!("not all of it was done: {error}"),
        _ => end.to_string(),
    }
}

/// That something was refused.
fn refusal(error: &Error) -> Notice {
    Notice::warning("WriteRefused", "Reconcile", error.to_string())
}

/// One go at a resource: several plans, one after the other.
struct Going<E: Engine> {
    /// Whether the next look is a live one.
    live: bool,
    /// How many plans in a row came to nothing.
    in_vain: usize,
    last: Option<Plan<E>>,
    /// How much of the next plan is to be carried out.
    extent: Extent,
    refused: Refused<E>,
}

impl<E: Engine> Default for Going<E> {
    fn default() -> Self {
        let (extent, refused) = (Extent::Whole, Refused::nothing());
        Self { live: false, in_vain: 0, last: None, extent, refused }
    }
}

impl<E: Engine> Going<E> {
    /// Counts in what came of a plan, and says how that ended.
    fn came_to(&mut self, plan: &Plan<E>, carried: &mut Carried) -> End {
        let whole = self.extent == Extent::Whole;
        // Refusals that take long must not keep the step from ever going out: it is decided again, and goes first.
        let step_first = carried.late && self.refused.why.is_some() && whole;
        self.extent = if step_first { Extent::Step } else { Extent::Whole };
        // What was done to no effect, and what is always overtaken, must not be tried as fast as the machine goes.
        let again = whole && self.last.as_ref().is_some_and(|last| plan.does_as(last));
        self.in_vain = if carried.done == 0 || again { self.in_vain + 1 } else { 0 };
        match std::mem::take(&mut carried.end) {
            // Nothing is left but what was refused.
            End::Whole if carried.done == 0 && whole && !carried.late => {
                self.refused.why.take().map_or(End::Whole, End::Refused)
            }
            end => end,
        }
    }
}

async fn reconcile<O: Operate>(resource: Arc<O::Resource>, this: Arc<Loop<O>>) -> Result<Next, Error> {
    let key = key(&*resource);
    let began = this.parts.clock.uptime();
    let went = within(&*this.parts.clock, LIMIT, this.go(&resource, &key)).await;
    let went = went
        .unwrap_or_else(|| Err(Error::other("finish", format!("it took longer than {} s", LIMIT.as_secs()))));
    this.keep_journal(&resource, &key).await;
    let took = this.parts.clock.uptime().saturating_sub(began);
    this.parts.metrics.reconciled(&this.kind, if went.is_ok() { "done" } else { "failed" }, took);
    if went.is_ok() {
        this.backoff.succeeded(&key);
    }
    went
}

fn fail<O: Operate>(resource: Arc<O::Resource>, error: &Error, this: Arc<Loop<O>>) -> Next {
    let key = key(&*resource);
    let wait = this.backoff.failed(&key);
    tracing::warn!(resource = %key, %error, again_in = ?wait, "could not reconcile");
    Next::requeue(wait)
}

impl<O: Operate> Loop<O> {
    fn new(parts: Parts<O>) -> Self {
        let kind = O::Resource::kind(&()).into_owned();
        let (asked, leads) = (parts.operate.clone(), parts.leadership.clone());
        let prober = Prober::new(ProberParts {
            kind: kind.clone(),
            probe: Box::new(move |key: Key| {
                let asked = asked.clone();
                async move { asked.probe(key).await }.boxed()
            }),
            silence: O::silence(),
            enabled: Box::new(move || leads.holds()),
            rhythm: parts.rhythm.clone(),
            clock: parts.clock.clone(),
            random: parts.random.clone(),
            metrics: parts.metrics.clone(),
        });
        let backoff = Backoff::new(parts.random.clone());
        let journal = Journal::new(parts.client.clone(), parts.clock.clone(), parts.events.instance());
        Self { parts, prober, backoff, declined: Declined::default(), journal, kind }
    }

    fn forget(&self, key: &Key) {
        self.prober.forget(key);
        self.parts.operate.forget(key);
        self.journal.forget(key);
        self.backoff.succeeded(key);
        self.declined.forget(key);
    }

    /// Looks, and acts until there is nothing more to be done now.
    async fn go(&self, resource: &O::Resource, key: &Key) -> Result<Next, Error> {
        self.prober.watch(key);
        if self.parts.operate.journal(resource).is_some() {
            self.journal.open(key);
        }
        let mut going = Going::default();
        for _ in 0..ROUNDS {
            if !self.parts.leadership.holds() {
                return Ok(Next::await_change());
            }
            let sight = match self.look(key, going.live).await {
                Ok(sight) => sight,
                Err(error) => {
                    self.tell_unseen(resource, key, &error).await;
                    return Err(error);
                }
            };
            let Some(sight) = sight else {
                self.forget(key);
                return Ok(Next::await_change());
            };
            let seen = self.parts.clock.uptime();
            let plan = <O::Engine as Engine>::decide(&sight.facts);
            let doubted = plan.is_quiet() && O::doubts(&plan);
            if !sight.live && (doubted || !plan.is_quiet()) {
                going.live = true;
                continue;
            }
            if plan.is_quiet() {
                self.declined.forget(key);
                self.note(key, (&sight, &plan), (String::new(), &[]));
                let told = self.tell(&sight, (&plan, None), Vec::new()).await?;
                let next = self.wake(key, plan.wake);
                return Ok(if told { next } else { Next::requeue(SHORTLY) });
            }
            if let Some(next) = self.act(key, &sight, (&plan, seen), &mut going).await? {
                return Ok(next);
            }
            (going.last, going.live) = (Some(plan), true);
        }
        Ok(Next::requeue(SHORTLY))
    }

    /// Carries out a plan; says when to go on, if not at once.
    async fn act(
        &self,
        key: &Key,
        sight: &Sight<O>,
        (plan, seen): (&Plan<O::Engine>, Duration),
        going: &mut Going<O::Engine>,
    ) -> Result<Option<Next>, Error> {
        let extent = going.extent;
        let mut carried = carry_out(&self.parts, sight, (plan, seen), (extent, &mut going.refused)).await;
        let (end, notices) = (going.came_to(plan, &mut carried), carried.notices);
        let refused = going.refused.why.as_ref();
        self.note(key, (sight, plan), (outcome(&end, refused), &notices));
        match end {
            End::Declined(declined) => {
                tracing::info!(resource = %key, declined, "not yet");
                let step = plan.step.as_ref().map_or("", |step| O::name(&Action::Step(step)));
                let lasts = self.declined.again(key, step) >= DECLINED;
                let error = lasts.then_some(Error::Declined { why: declined, times: DECLINED });
                let mut notices = notices;
                notices.extend(refused.filter(|_| lasts).map(refusal));
                self.tell(sight, (plan, error.as_ref().or(refused)), notices).await?;
                return Ok(Some(Next::requeue(if lasts { SELDOM } else { SHORTLY })));
            }
            End::Ongoing(how_far) => {
                tracing::info!(resource = %key, how_far, "it goes on");
                self.declined.forget(key);
                self.tell(sight, (plan, refused), notices).await?;
                return Ok(Some(Next::requeue(AT_ONCE_AGAIN)));
            }
            // Somebody else leads now, and tells.
            End::Refused(error) if !self.parts.leadership.holds() => return Err(error),
            End::Refused(error) => {
                // What could not be done is no reason to leave people with an old status, or to ask the application seldom.
                let beside =
                    going.refused.why.take().filter(|beside| beside.is_refusal() && !error.is_refusal());
                let error = beside.unwrap_or(error);
                self.tell(sight, (plan, Some(&error)), notices).await?;
                if plan.wake == Wake::Soon {
                    self.prober.soon(key);
                }
                return Err(error);
            }
            End::Whole => {
                self.declined.forget(key);
                self.events(sight, &notices).await;
            }
            End::Overtaken => self.events(sight, &notices).await,
        }
        if going.in_vain >= IN_VAIN {
            let again = || Error::other("get on", "the same is to be done again and again");
            let error = going.refused.why.take().unwrap_or_else(again);
            let stands = Some(&error).filter(|error| error.is_refusal() || self.fails_for_long(key));
            self.tell(sight, (plan, stands), Vec::new()).await?;
            return Err(error);
        }
        Ok(None)
    }

    /// Whether a resource has failed so often that it is not for a moment.
    fn fails_for_long(&self, key: &Key) -> bool {
        self.backoff.failures_of(key) >= UNSEEN
    }

    /// Notes what was decided, and what came of it.
    fn note(
        &self,
        key: &Key,
        (sight, plan): (&Sight<O>, &Plan<O::Engine>),
        (outcome, notices): (String, &[Notice]),
    ) {
        let explained = self.parts.operate.explain(sight, plan);
        let events = notices.iter().map(|notice| format!("{}: {}", notice.reason, notice.note)).collect();
        self.journal.note(key, explained, (outcome, events), &sight.facts);
    }

    /// Writes down what was noted, as long as it is there for somebody to read.
    async fn keep_journal(&self, resource: &O::Resource, key: &Key) {
        let goes = resource.meta().deletion_timestamp.is_some();
        if let Some(meta) = self.parts.operate.journal(resource)
            && !goes
            && self.parts.leadership.holds()
            && let Some(trouble) = self.journal.flush(key, meta).await
        {
            let notice = Notice::warning("DecisionsNotKept", "Reconcile", trouble);
            self.parts.events.tell(&resource.object_ref(&()), &notice).await;
        }
    }

    async fn events(&self, sight: &Sight<O>, notices: &[Notice]) {
        if self.parts.leadership.holds() {
            let regarding = self.parts.operate.resource(sight).object_ref(&());
            self.parts.events.tell_all(&regarding, notices).await;
        }
    }

    async fn look(&self, key: &Key, live: bool) -> Result<Option<Sight<O>>, Error> {
        let remembered = if live { None } else { self.prober.last(key) };
        let look = remembered.as_ref().map_or(Look::Live, |(probed, _)| Look::Remembered(probed));
        let sight = self.parts.operate.look(key, look).await?;
        if let Some(sight) = sight.as_ref().filter(|sight| sight.live) {
            self.prober.tell(key, sight.probed.clone());
        }
        Ok(sight)
    }

    /// Writes the status if it says something new, and tells people what they should know. Says whether that is
    /// done: what was refused is tried again.
    async fn tell(
        &self,
        sight: &Sight<O>,
        (plan, refused): (&Plan<O::Engine>, Option<&Error>),
        mut notices: Vec<Notice>,
    ) -> Result<bool, Error> {
        let resource = self.parts.operate.resource(sight);
        let told = refused.filter(|error| !matches!(error, Error::Declined { .. }));
        notices.extend(told.map(refusal));
        notices.extend(self.parts.operate.troubles(sight, plan));
        self.events(sight, &notices).await;
        // What fails once may pass. What fails again and again, as with a webhook that is away, stands like a refusal. In which words
        // it fails may change each time, which would be news, and wake us: events have them.
        let lasts = self.fails_for_long(&key(resource));
        let failing = refused.filter(|error| lasts && !error.is_refusal()).map(Error::in_general);
        let refused = failing.as_ref().or(refused.filter(|error| error.is_refusal()));
        match self.parts.operate.status(sight, plan, refused) {
            Some(status) => self.write_status(resource, status).await,
            None => Ok(true),
        }
    }

    /// Tells that a resource cannot be looked at, and why: in its status and as an event. What the API server says may pass;
    /// anything else does not by itself.
    async fn tell_unseen(&self, resource: &O::Resource, key: &Key, error: &Error) {
        let passing = matches!(error, Error::Kubernetes { .. }) && !self.fails_for_long(key);
        if passing || !self.parts.leadership.holds() {
            return;
        }
        let notice = Notice::warning("CannotLook", "Reconcile", error.to_string());
        self.parts.events.tell(&resource.object_ref(&()), &notice).await;
        if let Some(status) = self.parts.operate.unseen(resource, error)
            && let Err(error) = self.write_status(resource, status).await
        {
            tracing::debug!(resource = %key, %error, "nor can its status be written");
        }
    }

    async fn write_status(&self, resource: &O::Resource, status: serde_json::Value) -> Result<bool, Error> {
        let mut whole =
            serde_json::to_value(resource).map_err(|error| Error::other("write its status", error))?;
        if whole.get("status") == Some(&status) || !self.parts.leadership.holds() {
            return Ok(true);
        }
        whole["status"] = status;
        let changed: O::Resource =
            serde_json::from_value(whole).map_err(|error| Error::other("write its status", error))?;
        let api: Api<O::Resource> =
            Api::namespaced(self.parts.client.clone(), &resource.namespace().unwrap_or_default());
        match api.replace_status(&resource.name_any(), &PostParams::default(), &changed).await {
            Ok(written) => {
                self.parts.operate.told(&written);
                Ok(true)
            }
            // Somebody has changed it meanwhile. That change wakes us, if there is one: what answers so need not be right.
            Err(kube::Error::Api(refused)) if refused.code == 409 => Ok(false),
            Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(true),
            Err(error) => Err(Error::kubernetes("write its status")(error)),
        }
    }

    fn wake(&self, key: &Key, wake: Wake) -> Next {
        match wake {
            Wake::Soon => self.prober.soon(key),
            Wake::OnChange | Wake::At(_) => self.prober.settle(key),
        }
        let longest = jitter(NOW_AND_THEN, &*self.parts.random);
        match wake {
            Wake::At(time) => {
                // A little later: durations in objects count in whole seconds.
                let wait = time.since(self.parts.clock.now()) + Duration::from_millis(100);
                Next::requeue(wait.min(longest))
            }
            Wake::Soon => Next::requeue(MEANWHILE),
            Wake::OnChange => Next::requeue(longest),
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
