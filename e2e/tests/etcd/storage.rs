//! Volumes: they are expanded while members run, if their StorageClass allows it; to another class or zone members move by replacement,
//! one by one.

mod full;

use std::collections::BTreeMap;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, member_ids, wait_until_ok};
use crate::interrupts::{wait_converged, wait_idle};
use crate::rollouts::{name_of, pods};
use crate::upgrade::{claims, uids};

/// Returns a spec with volumes of this class and a fixed quota: the default quota depends on the size of the volumes.
fn spec(members: usize, class: &str) -> String {
    format!(
        "version: 3.6.16\nmembers: {members}\nstorage: {{size: 1Gi, class: {class}, keepRemovedFor: \"0\"}}\n\
         etcd: {{quota: 512Mi}}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
    )
}

/// Returns a field of each PVC of `orders`, by the PVC's name.
fn claim_fields(story: &Story, pointer: &str) -> BTreeMap<String, String> {
    let path = "persistentvolumeclaims?labelSelector=etcd.evenkeel.dev%2Fcluster%3Dorders";
    let list = story.read("/api/v1", path).unwrap_or_default();
    let all = list["items"].as_array().cloned().unwrap_or_default();
    let text = |claim: &Value| {
        claim
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    all.iter()
        .map(|claim| (name_of(claim), text(claim)))
        .collect()
}

fn wait_all_claims(story: &Story, pointer: &str, value: &str, members: usize) {
    wait_until_ok(&format!("{pointer} is {value} on all PVCs"), || {
        let now = claim_fields(story, pointer);
        let all = now.len() == members && now.values().all(|one| one == value);
        if all { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

const CAPACITY: &str = "/status/capacity/storage";

/// Returns `kubectl`'s message for a rejected edit.
fn rejection(story: &Story, spec: &Value) -> String {
    let patch = json!({ "spec": spec }).to_string();
    let output = story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
    output.expect_err("the edit is rejected")
}

#[test]
fn volumes_are_expanded_while_members_run_and_never_shrunk() {
    let story = Story::begin("volumes-grow");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3, "lab-disk"), 3);
    let (workload, before, on) = (cluster.workload(), uids(&cluster), claims(&cluster));
    cluster.patch(&json!({ "storage": { "size": "2Gi" } }));
    wait_all_claims(&story, CAPACITY, "2Gi", 3);
    wait_until_ok("the status reports 2Gi", || {
        let status = cluster.status();
        if status["volumeSize"] == "2Gi" {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    let output = rejection(&story, &json!({ "storage": { "size": "1Gi" } }));
    assert!(output.contains("volumes never shrink"), "{output}");
    wait_converged(&story, &cluster, 3);
    assert_eq!(uids(&cluster), before, "a member was restarted");
    assert_eq!(claims(&cluster), on);
    // A quota that depends on the volume's size restarts members, one by one.
    cluster.patch(&json!({ "etcd": { "quota": null } }));
    let flag = format!("--quota-backend-bytes={}", (2_u64 << 30) / 4 * 3);
    wait_until_ok("all members have the larger quota", || {
        let args = |pod: &Value| {
            pod.pointer("/spec/containers/0/args")
                .cloned()
                .unwrap_or_default()
        };
        let pods = pods(&story);
        let all = pods.len() == 3 && pods.iter().all(|pod| args(pod).to_string().contains(&flag));
        if all {
            Ok(())
        } else {
            Err(format!("{:#}", cluster.status()))
        }
    });
    wait_converged(&story, &cluster, 3);
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
