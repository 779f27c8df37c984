//! Leadership: at most one operator acts at a time. The record is a `Lease`, changed only by compare-and-swap on its
//! resourceVersion; when somebody else's expires is judged by our own clock since we last saw it change, never by
//! the timestamps in it, so that clocks that differ do no harm.

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

/// Who competes for which lease, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Where the lease lives.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Who we are: no two processes that live at the same time may share it.
    pub identity: String,
    /// How long others leave the lease alone after its holder was last heard of.
    pub duration: Duration,
    /// How often the holder renews it; also the longest that one request for it may take.
    pub renew: Duration,
    /// How often those who wait look, and how soon a failed request is tried again.
    pub retry: Duration,
}

impl LeaseSettings {
    /// A lease of 15 s that is renewed every 5 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            retry: Duration::from_secs(1),
        }
    }

    /// How long before others may take it the holder stops relying on it: for clocks that run at different speeds, and
    /// for the request that is on its way when it was checked.
    fn margin(&self) -> Duration {
        self.duration / 5
    }
}

/// What the lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it, if anybody.
    pub holder: Option<String>,
    /// For how long after each renewal, as its holder promised.
    pub duration: Duration,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvaluation {
    /// It is free, or its holder has not been heard of for too long.
    Take,
    /// Somebody else holds it, until this uptime at least.
    Wait(Duration),
    /// It is ours.
    Renew,
}

/// What to do about a lease that says `record` and was seen to change last at the uptime `observed`.
pub fn evaluate(
    record: &LeaseRecord,
    observed: Duration,
    now: Duration,
    me: &str,
) -> LeaseEvaluation {
    let until = observed.saturating_add(record.duration);
    match record.holder.as_deref() {
        None | Some("") => LeaseEvaluation::Take,
        Some(holder) if holder == me => LeaseEvaluation::Renew,
        Some(_) if now >= until => LeaseEvaluation::Take,
        Some(_) => LeaseEvaluation::Wait(until),
    }
}

/// The deadline of a leadership that has not begun: a moment that is always past.
const NOT_YET: u64 = 1;
/// The deadline of a leadership that is over, for good: no renewal that comes late revives it.
const OVER: u64 = 0;

/// Whether this process may act. Cheap to clone, cheap to ask; once lost it stays lost.
#[derive(Clone, Debug)]
pub struct Leadership {
    deadline: Arc<AtomicU64>,
    over: CancellationToken,
    renewing: Arc<Mutex<Option<Renewing>>>,
    clock: SharedClock,
}

#[derive(Debug)]
struct Renewing {
    task: JoinHandle<()>,
    stop: CancellationToken,
    record: Arc<LeaseClient>,
}

impl Leadership {
    fn awaited(clock: SharedClock) -> Self {
        Self {
            deadline: Arc::new(AtomicU64::new(NOT_YET)),
            over: CancellationToken::new(),
            renewing: Arc::default(),
            clock,
        }
    }

    /// A leadership that nobody disputes: for tests, and for commands that a person runs.
    pub fn always(clock: SharedClock) -> Self {
        let leadership = Self::awaited(clock);
        leadership.deadline.store(u64::MAX, Ordering::Release);
        leadership
    }

    /// Whether the lease is held at this very moment, by the clock that also counts suspended time. Ask right before
    /// each change, with nothing awaited in between.
    pub fn is_leader(&self) -> bool {
        nanos(self.clock.uptime()) < self.deadline.load(Ordering::Acquire)
    }

    /// Resolves when the leadership is over: lost, or released.
    pub async fn lost(&self) {
        self.over.cancelled().await;
    }

    /// Gives the lease back, so that a successor takes over at once. Call it when nothing is being changed any more.
    pub async fn release(&self) {
        let held = self.is_leader();
        self.end();
        let Some(Renewing { task, stop, record }) = self.renewing.lock().await.take() else {
            return;
        };
        stop.cancel();
        if let Err(error) = task.await {
            tracing::error!(%error, "the renewal of the lease did not end well");
        }
        if held {
            record.clear().await;
        }
    }

    fn extend(&self, until: Duration) {
        let renew = |deadline| (deadline != OVER).then_some(nanos(until));
        // Refused only when it is over, and then it stays so.
        let _ = self
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, renew);
    }

    fn end(&self) {
        self.deadline.store(OVER, Ordering::Release);
        self.over.cancel();
    }
}

