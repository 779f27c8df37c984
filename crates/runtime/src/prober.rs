//! Probes each application outside of reconciles, and triggers a reconcile when the result changes. Kubernetes events do
//! not report changes inside the application.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::{SharedClock, with_timeout};
use crate::metrics::Metrics;
use crate::random::{SharedRandom, jitter};

/// The intervals and limits of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeIntervals {
    /// The normal interval.
    pub(crate) interval: Duration,
    /// The interval while a change is expected.
    pub(crate) fast_interval: Duration,
    /// The time for which a change stays expected.
    pub(crate) fast_for: Duration,
    /// The timeout of one probe.
    pub(crate) timeout: Duration,
    /// The number of concurrent probes.
    pub(crate) max_concurrent: usize,
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

/// Probes one application. Returns `None` if the application could not be queried. The result must not contain a time:
/// every probe would be a change.
pub(crate) type Probe<K, V> = Box<dyn Fn(K) -> BoxFuture<'static, Option<V>> + Send + Sync>;

/// The parts of a [`Prober`].
pub(crate) struct ProberParts<K, V> {
    /// The kind of resource, for metrics.
    pub(crate) kind: String,
    /// The probe.
    pub(crate) probe: Probe<K, V>,
    /// The result of a probe that times out.
    pub(crate) timeout_result: V,
    /// Returns true while the lease is held. Without the lease the prober is idle.
    pub(crate) enabled: Box<dyn Fn() -> bool + Send + Sync>,
    /// The intervals.
    pub(crate) intervals: ProbeIntervals,
    /// The clock.
    pub(crate) clock: SharedClock,
    /// The source of jitter.
    pub(crate) random: SharedRandom,
    /// The metrics.
    pub(crate) metrics: Metrics,
}

/// Probes applications and stores the last results. Clones share them; probing ends with the last clone.
pub(crate) struct Prober<K, V> {
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

/// The last result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastProbe<V> {
    /// The result.
    pub(crate) result: V,
    /// The uptime of the result.
    pub(crate) at: Duration,
}

/// An application that is probed.
struct Subject<V> {
    last: Option<LastProbe<V>>,
    /// The uptime since which a change is expected, or of the last change.
    change_expected_since: Option<Duration>,
    wakeup: Arc<Notify>,
    stop: CancellationToken,
}

impl<K, V> Prober<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    /// Returns a prober without applications.
    pub(crate) fn new(parts: ProberParts<K, V>) -> Self {
        let stop = CancellationToken::new();
        let slots = Semaphore::new(parts.intervals.max_concurrent);
        let state = Mutex::new(State {
            subjects: HashMap::new(),
            listeners: Vec::new(),
        });
        let inner = Arc::new(ProberInner {
            parts,
            slots,
            stop: stop.clone(),
            state,
        });
        Self {
            inner,
            _stop: Arc::new(stop.drop_guard()),
        }
    }

    /// Starts to probe an application, at once. Does nothing if the application is probed already.
    pub(crate) fn watch(&self, key: &K) {
        let mut state = self.inner.state.lock();
        if state.subjects.contains_key(key) {
            return;
        }
        let (wakeup, stop) = (Arc::new(Notify::new()), self.inner.stop.child_token());
        let subject = Subject {
            last: None,
            change_expected_since: None,
            wakeup: wakeup.clone(),
            stop: stop.clone(),
        };
        state.subjects.insert(key.clone(), subject);
        drop(state);
        let (inner, key) = (self.inner.clone(), key.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(inner.probe_loop(key, wakeup))
                .await
        });
    }

    /// Stops to probe an application, and drops its result.
    pub(crate) fn forget(&self, key: &K) {
        if let Some(subject) = self.inner.state.lock().subjects.remove(key) {
            subject.stop.cancel();
        }
    }

    /// Probes at short intervals until [`Prober::settled`], or until nothing has changed for two minutes. Repeated calls do
    /// not extend the two minutes. Does nothing for an application that is not probed.
    pub(crate) fn expect_change(&self, key: &K) {
        let now = self.inner.parts.clock.uptime();
        if let Some(subject) = self.inner.state.lock().subjects.get_mut(key)
            && subject.change_expected_since.is_none()
        {
            subject.change_expected_since = Some(now);
            subject.wakeup.notify_one();
        }
    }

    /// Returns to the normal interval: no change is expected.
    pub(crate) fn settled(&self, key: &K) {
        if let Some(subject) = self.inner.state.lock().subjects.get_mut(key) {
            subject.change_expected_since = None;
        }
    }

    /// Returns the last result.
    pub(crate) fn last(&self, key: &K) -> Option<LastProbe<V>> {
        self.inner.state.lock().subjects.get(key)?.last.clone()
    }

    /// Records a result from another source, such as a live observation. A different result is a change.
    pub(crate) fn record(&self, key: &K, result: V) {
        let now = self.inner.parts.clock.uptime();
        self.inner.record(key, result, now);
    }

    /// Returns a stream of the keys whose results change from now on.
    pub(crate) fn changes(&self) -> impl Stream<Item = K> + Send + use<K, V> {
        let (listener, changes) = mpsc::unbounded();
        self.inner.state.lock().listeners.push(listener);
        changes
    }
}

