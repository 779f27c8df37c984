//! The order of all writes, from a watch that begins where the workload begins. It comes back by itself after a
//! disconnect, at the revision after the last one seen, so that there is neither a gap nor a repetition.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::time::{sleep, timeout};

use crate::history::{Key, Kind, Value, Write};
use crate::target::{For, connect};
use crate::workload::Shared;

/// After so long a silence another member is asked: this one may be cut off and not know it.
const SILENCE: Duration = Duration::from_secs(5);

/// What the watch has shown so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) log: Vec<Write>,
    pub(crate) last: i64,
    /// Why there will be no more.
    pub(crate) broken: Option<String>,
}

/// A watch that runs in the background.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    seen: Arc<Mutex<Seen>>,
}

impl Watcher {
    /// Begins after this revision; runs on the current runtime until that ends.
    pub(crate) fn start(shared: Arc<Shared>, after: i64) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            last: after,
            ..Seen::default()
        }));
        let watcher = Self { seen };
        let task = watcher.clone();
        tokio::spawn(async move { task.run(&shared).await });
        watcher
    }

    /// Waits until the watch has come to a revision; says why when it does not.
    pub(crate) async fn reach(&self, revision: i64, patience: Duration) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let (last, broken) = self.with(|seen| (seen.last, seen.broken.clone()));
            if last >= revision {
                return Ok(());
            }
            if let Some(why) = broken {
                return Err(why);
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(format!(
                    "the watch is at revision {last} and does not come to {revision}"
                ));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Takes what was seen.
    pub(crate) fn take(&self) -> Vec<Write> {
        self.with(|seen| std::mem::take(&mut seen.log))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        f(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn run(&self, shared: &Shared) {
        for turn in 0.. {
            if self.with(|seen| seen.broken.is_some()) {
                return;
            }
            if let Some(endpoint) = shared.endpoint(Kind::Everywhere, turn) {
                self.follow(shared, &endpoint).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads from one member for as long as it tells something.
    async fn follow(&self, shared: &Shared, endpoint: &str) {
        let from = self.with(|seen| seen.last) + 1;
        let open = async {
            let client = connect(endpoint, shared.tls(), shared.config.timeout, For::Watch).await?;
            let options = WatchOptions::new().with_prefix().with_start_revision(from);
            client
                .watch_client()
                .watch(shared.config.prefix.clone(), Some(options))
                .await
        };
        let Ok(Ok(mut stream)) = timeout(SILENCE, open).await else {
            return;
        };
        while self.next(shared, &mut stream).await.is_some() {}
    }

    async fn next(&self, shared: &Shared, stream: &mut WatchStream) -> Option<()> {
        let response = timeout(SILENCE, stream.message()).await.ok()?.ok()??;
        if response.compact_revision() > 0 {
            let compacted = response.compact_revision();
            let last = self.with(|seen| seen.last);
            let why = format!(
                "the watch was at revision {last}, but all up to {compacted} was compacted away"
            );
            self.with(|seen| seen.broken = Some(why));
        }
        if response.canceled() {
            return None;
        }
        self.with(|seen| seen.take_in(&response, &shared.config.prefix, shared.config.most_ops));
        Some(())
    }
}

impl Seen {
    fn take_in(&mut self, response: &WatchResponse, prefix: &str, most: usize) {
        // All events of a revision come in one response.
        let known = self.last;
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            let revision = kv.mod_revision();
            if revision <= known {
                continue;
            }
            let key = Key::parse(kv.key().get(prefix.len()..).unwrap_or_default());
            let value = (event.event_type() == EventType::Put).then(|| Value::parse(kv.value()));
            self.log.push(Write {
                revision,
                key,
                value,
                version: kv.version(),
            });
            self.last = self.last.max(revision);
        }
        if self.log.len() > 2 * most {
            self.broken = Some(format!(
                "there are more than {} writes; somebody else writes here",
                2 * most
            ));
        }
    }
}
