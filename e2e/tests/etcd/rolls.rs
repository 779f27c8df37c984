//! What stories of a roll share: an edit that rolls, who has what was wanted, whose turn it is, and that nobody is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Lives, Stopped, Write, Written, lives};
use serde_json::{Value, json};

use crate::look::until_right;
use crate::upgrade::{evicts, uids};

/// For how long nothing must happen where nothing is to happen: longer than the operator takes to ask every etcd again.
pub(crate) const STILL: Duration = Duration::from_secs(12);

/// An edit that restarts every member, and that none of them minds: other than the 64Mi that they are made with.
pub(crate) fn memory(amount: &str) -> Value {
    json!({ "resources": { "requests": { "cpu": "10m", "memory": amount } } })
}

/// The pods of `orders`, as Kubernetes has them.
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

/// The name of an object.
pub(crate) fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// How much memory each pod of `orders` asks for.
pub(crate) fn asked(story: &Story) -> BTreeMap<String, String> {
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

/// How many pods of `orders` ask for so much memory.
pub(crate) fn how_many_ask(story: &Story, amount: &str) -> usize {
    asked(story)
        .values()
        .filter(|asked| *asked == amount)
        .count()
}

/// Waits until so many pods ask for so much memory, and no others are there.
pub(crate) fn until_all_ask(story: &Story, amount: &str, members: usize) {
    until_right(&format!("all ask for {amount}"), || {
        let asked = asked(story);
        let all = asked.len() == members && asked.values().all(|asked| asked == amount);
        if all {
            Ok(())
        } else {
            Err(format!("{asked:?}"))
        }
    });
}

/// Whose turn it is, if a write evicts a pod: for [`Stops`](crate::middle::Stops).
pub(crate) fn whose_turn(write: &Write) -> Option<String> {
    evicts(write).then(|| write.name().unwrap_or_default().to_owned())
}

/// Whatever is held never happens: the operator gets no answer, and decides anew. From now on everything passes.
pub(crate) fn never_happens(operator: &Operator, stopped: Stopped) {
    operator.proxy().pass();
    drop(stopped);
    // One that had waited too long for its answer has asked again.
    while operator.proxy().try_stopped().is_some() {}
}

/// That for so long no pod comes and none goes.
pub(crate) fn nobody_is_touched(cluster: &Cluster<'_>, time: Duration) {
    let (before, began) = (uids(cluster), Instant::now());
    while began.elapsed() < time {
        let after = began.elapsed().as_secs_f64();
        assert_eq!(
            uids(cluster),
            before,
            "somebody was touched after {after:.1} s: {:#}",
            cluster.status()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The pods that are others than before, by name.
pub(crate) fn changed(
    cluster: &Cluster<'_>,
    before: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let now = uids(cluster).into_iter();
    now.filter(|(name, uid)| before.get(name) != Some(uid))
        .map(|(name, _)| name)
        .collect()
}

/// How often an operator has created and evicted each pod in these writes.
pub(crate) fn pods_lives(writes: &[Written]) -> BTreeMap<String, Lives> {
    let all = lives(writes).into_iter();
    all.filter_map(|(object, lives)| Some((object.strip_prefix("pods/")?.to_owned(), lives)))
        .collect()
}

/// That in these writes each of so many members was restarted, once, and nobody else was touched.
pub(crate) fn each_was_restarted_once(writes: &[Written], members: usize) {
    let lives = pods_lives(writes);
    let once = Lives {
        created: 1,
        deleted: 1,
    };
    assert!(
        lives.len() == members && lives.values().all(|lives| *lives == once),
        "{lives:?}"
    );
}
