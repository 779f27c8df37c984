//! Obstacles that the API server does not reject: the status reports them, foreign objects are not changed, everything else is
//! recovered meanwhile, and the rest follows when the obstacle is gone.

mod authentication;
mod full {
    mod same_name;
    mod strays;
    mod unplaceable;
}
mod name_conflicts;
mod reports;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod, members};
use serde_json::Value;

use crate::assertions::CLUSTER_LIMIT;

/// Returns the parts of a foreign object that the operator must not change; Kubernetes changes its status.
fn operator_independent_parts(mut object: Value) -> Value {
    let mut kept = serde_json::Map::new();
    for field in [
        "uid",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
    ] {
        kept.insert(field.to_owned(), object["metadata"][field].take());
    }
    for field in ["spec", "data", "type"] {
        kept.insert(field.to_owned(), object[field].take());
    }
    Value::Object(kept)
}

/// Waits until a lost member is replaced, although the operator reports a problem: as many voters as desired, all Ready, and the lost
/// one not among them.
fn wait_replaced(story: &Story, cluster: &Cluster<'_>, desired: usize, lost: &MemberPod) {
    story.within(CLUSTER_LIMIT, &format!("{} is replaced", lost.name), || {
        let pods = cluster.pods();
        let listed = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        let listed = listed.map(|printed| members(&printed)).unwrap_or_default();
        let voting = |name: &str| {
            listed
                .iter()
                .any(|member| member.name == name && !member.learner)
        };
        pods.len() == desired
            && listed.len() == desired
            && pods
                .iter()
                .all(|pod| pod.ready && pod.name != lost.name && voting(&pod.name))
    });
}

/// Returns the reason and message of Degraded, and the waits.
fn problem_report(cluster: &Cluster<'_>) -> String {
    let status = cluster.status();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let degraded = conditions
        .into_iter()
        .find(|condition| condition["type"] == "Degraded");
    let degraded = degraded
        .filter(|condition| condition["status"] == "True")
        .unwrap_or_default();
    format!(
        "{}: {} {}",
        degraded["reason"], degraded["message"], status["waitingFor"]
    )
}
