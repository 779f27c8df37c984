//! Clients at work on a cluster while a story breaks it, and the proof at the end that etcd kept its promises to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_history::{
    ClientKind, History, RunTime, Workload, WorkloadConfig, WorkloadStats, WorkloadTarget,
    check_and_prove,
};
use evenkeel_lab::patience::Patience;

/// How long a workload waits for its first answer: the address of a Service takes a moment to lead to the pods.
const FIRST_ANSWER: Duration = crate::PATIENCE;

/// How often it looks for other members: pods take longer than that to come.
const LOOK: Duration = Duration::from_secs(1);

/// How long the last read may take, and the watch to catch up with it.
const END: Duration = Duration::from_secs(60);

/// How many writes make a history in which something can be hidden, and how long they are waited for.
const ENOUGH: usize = 100;
const AT_MOST: Duration = Duration::from_secs(20);

/// Clients at work, whose history is checked at the end. Dropped, they stop unchecked.
pub struct Watched {
    name: String,
    workload: Arc<Workload>,
    ended: Arc<AtomicBool>,
    follower: Option<JoinHandle<()>>,
    patience: Patience,
}

impl Watched {
    /// Sets clients to work. `members` tells where the members are now, or nothing while that cannot be known. All time
    /// limits are multiplied by `patience`.
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
                    // When no member has an address, the ones that were are a better guess than none.
                    if let Some(now) = members().filter(|now| !now.is_empty() && *now != known) {
                        workload.set_members(now.clone());
                        known = now;
                    }
                    std::thread::park_timeout(LOOK);
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
            follower: Some(follower.expect("a thread")),
            patience,
        }
    }

    /// The time on the clients' clock, to ask for [figures](Self::stats) of what comes after.
    pub fn now(&self) -> RunTime {
        self.workload.now()
    }

    /// Figures from a time until now.
    pub fn stats(&self, since: RunTime) -> WorkloadStats {
        self.workload.stats(since)
    }

    /// Stops the clients and fails the story unless their history is linearizable, with nothing lost and nothing
    /// invented, and the checkers have seen what was forged into it. Prints what the clients achieved.
    pub fn finish(mut self) -> History {
        // Into a history of nothing much nothing can be forged: on a busy machine clients may hardly have begun.
        let began = Instant::now();
        while self.stats(RunTime::default()).acknowledged_writes < ENOUGH
            && began.elapsed() < self.patience.times(AT_MOST)
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.leave();
        let (name, end) = (std::mem::take(&mut self.name), self.patience.times(END));
        let workload = Arc::clone(&self.workload);
        drop(self);
        let workload = Arc::into_inner(workload).expect("the follower has ended");
        let history = workload
            .finish(end)
            .unwrap_or_else(|unfinished| panic!("{name}: {unfinished}"));
        println!("{}", told(&name, &history.stats(..)));
        match check_and_prove(&history) {
            Ok(proof) => println!("{name}: {proof}"),
            Err(error) => panic!("{name}: {error}"),
        }
        history
    }

    fn leave(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(follower) = self.follower.take() {
            follower.thread().unpark();
            // It does not panic, and if it did the clients were merely not led on.
            let _ = follower.join();
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What clients achieved, in a line.
pub fn told(name: &str, stats: &WorkloadStats) -> String {
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
