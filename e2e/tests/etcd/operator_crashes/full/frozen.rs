//! Two operators with one lease. The leader is frozen during a write, for longer than its lease; the other one takes over and
//! finishes; the first one continues, and nothing that it sends late has an effect.

use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::{RecordedWrite, Verdict};
use evenkeel_e2e::{Story, WAIT_LIMIT};

use crate::assertions::CLUSTER_LIMIT;
use crate::interrupts::{intent_written, spec, wait_converged, wait_idle};

#[test]
fn an_operator_frozen_before_its_intent_was_applied_cannot_apply_it_later() {
    freeze_leader("frozen-before", Verdict::HoldBefore);
}

/// How long a thawed operator may take to see that it is no longer the leader.
const EXIT_LIMIT: Duration = WAIT_LIMIT;

/// Returns the record of a held write.
fn recorded(operator: &Operator, number: u64) -> RecordedWrite {
    let mut writes = operator.proxy().writes().into_iter();
    writes
        .find(|written| written.write.number == number)
        .expect("the write is in the record")
}

/// Deletes the data of one of three members and freezes the leading operator when it records the removal, before or after the write
/// is applied.
fn freeze_leader(name: &str, verdict: Verdict) {
    let story = Story::begin(name);
    let named = |name: &str| Options {
        name: name.to_owned(),
        ..Options::default()
    };
    let mut sleeper = Operator::with(&story, named("sleeper"));
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let cluster_id = wait_converged(&story, &cluster, 3);
    let successor = Operator::with(&story, named("successor"));
    story.eventually("the successor waits for the lease", || {
        successor.log_has("waiting for the lease")
    });
    let workload = cluster.workload();

    sleeper
        .proxy()
        .once(verdict, |write| intent_written(write, "a").is_some());
    let lost = cluster.pods().remove(1);
    story.kubectl(&[
        "delete",
        &format!("pod/{}", lost.name),
        &format!("pvc/{}", lost.name),
        "--wait=false",
    ]);
    let held = sleeper.proxy().wait_held(CLUSTER_LIMIT);
    let intent = intent_written(&held.write, "a").unwrap();
    assert_eq!(intent.kind, "Remove", "{intent:?}");
    assert!(
        successor
            .proxy()
            .writes_since(Instant::now() - CLUSTER_LIMIT)
            .is_empty(),
        "the successor wrote without the lease"
    );
    sleeper.freeze();
    wait_converged(&story, &cluster, 3);
    assert!(
        successor.log_has("acquired the lease"),
        "the successor did not acquire the lease"
    );
    wait_idle(&successor);
    let members = cluster.member_list();

    let woken = Instant::now();
    let number = held.write.number;
    held.resume();
    sleeper.thaw();
    let ended = sleeper
        .wait_exit(EXIT_LIMIT)
        .expect("the frozen operator exits after it lost its lease");
    assert!(
        !ended.success(),
        "the exit code is 0, so it would not be restarted: {ended}"
    );
    assert!(
        sleeper.log_has("lost the lease"),
        "the log has no reason for the exit"
    );
    story.eventually("the held write is answered", || {
        recorded(&sleeper, number).answered.is_some()
    });
    match verdict {
        // The write was on its way all the time, and comes too late.
        Verdict::HoldBefore => assert_eq!(recorded(&sleeper, number).answered, Some(409)),
        _ => assert_eq!(recorded(&sleeper, number).answered, Some(200)),
    }
    let late: Vec<_> = sleeper
        .proxy()
        .writes_since(woken)
        .into_iter()
        .filter(|it| it.is_applied())
        .collect();
    assert!(late.is_empty(), "it wrote without the lease: {late:?}");
    assert!(
        !sleeper.log_has("change=Remove") && !sleeper.log_has("\"change\":\"Remove"),
        "it called etcd without the lease"
    );
    assert_eq!(cluster.member_list(), members, "the member list changed");
    assert_eq!(wait_converged(&story, &cluster, 3), cluster_id);
    workload.finish();
    wait_idle(&successor);
    cluster.wait_same_data();
}

#[test]
fn an_operator_frozen_between_intent_and_call_does_not_call_later() {
    freeze_leader("frozen-between", Verdict::HoldAfter);
}
