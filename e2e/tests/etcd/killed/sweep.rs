//! A death at every write, and errors in place of answers. Random chaos does not find the one bad moment in a long run;
//! going through all of them does.
//!
//! Two ways: a *chain* goes through a bootstrap or a replacement once, and the operator dies at each of its writes, before
//! it is applied and again after; a *sweep* has a run for each of these points, with one death each.

mod full;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Write, Written, lives};
use serde_json::Value;

use crate::middle::{comes_to_rest, ends_well, kill_and_restart, spec, until_whole_through};

fn is_status(write: &Write) -> bool {
    write.is_to("etcdclusters") && write.subresource() == Some("status")
}

#[test]
fn an_operator_that_is_started_again_writes_nothing_to_a_cluster_at_rest() {
    let story = Story::begin("again");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", &spec(1));
    ends_well(&story, &cluster, 1);
    comes_to_rest(&operator);
    let before = without_times(cluster.status());
    // On a busy machine etcd may answer too late once, and that is told and taken back. It is not to be so each time.
    let silent = (1..=3).any(|round| {
        let writes = written_after_a_restart(&story, &mut operator);
        if writes.is_empty() {
            return true;
        }
        let only_tells = writes
            .iter()
            .all(|it| is_status(&it.write) || it.write.is_to("events"));
        assert!(only_tells, "it found something to write: {writes:#?}");
        println!("round {round}: it found something to say: {writes:#?}");
        story.eventually("the status is as it was", || {
            without_times(cluster.status()) == before
        });
        comes_to_rest(&operator);
        false
    });
    assert!(silent, "it found something to say each time");
}

/// What an operator writes that ends in peace and is started again.
fn written_after_a_restart(story: &Story, operator: &mut Operator) -> Vec<Written> {
    operator.stop();
    let (looked, since) = (looks(operator), Instant::now());
    operator.restart();
    story.eventually("it has looked at the cluster", || looks(operator) > looked);
    // Longer than it takes to ask etcd once more.
    std::thread::sleep(Duration::from_secs(12));
    operator.proxy().writes_since(since)
}

/// A status, but for when its conditions came to be so.
fn without_times(mut status: Value) -> Value {
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

/// How often an operator has looked at a resource itself, which is the first thing that it does.
fn looks(operator: &Operator) -> usize {
    let requests = operator.proxy().requests();
    let looks = requests
        .iter()
        .filter(|((verb, path), _)| verb == "GET" && path.ends_with("/etcdclusters/{name}"));
    looks.map(|(_, count)| count).sum()
}
