//! The total order of writes, from a watch that starts with the workload. After a disconnect the watch resumes at the
//! revision after the last one, so there is no gap and no repetition.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::time::{sleep, timeout};

use crate::history::{ClientKind, Key, Value, WatchedWrite};
use crate::target::{ConnectionPurpose, connect};
use crate::workload::WorkloadState;

/// After this time without a message the watch moves to another member, because this one may be partitioned.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The writes that the watch has reported so far.
#[derive(Debug, Default)]
pub(crate) struct WatchLog {
    pub(crate) writes: Vec<WatchedWrite>,
    pub(crate) last_revision: i64,
    /// The error that ended the watch for good.
    pub(crate) error: Option<String>,
}

/// A watch that runs in the background.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    log: Arc<Mutex<WatchLog>>,
}

impl Watcher {
    /// Starts the watch after this revision. It runs on the current runtime until that ends.
    pub(crate) fn start(shared: Arc<WorkloadState>, after: i64) -> Self {
        let observed = Arc::new(Mutex::new(WatchLog {
            last_revision: after,
            ..WatchLog::default()
        }));
        let watcher = Self { log: observed };
        let task = watcher.clone();
        tokio::spawn(async move { task.run(&shared).await });
        watcher
    }

    /// Waits until the watch has reached a revision.
    pub(crate) async fn wait_for_revision(
        &self,
        revision: i64,
        time_limit: Duration,
    ) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + time_limit;
        loop {
            let (last, broken) =
                self.with(|observed| (observed.last_revision, observed.error.clone()));
            if last >= revision {
                return Ok(());
            }
            if let Some(why) = broken {
                return Err(why);
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(format!(
                    "the watch is at revision {last} and does not reach {revision}"
                ));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Takes the reported writes.
    pub(crate) fn take_writes(&self) -> Vec<WatchedWrite> {
        self.with(|observed| std::mem::take(&mut observed.writes))
    }

    fn with<T>(&self, f: impl FnOnce(&mut WatchLog) -> T) -> T {
        f(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn run(&self, shared: &WorkloadState) {
        for turn in 0.. {
            if self.with(|observed| observed.error.is_some()) {
                return;
            }
            if let Some(endpoint) = shared.endpoint(ClientKind::AllMembers, turn) {
                self.follow(shared, &endpoint).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Watches one member until its stream ends or is idle for too long.
    async fn follow(&self, shared: &WorkloadState, endpoint: &str) {
        let from = self.with(|observed| observed.last_revision) + 1;
        let open = async {
            let client = connect(
                endpoint,
                shared.tls(),
                shared.config.timeout,
                ConnectionPurpose::Watch,
            )
            .await?;
            let options = WatchOptions::new().with_prefix().with_start_revision(from);
            client
                .watch_client()
                .watch(shared.config.prefix.clone(), Some(options))
                .await
        };
        let Ok(Ok(mut stream)) = timeout(IDLE_TIMEOUT, open).await else {
            return;
        };
        while self.next(shared, &mut stream).await.is_some() {}
    }

    async fn next(&self, shared: &WorkloadState, stream: &mut WatchStream) -> Option<()> {
        let response = timeout(IDLE_TIMEOUT, stream.message()).await.ok()?.ok()??;
        if response.compact_revision() > 0 {
            let compacted = response.compact_revision();
            let last = self.with(|observed| observed.last_revision);
            let why = format!(
                "the watch was at revision {last}, but all revisions up to {compacted} were compacted"
            );
            self.with(|observed| observed.error = Some(why));
        }
        if response.canceled() {
            return None;
        }
        self.with(|observed| {
            observed.record(
                &response,
                &shared.config.prefix,
                shared.config.max_operations,
            )
        });
        Some(())
    }
}

impl WatchLog {
    fn record(&mut self, response: &WatchResponse, prefix: &str, most: usize) {
        // All events of a revision arrive in one response.
        let known = self.last_revision;
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            let revision = kv.mod_revision();
            if revision <= known {
                continue;
            }
            let key = Key::parse(kv.key().get(prefix.len()..).unwrap_or_default());
            let value = (event.event_type() == EventType::Put).then(|| Value::parse(kv.value()));
            self.writes.push(WatchedWrite {
                revision,
                key,
                value,
                version: kv.version(),
            });
            self.last_revision = self.last_revision.max(revision);
        }
        if self.writes.len() > 2 * most {
            self.error = Some(format!(
                "there are more than {} writes; another client uses the workload's prefix",
                2 * most
            ));
        }
    }
}