fn nanos(uptime: Duration) -> u64 {
    u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX)
}

/// One who wants the lease, once. A process that lost it starts anew with another candidate, or ends.
#[derive(Debug)]
pub struct LeaderElector {
    desk: Arc<LeaseClient>,
    leadership: Leadership,
}

impl LeaderElector {
    /// Wants the lease that the settings name.
    pub fn new(client: Client, settings: LeaseSettings, clock: SharedClock) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            leadership: Leadership::awaited(clock.clone()),
            desk: Arc::new(LeaseClient {
                api,
                settings,
                clock,
            }),
        }
    }

    /// The leadership that [`Candidate::acquire`] will bring; until then it does not hold.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until the lease is ours, and keeps it renewed from then on. Errors are logged and tried again.
    pub async fn acquire(self) -> Leadership {
        let Self { desk, leadership } = self;
        let mut term = Election {
            desk: desk.clone(),
            leadership: leadership.clone(),
            last: None,
            complaint: None,
        };
        while !term.pursue().await {
            desk.clock.sleep(desk.settings.retry).await;
        }
        tracing::info!(
            lease = desk.settings.name,
            identity = desk.settings.identity,
            "leading"
        );
        let stop = CancellationToken::new();
        let task = tokio::spawn(term.keep(stop.clone()));
        *leadership.renewing.lock().await = Some(Renewing {
            task,
            stop,
            record: desk,
        });
        leadership
    }
}

/// The candidacy and the term that may follow: what was last seen, and what was last complained of.
struct Election {
    desk: Arc<LeaseClient>,
    leadership: Leadership,
    last: Option<ObservedLease>,
    complaint: Option<String>,
}

/// The lease as last seen or written, and when it was first seen so.
struct ObservedLease {
    lease: Lease,
    since: Duration,
}

/// How an attempt ended.
enum Attempt {
    Ours,
    Theirs,
    Failed,
}

impl Election {
    /// One attempt to get the lease; whether it is ours now.
    async fn pursue(&mut self) -> bool {
        if let Err(error) = self.look().await {
            self.complain(&error);
            return false;
        }
        matches!(self.swap().await, Attempt::Ours)
    }

