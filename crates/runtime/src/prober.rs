//! Asks each application how it is, outside of reconciles, and wakes the reconcile when the answer changed. Otherwise a
//! status goes stale between Kubernetes' events, which know nothing of the application.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::{SharedClock, with_timeout};
use crate::metrics::Metrics;
use crate::random::{SharedRandom, jitter};

/// How often to ask, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeIntervals {
    /// How often, as a rule.
    pub interval: Duration,
    /// How often while a change is expected.
    pub fast_interval: Duration,
    /// For how long a change stays expected.
    pub fast_for: Duration,
    /// How long a question may take.
    pub timeout: Duration,
    /// How many questions at a time.
    pub max_concurrent: usize,
}

impl Default for ProbeIntervals {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            fast_interval: Duration::from_millis(250),
            fast_for: Duration::from_secs(120),
            timeout: Duration::from_secs(5),
            max_concurrent: 16,
        }
    }
}

/// Asks the question: one key, one verdict; none if it could not be asked. What it returns must not depend on the time of
/// day, or every answer is a change.
pub type Probe<K, V> = Box<dyn Fn(K) -> BoxFuture<'static, Option<V>> + Send + Sync>;

/// What a [`Prober`] is made of.
pub struct ProberParts<K, V> {
    /// What is asked, for the metrics: the kind of resource.
    pub kind: String,
    /// How to ask.
    pub probe: Probe<K, V>,
    /// The verdict on who does not answer in time.
    pub timeout_result: V,
    /// Whether to ask at all: whether the lease is held.
    pub enabled: Box<dyn Fn() -> bool + Send + Sync>,
    /// How often.
    pub intervals: ProbeIntervals,
    /// Time.
    pub clock: SharedClock,
    /// Chance, so that not all are asked at once.
    pub random: SharedRandom,
    /// Where questions are counted.
    pub metrics: Metrics,
}

/// Asks and remembers. Clones share it; with the last of them the asking ends.
pub struct Prober<K, V> {
    inner: Arc<ProberInner<K, V>>,
    _stop: Arc<DropGuard>,
}

impl<K, V> Clone for Prober<K, V> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            _stop: self._stop.clone(),
        }
    }
}

struct ProberInner<K, V> {
    parts: ProberParts<K, V>,
    slots: Semaphore,
    stop: CancellationToken,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    subjects: HashMap<K, Subject<V>>,
    listeners: Vec<mpsc::UnboundedSender<K>>,
}

/// One that is asked.
struct Subject<V> {
    verdict: Option<(V, Duration)>,
    /// Since when a change is expected, or when the last one came.
    soon_since: Option<Duration>,
    nudge: Arc<Notify>,
    stop: CancellationToken,
}

impl<K, V> Prober<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    /// Asks nobody yet.
    pub fn new(parts: ProberParts<K, V>) -> Self {
        let stop = CancellationToken::new();
        let slots = Semaphore::new(parts.intervals.max_concurrent);
        let state = Mutex::new(State {
            subjects: HashMap::new(),
            listeners: Vec::new(),
        });
        let asking = Arc::new(ProberInner {
            parts,
            slots,
            stop: stop.clone(),
            state,
        });
        Self {
            inner: asking,
            _stop: Arc::new(stop.drop_guard()),
        }
    }

    /// Asks this one from now on, first at once. Nothing changes if it is asked already.
    pub fn watch(&self, key: &K) {
        let mut state = self.inner.state();
        if state.subjects.contains_key(key) {
            return;
        }
        let (nudge, stop) = (Arc::new(Notify::new()), self.inner.stop.child_token());
        let subject = Subject {
            verdict: None,
            soon_since: None,
            nudge: nudge.clone(),
            stop: stop.clone(),
        };
        state.subjects.insert(key.clone(), subject);
        drop(state);
        let (asking, key) = (self.inner.clone(), key.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(asking.ask_again_and_again(key, nudge))
                .await
        });
    }

    /// Asks this one no more, and forgets what it said.
    pub fn forget(&self, key: &K) {
        if let Some(subject) = self.inner.state().subjects.remove(key) {
            subject.stop.cancel();
        }
    }

    /// A change is expected: ask at short intervals, until it is settled or nothing has changed for two minutes, however
    /// often that is said meanwhile. Nothing happens for one that is not watched.
    pub fn expect_change(&self, key: &K) {
        let now = self.inner.parts.clock.uptime();
        if let Some(subject) = self.inner.state().subjects.get_mut(key)
            && subject.soon_since.is_none()
        {
            subject.soon_since = Some(now);
            subject.nudge.notify_one();
        }
    }

    /// The change has come, or is not expected any more.
    pub fn settled(&self, key: &K) {
        if let Some(subject) = self.inner.state().subjects.get_mut(key) {
            subject.soon_since = None;
        }
    }

    /// The last verdict, and how old it is.
    pub fn last(&self, key: &K) -> Option<(V, Duration)> {
        let now = self.inner.parts.clock.uptime();
        let (verdict, at) = self.inner.state().subjects.get(key)?.verdict.clone()?;
        Some((verdict, now.saturating_sub(at)))
    }

    /// A verdict learnt otherwise, for one that is watched. If it is another one than before, that counts as a change.
    pub fn record(&self, key: &K, verdict: V) {
        let now = self.inner.parts.clock.uptime();
        self.inner.learn(key, verdict, now);
    }

    /// The keys whose verdict changed, from now on.
    pub fn changes(&self) -> impl Stream<Item = K> + Send + use<K, V> {
        let (listener, changes) = mpsc::unbounded();
        self.inner.state().listeners.push(listener);
        changes
    }
}

