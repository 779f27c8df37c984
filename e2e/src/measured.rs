//! What the measurements of `make bench` share: when a cluster is at rest, clients that hardly pause, moments told to a few
//! hundredths of a second, and how figures are written down.

use std::time::{Duration, Instant};

use evenkeel_history::WorkloadConfig;
use evenkeel_lab::command::Cmd;

use crate::Story;
use crate::etcd::Cluster;

/// How long anything may take before the measuring ends.
pub const LIMIT: Duration = Duration::from_secs(240);

/// How often is looked when a moment is measured: a look takes some milliseconds, and must not be most of the load.
const LOOK: Duration = Duration::from_millis(20);

/// Whether the operator says that all is well, and Kubernetes that all pods are Ready.
pub fn is_whole(cluster: &Cluster<'_>, members: usize) -> bool {
    let (status, pods) = (cluster.status(), cluster.pods());
    status["summary"] == "Healthy"
        && status["ready"] == format!("{members}/{members}")
        && pods.len() == members
        && pods.iter().all(|pod| pod.ready)
}

/// A while in which nothing happens: what comes next is measured by itself.
pub fn settle(story: &Story, cluster: &Cluster<'_>, members: usize) {
    let mut since = None;
    story.within(LIMIT, "it has been whole for five seconds", || {
        since = if is_whole(cluster, members) {
            since.or_else(|| Some(Instant::now()))
        } else {
            None
        };
        since.is_some_and(|since: Instant| since.elapsed() > Duration::from_secs(5))
    });
}

/// When it came to be so, from now on.
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> Instant {
    let began = Instant::now();
    while !so() {
        assert!(
            began.elapsed() < LIMIT,
            "waited {} s in vain until {what}",
            LIMIT.as_secs()
        );
        std::thread::sleep(LOOK);
    }
    Instant::now()
}

/// Clients that write so often that what is measured is the cluster's silence and not their own, and that do not wait long: a
/// write that a follower passes on in the very moment in which the lead is handed over is dropped by etcd without a word, and
/// whoever sent it waits for as long as it has patience (seen: 1.1 s with a patience of 1 s, else 0.1 s).
pub fn eager() -> WorkloadConfig {
    WorkloadConfig {
        pinned_clients: 0,
        operations_per_second: 400.0,
        timeout: PATIENCE,
        ..WorkloadConfig::default()
    }
}

/// For how long such a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// So many of a hundred took no longer, of times that are sorted: the smallest time for which that is true.
pub fn percentile(sorted: &[Duration], of_a_hundred: usize) -> Duration {
    let rank = (sorted.len() * of_a_hundred).div_ceil(100).max(1);
    *sorted.get(rank - 1).expect("something was measured")
}

/// The one in the middle, of times in any order.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    percentile(&sorted, 50)
}

/// The one in the middle, and the longest.
pub fn median_and_worst(times: &[Duration]) -> String {
    let worst = times.iter().max().copied().unwrap_or_default();
    format!("{} (worst {})", seconds(median(times)), seconds(worst))
}

/// To a hundredth of a second.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// All of them in milliseconds, for whoever wants to know how far they are apart.
pub fn milliseconds(times: &[Duration]) -> String {
    times
        .iter()
        .map(|time| time.as_millis().to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A number that a variable gives, or else this one.
pub fn number(variable: &str, otherwise: usize) -> usize {
    let given = std::env::var(variable).ok().filter(|text| !text.is_empty());
    let read = |text: String| {
        text.parse::<usize>()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    };
    given.map_or(otherwise, read)
}

/// The date.
pub fn today() -> String {
    Cmd::new("date")
        .args(["-u", "+%F"])
        .run()
        .expect("there is a date")
        .trim()
        .to_owned()
}

/// What it was measured on.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let said = |file: &str, field: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let memory = said("/proc/meminfo", "MemTotal");
    let memory = memory
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0);
    format!(
        "{cores} cores ({}) with {} GiB",
        said("/proc/cpuinfo", "model name"),
        memory >> 20
    )
}
