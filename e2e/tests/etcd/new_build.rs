//! Upgrades of the operator: another build takes over. It restarts no pod and repeats no action, and it manages members that an
//! earlier build created.

mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::{RecordedWrite, Write};
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, member_ids, wait_until_ok};
use crate::interrupts::{wait_converged, wait_idle};
use crate::rollouts::{
    assert_each_restarted_once, count_with_memory, memory_request, name_of, pods,
    wait_all_have_memory,
};
use crate::upgrade::{claims, spec};

/// How long a new build must change nothing: longer than two rounds of probes.
const QUIET_TIME: Duration = Duration::from_secs(15);

/// Annotations that pods of earlier builds do not have.
const LATER_ANNOTATIONS: [&str; 2] = ["evenkeel.dev/pod-template-hash", "evenkeel.dev/version"];

/// Stops an operator, as a Deployment does, and starts the next one with a proxy of its own.
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

/// Counts the reads of the resource, which every pass begins with.
fn reconciles(operator: &Operator) -> usize {
    let requests = operator.proxy().requests();
    let reconciles = requests
        .iter()
        .filter(|((verb, path), _)| verb == "GET" && path.ends_with("/etcdclusters/{name}"));
    reconciles.map(|(_, count)| count).sum()
}

/// Returns a pod without its status, except for the number of starts of its etcd.
fn pod_state(pod: &Value) -> Value {
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

/// Returns what must not change: the pods, and the resourceVersions of PVCs and identity, which only the operator writes.
fn all_state(story: &Story) -> BTreeMap<String, Value> {
    let pods = pods(story);
    let pods = pods
        .iter()
        .map(|pod| (format!("pod {}", name_of(pod)), pod_state(pod)));
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

/// Asserts that nothing changes for some time.
fn assert_unchanged(story: &Story, expected: &BTreeMap<String, Value>, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        let (now, after) = (all_state(story), began.elapsed().as_secs_f64());
        let other = now
            .iter()
            .find(|(name, what)| expected.get(*name) != Some(*what));
        let was = other.and_then(|(name, _)| expected.get(name));
        assert!(
            other.is_none(),
            "after {after:.1} s {was:#?} changed to {other:#?}"
        );
        assert_eq!(
            now.len(),
            expected.len(),
            "an object is missing after {after:.1} s: {now:#?}"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Whether a write is to an object that must not change.
fn is_protected(write: &Write) -> bool {
    let identity = write.is_to("configmaps") && write.name() == Some("orders-etcd-identity");
    identity || write.is_to("pods") || write.is_to("persistentvolumeclaims")
}

/// Returns the operator's writes to pods, PVCs and the identity.
fn protected_writes(operator: &Operator) -> Vec<RecordedWrite> {
    operator
        .proxy()
        .writes()
        .into_iter()
        .filter(|written| is_protected(&written.write))
        .collect()
}

/// Returns a pod's annotations that earlier builds do not write.
fn later_annotations(pod: &Value) -> Vec<Value> {
    LATER_ANNOTATIONS
        .iter()
        .map(|key| pod["metadata"]["annotations"][*key].clone())
        .collect()
}

/// Returns the same of all pods, by name.
fn all_later_annotations(story: &Story) -> BTreeMap<String, Vec<Value>> {
    pods(story)
        .iter()
        .map(|pod| (name_of(pod), later_annotations(pod)))
        .collect()
}

#[test]
fn a_new_build_restarts_no_member_also_not_pods_of_an_earlier_build() {
    let story = Story::begin("new-build");
    let mut old = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), member_ids(&cluster), claims(&cluster));
    wait_idle(&old);
    let before = all_state(&story);
    assert_eq!(
        before.len(),
        7,
        "expected three pods, three PVCs and the identity: {before:#?}"
    );

    let mut next = replaced(&story, &mut old, "next");
    story.within(
        CLUSTER_LIMIT,
        "the next build has observed the cluster",
        || reconciles(&next) > 0,
    );
    assert_unchanged(&story, &before, QUIET_TIME);
    let writes = protected_writes(&next);
    assert!(writes.is_empty(), "the next build wrote: {writes:#?}");

    // Pods as an earlier build creates them.
    next.stop();
    let known = all_later_annotations(&story);
    assert!(
        known.values().flatten().all(Value::is_string),
        "pods lack the annotations: {known:#?}"
    );
    for pod in cluster.pods() {
        let without = LATER_ANNOTATIONS.map(|key| format!("{key}-"));
        story.kubectl(&["annotate", "pod", &pod.name, &without[0], &without[1]]);
    }
    assert!(
        all_later_annotations(&story)
            .values()
            .flatten()
            .all(Value::is_null),
        "the annotations are still there"
    );
    let last = Operator::with(
        &story,
        Options {
            name: "last".to_owned(),
            ..Options::default()
        },
    );
    wait_until_ok("the annotations are restored", || {
        let now = all_later_annotations(&story);
        if now == known {
            Ok(())
        } else {
            Err(format!("{now:#?}"))
        }
    });
    wait_idle(&last);
    let after = all_state(&story);
    for (what, was) in before.iter().filter(|(what, _)| what.starts_with("pod ")) {
        assert_eq!(after.get(what), Some(was), "{what} changed");
    }
    assert_unchanged(&story, &after, QUIET_TIME);
    let is_not_patch =
        |written: &&RecordedWrite| written.write.verb != "PATCH" && written.write.is_to("pods");
    let writes = protected_writes(&last);
    assert_eq!(
        writes.iter().filter(is_not_patch).count(),
        0,
        "pods were created or deleted: {writes:#?}"
    );

    let began = Instant::now();
    cluster.patch(&memory_request("96Mi"));
    wait_all_have_memory(&story, "96Mi", 3);
    wait_converged(&story, &cluster, 3);
    wait_idle(&last);
    assert_each_restarted_once(&last.proxy().writes_since(began), 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(claims(&cluster), volumes, "the PVCs differ");
    workload.finish();
    cluster.wait_same_data();
}
