//! The workload: clients that send requests to an etcd cluster from a separate thread until they
//! are stopped, and their recorded [`History`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client;
use crate::history::{
    ClientId, ClientKind, History, Key, KeyState, Lane, Operation, RunTime, Snapshot, Value,
};
use crate::random::Random;
use crate::stats::WorkloadStats;
use crate::target::{ClientTls, WorkloadTarget};
use crate::watcher::Watcher;

/// The monotonic clock of a run, shared with the code that injects faults.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    zero: Instant,
}

impl RunClock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self {
            zero: Instant::now(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> RunTime {
        RunTime(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The configuration of a workload.
#[derive(Clone, Debug)]
pub struct WorkloadConfig {
    /// The number of clients that use one member each, spread over the members.
    pub pinned_clients: usize,
    /// The number of clients that use all members.
    pub all_members_clients: usize,
    /// The number of clients that use the Service.
    pub service_clients: usize,
    /// The operations per second that all clients together attempt.
    pub operations_per_second: f64,
    /// The time after which the outcome of an operation is unknown.
    pub timeout: Duration,
    /// The number of keys in use at a time.
    pub keys: u32,
    /// The number of operations after which a key is replaced by a new one, so that the general checker can finish.
    pub operations_per_key: u32,
    /// The prefix of the keys. No other client may write under it.
    pub prefix: String,
    /// The seed for requests and keys.
    pub seed: u64,
    /// The number of operations after which the workload stops, to limit its memory.
    pub max_operations: usize,
    /// The clock.
    pub clock: RunClock,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            pinned_clients: 6,
            all_members_clients: 2,
            service_clients: 2,
            operations_per_second: 300.0,
            timeout: Duration::from_secs(1),
            keys: 12,
            operations_per_key: 300,
            prefix: "evenkeel-history/".into(),
            seed: 1,
            max_operations: 2_000_000,
            clock: RunClock::start(),
        }
    }
}

/// The workload could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// etcd did not respond.
    #[error("failed to read the initial state from etcd: {0}")]
    NoAnswer(String),
    /// The thread or runtime could not be created.
    #[error("failed to start the workload's thread: {0}")]
    Thread(std::io::Error),
}

/// The workload ended with an incomplete recording.
#[derive(Debug, thiserror::Error)]
#[error("the history is incomplete: {reason}")]
pub struct UnfinishedError {
    /// The missing part.
    pub reason: String,
    /// The recording.
    pub history: Box<History>,
}

/// A running workload. It stops when dropped.
#[derive(Debug)]
pub struct Workload {
    shared: Arc<WorkloadState>,
    start: Snapshot,
    thread: Option<JoinHandle<WorkloadResult>>,
}

#[derive(Debug)]
struct WorkloadResult {
    writes: Vec<crate::history::WatchedWrite>,
    end: Result<Snapshot, String>,
}

impl Workload {
    /// Reads the initial state within `time_limit` and starts the clients.
    pub fn start(
        config: WorkloadConfig,
        target: WorkloadTarget,
        time_limit: Duration,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(WorkloadState::new(config, target));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let (begun, start) = mpsc::channel();
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("workload".into())
                .spawn(move || {
                    let ended = runtime.block_on(run_workload(shared, time_limit, &begun));
                    // Pending requests are dropped, so that a frozen member does not delay the end.
                    runtime.shutdown_background();
                    ended
                })
        };
        let thread = thread.map_err(StartError::Thread)?;
        match start.recv() {
            Ok(Ok(start)) => Ok(Self {
                shared,
                start,
                thread: Some(thread),
            }),
            Ok(Err(why)) => Err(StartError::NoAnswer(why)),
            Err(_) => Err(StartError::NoAnswer(
                "the workload's thread has ended".into(),
            )),
        }
    }

    /// Replaces the members. Pinned clients and clients of all members follow.
    pub fn set_members(&self, members: Vec<String>) {
        lock(&self.shared.target).members = members;
    }

    /// Returns the time on the run's clock.
    pub fn now(&self) -> RunTime {
        self.shared.config.clock.now()
    }

    /// Returns the statistics from a time until now.
    pub fn stats(&self, since: RunTime) -> WorkloadStats {
        let from = since.max(self.start.ended);
        WorkloadStats::of(
            &lock(&self.shared.operations),
            &self.shared.lanes(),
            from,
            self.now(),
        )
    }

