//! Leader election: at most one operator writes at a time. The record is a `Lease`, changed only by
//! compare-and-swap on its resourceVersion. A candidate measures the expiry of another holder's
//! lease with its own clock since the last change that it observed, never with the timestamps of
//! the lease, so that clocks may differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::{SharedClock, with_timeout};

/// The label of leases with the name of the program. The name of a lease can be set.
pub const LEASE_PROGRAM: &str = "evenkeel.dev/program";
/// The annotation of leases with the namespaces that the holder watches, separated by commas; [`ALL_NAMESPACES`] for all.
pub const LEASE_NAMESPACES: &str = "evenkeel.dev/watched-namespaces";
/// The value of [`LEASE_NAMESPACES`] for a program that watches all namespaces.
pub const ALL_NAMESPACES: &str = "*";

/// The lease, the identity of the candidate, and the intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSettings {
    /// The namespace of the lease.
    pub(crate) namespace: String,
    /// The name of the lease.
    pub(crate) name: String,
    /// The identity of this process. No two concurrent processes may share it.
    pub(crate) identity: String,
    /// The name of the program.
    pub(crate) program: String,
    /// The namespaces that the program watches; all if empty.
    pub(crate) watched: Vec<String>,
    /// The time after the last observed renewal at which other candidates may take the lease.
    pub(crate) duration: Duration,
    /// The interval of renewals, and the timeout of one request.
    pub(crate) renew: Duration,
    /// The interval at which candidates read the lease and failed requests are retried.
    pub(crate) retry: Duration,
}

impl LeaseSettings {
    /// Returns settings for a lease of 15 s that is renewed every 5 s.
    pub(crate) fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            program: name.into(),
            watched: Vec::new(),
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            retry: Duration::from_secs(1),
        }
    }

    /// Returns the settings for the lease of a program that watches these namespaces; all if there are none.
    pub(crate) fn of_program(self, program: &str, watched: &[String]) -> Self {
        Self {
            program: program.into(),
            watched: watched.to_vec(),
            ..self
        }
    }

    /// Returns the value of [`LEASE_NAMESPACES`].
    fn watched_text(&self) -> String {
        if self.watched.is_empty() {
            ALL_NAMESPACES.to_owned()
        } else {
            self.watched.join(",")
        }
    }

    /// Returns how long before the expiry the holder stops writing: clocks run at different speeds, and a request may be
    /// in flight when the lease is checked.
    fn margin(&self) -> Duration {
        self.duration / 5
    }
}

/// The content of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseRecord {
    /// The holder.
    holder: Option<String>,
    /// The duration after each renewal.
    duration: Duration,
}

/// The next step of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseEvaluation {
    /// Take the lease: it is free, or its holder has not renewed it in time.
    Take,
    /// Wait: another process holds the lease until this uptime at least.
    Wait(Duration),
    /// Renew the lease: this process holds it.
    Renew,
}

/// Evaluates a lease with the content `record` whose last change was observed at the uptime `changed_at`.
fn evaluate(
    record: &LeaseRecord,
    changed_at: Duration,
    now: Duration,
    identity: &str,
) -> LeaseEvaluation {
    let expires_at = changed_at.saturating_add(record.duration);
    match record.holder.as_deref() {
        None | Some("") => LeaseEvaluation::Take,
        Some(holder) if holder == identity => LeaseEvaluation::Renew,
        Some(_) if now >= expires_at => LeaseEvaluation::Take,
        Some(_) => LeaseEvaluation::Wait(expires_at),
    }
}

/// The deadline before the election, in nanoseconds: always past.
const PENDING: u64 = 1;
/// The deadline of a leadership that has ended. A late renewal does not revive it.
const ENDED: u64 = 0;

/// Whether this process leads. Cheap to clone and to check. A lost leadership stays lost.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The uptime at which the leadership ends, in nanoseconds.
    deadline: Arc<AtomicU64>,
    ended: CancellationToken,
    renewal: Arc<Mutex<Option<Renewal>>>,
    clock: SharedClock,
}