impl<K, V> ProberInner<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    async fn probe_loop(&self, key: K, wakeup: Arc<Notify>) {
        loop {
            let delay = if (self.parts.enabled)() {
                self.probe(&key).await;
                self.delay(&key)
            } else {
                // A standby checks the lease every second, so that a new leader soon has probe
                // results.
                self.parts.intervals.interval.min(Duration::from_secs(1))
            };
            tokio::select! {
                () = self.parts.clock.sleep(delay) => {}
                () = wakeup.notified() => {}
            }
        }
    }

    async fn probe(&self, key: &K) {
        // The semaphore is never closed.
        let Ok(_slot) = self.slots.acquire().await else {
            return;
        };
        // The lease may have expired during the wait for a slot.
        if !(self.parts.enabled)() {
            return;
        }
        let started_at = self.parts.clock.uptime();
        let answer = with_timeout(
            &*self.parts.clock,
            self.parts.intervals.timeout,
            (self.parts.probe)(key.clone()),
        )
        .await;
        let (outcome, result) = match answer {
            Some(Some(result)) => ("answered", result),
            Some(None) => {
                self.parts.metrics.probed(&self.parts.kind, "skipped");
                return;
            }
            None => ("timeout", self.parts.timeout_result.clone()),
        };
        self.parts.metrics.probed(&self.parts.kind, outcome);
        self.record(key, result, started_at);
    }

    /// Stores the result of a probe that started at this uptime, unless a later result is stored.
    fn record(&self, key: &K, result: V, started_at: Duration) {
        let now = self.parts.clock.uptime();
        let mut state = self.state.lock();
        let Some(subject) = state.subjects.get_mut(key) else {
            return;
        };
        let last = subject.last.as_ref();
        if last.is_some_and(|last| last.at > started_at) {
            return;
        }
        let is_change = last.is_none_or(|last| last.result != result);
        subject.last = Some(LastProbe { result, at: now });
        if is_change {
            subject.change_expected_since = subject.change_expected_since.map(|_| now);
            state
                .listeners
                .retain(|listener| listener.unbounded_send(key.clone()).is_ok());
        }
    }

    fn delay(&self, key: &K) -> Duration {
        let now = self.parts.clock.uptime();
        let intervals = &self.parts.intervals;
        let since = self
            .state
            .lock()
            .subjects
            .get(key)
            .and_then(|subject| subject.change_expected_since);
        let is_fast = since.is_some_and(|since| now.saturating_sub(since) < intervals.fast_for);
        jitter(
            if is_fast {
                intervals.fast_interval
            } else {
                intervals.interval
            },
            &*self.parts.random,
        )
    }
}

#[cfg(test)]
#[path = "prober_tests.rs"]
mod tests;
