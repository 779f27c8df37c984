//! A proxy to the lab's API server that can stop the world at a chosen write.
//!
//! A story gives its operator a kubeconfig that leads here. Everything passes, watches as they stream; but each write is
//! first shown to the story's [rule](Proxy::rule), and the [`Verdict`] says what becomes of it. A write that is stopped
//! is held, before the API server sees it or after it was applied, until the story [lets it go on](Stopped::go_on) or
//! drops it: time enough to kill the operator between an intent and its effect, in every run at the same place.
//!
//! A write belongs to the network once it has come here: it goes on, when told to, even if its sender is dead by then.

mod record;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use evenkeel_lab::Lab;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub use record::{Lives, Write, Written, lives, pattern};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done, and answered.
    Pass,
    /// It is held before the API server sees it. Dropped, it never does, and the sender gets no answer.
    StopBefore,
    /// It is done, but the answer is held. Dropped, the sender gets none.
    StopAfter,
    /// It is not done, and answered with this error.
    Fail(u16),
    /// It is done, yet answered with this error.
    FailAfter(u16),
    /// It goes on after this time, whether or not the sender still waits for it.
    Hang(Duration),
}

type Rule = Arc<dyn Fn(&Write) -> Verdict + Send + Sync>;

/// A write that is held. Dropped, its sender gets no answer.
#[derive(Debug)]
pub struct Stopped {
    /// The write.
    pub write: Write,
    /// What the API server answered; `None` where it has not seen it.
    pub answered: Option<u16>,
    go_on: oneshot::Sender<()>,
}

impl Stopped {
    /// Lets it go on: to the API server, or its answer to the sender.
    pub fn go_on(self) {
        // Nobody waits for it any more when the proxy has gone.
        let _ = self.go_on.send(());
    }
}

/// The proxy. It ends when dropped, and with it every connection through it.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<serve::Shared>,
    stops: Mutex<mpsc::Receiver<Stopped>>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// A proxy to a lab's API server. Whoever asks says who it is: the `Authorization` header passes as it is.
    pub fn start(lab: &Lab) -> Self {
        Self::new(lab, None)
    }

    /// A proxy for those who do not say who they are: they are the bearer of this token. `kubectl` is such a one, since
    /// it sends no token where there is no TLS.
    pub fn start_as(lab: &Lab, token: &str) -> Self {
        Self::new(lab, Some(token))
    }

    fn new(lab: &Lab, token: Option<&str>) -> Self {
        let (stopped, stops) = mpsc::channel();
        let shared = Arc::new(serve::Shared::new(lab, token, stopped));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a thread for the proxy");
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .expect("a free port");
        let address = listener.local_addr().expect("a listener has an address");
        runtime.spawn(serve::accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            stops: Mutex::new(stops),
            runtime: Some(runtime),
        }
    }

    /// Where it listens, as a kubeconfig's `server`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on every write is shown to this rule.
    pub fn rule(&self, rule: impl Fn(&Write) -> Verdict + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// From now on this becomes of the first write of the kind, and all others pass.
    pub fn once(
        &self,
        verdict: Verdict,
        of_the_kind: impl Fn(&Write) -> bool + Send + Sync + 'static,
    ) {
        let done = AtomicBool::new(false);
        self.rule(move |write| {
            let it = of_the_kind(write) && !done.swap(true, Ordering::SeqCst);
            if it { verdict } else { Verdict::Pass }
        });
    }

    /// From now on every write passes.
    pub fn pass(&self) {
        self.rule(|_| Verdict::Pass);
    }

    /// Waits until a write is stopped; fails the story when none is.
    pub fn stopped(&self, limit: Duration) -> Stopped {
        match lock(&self.stops).recv_timeout(limit) {
            Ok(stopped) => stopped,
            Err(_) => {
                panic!(
                    "no write was stopped within {} s; there were:\n{}",
                    limit.as_secs(),
                    self.told()
                )
            }
        }
    }

    /// The write that is stopped by now, if one is.
    pub fn try_stopped(&self) -> Option<Stopped> {
        lock(&self.stops).try_recv().ok()
    }

    /// The API server is gone: every connection ends at once, and nobody gets a new one.
    pub fn cut(&self) {
        self.shared.open.send_replace(false);
    }

    /// The API server is back.
    pub fn mend(&self) {
        self.shared.open.send_replace(true);
    }

    /// All writes so far.
    pub fn writes(&self) -> Vec<Written> {
        lock(&self.shared.record).writes()
    }

    /// The writes that came since a time, those to Leases apart: an operator that lives renews its own.
    pub fn writes_since(&self, time: Instant) -> Vec<Written> {
        record::since(self.writes(), time, is_lease)
    }

    /// Creates and deletes done through this proxy, per object.
    pub fn lives(&self) -> BTreeMap<String, Lives> {
        lives(&self.writes())
    }

    /// How many requests came, reads included, by verb (`WATCH` is one) and [`pattern`].
    pub fn requests(&self) -> BTreeMap<(String, String), usize> {
        lock(&self.shared.record).requests()
    }

    /// The names of the objects of this sort (`pods`) that were read one by one since a time.
    pub fn read_since(&self, resource: &str, time: Instant) -> BTreeSet<String> {
        lock(&self.shared.record).read_since(resource, time)
    }

    /// Waits so long, in which nothing but Leases may be written.
    pub fn stays_quiet(&self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            let writes = self.writes_since(began);
            assert!(
                writes.is_empty(),
                "nothing was to be written for {} s, but after {:.1} s was:\n{}",
                time.as_secs(),
                began.elapsed().as_secs_f64(),
                shown(&writes)
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until nothing but Leases has been written for so long; fails the story when that does not come to be
    /// within the limit.
    pub fn becomes_quiet(&self, quiet: Duration, limit: Duration) {
        let began = Instant::now();
        while record::quiet(&self.writes(), began, is_lease) < quiet {
            assert!(
                began.elapsed() < limit,
                "it was never quiet for {} s within {} s:\n{}",
                quiet.as_secs(),
                limit.as_secs(),
                self.told()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The last writes, a line each.
    pub(crate) fn told(&self) -> String {
        let writes = self.writes();
        shown(
            writes
                .get(writes.len().saturating_sub(40)..)
                .unwrap_or_default(),
        )
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn is_lease(write: &Write) -> bool {
    write.is_to("leases")
}

fn shown(writes: &[Written]) -> String {
    writes
        .iter()
        .map(|written| format!("  {written}\n"))
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