    /// Renews until told to stop, or until it is too late.
    async fn keep(mut self, stop: CancellationToken) {
        let clock = self.desk.clock.clone();
        let mut pause = self.desk.settings.renew;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep(pause) => {}
            }
            let left = self.left();
            let attempt = tokio::select! {
                () = stop.cancelled() => return,
                attempt = with_timeout(&*clock, left, self.renew()) => attempt,
            };
            pause = match attempt {
                Some(Attempt::Ours) => self.desk.settings.renew,
                Some(Attempt::Failed) if self.leadership.is_leader() => {
                    self.desk.settings.retry.min(self.left())
                }
                Some(Attempt::Theirs | Attempt::Failed) | None => break,
            };
        }
        tracing::error!(
            lease = self.desk.settings.name,
            "lost the lease: nothing is changed from here on"
        );
        self.leadership.end();
    }

    /// How long we may still rely on the lease.
    fn left(&self) -> Duration {
        let deadline = Duration::from_nanos(self.leadership.deadline.load(Ordering::Acquire));
        deadline.saturating_sub(self.desk.clock.uptime())
    }

    /// Swaps on what we wrote last; when that is not what is there any more, looks first.
    async fn renew(&mut self) -> Attempt {
        if self.last.is_none()
            && let Err(error) = self.look().await
        {
            self.complain(&error);
            return Attempt::Failed;
        }
        self.swap().await
    }

    /// Reads the lease, and notes since when it has been like this.
    async fn look(&mut self) -> Result<(), String> {
        let found = self.desk.read().await?;
        let since = self.desk.clock.uptime();
        self.last = match (self.last.take(), found) {
            (Some(last), Some(lease)) if last.lease == lease => Some(last),
            (_, Some(lease)) => Some(ObservedLease { lease, since }),
            // Deleted under its holder, who relies on it until it would have run out: so do we.
            (
                Some(ObservedLease {
                    mut lease,
                    since: _,
                }),
                None,
            ) if lease.resource_version().is_some() => {
                lease.metadata = self.desk.name();
                Some(ObservedLease { lease, since })
            }
            (last, None) => last,
        };
        Ok(())
    }

    /// Takes or renews the lease if it may be, by compare-and-swap on what was seen.
    async fn swap(&mut self) -> Attempt {
        let settings = &self.desk.settings;
        let now = self.desk.clock.uptime();
        let judgement = match &self.last {
            None => LeaseEvaluation::Take,
            Some(last) => evaluate(
                &record(&last.lease, settings),
                last.since,
                now,
                &settings.identity,
            ),
        };
        if let LeaseEvaluation::Wait(_) = judgement {
            return Attempt::Theirs;
        }
        // Counted from before the request leaves: whoever sees what it wrote sees it later than this.
        let sent = self.desk.clock.uptime();
        let wanted = self
            .desk
            .claim(self.last.as_ref().map(|last| &last.lease), judgement);
        match self.desk.write(wanted).await {
            Ok(Some(lease)) => {
                self.leadership
                    .extend(sent + settings.duration.saturating_sub(settings.margin()));
                self.last = Some(ObservedLease { lease, since: sent });
                if self.complaint.take().is_some() {
                    tracing::info!(
                        lease = self.desk.settings.name,
                        "the lease can be written again"
                    );
                }
                Attempt::Ours
            }
            // Somebody else wrote, or an earlier request of ours that we gave up did land: look again. Only the holder
            // forgets what it saw; those who wait have to know since when it has been so.
            failed => {
                if let Err(error) = failed {
                    self.complain(&error);
                }
                if judgement == LeaseEvaluation::Renew {
                    self.last = None;
                }
                Attempt::Failed
            }
        }
    }

    /// Logs what went wrong, once for as long as it is the same.
    fn complain(&mut self, error: &str) {
        if self.complaint.as_deref() != Some(error) {
            tracing::warn!(
                lease = self.desk.settings.name,
                error,
                "cannot use the lease"
            );
            self.complaint = Some(error.to_owned());
        }
    }
}

fn record(lease: &Lease, settings: &LeaseSettings) -> LeaseRecord {
    let spec = lease.spec.as_ref();
    let promised = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok());
    LeaseRecord {
        holder: spec.and_then(|spec| spec.holder_identity.clone()),
        duration: promised.map_or(settings.duration, Duration::from_secs),
    }
}

/// Where the lease is read and written: every request with a timeout.
struct LeaseClient {
    api: Api<Lease>,
    settings: LeaseSettings,
    clock: SharedClock,
}

impl std::fmt::Debug for LeaseClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk")
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
            Some(answer) => answer.map_err(|error| format!("reading it failed: {error}")),
            None => Err("reading it took too long".into()),
        }
    }

    /// Creates it, or replaces the version it was made from. `None`: somebody else was quicker.
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
            // 404: it was deleted since we saw it, and will be created anew.
            Some(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(None),
            Some(Err(error)) => Err(format!("writing it failed: {error}")),
            None => Err("writing it took too long".into()),
        }
    }

    fn name(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.settings.name.clone()),
            ..ObjectMeta::default()
        }
    }

    /// The lease as it will say that it is ours.
    fn claim(&self, seen: Option<&Lease>, judgement: LeaseEvaluation) -> Lease {
        let now = Timestamp::from_second(self.clock.now().0)
            .ok()
            .map(MicroTime);
        let mut lease = seen.cloned().unwrap_or_else(|| Lease {
            metadata: self.name(),
            spec: None,
        });
        let was = lease.spec.take().unwrap_or_default();
        let renewed = judgement == LeaseEvaluation::Renew;
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            // Rounded up: others may believe it to be longer than we do, never shorter.
            lease_duration_seconds: i32::try_from(
                self.settings.duration.as_millis().div_ceil(1000),
            )
            .ok(),
            acquire_time: if renewed {
                was.acquire_time
            } else {
                now.clone()
            },
            renew_time: now,
            lease_transitions: Some(was.lease_transitions.unwrap_or(0) + i32::from(!renewed)),
            ..was
        });
        lease
    }

    /// Empties the holder if it is still us. If that fails the lease runs out by itself.
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
            "could not release the lease; it runs out by itself"
        );
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
