//! The judgement by itself, and contenders for one lease on a small imitation of its API.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::clock::TestClock;
use crate::fake;

const SECOND: Duration = Duration::from_secs(1);

fn held_by(holder: &str) -> LeaseRecord {
    LeaseRecord {
        holder: Some(holder.into()),
        duration: 15 * SECOND,
    }
}

#[test]
fn a_free_lease_is_taken_and_our_own_is_renewed() {
    let free = LeaseRecord {
        holder: None,
        duration: 15 * SECOND,
    };
    assert_eq!(
        evaluate(&free, 100 * SECOND, 100 * SECOND, "me"),
        LeaseEvaluation::Take
    );
    assert_eq!(
        evaluate(&held_by(""), 100 * SECOND, 100 * SECOND, "me"),
        LeaseEvaluation::Take
    );
    assert_eq!(
        evaluate(&held_by("me"), 100 * SECOND, 900 * SECOND, "me"),
        LeaseEvaluation::Renew
    );
}

#[test]
fn anothers_lease_is_left_alone_until_nothing_was_seen_of_it_for_its_duration() {
    let judge = |now| evaluate(&held_by("other"), 100 * SECOND, now * SECOND, "me");
    assert_eq!(judge(100), LeaseEvaluation::Wait(115 * SECOND));
    assert_eq!(judge(114), LeaseEvaluation::Wait(115 * SECOND));
    assert_eq!(judge(115), LeaseEvaluation::Take);
}

/// One lease, its version, and whether its server answers whom.
#[derive(Default)]
struct Office {
    lease: Mutex<(u64, Option<Value>)>,
    silent: AtomicBool,
    failing: AtomicBool,
    /// The next write is carried out, but its answer never arrives.
    swallow: AtomicBool,
}

impl Office {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn client(self: &Arc<Self>) -> Client {
        let office = self.clone();
        fake::client(move |head, body| {
            let office = office.clone();
            async move {
                if office.silent.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if office.failing.load(Ordering::Relaxed) {
                    return fake::failure(500, "out of order");
                }
                let answer = office.answer(head.method.as_str(), body);
                if head.method != "GET" && office.swallow.swap(false, Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                answer
            }
        })
    }

    fn answer(&self, method: &str, mut body: Value) -> (u16, Value) {
        let mut lease = self.lease.lock().unwrap();
        let version = lease.0.to_string();
        match (method, &lease.1) {
            ("GET", Some(found)) => return (200, found.clone()),
            ("GET" | "PUT", None) => return fake::failure(404, "no such lease"),
            ("POST", Some(_)) => return fake::failure(409, "exists already"),
            ("PUT", Some(_)) if body["metadata"]["resourceVersion"] != json!(version) => {
                return fake::failure(409, "has been modified");
            }
            _ => {}
        }
        lease.0 += 1;
        body["metadata"]["resourceVersion"] = json!(lease.0.to_string());
        lease.1 = Some(body.clone());
        (200, body)
    }

    fn holder(&self) -> Option<String> {
        let lease = self.lease.lock().unwrap();
        lease.1.as_ref()?["spec"]["holderIdentity"]
            .as_str()
            .map(Into::into)
    }

    fn delete(&self) {
        self.lease.lock().unwrap().1 = None;
    }
}

fn candidate(client: Client, identity: &str, clock: &TestClock) -> LeaderElector {
    LeaderElector::new(
        client,
        LeaseSettings::new("evenkeel", "operator", identity),
        clock.shared(),
    )
}

/// A leader, and a second candidate that waits, each with its own connection to the office.
struct Contest {
    clock: TestClock,
    office: Arc<Office>,
    first: Leadership,
    second: Leadership,
}

impl Contest {
    async fn begin() -> Self {
        let (clock, office) = (TestClock::default(), Office::new());
        let first = candidate(office.client(), "first", &clock).acquire().await;
        let waiting = candidate(office.client(), "second", &clock);
        let second = waiting.leadership();
        tokio::spawn(waiting.acquire());
        clock.run_for(Duration::from_secs(2)).await;
        assert!(first.is_leader() && !second.is_leader());
        Self {
            clock,
            office,
            first,
            second,
        }
    }

    /// Time passes; never do both hold, not even by a tenth of a second.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.clock.run_for(Duration::from_millis(100)).await;
            assert!(
                !(self.first.is_leader() && self.second.is_leader()),
                "two leaders"
            );
        }
    }
}