impl<K, V> ProberInner<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_again_and_again(&self, key: K, nudge: Arc<Notify>) {
        loop {
            let pause = if (self.parts.enabled)() {
                self.ask(&key).await;
                self.pause(&key)
            } else {
                // Standing by. Not for long: the first look of a new leader should find verdicts.
                self.parts.intervals.interval.min(Duration::from_secs(1))
            };
            tokio::select! {
                () = self.parts.clock.sleep(pause) => {}
                () = nudge.notified() => {}
            }
        }
    }

    async fn ask(&self, key: &K) {
        // Never closed.
        let Ok(_slot) = self.slots.acquire().await else {
            return;
        };
        // The wait for a slot may have outlasted the lease.
        if !(self.parts.enabled)() {
            return;
        }
        let asked = self.parts.clock.uptime();
        let answer = with_timeout(
            &*self.parts.clock,
            self.parts.intervals.timeout,
            (self.parts.probe)(key.clone()),
        )
        .await;
        let (outcome, verdict) = match answer {
            Some(Some(verdict)) => ("answered", verdict),
            Some(None) => {
                self.parts.metrics.probed(&self.parts.kind, "not asked");
                return;
            }
            None => ("silent", self.parts.timeout_result.clone()),
        };
        self.parts.metrics.probed(&self.parts.kind, outcome);
        self.learn(key, verdict, asked);
    }

    /// Remembers the answer to a question of that time, unless something was learnt that is newer.
    fn learn(&self, key: &K, verdict: V, asked: Duration) {
        let now = self.parts.clock.uptime();
        let mut state = self.state();
        let Some(subject) = state.subjects.get_mut(key) else {
            return;
        };
        if subject.verdict.as_ref().is_some_and(|(_, at)| *at > asked) {
            return;
        }
        let changed = subject
            .verdict
            .as_ref()
            .is_none_or(|(last, _)| *last != verdict);
        subject.verdict = Some((verdict, now));
        if changed {
            subject.soon_since = subject.soon_since.map(|_| now);
            state
                .listeners
                .retain(|listener| listener.unbounded_send(key.clone()).is_ok());
        }
    }

    fn pause(&self, key: &K) -> Duration {
        let now = self.parts.clock.uptime();
        let rhythm = &self.parts.intervals;
        let since = self
            .state()
            .subjects
            .get(key)
            .and_then(|subject| subject.soon_since);
        let soon = since.is_some_and(|since| now.saturating_sub(since) < rhythm.fast_for);
        jitter(
            if soon {
                rhythm.fast_interval
            } else {
                rhythm.interval
            },
            &*self.parts.random,
        )
    }
}

#[cfg(test)]
#[path = "prober_tests.rs"]
mod tests;