/// The background task that renews the lease.
#[derive(Debug)]
struct Renewal {
    task: JoinHandle<()>,
    stop: CancellationToken,
    client: Arc<LeaseClient>,
}

impl Leadership {
    fn pending(clock: SharedClock) -> Self {
        Self {
            deadline: Arc::new(AtomicU64::new(PENDING)),
            ended: CancellationToken::new(),
            renewal: Arc::default(),
            clock,
        }
    }

    /// Returns a leadership without a lease, for tests.
    #[cfg(test)]
    pub(crate) fn always(clock: SharedClock) -> Self {
        let leadership = Self::pending(clock);
        leadership.deadline.store(u64::MAX, Ordering::Release);
        leadership
    }

    /// Returns true if the lease is held now, by a clock that counts suspended time. Checked right before each write, with
    /// no await in between.
    pub fn is_leader(&self) -> bool {
        nanos(self.clock.uptime()) < self.deadline.load(Ordering::Acquire)
    }

    /// Resolves when the leadership has ended: lost or released.
    pub(crate) async fn lost(&self) {
        self.ended.cancelled().await;
    }

    /// Ends the leadership and clears the holder, so that a successor takes over at once. Called when no write is in
    /// flight.
    pub(crate) async fn release(&self) {
        let was_leader = self.is_leader();
        self.end();
        let Some(Renewal { task, stop, client }) = self.renewal.lock().await.take() else {
            return;
        };
        stop.cancel();
        if let Err(error) = task.await {
            tracing::error!(%error, "the lease renewal task failed");
        }
        if was_leader {
            client.clear().await;
        }
    }

    fn extend(&self, until: Duration) {
        let renew = |deadline| (deadline != ENDED).then_some(nanos(until));
        // Fails only if the leadership has ended.
        let _ = self
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, renew);
    }

    fn end(&self) {
        self.deadline.store(ENDED, Ordering::Release);
        self.ended.cancel();
    }
}

fn nanos(uptime: Duration) -> u64 {
    u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX)
}

/// A candidate for the lease. A process that lost the lease needs another candidate, or ends.
#[derive(Debug)]
pub(crate) struct LeaderElector {
    client: Arc<LeaseClient>,
    leadership: Leadership,
}

impl LeaderElector {
    /// Returns a candidate for the lease in the settings.
    pub(crate) fn new(client: Client, settings: LeaseSettings, clock: SharedClock) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            leadership: Leadership::pending(clock.clone()),
            client: Arc::new(LeaseClient {
                api,
                settings,
                clock,
            }),
        }
    }

    /// Returns the leadership, which begins with [`LeaderElector::acquire`].
    #[cfg(test)]
    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until this process holds the lease, and renews it from then on. Errors are logged and retried.
    pub(crate) async fn acquire(self) -> Leadership {
        let Self { client, leadership } = self;
        let mut election = Election {
            client: client.clone(),
            leadership: leadership.clone(),
            last: None,
            logged_error: None,
        };
        while !election.try_acquire().await {
            client.clock.sleep(client.settings.retry).await;
        }
        tracing::info!(
            lease = client.settings.name,
            identity = client.settings.identity,
            "acquired the lease"
        );
        let stop = CancellationToken::new();
        let task = tokio::spawn(election.keep_renewed(stop.clone()));
        *leadership.renewal.lock().await = Some(Renewal { task, stop, client });
        leadership
    }
}

/// The state of a candidate, and of the holder after its election.
struct Election {
    client: Arc<LeaseClient>,
    leadership: Leadership,
    last: Option<ObservedLease>,
    /// The last logged error, so that each error is logged once.
    logged_error: Option<String>,
}

/// The lease as last observed or written.
struct ObservedLease {
    lease: Lease,
    /// The uptime at which this content was first observed.
    since: Duration,
}

/// The result of an attempt to take or renew the lease.
enum Attempt {
    Held,
    HeldByOther,
    Failed,
}

