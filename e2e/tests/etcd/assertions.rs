//! Observations of a cluster: etcd's own answers, Kubernetes' objects, and the operator's status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use serde_json::Value;

/// How long a cluster may take to form or to recover while other stories run on the same two cores.
pub(crate) const CLUSTER_LIMIT: Duration = Duration::from_secs(240);

/// Creates the cluster `orders` and waits until it is healthy.
pub(crate) fn create_orders<'s>(story: &'s Story, spec: &str, members: usize) -> Cluster<'s> {
    let cluster = Cluster::apply(story, "orders", spec);
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(story, &cluster, members);
    cluster
}

/// Waits until a cluster is healthy: see [`unhealthy_reason`].
pub(crate) fn wait_healthy(story: &Story, cluster: &Cluster<'_>, members: usize) {
    let mut last = String::new();
    let began = std::time::Instant::now();
    while let Some(problem) = unhealthy_reason(cluster, members) {
        assert!(
            began.elapsed() < CLUSTER_LIMIT,
            "{} of {} is not healthy: {problem}\n{:#}",
            cluster.name(),
            story.namespace(),
            cluster.status()
        );
        if problem != last {
            println!("{}/{}: {problem}", story.namespace(), cluster.name());
            last = problem;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Waits until a check succeeds; panics with the last error.
pub(crate) fn wait_until_ok(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let began = std::time::Instant::now();
    while let Err(problem) = check() {
        assert!(
            began.elapsed() < CLUSTER_LIMIT,
            "not within {} s: {what}: {problem}",
            CLUSTER_LIMIT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Returns why a cluster is not healthy: etcd must list this number of voters and no learner, each with a Ready pod, and the operator
/// must report the same and have nothing to do.
pub(crate) fn unhealthy_reason(cluster: &Cluster<'_>, members: usize) -> Option<String> {
    let pods = cluster.pods();
    if pods.len() != members || pods.iter().any(|pod| !pod.ready) {
        let seen: Vec<_> = pods
            .iter()
            .map(|pod| (pod.name.as_str(), pod.ready))
            .collect();
        return Some(format!("the pods are {seen:?}"));
    }
    let (status, reported) = (cluster.status(), |kind: &str| cluster.condition(kind));
    let expected = [
        ("Ready", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
    ];
    if let Some((kind, _)) = expected
        .into_iter()
        .find(|(kind, holds)| reported(kind).0 != *holds)
    {
        return Some(format!(
            "{kind} is {:?}, the summary is {}",
            reported(kind),
            status["summary"]
        ));
    }
    if status["ready"] != format!("{members}/{members}") || status["summary"] != "Healthy" {
        return Some(format!(
            "the status is {} {}",
            status["ready"], status["summary"]
        ));
    }
    let listed = match cluster.try_etcdctl(&["member", "list", "--write-out=json"]) {
        Ok(printed) => evenkeel_e2e::etcd::members(&printed),
        Err(output) => return Some(output),
    };
    let names: BTreeSet<_> = listed.iter().map(|member| member.name.clone()).collect();
    let expected: BTreeSet<_> = pods.into_iter().map(|pod| pod.name).collect();
    if names != expected || listed.iter().any(|member| member.learner) {
        return Some(format!("etcd lists {listed:?}"));
    }
    None
}

/// Returns a member's own status: `etcdctl endpoint status`.
pub(crate) fn endpoint_status(cluster: &Cluster<'_>, pod: &MemberPod) -> Option<Value> {
    let output = cluster
        .etcdctl_at(&pod.ip, &["endpoint", "status", "--write-out=json"])
        .ok()?;
    let output: Value = serde_json::from_str(&output).ok()?;
    output.pointer("/0/Status").cloned()
}

/// Returns the member IDs, by name.
pub(crate) fn member_ids(cluster: &Cluster<'_>) -> BTreeMap<String, u64> {
    cluster
        .member_list()
        .into_iter()
        .map(|member| (member.name, member.id))
        .collect()
}

/// Returns the pod of the member that reports itself as leader.
pub(crate) fn leader(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
    let mut found = None;
    story.eventually(&format!("{} has a leader", cluster.name()), || {
        found = cluster.pods().into_iter().find(|pod| {
            endpoint_status(cluster, pod).is_some_and(|output| {
                output["leader"].is_u64() && output["leader"] == output["header"]["member_id"]
            })
        });
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("{} has a leader", cluster.name()))
}

/// Returns a Ready pod of another member than the leader.
pub(crate) fn follower(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
    let leader = leader(story, cluster);
    let other = cluster
        .pods()
        .into_iter()
        .find(|pod| pod.ready && pod.name != leader.name);
    other.unwrap_or_else(|| panic!("{} has no Ready member but its leader", cluster.name()))
}

/// Returns the nodes, each with its Ready condition, the time of its last transition and its taints. The same text before and after
/// means that nothing has happened to them.
pub(crate) fn nodes(story: &Story) -> String {
    let ready = r#".status.conditions[?(@.type=="Ready")]"#;
    let each = format!(
        "{{.metadata.name}} {{{ready}.status}} {{{ready}.lastTransitionTime}} {{.spec.taints[*].key}}"
    );
    story.kubectl(&[
        "get",
        "nodes",
        &format!("-o=jsonpath={{range .items[*]}}{each}{{\"\\n\"}}{{end}}"),
    ])
}

/// Whether all nodes in the text of [`nodes`] are Ready and have no taints.
pub(crate) fn are_ready(nodes: &str) -> bool {
    let each: Vec<Vec<&str>> = nodes
        .lines()
        .map(|node| node.split_whitespace().collect())
        .collect();
    each.iter().all(|node| node.len() == 3 && node[1] == "True")
}

/// Whether all nodes were available for pods since an earlier [`nodes`]. The scheduler only prefers a spread, and places pods
/// otherwise while a node is not available.
pub(crate) fn nodes_were_ready_since(story: &Story, before: &str) -> bool {
    let now = nodes(story);
    let well = now == before && are_ready(&now);
    if !well {
        println!(
            "{}: the spread is not checked, the nodes were:\n{before}and are:\n{now}",
            story.namespace()
        );
    }
    well
}

/// Returns the events about a cluster's resource: reason and note, repeated as often as they occurred.
pub(crate) fn events(story: &Story, cluster: &Cluster<'_>) -> Vec<(String, String)> {
    let about = format!(
        "regarding.kind=EtcdCluster,regarding.name={}",
        cluster.name()
    );
    let list = story.get(&["events.events.k8s.io", "--field-selector", &about]);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let all = list["items"].as_array().into_iter().flatten();
    all.map(|event| (text(event, "reason"), text(event, "note")))
        .collect()
}