    /// Returns true if the recording is full and the clients have stopped.
    pub fn is_full(&self) -> bool {
        self.shared.reserved.load(Ordering::Relaxed) >= self.shared.config.max_operations
    }

    /// Stops the clients, reads the final state and waits within `time_limit` until the watch has reached it. Blocks
    /// this thread.
    pub fn finish(mut self, time_limit: Duration) -> Result<History, UnfinishedError> {
        *lock(&self.shared.finish_timeout) = time_limit;
        self.shared.stop.store(true, Ordering::Relaxed);
        let missing_result = || WorkloadResult {
            writes: Vec::new(),
            end: Err("the workload's thread has ended".into()),
        };
        let WorkloadResult { writes: log, end } = self
            .thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_else(missing_result);
        let ops = std::mem::take(&mut *lock(&self.shared.operations));
        let start = std::mem::take(&mut self.start);
        let mut history = History {
            lanes: self.shared.lanes(),
            start,
            operations: ops,
            writes: log,
            end: None,
        };
        match end {
            Ok(end) => {
                history.end = Some(end);
                Ok(history)
            }
            Err(why) => Err(UnfinishedError {
                reason: why,
                history: Box::new(history),
            }),
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

async fn run_workload(
    shared: Arc<WorkloadState>,
    time_limit: Duration,
    begun: &mpsc::Sender<Result<Snapshot, String>>,
) -> WorkloadResult {
    let start = match client::snapshot(&shared, time_limit).await {
        Ok(start) => start,
        Err(why) => {
            // The receiver may be gone; then the result is not needed.
            let _ = begun.send(Err(why.clone()));
            return WorkloadResult {
                writes: Vec::new(),
                end: Err(why),
            };
        }
    };
    shared.start_after(&start);
    let watcher = Watcher::start(Arc::clone(&shared), start.revision);
    let _ = begun.send(Ok(start));
    let mut clients = Vec::new();
    for (lane, (kind, nth)) in (0..).zip(shared.clients()) {
        clients.push(tokio::spawn(client::run(
            Arc::clone(&shared),
            Lane(lane),
            kind,
            nth,
        )));
    }
    for client in clients {
        // Clients do not panic; if one did, the recording of the others still counts.
        let _ = client.await;
    }
    let time_limit = *lock(&shared.finish_timeout);
    let end = finish(&shared, &watcher, time_limit).await;
    WorkloadResult {
        writes: watcher.take_writes(),
        end,
    }
}

async fn finish(
    shared: &WorkloadState,
    watcher: &Watcher,
    time_limit: Duration,
) -> Result<Snapshot, String> {
    let began = Instant::now();
    let end = client::snapshot(shared, time_limit).await?;
    let newest = end
        .state
        .values()
        .map(|state| state.revision)
        .max()
        .unwrap_or(0);
    watcher
        .wait_for_revision(newest, time_limit.saturating_sub(began.elapsed()))
        .await?;
    Ok(end)
}

/// The state that the clients share.
#[derive(Debug)]
pub(crate) struct WorkloadState {
    pub(crate) config: WorkloadConfig,
    pub(crate) next_value: AtomicU64,
    target: Mutex<WorkloadTarget>,
    tls: Option<ClientTls>,
    operations: Mutex<Vec<Operation>>,
    reserved: AtomicUsize,
    next_client: AtomicU32,
    stop: AtomicBool,
    finish_timeout: Mutex<Duration>,
    first_key: AtomicU32,
    /// The number of operations on each key slot.
    key_uses: Vec<AtomicU32>,
    /// The last known state of each key.
    last_known: Mutex<Vec<Option<(Key, KeyState)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkloadState {
    fn new(config: WorkloadConfig, target: WorkloadTarget) -> Self {
        let slots = config.keys.max(1) as usize;
        Self {
            next_value: AtomicU64::new(1),
            tls: target.tls.clone(),
            target: Mutex::new(target),
            operations: Mutex::default(),
            reserved: AtomicUsize::new(0),
            next_client: AtomicU32::new(1),
            stop: AtomicBool::new(false),
            finish_timeout: Mutex::default(),
            first_key: AtomicU32::new(0),
            key_uses: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            last_known: Mutex::new(vec![None; slots]),
            config,
        }
    }

    /// Starts values and keys after the existing ones, so that none is used twice.
    fn start_after(&self, start: &Snapshot) {
        let ours = start.state.iter().filter(|(key, _)| **key != Key::FOREIGN);
        let key = ours
            .clone()
            .map(|(key, _)| key.0)
            .max()
            .map_or(0, |key| key + 1);
        let value = ours
            .map(|(_, state)| state.value)
            .filter(|value| *value != Value::FOREIGN)
            .max();
        self.first_key.store(key, Ordering::Relaxed);
        self.next_value
            .store(value.map_or(1, |value| value.0 + 1), Ordering::Relaxed);
    }

    fn clients(&self) -> Vec<(ClientKind, usize)> {
        let WorkloadConfig {
            pinned_clients: pinned,
            all_members_clients: everywhere,
            service_clients: service,
            ..
        } = self.config;
        let of = |kind, count| (0..count).map(move |nth| (kind, nth));
        of(ClientKind::Pinned, pinned)
            .chain(of(ClientKind::AllMembers, everywhere))
            .chain(of(ClientKind::Service, service))
            .collect()
    }

    fn lanes(&self) -> Vec<ClientKind> {
        self.clients().into_iter().map(|(kind, _)| kind).collect()
    }

    pub(crate) fn period(&self) -> Duration {
        let clients = self.clients().len().max(1) as f64;
        Duration::from_secs_f64(
            (clients / self.config.operations_per_second.max(0.1)).clamp(0.000_1, 60.0),
        )
    }

    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    pub(crate) fn endpoint(&self, kind: ClientKind, turn: usize) -> Option<String> {
        let target = lock(&self.target);
        let behind_service = kind == ClientKind::Service && !target.service.is_empty();
        let all = if behind_service {
            &target.service
        } else {
            &target.members
        };
        all.get(turn.checked_rem(all.len())?).cloned()
    }

    /// Returns the endpoints of all members.
    pub(crate) fn members(&self) -> Vec<String> {
        lock(&self.target).members.clone()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn fresh_client(&self) -> ClientId {
        ClientId(self.next_client.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn reserve(&self) -> bool {
        self.reserved.fetch_add(1, Ordering::Relaxed) < self.config.max_operations
    }

    pub(crate) fn record(&self, op: Operation) {
        lock(&self.operations).push(op);
    }

    pub(crate) fn name(&self, key: Key) -> String {
        format!("{}{}", self.config.prefix, key.0)
    }

    /// Returns a key in use and its slot.
    pub(crate) fn pick_key(&self, random: &mut Random) -> (usize, Key) {
        let slots = self.config.keys.max(1);
        let slot = u32::try_from(random.below(slots.into())).unwrap_or(0);
        let used = self
            .key_uses
            .get(slot as usize)
            .map_or(0, |used| used.fetch_add(1, Ordering::Relaxed));
        let generation = used / self.config.operations_per_key.max(1);
        (
            slot as usize,
            Key(self.first_key.load(Ordering::Relaxed) + slot + slots * generation),
        )
    }

    pub(crate) fn last_known_state(&self, slot: usize, key: Key) -> Option<(Value, i64)> {
        let last_known = lock(&self.last_known).get(slot).copied().flatten();
        last_known
            .filter(|(of, _)| *of == key)
            .map(|(_, state)| (state.value, state.revision))
    }

    /// Remembers the state of a key from a response, if it is newer than the known one.
    pub(crate) fn remember(&self, slot: usize, op: &Operation) {
        let reported = match (
            op.response().and_then(|response| response.observed()),
            op.acknowledged_revision(),
            op.request.written_value(),
        ) {
            (Some(observed), ..) => observed,
            (None, Some(revision), Some(value)) => Some(KeyState {
                value,
                revision,
                version: 0,
            }),
            _ => None,
        };
        let Some(reported) = reported else { return };
        if let Some(last_known) = lock(&self.last_known).get_mut(slot)
            && last_known.is_none_or(|(of, known)| {
                of < op.key || (of == op.key && known.revision < reported.revision)
            })
        {
            *last_known = Some((op.key, reported));
        }
    }
}
