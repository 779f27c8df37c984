//! What people are told is true: `Ready` is a read as clients make it, the status names who does what, events tell each
//! decision once, nothing is written when nothing happens, and no secret is told to anybody.

mod followed;
mod full;
mod ready;
pub(crate) mod secret;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Proxy;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, leader, says, until_right, until_whole};
use followed::Followed;

/// The status against etcd's own word and the pods. Both may change at any time, by an election say, and the status follows.
pub(crate) fn members_are_named_as_they_are(story: &Story, cluster: &Cluster<'_>) {
    until_right("the status names members as they are", || {
        named_as_they_are(story, cluster)
    });
}

fn named_as_they_are(story: &Story, cluster: &Cluster<'_>) -> Result<(), String> {
    let (leads, status, pods) = (leader(story, cluster), cluster.status(), cluster.pods());
    let is = |what: &str, told: &Value, so: Value| {
        if *told == so {
            Ok(())
        } else {
            Err(format!("{what} is told as {told} and is {so}: {status:#}"))
        }
    };
    let listed = members(&cluster.try_etcdctl(&["member", "list", "--write-out=json"])?);
    is("the leader", &status["leader"], json!(leads.name))?;
    is(
        "the number of members",
        &json!(status["memberList"].as_array().map(Vec::len)),
        json!(pods.len()),
    )?;
    for pod in &pods {
        let mut told = status["memberList"].as_array().into_iter().flatten();
        let told = told
            .find(|told| told["name"] == pod.name)
            .ok_or(format!("{} is not told", pod.name))?;
        let entry = listed.iter().find(|entry| entry.name == pod.name);
        let entry = entry.ok_or(format!("etcd does not list {}", pod.name))?;
        let said = says(cluster, pod).ok_or(format!("{} does not answer", pod.name))?;
        let so = [
            ("role", json!("Voter")),
            ("healthy", json!(true)),
            ("version", said["version"].clone()),
            ("node", json!(pod.node)),
            ("id", json!(format!("{:x}", entry.id))),
            // There is nothing to be said of one that is well.
            ("message", Value::Null),
        ];
        for (field, so) in so {
            is(&format!("{} of {}", field, pod.name), &told[field], so)?;
        }
        let cluster_id = said["header"]["cluster_id"]
            .as_u64()
            .ok_or("a member knows its cluster")?;
        is(
            "the cluster's ID",
            &status["clusterId"],
            json!(format!("{cluster_id:x}")),
        )?;
    }
    for idle in ["currentAction", "waitingFor"] {
        is(idle, &status[idle], Value::Null)?;
    }
    let generation = story.get(&["etcd/orders"])["metadata"]["generation"].clone();
    is("the generation", &status["observedGeneration"], generation)
}
