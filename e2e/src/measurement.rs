//! Helpers of the measurements of `make bench`: waiting for a healthy cluster, clients with a high rate, times measured to about
//! 20 ms, and the format of figures.

use std::time::{Duration, Instant};

use evenkeel_history::WorkloadConfig;
use evenkeel_lab::command::Cmd;

use crate::Story;
use crate::etcd::Cluster;

/// The limit for every wait of a measurement.
pub const MEASUREMENT_LIMIT: Duration = Duration::from_secs(240);

/// The poll interval for a measured event. A poll takes some milliseconds and must not be most of the load.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether the operator reports Healthy and all pods are Ready.
pub fn is_healthy(cluster: &Cluster<'_>, members: usize) -> bool {
    let (status, pods) = (cluster.status(), cluster.pods());
    status["summary"] == "Healthy"
        && status["ready"] == format!("{members}/{members}")
        && pods.len() == members
        && pods.iter().all(|pod| pod.ready)
}

/// Waits until nothing has happened for five seconds, so that the next measurement is undisturbed.
pub fn wait_settled(story: &Story, cluster: &Cluster<'_>, members: usize) {
    let mut since = None;
    story.within(
        MEASUREMENT_LIMIT,
        "the cluster has been healthy for five seconds",
        || {
            since = if is_healthy(cluster, members) {
                since.or_else(|| Some(Instant::now()))
            } else {
                None
            };
            since.is_some_and(|since: Instant| since.elapsed() > Duration::from_secs(5))
        },
    );
}

/// Waits until a condition holds, and returns that time.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Instant {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < MEASUREMENT_LIMIT,
            "not within {} s: {what}",
            MEASUREMENT_LIMIT.as_secs()
        );
        std::thread::sleep(POLL_INTERVAL);
    }
    Instant::now()
}

/// Returns the configuration of clients that write so often that they measure the gaps of the cluster, and that time out early:
/// etcd drops a write that a follower forwards during a leader transfer, and its client waits until its timeout (seen: 1.1 s
/// with a timeout of 1 s, otherwise 0.1 s).
pub fn high_rate() -> WorkloadConfig {
    WorkloadConfig {
        pinned_clients: 0,
        operations_per_second: 400.0,
        timeout: CLIENT_TIMEOUT,
        ..WorkloadConfig::default()
    }
}

/// The timeout of such a client's requests.
pub const CLIENT_TIMEOUT: Duration = Duration::from_millis(200);

/// Returns a percentile of sorted times: the smallest time that at least this percentage does not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    *sorted.get(rank - 1).expect("something was measured")
}

/// Returns the median of times in any order.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    percentile(&sorted, 50)
}

/// Formats the median and the maximum.
pub fn median_and_worst(times: &[Duration]) -> String {
    let worst = times.iter().max().copied().unwrap_or_default();
    format!("{} (worst {})", seconds(median(times)), seconds(worst))
}

/// Formats a time in seconds with two decimals.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Formats all times in milliseconds, to show their spread.
pub fn milliseconds(times: &[Duration]) -> String {
    times
        .iter()
        .map(|time| time.as_millis().to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the number in an environment variable, or a default.
pub fn number(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok().filter(|text| !text.is_empty());
    let read = |text: String| {
        text.parse::<usize>()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number"))
    };
    given.map_or(default, read)
}

/// Returns the date in UTC.
pub fn today() -> String {
    Cmd::new("date")
        .args(["-u", "+%F"])
        .run()
        .expect("`date` runs")
        .trim()
        .to_owned()
}

/// Describes the machine: cores, processor, memory.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let field_of = |file: &str, field: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let memory = field_of("/proc/meminfo", "MemTotal");
    let memory = memory
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0);
    format!(
        "{cores} cores ({}) with {} GiB",
        field_of("/proc/cpuinfo", "model name"),
        memory >> 20
    )
}
