//! Volumes: they grow while members run on them, where their class allows it; to another class or another place data moves with its
//! members, which are replaced one by one.

mod full;

use std::collections::BTreeMap;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{LONG, formed, ids, until_right};
use crate::middle::{comes_to_rest, ends_well};
use crate::rolls::{name_of, pods};
use crate::upgrade::{claims, uids};

/// Members on volumes of this class, with a quota of their own: the default one would follow the volumes' size.
fn spec(members: usize, class: &str) -> String {
    format!(
        "version: 3.6.16\nmembers: {members}\nstorage: {{size: 1Gi, class: {class}, keepRemovedFor: \"0\"}}\n\
         etcd: {{quota: 512Mi}}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
    )
}

/// Something of each claim of `orders`, by the claims' names.
fn of_claims(story: &Story, pointer: &str) -> BTreeMap<String, String> {
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

fn until_all_claims(story: &Story, pointer: &str, value: &str, members: usize) {
    until_right(&format!("{pointer} is {value} on all claims"), || {
        let now = of_claims(story, pointer);
        let all = now.len() == members && now.values().all(|one| one == value);
        if all { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

const CAPACITY: &str = "/status/capacity/storage";

/// What `kubectl` says of an edit that is refused.
fn refused(story: &Story, spec: &Value) -> String {
    let patch = json!({ "spec": spec }).to_string();
    let said = story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
    said.expect_err("it is refused")
}

#[test]
fn volumes_grow_while_members_run_on_them_and_never_shrink() {
    let story = Story::begin("volumes-grow");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3, "lab-disk"), 3);
    let (workload, before, on) = (cluster.workload(), uids(&cluster), claims(&cluster));
    cluster.patch(&json!({ "storage": { "size": "2Gi" } }));
    until_all_claims(&story, CAPACITY, "2Gi", 3);
    until_right("the status says so", || {
        let status = cluster.status();
        if status["volumeSize"] == "2Gi" {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    let said = refused(&story, &json!({ "storage": { "size": "1Gi" } }));
    assert!(said.contains("volumes never shrink"), "{said}");
    ends_well(&story, &cluster, 3);
    assert_eq!(uids(&cluster), before, "nobody was restarted");
    assert_eq!(claims(&cluster), on);
    // With a quota that follows the volume members are restarted for that, one by one.
    cluster.patch(&json!({ "etcd": { "quota": null } }));
    let flag = format!("--quota-backend-bytes={}", (2_u64 << 30) / 4 * 3);
    until_right("all have the larger quota", || {
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
    ends_well(&story, &cluster, 3);
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
