//! Clients that work on an etcd cluster from a thread of their own until they are told to stop, and everything they
//! did as a [`History`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client;
use crate::history::{Client, History, Key, Kind, Lane, Op, Snapshot, Time, Value, Versioned};
use crate::random::Random;
use crate::stats::Stats;
use crate::target::{Target, Tls};
use crate::watcher::Watcher;

/// The monotonic clock of a run; whoever breaks things tells the time by it too.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// A clock that is at zero now.
    pub fn start() -> Self {
        Self {
            zero: Instant::now(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// How a workload works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Clients that keep to one member each, spread over the members.
    pub pinned: usize,
    /// Clients that know all members.
    pub everywhere: usize,
    /// Clients that go through the service.
    pub service: usize,
    /// Operations a second that all clients together try to make.
    pub rate: f64,
    /// After so long an operation's outcome is not known.
    pub timeout: Duration,
    /// How many keys are in use at a time.
    pub keys: u32,
    /// After so many operations a key gives way to a new one, so that the general checker can finish.
    pub ops_per_key: u32,
    /// What the keys begin with; nobody else may write there.
    pub prefix: String,
    /// Which operations on which keys.
    pub seed: u64,
    /// After so many operations the workload stops by itself: memory has an end.
    pub most_ops: usize,
    /// The clock.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pinned: 6,
            everywhere: 2,
            service: 2,
            rate: 300.0,
            timeout: Duration::from_secs(1),
            keys: 12,
            ops_per_key: 300,
            prefix: "evenkeel-history/".into(),
            seed: 1,
            most_ops: 2_000_000,
            clock: Clock::start(),
        }
    }
}

/// The workload could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// etcd was not there.
    #[error("the workload could not read from etcd to begin with: {0}")]
    NoAnswer(String),
    /// The system gave no thread or runtime.
    #[error("the workload's thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// The workload ended, but what it recorded cannot be judged.
#[derive(Debug, thiserror::Error)]
#[error("the history has no end: {why}")]
pub struct Unfinished {
    /// What is missing.
    pub why: String,
    /// What was recorded.
    pub history: Box<History>,
}

/// Clients at work. Dropped, they stop.
#[derive(Debug)]
pub struct Workload {
    shared: Arc<Shared>,
    start: Snapshot,
    thread: Option<JoinHandle<Ended>>,
}

#[derive(Debug)]
struct Ended {
    log: Vec<crate::history::Write>,
    end: Result<Snapshot, String>,
}

