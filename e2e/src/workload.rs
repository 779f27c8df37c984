//! Clients that work on a cluster during a story, and the check of their history at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_history::{
    ClientKind, History, RunTime, Workload, WorkloadConfig, WorkloadStats, WorkloadTarget,
    check_and_prove,
};
use evenkeel_lab::patience::Patience;

/// How long a workload waits for its first answer: the address of a new Service takes a moment to work.
const FIRST_ANSWER: Duration = crate::WAIT_LIMIT;

/// The interval at which the endpoints are updated; a new pod takes longer than that.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// The limit for the last read, and for the watch to catch up with it.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// How many writes a history needs so that a forged value could hide in it, and how long to wait for them.
const MIN_WRITES: usize = 100;
const MIN_WRITES_LIMIT: Duration = Duration::from_secs(20);

/// Clients whose history is checked at the end. On drop they stop unchecked.
pub struct CheckedWorkload {
    name: String,
    workload: Arc<Workload>,
    ended: Arc<AtomicBool>,
    follower: Option<JoinHandle<()>>,
    patience: Patience,
}

impl CheckedWorkload {
    /// Starts clients. `members` returns the current endpoints, or `None` while they are unknown. All time limits are multiplied by
    /// `patience`.
    pub fn start(
        name: &str,
        config: WorkloadConfig,
        target: WorkloadTarget,
        patience: Patience,
        members: impl Fn() -> Option<Vec<String>> + Send + 'static,
    ) -> Self {
        let mut known = target.members.clone();
        let workload = Workload::start(config, target, patience.times(FIRST_ANSWER));
        let workload = Arc::new(workload.unwrap_or_else(|error| panic!("{name}: {error}")));
        let ended = Arc::new(AtomicBool::new(false));
        let follower = {
            let (workload, ended) = (Arc::clone(&workload), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    // If no member has an address, the previous endpoints are a better guess than none.
                    if let Some(now) = members().filter(|now| !now.is_empty() && *now != known) {
                        workload.set_members(now.clone());
                        known = now;
                    }
                    std::thread::park_timeout(FOLLOW_INTERVAL);
                }
            }
        };
        let follower = std::thread::Builder::new()
            .name("follower".into())
            .spawn(follower);
        Self {
            name: name.to_owned(),
            workload,
            ended,
            follower: Some(follower.expect("the thread starts")),
            patience,
        }
    }

    /// Returns the time on the clients' clock, for [statistics](Self::stats) since then.
    pub fn now(&self) -> RunTime {
        self.workload.now()
    }

    /// Returns statistics from a time until now.
    pub fn stats(&self, since: RunTime) -> WorkloadStats {
        self.workload.stats(since)
    }

    /// Stops the clients and prints statistics. Panics unless the history is linearizable, no value is lost or invented, and the
    /// checkers detect the values that are forged into it as a test.
    pub fn finish(mut self) -> History {
        // The checkers need a minimum of writes; on a busy machine clients may hardly have begun.
        let began = Instant::now();
        while self.stats(RunTime::default()).acknowledged_writes < MIN_WRITES
            && began.elapsed() < self.patience.times(MIN_WRITES_LIMIT)
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.stop_follower();
        let (name, end) = (
            std::mem::take(&mut self.name),
            self.patience.times(FINISH_LIMIT),
        );
        let workload = Arc::clone(&self.workload);
        drop(self);
        let workload = Arc::into_inner(workload).expect("the follower has exited");
        let history = workload
            .finish(end)
            .unwrap_or_else(|unfinished| panic!("{name}: {unfinished}"));
        println!("{}", format_stats(&name, &history.stats(..)));
        match check_and_prove(&history) {
            Ok(proof) => println!("{name}: {proof}"),
            Err(error) => panic!("{name}: {error}"),
        }
        history
    }

    fn stop_follower(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(follower) = self.follower.take() {
            follower.thread().unpark();
            // It does not panic; if it did, only the endpoints were not updated.
            let _ = follower.join();
        }
    }
}

impl Drop for CheckedWorkload {
    fn drop(&mut self) {
        self.stop_follower();
    }
}

/// Formats statistics in one line.
pub fn format_stats(name: &str, stats: &WorkloadStats) -> String {
    let gap = |kind| {
        stats
            .longest_write_gap_by_kind
            .get(&kind)
            .map_or(0, Duration::as_millis)
    };
    format!(
        "{name}: {} operations, {:.0} a second; longest gap between a client's writes: {} ms knowing all members, \
         {} ms through the Service",
        stats.operations,
        stats.operations_per_second(),
        gap(ClientKind::AllMembers),
        gap(ClientKind::Service),
    )
}
