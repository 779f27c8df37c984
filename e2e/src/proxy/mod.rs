//! A proxy to the lab's API server that can stop the operator at a chosen write.
//!
//! A story's operator gets a kubeconfig with the address of the proxy. All requests pass, and watches stream; but the story's
//! [rule](Proxy::rule) gets each write first and returns a [`Verdict`]. A held write waits, before the API server gets it or after
//! it was applied, until the story [resumes](HeldWrite::resume) or drops it: time to kill the operator between an intent and its
//! effect, at the same place in every run.
//!
//! A write that has reached the proxy is executed even if its sender is dead by then, as on a real network.

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

pub use record::{ObjectCounts, RecordedWrite, Write, object_counts, pattern};

/// The treatment of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The write is applied and answered.
    Pass,
    /// The write is held before the API server gets it. If dropped, it is never sent, and the sender gets no answer.
    HoldBefore,
    /// The write is applied, but the answer is held. If dropped, the sender gets no answer.
    HoldAfter,
    /// The write is not sent; the sender gets this error code.
    Fail(u16),
    /// The write is applied, but the sender gets this error code.
    FailAfter(u16),
    /// The write is sent after this time, whether or not the sender still waits for it.
    Delay(Duration),
}

type Rule = Arc<dyn Fn(&Write) -> Verdict + Send + Sync>;

/// A write that is held. On drop its sender gets no answer.
#[derive(Debug)]
pub struct HeldWrite {
    /// The write.
    pub write: Write,
    /// The API server's status code; `None` if the write was not sent to it.
    pub answered: Option<u16>,
    resume: oneshot::Sender<()>,
}

impl HeldWrite {
    /// Sends the write to the API server, or its answer to the sender.
    pub fn resume(self) {
        // Fails only if the proxy has been dropped.
        let _ = self.resume.send(());
    }
}

/// The proxy. On drop it stops and closes every connection.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<serve::Shared>,
    held_writes: Mutex<mpsc::Receiver<HeldWrite>>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Starts a proxy that passes the `Authorization` header of each request.
    pub fn start(lab: &Lab) -> Self {
        Self::new(lab, None)
    }

    /// Starts a proxy that adds this token to requests without one. `kubectl` needs it, because it sends no token over a connection
    /// without TLS.
    pub fn start_as(lab: &Lab, token: &str) -> Self {
        Self::new(lab, Some(token))
    }

    fn new(lab: &Lab, token: Option<&str>) -> Self {
        let (held, held_writes) = mpsc::channel();
        let shared = Arc::new(serve::Shared::new(lab, token, held));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("the runtime starts");
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .expect("a free port");
        let address = listener.local_addr().expect("a listener has an address");
        runtime.spawn(serve::accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            held_writes: Mutex::new(held_writes),
            runtime: Some(runtime),
        }
    }

    /// Returns the address, for the `server` of a kubeconfig.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the rule for all later writes.
    pub fn rule(&self, rule: impl Fn(&Write) -> Verdict + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Applies a verdict to the next write that matches; all others pass.
    pub fn once(&self, verdict: Verdict, matches: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        let done = AtomicBool::new(false);
        self.rule(move |write| {
            let it = matches(write) && !done.swap(true, Ordering::SeqCst);
            if it { verdict } else { Verdict::Pass }
        });
    }

    /// Lets all later writes pass.
    pub fn pass(&self) {
        self.rule(|_| Verdict::Pass);
    }

    /// Waits for a held write; panics on timeout.
    pub fn wait_held(&self, limit: Duration) -> HeldWrite {
        match lock(&self.held_writes).recv_timeout(limit) {
            Ok(held) => held,
            Err(_) => {
                panic!(
                    "no write was held within {} s; the writes were:\n{}",
                    limit.as_secs(),
                    self.recent_writes()
                )
            }
        }
    }

    /// Returns a held write, if there is one.
    pub fn try_held(&self) -> Option<HeldWrite> {
        lock(&self.held_writes).try_recv().ok()
    }

    /// Simulates an API server that is down: closes every connection and rejects new ones.
    pub fn cut(&self) {
        self.shared.open.send_replace(false);
    }

    /// Ends [`Proxy::cut`].
    pub fn restore(&self) {
        self.shared.open.send_replace(true);
    }

    /// Returns all writes so far.
    pub fn writes(&self) -> Vec<RecordedWrite> {
        lock(&self.shared.record).writes()
    }

    /// Returns the writes since a time, without those to Leases, which a running operator renews.
    pub fn writes_since(&self, time: Instant) -> Vec<RecordedWrite> {
        record::since(self.writes(), time, is_lease)
    }

    /// Returns the number of creates and deletes through this proxy, per object.
    pub fn object_counts(&self) -> BTreeMap<String, ObjectCounts> {
        object_counts(&self.writes())
    }

    /// Returns the number of requests, reads included, by verb (`WATCH` is one) and [`pattern`].
    pub fn requests(&self) -> BTreeMap<(String, String), usize> {
        lock(&self.shared.record).requests()
    }

    /// Returns the names of the objects of a resource (`pods`) that were read one by one since a time.
    pub fn read_since(&self, resource: &str, time: Instant) -> BTreeSet<String> {
        lock(&self.shared.record).read_since(resource, time)
    }

    /// Asserts for some time that only Leases are written.
    pub fn assert_idle(&self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            let writes = self.writes_since(began);
            assert!(
                writes.is_empty(),
                "expected no write for {} s, but after {:.1} s there were:\n{}",
                time.as_secs(),
                began.elapsed().as_secs_f64(),
                format_writes(&writes)
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until only Leases have been written for `idle_time`; panics after `limit`.
    pub fn wait_idle(&self, idle_time: Duration, limit: Duration) {
        let began = Instant::now();
        while record::idle_time(&self.writes(), began, is_lease) < idle_time {
            assert!(
                began.elapsed() < limit,
                "no {} s without a write within {} s:\n{}",
                idle_time.as_secs(),
                limit.as_secs(),
                self.recent_writes()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Formats the last writes, a line each.
    pub(crate) fn recent_writes(&self) -> String {
        let writes = self.writes();
        format_writes(
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

fn format_writes(writes: &[RecordedWrite]) -> String {
    writes
        .iter()
        .map(|written| format!("  {written}\n"))
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
