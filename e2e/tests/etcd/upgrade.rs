//! Members are brought up to date one by one: another version, another image, other resources, or only a restart; while clients
//! work, and while the operator dies in between.

mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Write};
use serde_json::{Value, json};

use crate::look::{LONG, events, formed, ids, leader, until_right, until_whole};
use crate::middle::{comes_to_rest, ends_well, kill_and_restart, until_whole_through};
use crate::plan::{done, done_since};
use crate::plugin::evenkeel;

/// Little of everything.
pub(crate) fn spec(version: &str, members: usize) -> String {
    format!(
        "version: {version}\nmembers: {members}\nstorage: {{size: 1Gi}}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
    )
}

/// Who was restarted since `before` had been done, in order, with what was said of it.
fn restarts(story: &Story, before: &[String]) -> Vec<String> {
    let mut since = done_since(story, "orders", before);
    since.retain(|what| what.starts_with("restarting "));
    // Whoever has handed the lead over, and was not let go just then, is restarted as one that does not lead.
    since.dedup_by(|again, first| again.split(',').next() == first.split(',').next());
    since
}

/// Whether every member runs this version, by its own word as the status has it.
pub(crate) fn runs(cluster: &Cluster<'_>, version: &str) -> bool {
    let status = cluster.status();
    let members = status["memberList"].as_array().cloned().unwrap_or_default();
    !members.is_empty() && members.iter().all(|member| member["version"] == version)
}

/// Brings a cluster of three to a version, and tells what there was to see.
fn upgraded(story: &Story, cluster: &Cluster<'_>, version: &str) {
    let (members, claims, before) = (ids(cluster), claims(cluster), done(story, "orders"));
    let mut summaries: Vec<String> = Vec::new();
    cluster.patch(&json!({ "version": version }));
    until_right("all run the new version", || {
        let status = cluster.status();
        let summary = status["summary"].as_str().unwrap_or_default().to_owned();
        if summaries.last() != Some(&summary) {
            summaries.push(summary);
        }
        if runs(cluster, version) {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    until_whole(story, cluster, members.len());
    println!("{}: {version}: {summaries:?}", story.namespace());
    assert!(
        summaries
            .iter()
            .any(|summary| summary.starts_with("Upgrading ")),
        "{summaries:?}"
    );
    assert!(
        summaries
            .iter()
            .any(|summary| summary.ends_with(", leader last")),
        "{summaries:?}"
    );
    assert_eq!(ids(cluster), members, "they are the same members");
    assert_eq!(self::claims(cluster), claims, "on the same volumes");
    let restarts = restarts(story, &before);
    assert_eq!(restarts.len(), 3, "each once: {restarts:?}");
    let hands_over = |what: &&String| what.contains(", which hands the lead to ");
    assert!(
        !restarts[..2].iter().any(|what| hands_over(&what)),
        "whoever leads is last: {restarts:?}"
    );
    assert_eq!(cluster.status()["version"], version);
}

/// The claims of the pods, by the pods' names.
pub(crate) fn claims(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    cluster
        .pods()
        .into_iter()
        .map(|pod| (pod.name, pod.claim))
        .collect()
}

#[test]
fn three_members_go_from_3_5_to_3_6_and_on_to_3_7_and_clients_hardly_notice() {
    let story = Story::begin("upgraded");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.5.35", 3), 3);
    let workload = cluster.workload();
    for version in ["3.6.16", "3.7.3"] {
        let since = workload.now();
        upgraded(&story, &cluster, version);
        println!(
            "to {version}: {}",
            evenkeel_e2e::watched::told("orders", &workload.stats(since))
        );
    }
    let refused = |version: &str, says: &str| {
        let patch = json!({ "spec": { "version": version } }).to_string();
        let said = story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
        let said = said.expect_err("it is refused");
        assert!(said.contains(says), "{version}: {said}");
    };
    refused("3.6.16", "3.6");
    refused("3.8.0", "not known");
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

/// The pods of a cluster, by name, each with its uid.
pub(crate) fn uids(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    cluster
        .pods()
        .into_iter()
        .map(|pod| (pod.name, pod.uid))
        .collect()
}

/// An image that nobody has stops the roll at its first member; taken back, all is as it was.
fn stops_at_a_bad_image(story: &Story, members: usize) {
    let operator = Operator::start(story);
    let cluster = formed(story, &spec("3.6.16", members), members);
    let workload = (members > 2).then(|| cluster.workload());
    let before = uids(&cluster);
    let image = cluster_image(story);
    cluster.patch(&json!({ "image": { "repository": "nowhere.invalid/etcd" } }));
    let reason = if members > 2 {
        "RolloutStopped"
    } else {
        "QuorumLost"
    };
    until_right("it is told that it stopped", || {
        let (degraded, status) = (cluster.condition("Degraded"), cluster.status());
        let told = degraded.1 == reason;
        let named = status
            .to_string()
            .contains("the image nowhere.invalid/etcd:v3.6.16 cannot be pulled");
        if told && named {
            Ok(())
        } else {
            Err(format!("{degraded:?}: {status:#}"))
        }
    });
    let touched = uids(&cluster)
        .iter()
        .filter(|(name, uid)| before.get(*name) != Some(*uid))
        .count();
    assert_eq!(touched, 1, "one was tried, and no other touched");
    let since = workload.as_ref().map(evenkeel_e2e::watched::Watched::now);
    std::thread::sleep(Duration::from_secs(5));
    if let (Some(workload), Some(since)) = (&workload, since) {
        assert!(
            workload.stats(since).acknowledged_writes > 0,
            "clients write"
        );
    }
    cluster.patch(&json!({ "image": { "repository": image } }));
    ends_well(story, &cluster, members);
    let touched = uids(&cluster)
        .iter()
        .filter(|(name, uid)| before.get(*name) != Some(*uid))
        .count();
    assert_eq!(touched, 1, "nobody else was restarted");
    comes_to_rest(&operator);
    if let Some(workload) = workload {
        workload.finish();
        cluster.holds_the_same_everywhere();
    }
}

fn cluster_image(story: &Story) -> Value {
    story.get(&["etcd/orders"])["spec"]["image"]["repository"].clone()
}

#[test]
fn a_bad_image_stops_at_one_of_three_and_taking_it_back_restores_it() {
    stops_at_a_bad_image(&Story::begin("bad-image-3"), 3);
}

pub(crate) fn evicts(write: &Write) -> bool {
    write.verb == "POST" && write.is_to("pods") && write.subresource() == Some("eviction")
}
