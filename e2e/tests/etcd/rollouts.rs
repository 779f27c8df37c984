//! Helpers for stories of a rollout: an edit that restarts all members, which members have it, whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{HeldWrite, ObjectCounts, RecordedWrite, Write, object_counts};
use serde_json::{Value, json};

use crate::assertions::wait_until_ok;
use crate::upgrade::{is_eviction, uids};

/// How long nothing must happen: longer than two rounds of probes.
pub(crate) const QUIET_TIME: Duration = Duration::from_secs(12);

/// Returns an edit that restarts every member without another effect: members are created with 64Mi.
pub(crate) fn memory_request(amount: &str) -> Value {
    json!({ "resources": { "requests": { "cpu": "10m", "memory": amount } } })
}

/// Returns the pods of `orders`.
pub(crate) fn pods(story: &Story) -> Vec<Value> {
    let list = story.read(
        "/api/v1",
        "pods?labelSelector=etcd.evenkeel.dev%2Fcluster%3Dorders",
    );
    list.unwrap_or_default()["items"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Returns the name of an object.
pub(crate) fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the memory request of each pod of `orders`.
pub(crate) fn memory_requests(story: &Story) -> BTreeMap<String, String> {
    let amount = |pod: &Value| {
        let amount = pod.pointer("/spec/containers/0/resources/requests/memory");
        amount
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    pods(story)
        .iter()
        .map(|pod| (name_of(pod), amount(pod)))
        .collect()
}

/// Counts the pods of `orders` with this memory request.
pub(crate) fn count_with_memory(story: &Story, amount: &str) -> usize {
    memory_requests(story)
        .values()
        .filter(|memory_requests| *memory_requests == amount)
        .count()
}

/// Waits until this number of pods have this memory request, and no other pods exist.
pub(crate) fn wait_all_have_memory(story: &Story, amount: &str, members: usize) {
    wait_until_ok(&format!("all pods request {amount}"), || {
        let memory_requests = memory_requests(story);
        let all = memory_requests.len() == members
            && memory_requests
                .values()
                .all(|memory_requests| memory_requests == amount);
        if all {
            Ok(())
        } else {
            Err(format!("{memory_requests:?}"))
        }
    });
}

/// Returns the pod that a write evicts, for [`HeldWrites`](crate::interrupts::HeldWrites).
pub(crate) fn evicted_pod(write: &Write) -> Option<String> {
    is_eviction(write).then(|| write.name().unwrap_or_default().to_owned())
}

/// Drops a held write: the operator gets no answer and decides again. All later writes pass.
pub(crate) fn drop_held(operator: &Operator, held: HeldWrite) {
    operator.proxy().pass();
    drop(held);
    // The operator may have repeated a write whose answer took too long.
    while operator.proxy().try_held().is_some() {}
}

/// Asserts that no pod is created or deleted for some time.
pub(crate) fn assert_no_pod_changes(cluster: &Cluster<'_>, time: Duration) {
    let (before, began) = (uids(cluster), Instant::now());
    while began.elapsed() < time {
        let after = began.elapsed().as_secs_f64();
        assert_eq!(
            uids(cluster),
            before,
            "a pod was replaced after {after:.1} s: {:#}",
            cluster.status()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the names of the pods that have another uid than before.
pub(crate) fn changed_pods(
    cluster: &Cluster<'_>,
    before: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let now = uids(cluster).into_iter();
    now.filter(|(name, uid)| before.get(name) != Some(uid))
        .map(|(name, _)| name)
        .collect()
}

/// Counts the creates and evictions of each pod in these writes.
pub(crate) fn pod_counts(writes: &[RecordedWrite]) -> BTreeMap<String, ObjectCounts> {
    let all = object_counts(writes).into_iter();
    all.filter_map(|(object, object_counts)| {
        Some((object.strip_prefix("pods/")?.to_owned(), object_counts))
    })
    .collect()
}

/// Asserts that these writes restart each of so many members once, and touch no other pod.
pub(crate) fn assert_each_restarted_once(writes: &[RecordedWrite], members: usize) {
    let object_counts = pod_counts(writes);
    let once = ObjectCounts {
        created: 1,
        deleted: 1,
    };
    assert!(
        object_counts.len() == members
            && object_counts
                .values()
                .all(|object_counts| *object_counts == once),
        "{object_counts:?}"
    );
}
