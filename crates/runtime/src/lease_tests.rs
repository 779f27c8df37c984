//! The evaluation of a lease, and candidates for one lease on a fake API server.

use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use parking_lot::Mutex;
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
fn a_free_lease_is_taken_and_the_own_lease_is_renewed() {
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
fn the_lease_of_another_holder_is_taken_after_its_duration_without_renewal() {
    let evaluate_at = |now| evaluate(&held_by("other"), 100 * SECOND, now * SECOND, "me");
    assert_eq!(evaluate_at(100), LeaseEvaluation::Wait(115 * SECOND));
    assert_eq!(evaluate_at(114), LeaseEvaluation::Wait(115 * SECOND));
    assert_eq!(evaluate_at(115), LeaseEvaluation::Take);
}

/// An API server with one lease.
#[derive(Default)]
struct FakeServer {
    lease: Mutex<StoredLease>,
    hanging: AtomicBool,
    failing: AtomicBool,
    /// The next write is executed, but its response is lost.
    loses_response: AtomicBool,
}

#[derive(Default)]
struct StoredLease {
    version: u64,
    object: Option<Value>,
}

impl FakeServer {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        fake::client(move |head, body| {
            let server = server.clone();
            async move {
                if server.hanging.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if server.failing.load(Ordering::Relaxed) {
                    return fake::failure(500, "internal error");
                }
                let answer = server.answer(head.method.as_str(), body);
                if head.method != "GET" && server.loses_response.swap(false, Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                answer
            }
        })
    }

    fn answer(&self, method: &str, mut body: Value) -> (u16, Value) {
        let mut lease = self.lease.lock();
        let version = lease.version.to_string();
        match (method, &lease.object) {
            ("GET", Some(object)) => return (200, object.clone()),
            ("GET" | "PUT", None) => return fake::failure(404, "no such lease"),
            ("POST", Some(_)) => return fake::failure(409, "exists already"),
            ("PUT", Some(_)) if body["metadata"]["resourceVersion"] != json!(version) => {
                return fake::failure(409, "has been modified");
            }
            _ => {}
        }
        lease.version += 1;
        body["metadata"]["resourceVersion"] = json!(lease.version.to_string());
        lease.object = Some(body.clone());
        (200, body)
    }

    fn holder(&self) -> Option<String> {
        let lease = self.lease.lock();
        lease.object.as_ref()?["spec"]["holderIdentity"]
            .as_str()
            .map(Into::into)
    }

    fn delete(&self) {
        self.lease.lock().object = None;
    }
}

fn candidate(client: Client, identity: &str, clock: &TestClock) -> LeaderElector {
    LeaderElector::new(
        client,
        LeaseSettings::new("evenkeel", "operator", identity),
        clock.shared(),
    )
}

/// A leader and a waiting candidate, each with its own client.
struct Contest {
    clock: TestClock,
    server: Arc<FakeServer>,
    first: Leadership,
    second: Leadership,
}

impl Contest {
    async fn begin() -> Self {
        let (clock, server) = (TestClock::default(), FakeServer::new());
        let first = candidate(server.client(), "first", &clock).acquire().await;
        let waiting = candidate(server.client(), "second", &clock);
        let second = waiting.leadership();
        tokio::spawn(waiting.acquire());
        clock.run_for(Duration::from_secs(2)).await;
        assert!(first.is_leader() && !second.is_leader());
        Self {
            clock,
            server,
            first,
            second,
        }
    }

    /// Advances the clock, and checks every 100 ms that at most one process leads.
    async fn run_for(&self, seconds: u64) {
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
async fn the_holder_leads_while_it_renews_and_the_candidate_waits() {
    let contest = Contest::begin().await;
    contest.run_for(300).await;
    assert!(contest.first.is_leader() && !contest.second.is_leader());
    assert_eq!(contest.server.holder().as_deref(), Some("first"));
    let lease = contest.server.lease.lock().object.clone().unwrap();
    assert_eq!(
        lease["spec"]["leaseTransitions"], 1,
        "a renewal is no transition"
    );
}

#[tokio::test]
async fn a_released_lease_is_taken_at_once() {
    let contest = Contest::begin().await;
    contest.first.release().await;
    assert!(!contest.first.is_leader() && contest.first.lost().now_or_never().is_some());
    assert_eq!(contest.server.holder(), None);
    contest.run_for(2).await;
    assert!(contest.second.is_leader());
    contest.run_for(60).await;
    assert!(
        !contest.first.is_leader(),
        "a released leadership does not come back"
    );
}

#[tokio::test]
async fn a_holder_that_cannot_renew_stops_before_another_process_leads() {
    let (clock, server) = (TestClock::default(), FakeServer::new());
    // The connection of the first process is cut, while the second reaches the server.
    let cut = Arc::new(AtomicBool::new(false));
    let client = {
        let (server, cut) = (server.clone(), cut.clone());
        fake::client(move |head, body| {
            let (server, cut) = (server.clone(), cut.clone());
            async move {
                if cut.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                server.answer(head.method.as_str(), body)
            }
        })
    };
    let first = candidate(client, "first", &clock).acquire().await;
    let waiting = candidate(server.client(), "second", &clock);
    let second = waiting.leadership();
    tokio::spawn(waiting.acquire());
    let contest = Contest {
        clock,
        server,
        first,
        second,
    };
    contest.run_for(20).await;
    cut.store(true, Ordering::Relaxed);
    contest.run_for(6).await;
    assert!(
        contest.first.is_leader(),
        "one missed renewal is not a loss"
    );
    contest.run_for(7).await;
    assert!(!contest.first.is_leader() && contest.first.lost().now_or_never().is_some());
    contest.run_for(10).await;
    assert!(contest.second.is_leader());
    // The first process does not interfere once it is connected again.
    cut.store(false, Ordering::Relaxed);
    contest.run_for(60).await;
    assert!(contest.second.is_leader() && !contest.first.is_leader());
}

#[tokio::test]
async fn a_process_that_was_frozen_does_not_lead_before_any_task_runs() {
    let contest = Contest::begin().await;
    contest.clock.advance(Duration::from_secs(13));
    assert!(!contest.first.is_leader());
}

#[tokio::test]
async fn a_renewal_whose_response_is_lost_does_not_end_the_leadership() {
    let contest = Contest::begin().await;
    contest.server.loses_response.store(true, Ordering::Relaxed);
    contest.run_for(60).await;
    assert!(contest.first.is_leader() && contest.first.lost().now_or_never().is_none());
}

#[tokio::test]
async fn a_short_outage_of_the_server_does_not_end_the_leadership() {
    for how in ["hanging", "failing"] {
        let contest = Contest::begin().await;
        let fault = if how == "hanging" {
            &contest.server.hanging
        } else {
            &contest.server.failing
        };
        contest.run_for(6).await;
        fault.store(true, Ordering::Relaxed);
        contest.run_for(5).await;
        fault.store(false, Ordering::Relaxed);
        contest.run_for(60).await;
        // A hanging request times out after 5 s, and the next one succeeds.
        assert!(
            contest.first.is_leader() && !contest.second.is_leader(),
            "{how}"
        );
    }
}

#[tokio::test]
async fn a_deleted_lease_is_not_free_for_a_candidate_that_observed_its_holder() {
    let contest = Contest::begin().await;
    contest.server.delete();
    contest.run_for(30).await;
    assert!(contest.first.is_leader() && !contest.second.is_leader());
    assert_eq!(
        contest.server.holder().as_deref(),
        Some("first"),
        "the holder creates it again"
    );
}

#[tokio::test]
async fn exactly_one_of_many_candidates_acquires_a_new_lease() {
    let (clock, server) = (TestClock::default(), FakeServer::new());
    let all: Vec<_> = (0..5)
        .map(|n| candidate(server.client(), &format!("c{n}"), &clock))
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
async fn a_leadership_without_a_lease_holds_until_its_release() {
    let clock = TestClock::default();
    let leadership = Leadership::always(clock.shared());
    clock.advance(Duration::from_secs(1_000_000));
    assert!(leadership.is_leader());
    leadership.release().await;
    assert!(!leadership.is_leader());
}

#[tokio::test]
async fn the_lease_names_the_program_and_the_namespaces_that_it_watches() {
    let (clock, server) = (TestClock::default(), FakeServer::new());
    let metadata = || server.lease.lock().object.clone().unwrap()["metadata"].clone();
    let first = candidate(server.client(), "first", &clock).acquire().await;
    assert_eq!(metadata()["annotations"][LEASE_NAMESPACES], ALL_NAMESPACES);
    first.release().await;
    let settings = LeaseSettings::new("evenkeel", "operator", "second")
        .of_program("evenkeel-operator", &["shop".to_owned(), "web".to_owned()]);
    let second = LeaderElector::new(server.client(), settings, clock.shared());
    let _second = second.acquire().await;
    assert_eq!(metadata()["labels"][LEASE_PROGRAM], "evenkeel-operator");
    assert_eq!(metadata()["annotations"][LEASE_NAMESPACES], "shop,web");
}
