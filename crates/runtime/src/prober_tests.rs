//! A prober, and applications whose answers the test sets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use super::*;
use crate::clock::TestClock;
use crate::random::TestRandom;

type Key = &'static str;

/// The applications and the probes of them.
#[derive(Default)]
struct Fleet {
    result: Mutex<u32>,
    hanging: AtomicBool,
    cannot_be_asked: AtomicBool,
    probes: AtomicUsize,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    leading: AtomicBool,
}

impl Fleet {
    fn set_result(&self, result: u32) {
        *self.result.lock() = result;
    }

    fn probes(&self) -> usize {
        self.probes.load(Ordering::Relaxed)
    }
}

/// The result of a probe that times out.
const TIMEOUT: u32 = 0;

fn prober(clock: &TestClock) -> (Arc<Fleet>, Prober<Key, u32>) {
    let fleet = Arc::new(Fleet {
        result: Mutex::new(1),
        leading: AtomicBool::new(true),
        ..Fleet::default()
    });
    let (answers, leads, ticks) = (fleet.clone(), fleet.clone(), clock.clone());
    let prober = Prober::new(ProberParts {
        kind: "EtcdCluster".into(),
        probe: Box::new(move |_| {
            let (fleet, clock) = (answers.clone(), ticks.shared());
            async move {
                fleet.probes.fetch_add(1, Ordering::Relaxed);
                let in_flight = fleet.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
                fleet.max_in_flight.fetch_max(in_flight, Ordering::Relaxed);
                // The answer is fixed at the request and arrives 50 ms later.
                let result = *fleet.result.lock();
                let delay = if fleet.hanging.load(Ordering::Relaxed) {
                    3600
                } else {
                    0
                };
                clock
                    .sleep(Duration::from_secs(delay) + Duration::from_millis(50))
                    .await;
                fleet.in_flight.fetch_sub(1, Ordering::Relaxed);
                (!fleet.cannot_be_asked.load(Ordering::Relaxed)).then_some(result)
            }
            .boxed()
        }),
        timeout_result: TIMEOUT,
        enabled: Box::new(move || leads.leading.load(Ordering::Relaxed)),
        intervals: ProbeIntervals::default(),
        clock: clock.shared(),
        random: TestRandom::shared(1),
        metrics: Metrics::new("test"),
    });
    (fleet, prober)
}

fn drain(changes: &mut (impl Stream<Item = Key> + Unpin)) -> Vec<Key> {
    std::iter::from_fn(|| changes.next().now_or_never().flatten()).collect()
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_changed_result_is_emitted_once() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    let mut changes = prober.changes();
    assert_eq!(prober.last(&"a"), None);
    prober.watch(&"a");
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    assert_eq!(drain(&mut changes), ["a"]);
    assert_eq!(fleet.probes(), 1);
    clock.run_for(seconds(60)).await;
    assert!(drain(&mut changes).is_empty(), "no change");
    assert!(
        (5..=7).contains(&(fleet.probes() - 1)),
        "{} in a minute",
        fleet.probes() - 1
    );
    fleet.set_result(2);
    clock.run_for(seconds(12)).await;
    assert_eq!(drain(&mut changes), ["a"]);
    assert_eq!(prober.last(&"a").unwrap().result, 2);
}

#[tokio::test]
async fn probes_are_frequent_until_settled_or_for_two_minutes() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    prober.expect_change(&"a");
    let before = fleet.probes();
    clock.run_for(seconds(3)).await;
    assert!(fleet.probes() - before >= 8, "{}", fleet.probes() - before);
    prober.settled(&"a");
    let before = fleet.probes();
    clock.run_for(seconds(30)).await;
    assert!(fleet.probes() - before <= 5, "{}", fleet.probes() - before);
    // Repeated calls do not extend the two minutes.
    for _ in 0..25 {
        prober.expect_change(&"a");
        clock.run_for(seconds(5)).await;
    }
    let before = fleet.probes();
    prober.expect_change(&"a");
    clock.run_for(seconds(30)).await;
    assert!(fleet.probes() - before <= 4, "{}", fleet.probes() - before);
}

#[tokio::test]
async fn a_probe_that_times_out_has_the_timeout_result() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    fleet.hanging.store(true, Ordering::Relaxed);
    prober.watch(&"a");
    clock.run_for(seconds(4)).await;
    assert_eq!(prober.last(&"a"), None);
    clock.run_for(seconds(2)).await;
    assert_eq!(prober.last(&"a").unwrap().result, TIMEOUT);
    assert!(
        prober
            .inner
            .parts
            .metrics
            .encode()
            .contains(r#"outcome="timeout"} 1"#)
    );
}

#[tokio::test]
async fn a_change_extends_the_frequent_probes() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    prober.expect_change(&"a");
    clock.run_for(seconds(115)).await;
    fleet.set_result(2);
    clock.run_for(seconds(60)).await;
    let before = fleet.probes();
    clock.run_for(seconds(3)).await;
    assert!(fleet.probes() - before >= 8, "{}", fleet.probes() - before);
}

#[tokio::test]
async fn a_probe_that_cannot_be_sent_keeps_the_last_result() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    fleet.cannot_be_asked.store(true, Ordering::Relaxed);
    fleet.set_result(2);
    clock.run_for(seconds(60)).await;
    assert_eq!(
        prober.last(&"a").unwrap().result,
        1,
        "the last result stays"
    );
}

#[tokio::test]
async fn no_application_is_probed_without_the_lease() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    fleet.leading.store(false, Ordering::Relaxed);
    prober.watch(&"a");
    clock.run_for(seconds(60)).await;
    assert_eq!(fleet.probes(), 0);
    fleet.leading.store(true, Ordering::Relaxed);
    clock.run_for(seconds(2)).await;
    assert_eq!(fleet.probes(), 1);
}

#[tokio::test]
async fn a_recorded_result_is_not_replaced_by_an_older_probe() {
    let clock = TestClock::default();
    let (_fleet, prober) = prober(&clock);
    let mut changes = prober.changes();
    prober.record(&"a", 5);
    assert_eq!(prober.last(&"a"), None, "not probed");
    prober.watch(&"a");
    clock.run_for(Duration::from_millis(10)).await;
    // A probe is in flight; its answer is 1.
    prober.record(&"a", 5);
    assert_eq!(drain(&mut changes), ["a"]);
    clock.run_for(seconds(1)).await;
    assert_eq!(prober.last(&"a").unwrap().result, 5);
    clock.run_for(seconds(12)).await;
    assert_eq!(prober.last(&"a").unwrap().result, 1, "a newer probe");
}

#[tokio::test]
async fn probes_end_for_a_forgotten_key_and_with_the_prober() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    prober.watch(&"b");
    clock.run_for(seconds(1)).await;
    prober.forget(&"a");
    assert_eq!(prober.last(&"a"), None);
    assert!(prober.last(&"b").is_some());
    drop(prober.clone());
    clock.run_for(seconds(11)).await;
    assert_eq!(fleet.probes(), 3);
    drop(prober);
    clock.run_for(seconds(60)).await;
    assert_eq!(fleet.probes(), 3);
}

#[tokio::test]
async fn at_most_sixteen_probes_are_in_flight() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    for n in 0..40 {
        prober.watch(&&*String::leak(format!("key-{n}")));
    }
    clock.run_for(seconds(1)).await;
    assert_eq!(
        (fleet.probes(), fleet.max_in_flight.load(Ordering::Relaxed)),
        (40, 16)
    );
}