impl Workload {
    /// Reads what is there, within the given time, and sets the clients to work.
    pub fn start(config: Config, target: Target, patience: Duration) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(config, target));
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
                    let ended = runtime.block_on(work(shared, patience, &begun));
                    // A frozen member must not hold us up: whatever is still under way is dropped.
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
            Err(_) => Err(StartError::NoAnswer("its thread has gone".into())),
        }
    }

    /// The members are others now: pinned clients and those that know all follow.
    pub fn set_members(&self, members: Vec<String>) {
        lock(&self.shared.target).members = members;
    }

    /// The time on the run's clock.
    pub fn now(&self) -> Time {
        self.shared.config.clock.now()
    }

    /// Figures from a time until now.
    pub fn stats(&self, since: Time) -> Stats {
        let from = since.max(self.start.ended);
        Stats::of(
            &lock(&self.shared.ops),
            &self.shared.lanes(),
            from,
            self.now(),
        )
    }

    /// Whether the recording is full, and the clients have stopped for that.
    pub fn is_full(&self) -> bool {
        self.shared.reserved.load(Ordering::Relaxed) >= self.shared.config.most_ops
    }

    /// Stops the clients, reads what is there at the end and waits, for the given time, until the watch has come so
    /// far. Blocks this thread.
    pub fn finish(mut self, patience: Duration) -> Result<History, Unfinished> {
        *lock(&self.shared.patience) = patience;
        self.shared.stop.store(true, Ordering::Relaxed);
        let gone = || Ended {
            log: Vec::new(),
            end: Err("the workload's thread has gone".into()),
        };
        let Ended { log, end } = self
            .thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_else(gone);
        let ops = std::mem::take(&mut *lock(&self.shared.ops));
        let start = std::mem::take(&mut self.start);
        let mut history = History {
            lanes: self.shared.lanes(),
            start,
            ops,
            log,
            end: None,
        };
        match end {
            Ok(end) => {
                history.end = Some(end);
                Ok(history)
            }
            Err(why) => Err(Unfinished {
                why,
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

async fn work(
    shared: Arc<Shared>,
    patience: Duration,
    begun: &mpsc::Sender<Result<Snapshot, String>>,
) -> Ended {
    let start = match client::snapshot(&shared, patience).await {
        Ok(start) => start,
        Err(why) => {
            // Whoever waits for it may have gone; then nobody needs it.
            let _ = begun.send(Err(why.clone()));
            return Ended {
                log: Vec::new(),
                end: Err(why),
            };
        }
    };
    shared.begin_after(&start);
    let watcher = Watcher::start(Arc::clone(&shared), start.revision);
    let _ = begun.send(Ok(start));
    let mut clients = Vec::new();
    for (lane, (kind, nth)) in (0..).zip(shared.kinds()) {
        clients.push(tokio::spawn(client::run(
            Arc::clone(&shared),
            Lane(lane),
            kind,
            nth,
        )));
    }
    for client in clients {
        // Clients do not panic; if one did, what the others recorded still counts.
        let _ = client.await;
    }
    let patience = *lock(&shared.patience);
    let end = finish(&shared, &watcher, patience).await;
    Ended {
        log: watcher.take(),
        end,
    }
}

async fn finish(
    shared: &Shared,
    watcher: &Watcher,
    patience: Duration,
) -> Result<Snapshot, String> {
    let began = Instant::now();
    let end = client::snapshot(shared, patience).await?;
    let newest = end
        .state
        .values()
        .map(|state| state.revision)
        .max()
        .unwrap_or(0);
    watcher
        .reach(newest, patience.saturating_sub(began.elapsed()))
        .await?;
    Ok(end)
}

/// What the clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) next_value: AtomicU64,
    target: Mutex<Target>,
    tls: Option<Tls>,
    ops: Mutex<Vec<Op>>,
    reserved: AtomicUsize,
    next_client: AtomicU32,
    stop: AtomicBool,
    patience: Mutex<Duration>,
    first_key: AtomicU32,
    /// How many operations each of the keys in use has had, and those before it.
    used: Vec<AtomicU32>,
    /// What was last seen of each.
    beliefs: Mutex<Vec<Option<(Key, Versioned)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(config: Config, target: Target) -> Self {
        let slots = config.keys.max(1) as usize;
        Self {
            next_value: AtomicU64::new(1),
            tls: target.tls.clone(),
            target: Mutex::new(target),
            ops: Mutex::default(),
            reserved: AtomicUsize::new(0),
            next_client: AtomicU32::new(1),
            stop: AtomicBool::new(false),
            patience: Mutex::default(),
            first_key: AtomicU32::new(0),
            used: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            beliefs: Mutex::new(vec![None; slots]),
            config,
        }
    }

    /// Values and keys begin after those that are there: none is ever used twice.
    fn begin_after(&self, start: &Snapshot) {
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

    fn kinds(&self) -> Vec<(Kind, usize)> {
        let Config {
            pinned,
            everywhere,
            service,
            ..
        } = self.config;
        let of = |kind, count| (0..count).map(move |nth| (kind, nth));
        of(Kind::Pinned, pinned)
            .chain(of(Kind::Everywhere, everywhere))
            .chain(of(Kind::Service, service))
            .collect()
    }

    fn lanes(&self) -> Vec<Kind> {
        self.kinds().into_iter().map(|(kind, _)| kind).collect()
    }

    pub(crate) fn period(&self) -> Duration {
        let clients = self.kinds().len().max(1) as f64;
        Duration::from_secs_f64((clients / self.config.rate.max(0.1)).clamp(0.000_1, 60.0))
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn endpoint(&self, kind: Kind, turn: usize) -> Option<String> {
        let target = lock(&self.target);
        let behind_service = kind == Kind::Service && !target.service.is_empty();
        let all = if behind_service {
            &target.service
        } else {
            &target.members
        };
        all.get(turn.checked_rem(all.len())?).cloned()
    }

    /// Where all members are.
    pub(crate) fn members(&self) -> Vec<String> {
        lock(&self.target).members.clone()
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn fresh_client(&self) -> Client {
        Client(self.next_client.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn reserve(&self) -> bool {
        self.reserved.fetch_add(1, Ordering::Relaxed) < self.config.most_ops
    }

    pub(crate) fn record(&self, op: Op) {
        lock(&self.ops).push(op);
    }

    pub(crate) fn name(&self, key: Key) -> String {
        format!("{}{}", self.config.prefix, key.0)
    }

    /// A key in use, and its slot.
    pub(crate) fn pick_key(&self, random: &mut Random) -> (usize, Key) {
        let slots = self.config.keys.max(1);
        let slot = u32::try_from(random.below(slots.into())).unwrap_or(0);
        let used = self
            .used
            .get(slot as usize)
            .map_or(0, |used| used.fetch_add(1, Ordering::Relaxed));
        let generation = used / self.config.ops_per_key.max(1);
        (
            slot as usize,
            Key(self.first_key.load(Ordering::Relaxed) + slot + slots * generation),
        )
    }

    pub(crate) fn belief(&self, slot: usize, key: Key) -> Option<(Value, i64)> {
        let belief = lock(&self.beliefs).get(slot).copied().flatten();
        belief
            .filter(|(of, _)| *of == key)
            .map(|(_, state)| (state.value, state.revision))
    }

    /// Remembers what an answer told of a key, if it is newer than what was known.
    pub(crate) fn believe(&self, slot: usize, op: &Op) {
        let told = match (
            op.answer().and_then(|answer| answer.seen()),
            op.written(),
            op.call.writes(),
        ) {
            (Some(seen), ..) => seen,
            (None, Some(revision), Some(value)) => Some(Versioned {
                value,
                revision,
                version: 0,
            }),
            _ => None,
        };
        let Some(told) = told else { return };
        if let Some(belief) = lock(&self.beliefs).get_mut(slot)
            && belief.is_none_or(|(of, known)| {
                of < op.key || (of == op.key && known.revision < told.revision)
            })
        {
            *belief = Some((op.key, told));
        }
    }
}
