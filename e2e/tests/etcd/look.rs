//! How a story looks at a cluster: as etcd tells it, as Kubernetes shows it, and as the operator says it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use serde_json::Value;

/// How long a cluster may take to form or to heal while every other story runs on the same two cores.
pub(crate) const LONG: Duration = Duration::from_secs(240);

/// A cluster called `orders`, once it is all that it should be.
pub(crate) fn formed<'s>(story: &'s Story, spec: &str, members: usize) -> Cluster<'s> {
    let cluster = Cluster::apply(story, "orders", spec);
    cluster.wait_ready(LONG);
    until_whole(story, &cluster, members);
    cluster
}

/// Waits until a cluster is all that it should be, by everyone's word: see [`what_is_amiss`].
pub(crate) fn until_whole(story: &Story, cluster: &Cluster<'_>, members: usize) {
    let mut last = String::new();
    let began = std::time::Instant::now();
    while let Some(amiss) = what_is_amiss(cluster, members) {
        assert!(
            began.elapsed() < LONG,
            "{} of {} is not whole: {amiss}\n{:#}",
            cluster.name(),
            story.namespace(),
            cluster.status()
        );
        if amiss != last {
            println!("{}/{}: {amiss}", story.namespace(), cluster.name());
            last = amiss;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Waits until a look finds all as it should be; what the last look found amiss fails the story.
pub(crate) fn until_right(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let began = std::time::Instant::now();
    while let Err(amiss) = look() {
        assert!(
            began.elapsed() < LONG,
            "waited {} s in vain until {what}: {amiss}",
            LONG.as_secs()
        );
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Why a cluster is not whole: etcd lists so many voters and no learner, each has its pod, Ready and routed to, and the
/// operator says the same and has nothing left to do.
pub(crate) fn what_is_amiss(cluster: &Cluster<'_>, members: usize) -> Option<String> {
    let pods = cluster.pods();
    if pods.len() != members || pods.iter().any(|pod| !pod.ready) {
        let seen: Vec<_> = pods
            .iter()
            .map(|pod| (pod.name.as_str(), pod.ready))
            .collect();
        return Some(format!("its pods are {seen:?}"));
    }
    let (status, told) = (cluster.status(), |kind: &str| cluster.condition(kind));
    let wanted = [
        ("Ready", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
    ];
    if let Some((kind, _)) = wanted
        .into_iter()
        .find(|(kind, holds)| told(kind).0 != *holds)
    {
        return Some(format!(
            "{kind} is {:?}, and the summary {}",
            told(kind),
            status["summary"]
        ));
    }
    if status["ready"] != format!("{members}/{members}") || status["summary"] != "Healthy" {
        return Some(format!(
            "the status says {} {}",
            status["ready"], status["summary"]
        ));
    }
    let listed = match cluster.try_etcdctl(&["member", "list", "--write-out=json"]) {
        Ok(printed) => evenkeel_e2e::etcd::members(&printed),
        Err(said) => return Some(said),
    };
    let names: BTreeSet<_> = listed.iter().map(|member| member.name.clone()).collect();
    let expected: BTreeSet<_> = pods.into_iter().map(|pod| pod.name).collect();
    if names != expected || listed.iter().any(|member| member.learner) {
        return Some(format!("etcd lists {listed:?}"));
    }
    None
}

/// What a member says of itself when it is asked: `endpoint status` of etcdctl.
pub(crate) fn says(cluster: &Cluster<'_>, pod: &MemberPod) -> Option<Value> {
    let said = cluster
        .etcdctl_at(&pod.ip, &["endpoint", "status", "--write-out=json"])
        .ok()?;
    let said: Value = serde_json::from_str(&said).ok()?;
    said.pointer("/0/Status").cloned()
}

/// What etcd calls each member.
pub(crate) fn ids(cluster: &Cluster<'_>) -> BTreeMap<String, u64> {
    cluster
        .member_list()
        .into_iter()
        .map(|member| (member.name, member.id))
        .collect()
}

/// The pod of the member that leads, by its own word.
pub(crate) fn leader(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
    let mut found = None;
    story.eventually(&format!("{} has a leader", cluster.name()), || {
        found = cluster.pods().into_iter().find(|pod| {
            says(cluster, pod).is_some_and(|said| {
                said["leader"].is_u64() && said["leader"] == said["header"]["member_id"]
            })
        });
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("{} has a leader", cluster.name()))
}

/// The pod of a member that follows: one that serves, for a newcomer has a pod long before it is anybody.
pub(crate) fn follower(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
    let leader = leader(story, cluster);
    let other = cluster
        .pods()
        .into_iter()
        .find(|pod| pod.ready && pod.name != leader.name);
    other.unwrap_or_else(|| panic!("{} has none but its leader", cluster.name()))
}

/// The nodes, each with whether it is Ready, since when, and what keeps pods away from it. The same text before and after
/// means that nothing has befallen them in between.
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

/// Whether all nodes are Ready, and nothing keeps pods away from them, by what [`nodes`] says.
pub(crate) fn are_well(nodes: &str) -> bool {
    let each: Vec<Vec<&str>> = nodes
        .lines()
        .map(|node| node.split_whitespace().collect())
        .collect();
    each.iter().all(|node| node.len() == 3 && node[1] == "True")
}

/// Whether all nodes were there for pods all the time since [`nodes`] said this. Where members go is the scheduler's wish
/// alone, and while a node is taken for lost it has to wish otherwise.
pub(crate) fn nodes_were_well_since(story: &Story, before: &str) -> bool {
    let now = nodes(story);
    let well = now == before && are_well(&now);
    if !well {
        println!(
            "{}: no word about who is where, the nodes were:\n{before}and are:\n{now}",
            story.namespace()
        );
    }
    well
}

/// What was told about a cluster's resource in events: reason and note, as many times as it was told.
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
