//! What stands in a cluster's way and only the operator can see: it is told in words, what is somebody else's is left
//! alone, everything that can be healed meanwhile is, and once the obstacle has gone the rest follows by itself.

mod locked;
mod full {
    mod nowhere;
    mod strays;
}
mod taken;
mod told;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod, members};
use serde_json::Value;

use crate::look::LONG;

/// What nobody may change of an object that is not the operator's. Its status is Kubernetes' own business.
fn substance(mut object: Value) -> Value {
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

/// Waits until members are well, though the operator has something to complain of: as many voters as wanted, nobody else,
/// all Ready, and the one that was lost not among them.
fn until_replaced(story: &Story, cluster: &Cluster<'_>, wanted: usize, lost: &MemberPod) {
    story.within(LONG, &format!("{} is replaced", lost.name), || {
        let pods = cluster.pods();
        let listed = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        let listed = listed.map(|printed| members(&printed)).unwrap_or_default();
        let voting = |name: &str| {
            listed
                .iter()
                .any(|member| member.name == name && !member.learner)
        };
        pods.len() == wanted
            && listed.len() == wanted
            && pods
                .iter()
                .all(|pod| pod.ready && pod.name != lost.name && voting(&pod.name))
    });
}

/// What the operator says is amiss, and waits for: all that a person reads when they wonder.
fn complaint(cluster: &Cluster<'_>) -> String {
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
