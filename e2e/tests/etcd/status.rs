//! Correctness of the status: `Ready` is a read through the client Service, the status names the members' roles, each decision has one
//! event, nothing is written when nothing happens, and no private key is published.

mod full;
mod ready;
pub(crate) mod secret;
mod status_watch;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Proxy;
use serde_json::{Value, json};

use crate::assertions::{
    CLUSTER_LIMIT, create_orders, endpoint_status, events, follower, leader, wait_healthy,
    wait_until_ok,
};
use status_watch::StatusWatch;

/// Compares the status with etcd's answers and the pods, until they agree: an election may change both at any time.
pub(crate) fn assert_members_reported(story: &Story, cluster: &Cluster<'_>) {
    wait_until_ok("the status agrees with etcd and the pods", || {
        compare_members(story, cluster)
    });
}

fn compare_members(story: &Story, cluster: &Cluster<'_>) -> Result<(), String> {
    let (current_leader, status, pods) = (leader(story, cluster), cluster.status(), cluster.pods());
    let compare = |what: &str, reported: &Value, expected: Value| {
        if *reported == expected {
            Ok(())
        } else {
            Err(format!(
                "{what} is {expected}, but the status has {reported}: {status:#}"
            ))
        }
    };
    let listed = members(&cluster.try_etcdctl(&["member", "list", "--write-out=json"])?);
    compare("the leader", &status["leader"], json!(current_leader.name))?;
    compare(
        "the number of members",
        &json!(status["memberList"].as_array().map(Vec::len)),
        json!(pods.len()),
    )?;
    for pod in &pods {
        let mut reported = status["memberList"].as_array().into_iter().flatten();
        let reported = reported
            .find(|reported| reported["name"] == pod.name)
            .ok_or(format!("the status does not list {}", pod.name))?;
        let entry = listed.iter().find(|entry| entry.name == pod.name);
        let entry = entry.ok_or(format!("etcd does not list {}", pod.name))?;
        let endpoint =
            endpoint_status(cluster, pod).ok_or(format!("{} does not answer", pod.name))?;
        let expected = [
            ("role", json!("Voter")),
            ("healthy", json!(true)),
            ("version", endpoint["version"].clone()),
            ("node", json!(pod.node)),
            ("id", json!(format!("{:x}", entry.id))),
            // A healthy member has no message.
            ("message", Value::Null),
        ];
        for (field, expected) in expected {
            compare(
                &format!("{} of {}", field, pod.name),
                &reported[field],
                expected,
            )?;
        }
        let cluster_id = endpoint["header"]["cluster_id"]
            .as_u64()
            .ok_or("a member reports its cluster ID")?;
        compare(
            "the cluster's ID",
            &status["clusterId"],
            json!(format!("{cluster_id:x}")),
        )?;
    }
    for idle in ["operation", "waitingFor", "nextAction", "problems"] {
        compare(idle, &status[idle], Value::Null)?;
    }
    let generation = story.get(&["etcd/orders"])["metadata"]["generation"].clone();
    compare("the generation", &status["observedGeneration"], generation)
}
