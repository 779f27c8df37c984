//! The operator is upgraded: another build takes over. No pod of etcd is restarted for that, nothing is done twice, and members that
//! an earlier build has made are looked after like any others.

mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::{Write, Written};
use serde_json::{Value, json};

use crate::look::{LONG, formed, ids, until_right};
use crate::middle::{comes_to_rest, ends_well};
use crate::rolls::{each_was_restarted_once, how_many_ask, memory, name_of, pods, until_all_ask};
use crate::upgrade::{claims, spec};

/// For how long a new build must find nothing to do: longer than it takes to ask every etcd, and once more.
const SETTLED: Duration = Duration::from_secs(15);

/// What pods did not have before some build: what they were made from, and of which version.
const LATER: [&str; 2] = ["evenkeel.dev/pod-template-hash", "evenkeel.dev/version"];

/// Ends an operator in peace, as a Deployment does it, and starts the next one: a process and a proxy of its own.
fn replaced(story: &Story, old: &mut Operator, name: &str) -> Operator {
    old.stop();
    Operator::with(
        story,
        Options {
            name: name.to_owned(),
            ..Options::default()
        },
    )
}

/// How often an operator has looked at a resource itself, which is the first thing that it does.
fn looks(operator: &Operator) -> usize {
    let requests = operator.proxy().requests();
    let looks = requests
        .iter()
        .filter(|((verb, path), _)| verb == "GET" && path.ends_with("/etcdclusters/{name}"));
    looks.map(|(_, count)| count).sum()
}

/// All of a pod that is nobody's report of how it is at the moment, but for how often its etcd was started.
fn pod_as_it_is(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    json!({
        "uid": metadata["uid"],
        "deleted": metadata["deletionTimestamp"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "spec": pod["spec"],
        "starts": pod["status"]["containerStatuses"][0]["restartCount"],
    })
}

/// What must not be touched: pods, and to the last write the claims and the identity, which nobody but the operator writes to.
fn all_as_it_is(story: &Story) -> BTreeMap<String, Value> {
    let pods = pods(story);
    let pods = pods
        .iter()
        .map(|pod| (format!("pod {}", name_of(pod)), pod_as_it_is(pod)));
    let mut all: BTreeMap<String, Value> = pods.collect();
    let claims = "persistentvolumeclaims?labelSelector=etcd.evenkeel.dev%2Fcluster%3Dorders";
    let claims = story.read("/api/v1", claims).unwrap_or_default();
    for claim in claims["items"].as_array().into_iter().flatten() {
        all.insert(
            format!("claim {}", name_of(claim)),
            claim["metadata"]["resourceVersion"].clone(),
        );
    }
    let identity = story
        .read("/api/v1", "configmaps/orders-etcd-identity")
        .unwrap_or_default();
    all.insert(
        "identity".to_owned(),
        identity["metadata"]["resourceVersion"].clone(),
    );
    all
}

/// That for so long everything stays as it is.
fn stays(story: &Story, as_it_is: &BTreeMap<String, Value>, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        let (now, after) = (all_as_it_is(story), began.elapsed().as_secs_f64());
        let other = now
            .iter()
            .find(|(name, what)| as_it_is.get(*name) != Some(*what));
        let was = other.and_then(|(name, _)| as_it_is.get(name));
        assert!(
            other.is_none(),
            "after {after:.1} s {was:#?} became {other:#?}"
        );
        assert_eq!(
            now.len(),
            as_it_is.len(),
            "something is gone after {after:.1} s: {now:#?}"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Whether a write is to what must not be touched.
fn touches(write: &Write) -> bool {
    let identity = write.is_to("configmaps") && write.name() == Some("orders-etcd-identity");
    identity || write.is_to("pods") || write.is_to("persistentvolumeclaims")
}

/// What an operator has written to pods, claims and the identity.
fn touched(operator: &Operator) -> Vec<Written> {
    operator
        .proxy()
        .writes()
        .into_iter()
        .filter(|written| touches(&written.write))
        .collect()
}

/// What a pod has of that which it did not have before some build.
fn noted(pod: &Value) -> Vec<Value> {
    LATER
        .iter()
        .map(|key| pod["metadata"]["annotations"][*key].clone())
        .collect()
}

/// The same of all pods, by name.
fn all_noted(story: &Story) -> BTreeMap<String, Vec<Value>> {
    pods(story)
        .iter()
        .map(|pod| (name_of(pod), noted(pod)))
        .collect()
}

#[test]
fn a_new_build_restarts_nobody_nor_do_pods_of_an_earlier_one_and_they_follow_the_next_edit() {
    let story = Story::begin("new-build");
    let mut old = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), ids(&cluster), claims(&cluster));
    comes_to_rest(&old);
    let before = all_as_it_is(&story);
    assert_eq!(
        before.len(),
        7,
        "three pods, three claims and the identity: {before:#?}"
    );

    let mut next = replaced(&story, &mut old, "next");
    story.within(LONG, "the next build has looked at the cluster", || {
        looks(&next) > 0
    });
    stays(&story, &before, SETTLED);
    let writes = touched(&next);
    assert!(
        writes.is_empty(),
        "it found something to write: {writes:#?}"
    );

    // As an earlier build has made them.
    next.stop();
    let known = all_noted(&story);
    assert!(
        known.values().flatten().all(Value::is_string),
        "pods say what they were made from: {known:#?}"
    );
    for pod in cluster.pods() {
        let without = LATER.map(|key| format!("{key}-"));
        story.kubectl(&["annotate", "pod", &pod.name, &without[0], &without[1]]);
    }
    assert!(
        all_noted(&story).values().flatten().all(Value::is_null),
        "it was taken off them"
    );
    let last = Operator::with(
        &story,
        Options {
            name: "last".to_owned(),
            ..Options::default()
        },
    );
    until_right("pods say again what they were made from", || {
        let now = all_noted(&story);
        if now == known {
            Ok(())
        } else {
            Err(format!("{now:#?}"))
        }
    });
    comes_to_rest(&last);
    let after = all_as_it_is(&story);
    for (what, was) in before.iter().filter(|(what, _)| what.starts_with("pod ")) {
        assert_eq!(after.get(what), Some(was), "{what} is another one");
    }
    stays(&story, &after, SETTLED);
    let goes = |written: &&Written| written.write.verb != "PATCH" && written.write.is_to("pods");
    let writes = touched(&last);
    assert_eq!(
        writes.iter().filter(goes).count(),
        0,
        "pods are written on, and no more: {writes:#?}"
    );

    let began = Instant::now();
    cluster.patch(&memory("96Mi"));
    until_all_ask(&story, "96Mi", 3);
    ends_well(&story, &cluster, 3);
    comes_to_rest(&last);
    each_was_restarted_once(&last.proxy().writes_since(began), 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    workload.finish();
    cluster.holds_the_same_everywhere();
}
