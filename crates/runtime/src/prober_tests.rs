//! A prober, and applications that answer as they are told to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};

use super::*;
use crate::clock::TestClock;
use crate::random::TestRandom;

type Key = &'static str;

/// The applications: what they say, and whether they say anything.
#[derive(Default)]
struct Fleet {
    verdict: Mutex<u32>,
    silent: AtomicBool,
    out_of_reach: AtomicBool,
    asked: AtomicUsize,
    asking: AtomicUsize,
    most: AtomicUsize,
    leading: AtomicBool,
}

impl Fleet {
    fn says(&self, verdict: u32) {
        *self.verdict.lock().unwrap() = verdict;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The verdict on those who do not answer.
const SILENCE: u32 = 0;

fn prober(clock: &TestClock) -> (Arc<Fleet>, Prober<Key, u32>) {
    let fleet = Arc::new(Fleet {
        verdict: Mutex::new(1),
        leading: AtomicBool::new(true),
        ..Fleet::default()
    });
    let (answers, leads, ticks) = (fleet.clone(), fleet.clone(), clock.clone());
    let prober = Prober::new(ProberParts {
        kind: "EtcdCluster".into(),
        probe: Box::new(move |_| {
            let (fleet, clock) = (answers.clone(), ticks.shared());
            async move {
                fleet.asked.fetch_add(1, Ordering::Relaxed);
                let at_once = fleet.asking.fetch_add(1, Ordering::Relaxed) + 1;
                fleet.most.fetch_max(at_once, Ordering::Relaxed);
                // Decided when asked, said a little later.
                let verdict = *fleet.verdict.lock().unwrap();
                let answers_in = if fleet.silent.load(Ordering::Relaxed) {
                    3600
                } else {
                    0
                };
                clock
                    .sleep(Duration::from_secs(answers_in) + Duration::from_millis(50))
                    .await;
                fleet.asking.fetch_sub(1, Ordering::Relaxed);
                (!fleet.out_of_reach.load(Ordering::Relaxed)).then_some(verdict)
            }
            .boxed()
        }),
        timeout_result: SILENCE,
        enabled: Box::new(move || leads.leading.load(Ordering::Relaxed)),
        intervals: ProbeIntervals::default(),
        clock: clock.shared(),
        random: TestRandom::shared(1),
        metrics: Metrics::new(),
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
async fn a_verdict_is_told_once_when_it_changes() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    let mut changes = prober.changes();
    assert_eq!(prober.last(&"a"), None);
    prober.watch(&"a");
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    assert_eq!(drain(&mut changes), ["a"]);
    assert_eq!(fleet.asked(), 1);
    clock.run_for(seconds(60)).await;
    assert!(drain(&mut changes).is_empty(), "nothing new");
    assert!(
        (5..=7).contains(&(fleet.asked() - 1)),
        "{} in a minute",
        fleet.asked() - 1
    );
    fleet.says(2);
    clock.run_for(seconds(12)).await;
    assert_eq!(drain(&mut changes), ["a"]);
    let (verdict, age) = prober.last(&"a").unwrap();
    assert!(verdict == 2 && age <= seconds(12));
}

#[tokio::test]
async fn while_a_change_is_expected_it_is_asked_often_until_settled_or_two_minutes_have_passed() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    prober.expect_change(&"a");
    let before = fleet.asked();
    clock.run_for(seconds(3)).await;
    assert!(fleet.asked() - before >= 8, "{}", fleet.asked() - before);
    prober.settled(&"a");
    let before = fleet.asked();
    clock.run_for(seconds(30)).await;
    assert!(fleet.asked() - before <= 5, "{}", fleet.asked() - before);
    // That it is expected is said at every look; that does not prolong it.
    for _ in 0..25 {
        prober.expect_change(&"a");
        clock.run_for(seconds(5)).await;
    }
    let before = fleet.asked();
    prober.expect_change(&"a");
    clock.run_for(seconds(30)).await;
    assert!(fleet.asked() - before <= 4, "{}", fleet.asked() - before);
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_silent() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    fleet.silent.store(true, Ordering::Relaxed);
    prober.watch(&"a");
    clock.run_for(seconds(4)).await;
    assert_eq!(prober.last(&"a"), None);
    clock.run_for(seconds(2)).await;
    assert_eq!(prober.last(&"a").unwrap().0, SILENCE);
    assert!(
        prober
            .inner
            .parts
            .metrics
            .encode()
            .contains(r#"outcome="silent"} 1"#)
    );
}

#[tokio::test]
async fn a_change_that_comes_makes_the_next_one_expected_for_as_long_again() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    prober.expect_change(&"a");
    clock.run_for(seconds(115)).await;
    fleet.says(2);
    clock.run_for(seconds(60)).await;
    let before = fleet.asked();
    clock.run_for(seconds(3)).await;
    assert!(fleet.asked() - before >= 8, "{}", fleet.asked() - before);
}

#[tokio::test]
async fn who_could_not_be_asked_is_not_silent() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    prober.watch(&"a");
    clock.run_for(seconds(1)).await;
    fleet.out_of_reach.store(true, Ordering::Relaxed);
    fleet.says(2);
    clock.run_for(seconds(60)).await;
    assert_eq!(
        prober.last(&"a").unwrap().0,
        1,
        "what was heard last stands"
    );
}

#[tokio::test]
async fn nobody_is_asked_without_the_lease() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    fleet.leading.store(false, Ordering::Relaxed);
    prober.watch(&"a");
    clock.run_for(seconds(60)).await;
    assert_eq!(fleet.asked(), 0);
    fleet.leading.store(true, Ordering::Relaxed);
    clock.run_for(seconds(2)).await;
    assert_eq!(fleet.asked(), 1);
}

#[tokio::test]
async fn what_was_learnt_otherwise_counts_and_an_older_answer_does_not_undo_it() {
    let clock = TestClock::default();
    let (_fleet, prober) = prober(&clock);
    let mut changes = prober.changes();
    prober.record(&"a", 5);
    assert_eq!(prober.last(&"a"), None, "nobody watches it");
    prober.watch(&"a");
    clock.run_for(Duration::from_millis(10)).await;
    // The question is on its way: its answer is 1.
    prober.record(&"a", 5);
    assert_eq!(drain(&mut changes), ["a"]);
    clock.run_for(seconds(1)).await;
    assert_eq!(prober.last(&"a").unwrap().0, 5);
    clock.run_for(seconds(12)).await;
    assert_eq!(prober.last(&"a").unwrap().0, 1, "a newer one does");
}

#[tokio::test]
async fn who_is_forgotten_is_asked_no_more_and_so_are_all_when_the_prober_is_gone() {
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
    assert_eq!(fleet.asked(), 3);
    drop(prober);
    clock.run_for(seconds(60)).await;
    assert_eq!(fleet.asked(), 3);
}

#[tokio::test]
async fn no_more_than_sixteen_are_asked_at_a_time() {
    let clock = TestClock::default();
    let (fleet, prober) = prober(&clock);
    for n in 0..40 {
        prober.watch(&&*String::leak(format!("key-{n}")));
    }
    clock.run_for(seconds(1)).await;
    assert_eq!(
        (fleet.asked(), fleet.most.load(Ordering::Relaxed)),
        (40, 16)
    );
}