impl Election {
    /// Attempts to take the lease once. Returns true if this process holds it.
    async fn try_acquire(&mut self) -> bool {
        if let Err(error) = self.observe().await {
            self.log_error(&error);
            return false;
        }
        matches!(self.write().await, Attempt::Held)
    }

    /// Renews the lease until `stop`, or until the lease is lost.
    async fn keep_renewed(mut self, stop: CancellationToken) {
        let clock = self.client.clock.clone();
        let mut delay = self.client.settings.renew;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep(delay) => {}
            }
            let left = self.time_left();
            let attempt = tokio::select! {
                () = stop.cancelled() => return,
                attempt = with_timeout(&*clock, left, self.renew()) => attempt,
            };
            delay = match attempt {
                Some(Attempt::Held) => self.client.settings.renew,
                Some(Attempt::Failed) if self.leadership.is_leader() => {
                    self.client.settings.retry.min(self.time_left())
                }
                Some(Attempt::HeldByOther | Attempt::Failed) | None => break,
            };
        }
        tracing::error!(
            lease = self.client.settings.name,
            "lost the lease, writes stop"
        );
        self.leadership.end();
    }

    /// Returns the time until the leadership ends.
    fn time_left(&self) -> Duration {
        let deadline = Duration::from_nanos(self.leadership.deadline.load(Ordering::Acquire));
        deadline.saturating_sub(self.client.clock.uptime())
    }

    /// Renews the lease on the version written last; reads the lease first if that version is not known.
    async fn renew(&mut self) -> Attempt {
        if self.last.is_none()
            && let Err(error) = self.observe().await
        {
            self.log_error(&error);
            return Attempt::Failed;
        }
        self.write().await
    }

    /// Reads the lease, and records since when it has its content.
    async fn observe(&mut self) -> Result<(), String> {
        let read = self.client.read().await?;
        let since = self.client.clock.uptime();
        self.last = match (self.last.take(), read) {
            (Some(last), Some(lease)) if last.lease == lease => Some(last),
            (_, Some(lease)) => Some(ObservedLease { lease, since }),
            // Deleted, but the holder writes until the expiry: the deletion does not shorten the wait.
            (
                Some(ObservedLease {
                    mut lease,
                    since: _,
                }),
                None,
            ) if lease.resource_version().is_some() => {
                lease.metadata = self.client.metadata();
                Some(ObservedLease { lease, since })
            }
            (last, None) => last,
        };
        Ok(())
    }

    /// Takes or renews the lease if possible, by compare-and-swap on the observed version.
    async fn write(&mut self) -> Attempt {
        let settings = &self.client.settings;
        let now = self.client.clock.uptime();
        let evaluation = match &self.last {
            None => LeaseEvaluation::Take,
            Some(last) => evaluate(
                &LeaseRecord::of(&last.lease, settings),
                last.since,
                now,
                &settings.identity,
            ),
        };
        if let LeaseEvaluation::Wait(_) = evaluation {
            return Attempt::HeldByOther;
        }
        // The leadership counts from before the request: other candidates observe the write later.
        let sent_at = self.client.clock.uptime();
        let observed = self.last.as_ref().map(|last| &last.lease);
        let lease = self.client.held_lease(observed, evaluation);
        match self.client.write(lease).await {
            Ok(Some(lease)) => {
                self.leadership
                    .extend(sent_at + settings.duration.saturating_sub(settings.margin()));
                self.last = Some(ObservedLease {
                    lease,
                    since: sent_at,
                });
                if self.logged_error.take().is_some() {
                    tracing::info!(
                        lease = self.client.settings.name,
                        "lease requests succeed again"
                    );
                }
                Attempt::Held
            }
            // Another process has written the lease, or the API server has executed a request that
            // timed out here: read the lease again. Only the holder drops the observed lease; a
            // candidate must know since when its content is unchanged.
            not_written => {
                if let Err(error) = not_written {
                    self.log_error(&error);
                }
                if evaluation == LeaseEvaluation::Renew {
                    self.last = None;
                }
                Attempt::Failed
            }
        }
    }

    /// Logs an error, unless it is the same as the last.
    fn log_error(&mut self, error: &str) {
        if self.logged_error.as_deref() != Some(error) {
            tracing::warn!(
                lease = self.client.settings.name,
                error,
                "lease request failed"
            );
            self.logged_error = Some(error.to_owned());
        }
    }
}