#[tokio::test]
async fn one_leads_for_as_long_as_it_renews_and_the_other_waits() {
    let contest = Contest::begin().await;
    contest.pass(300).await;
    assert!(contest.first.is_leader() && !contest.second.is_leader());
    assert_eq!(contest.office.holder().as_deref(), Some("first"));
    let lease = contest.office.lease.lock().unwrap().1.clone().unwrap();
    assert_eq!(
        lease["spec"]["leaseTransitions"], 1,
        "renewals are no transitions"
    );
}

#[tokio::test]
async fn a_released_lease_is_taken_at_once() {
    let contest = Contest::begin().await;
    contest.first.release().await;
    assert!(!contest.first.is_leader() && contest.first.lost().now_or_never().is_some());
    assert_eq!(contest.office.holder(), None);
    contest.pass(2).await;
    assert!(contest.second.is_leader());
    contest.pass(60).await;
    assert!(!contest.first.is_leader(), "what is over stays over");
}

#[tokio::test]
async fn who_cannot_renew_stops_before_the_other_may_begin() {
    let (clock, office) = (TestClock::default(), Office::new());
    // The first reaches the lease only through `cut`, which stops answering while the lease itself stays reachable.
    let cut = Arc::new(AtomicBool::new(false));
    let client = {
        let (office, cut) = (office.clone(), cut.clone());
        fake::client(move |head, body| {
            let (office, cut) = (office.clone(), cut.clone());
            async move {
                if cut.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                office.answer(head.method.as_str(), body)
            }
        })
    };
    let first = candidate(client, "first", &clock).acquire().await;
    let waiting = candidate(office.client(), "second", &clock);
    let second = waiting.leadership();
    tokio::spawn(waiting.acquire());
    let contest = Contest {
        clock,
        office,
        first,
        second,
    };
    contest.pass(20).await;
    cut.store(true, Ordering::Relaxed);
    contest.pass(6).await;
    assert!(contest.first.is_leader(), "one renewal missed is no loss");
    contest.pass(7).await;
    assert!(!contest.first.is_leader() && contest.first.lost().now_or_never().is_some());
    contest.pass(10).await;
    assert!(contest.second.is_leader());
    // Back again, it does not disturb.
    cut.store(false, Ordering::Relaxed);
    contest.pass(60).await;
    assert!(contest.second.is_leader() && !contest.first.is_leader());
}

#[tokio::test]
async fn a_frozen_leader_knows_on_waking_before_any_task_has_run() {
    let contest = Contest::begin().await;
    contest.clock.advance(Duration::from_secs(13));
    assert!(!contest.first.is_leader());
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_our_own_and_no_reason_to_stop() {
    let contest = Contest::begin().await;
    contest.office.swallow.store(true, Ordering::Relaxed);
    contest.pass(60).await;
    assert!(contest.first.is_leader() && contest.first.lost().now_or_never().is_none());
}

#[tokio::test]
async fn a_short_outage_for_all_changes_nothing() {
    for how in ["silent", "failing"] {
        let contest = Contest::begin().await;
        let fault = if how == "silent" {
            &contest.office.silent
        } else {
            &contest.office.failing
        };
        contest.pass(6).await;
        fault.store(true, Ordering::Relaxed);
        contest.pass(5).await;
        fault.store(false, Ordering::Relaxed);
        contest.pass(60).await;
        // A request that never ends is given up after 5 s, and the next one finds the server back.
        assert!(
            contest.first.is_leader() && !contest.second.is_leader(),
            "{how}"
        );
    }
}

#[tokio::test]
async fn a_lease_deleted_under_its_holder_is_not_free_for_those_who_saw_it_held() {
    let contest = Contest::begin().await;
    contest.office.delete();
    contest.pass(30).await;
    assert!(contest.first.is_leader() && !contest.second.is_leader());
    assert_eq!(
        contest.office.holder().as_deref(),
        Some("first"),
        "its holder wrote it anew"
    );
}

#[tokio::test]
async fn of_many_candidates_for_a_new_lease_exactly_one_gets_it() {
    let (clock, office) = (TestClock::default(), Office::new());
    let all: Vec<_> = (0..5)
        .map(|n| candidate(office.client(), &format!("c{n}"), &clock))
        .collect();
    let leaderships: Vec<_> = all.iter().map(LeaderElector::leadership).collect();
    for one in all {
        tokio::spawn(one.acquire());
    }
    for _ in 0..30 {
        clock.run_for(Duration::from_secs(1)).await;
        assert_eq!(leaderships.iter().filter(|one| one.is_leader()).count(), 1);
    }
}

#[tokio::test]
async fn an_undisputed_leadership_holds() {
    let clock = TestClock::default();
    let leadership = Leadership::always(clock.shared());
    clock.advance(Duration::from_secs(1_000_000));
    assert!(leadership.is_leader());
    leadership.release().await;
    assert!(!leadership.is_leader());
}