impl LeaseRecord {
    fn of(lease: &Lease, settings: &LeaseSettings) -> Self {
        let spec = lease.spec.as_ref();
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.and_then(|spec| spec.holder_identity.clone()),
            duration: seconds.map_or(settings.duration, Duration::from_secs),
        }
    }
}

/// Reads and writes the lease. Every request has a timeout.
struct LeaseClient {
    api: Api<Lease>,
    settings: LeaseSettings,
    clock: SharedClock,
}

impl std::fmt::Debug for LeaseClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseClient")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl LeaseClient {
    async fn read(&self) -> Result<Option<Lease>, String> {
        match with_timeout(
            &*self.clock,
            self.settings.renew,
            self.api.get_opt(&self.settings.name),
        )
        .await
        {
            Some(result) => result.map_err(|error| format!("failed to read the lease: {error}")),
            None => Err("failed to read the lease: the request timed out".into()),
        }
    }

    /// Creates the lease, or replaces the version in it. Returns `None` on a conflict.
    async fn write(&self, lease: Lease) -> Result<Option<Lease>, String> {
        let (name, params) = (&self.settings.name, PostParams::default());
        let request = async {
            if lease.resource_version().is_some() {
                self.api.replace(name, &params, &lease).await
            } else {
                self.api.create(&params, &lease).await
            }
        };
        match with_timeout(&*self.clock, self.settings.renew, request).await {
            Some(Ok(lease)) => Ok(Some(lease)),
            // 404: the lease was deleted since it was read, and will be created.
            Some(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(None),
            Some(Err(error)) => Err(format!("failed to write the lease: {error}")),
            None => Err("failed to write the lease: the request timed out".into()),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.settings.name.clone()),
            ..ObjectMeta::default()
        }
    }

    /// Returns the lease with this process as its holder.
    fn held_lease(&self, observed: Option<&Lease>, evaluation: LeaseEvaluation) -> Lease {
        let now = Timestamp::from_second(self.clock.now().0)
            .ok()
            .map(MicroTime);
        let mut lease = observed.cloned().unwrap_or_else(|| Lease {
            metadata: self.metadata(),
            spec: None,
        });
        let settings = &self.settings;
        let (label, annotation) = (settings.program.clone(), settings.watched_text());
        lease.labels_mut().insert(LEASE_PROGRAM.to_owned(), label);
        lease
            .annotations_mut()
            .insert(LEASE_NAMESPACES.to_owned(), annotation);
        let old = lease.spec.take().unwrap_or_default();
        let is_renewal = evaluation == LeaseEvaluation::Renew;
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            // Rounded up: other candidates may assume a longer lease than the holder, never a shorter one.
            lease_duration_seconds: i32::try_from(
                self.settings.duration.as_millis().div_ceil(1000),
            )
            .ok(),
            acquire_time: if is_renewal {
                old.acquire_time
            } else {
                now.clone()
            },
            renew_time: now,
            lease_transitions: Some(old.lease_transitions.unwrap_or(0) + i32::from(!is_renewal)),
            ..old
        });
        lease
    }

    /// Clears the holder if it is this process. If the request fails, the lease expires.
    async fn clear(&self) {
        for _ in 0..2 {
            let Ok(Some(mut lease)) = self.read().await else {
                break;
            };
            match &mut lease.spec {
                Some(spec) if spec.holder_identity.as_ref() == Some(&self.settings.identity) => {
                    spec.holder_identity = None;
                }
                _ => return,
            }
            if let Ok(Some(_)) = self.write(lease).await {
                tracing::info!(lease = self.settings.name, "released the lease");
                return;
            }
        }
        tracing::warn!(
            lease = self.settings.name,
            "failed to release the lease, it will expire"
        );
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
