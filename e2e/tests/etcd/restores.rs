//! In-place restores: the data of a running cluster is replaced by that of a backup, and brought back.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::s3::S3Server;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, wait_healthy};
use crate::backup::{start_operator, take_backup};
use crate::interrupts::spec;

/// The API of the resources.
const API: &str = "/apis/evenkeel.dev/v1alpha1";

#[test]
fn a_running_cluster_is_restored_in_place_and_the_restore_is_undone() {
    let story = Story::begin("restored");
    let server = S3Server::start(&story);
    let _operator = start_operator(&story);
    story.apply(&server.access().store_manifest("prod"));
    let cluster = create_orders(&story, &spec(3), 3);
    cluster.etcdctl(&["put", "before", "1"]);
    take_backup(&story, "good", "orders", "prod");
    cluster.etcdctl(&["put", "after", "2"]);
    let old_id = cluster_id(&cluster);
    let old_pods = pod_uids(&cluster);

    // A Restore that names another cluster changes nothing.
    apply_restore(&story, "wrong", json!({ "replaces": "1234abcd" }));
    wait_phase(&story, "wrong", "NotNeeded");
    assert_eq!(pod_uids(&cluster), old_pods);

    let keep = |story: &Story| apply_restore(story, "back", json!({ "replaces": old_id }));
    keep(&story);
    wait_phase(&story, "back", "Complete");
    wait_healthy(&story, &cluster, 3);
    let new_id = cluster_id(&cluster);
    assert_ne!(new_id, old_id);
    assert_eq!(keys(&cluster), ["before"]);
    assert!(revision(&cluster) > 1_000_000_000, "revisions are bumped");
    assert_eq!(
        kept_volumes(&story),
        3,
        "the volumes of the replaced cluster"
    );
    let status = cluster.status();
    assert_eq!(status["restore"]["name"], "back", "{status:#}");
    assert!(status["restore"]["undoUntil"].is_string(), "{status:#}");
    let new_pods = pod_uids(&cluster);
    // Applied again, as a GitOps tool does.
    keep(&story);
    cluster.etcdctl(&["put", "during", "3"]);
    assert_eq!(pod_uids(&cluster), new_pods);
    let clients = cluster.workload();
    let history = clients.finish();
    assert!(history.start.revision > 1_000_000_000);
    cluster.wait_same_data();

    let undo = json!({ "spec": { "undo": true } }).to_string();
    story.kubectl(&["patch", "ekr", "back", "--type=merge", "--patch", &undo]);
    wait_phase(&story, "back", "Undone");
    wait_healthy(&story, &cluster, 3);
    assert_eq!(cluster_id(&cluster), old_id);
    assert_eq!(keys(&cluster), ["after", "before"]);
    cluster.wait_same_data();
    assert!(
        kept_volumes(&story) >= 3,
        "the restored data is kept as long"
    );
    // The cluster is an ordinary one: it is scaled, and a lost pod comes back.
    cluster.patch(&json!({ "members": 1 }));
    wait_healthy(&story, &cluster, 1);
    assert_eq!(keys(&cluster), ["after", "before"]);
}

/// Creates a `Restore` of the backup `good`, or applies it again.
pub(crate) fn apply_restore(story: &Story, name: &str, fields: Value) {
    let mut spec = json!({
        "cluster": { "name": "orders" }, "from": { "backup": "good" }, "keepOldDataFor": "1h",
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": name }, "spec": spec });
    story.apply(&object.to_string());
}

pub(crate) fn wait_phase(story: &Story, name: &str, phase: &str) {
    let mut last = Value::Null;
    story.within(CLUSTER_LIMIT, &format!("Restore {name} is {phase}"), || {
        let restore = story.read(API, &format!("restores/{name}"));
        let status = restore.map_or(Value::Null, |restore| restore["status"].clone());
        if status["phase"] != last["phase"] || status["message"] != last["message"] {
            println!("{name}: {} {}", status["phase"], status["message"]);
        }
        last = status;
        last["phase"] == phase
    });
}

pub(crate) fn cluster_id(cluster: &Cluster<'_>) -> String {
    let status = cluster.status();
    status["clusterId"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn pod_uids(cluster: &Cluster<'_>) -> Vec<String> {
    let mut uids: Vec<_> = cluster.pods().into_iter().map(|pod| pod.uid).collect();
    uids.sort();
    uids
}

/// Returns the keys that are not those of the workload.
pub(crate) fn keys(cluster: &Cluster<'_>) -> Vec<String> {
    let printed = cluster.etcdctl(&["get", "", "--from-key", "--keys-only"]);
    let names = printed.lines().filter(|line| !line.is_empty());
    let own = names.filter(|name| ["before", "after", "during"].contains(name));
    own.map(str::to_owned).collect()
}

fn revision(cluster: &Cluster<'_>) -> i64 {
    let printed = cluster.etcdctl(&["get", "before", "--write-out=json"]);
    let printed: Value = serde_json::from_str(&printed).expect("etcdctl prints JSON");
    printed["header"]["revision"].as_i64().unwrap_or_default()
}

fn kept_volumes(story: &Story) -> usize {
    let claims = story.get(&["pvc", "-l", "evenkeel.dev/replaced=true"]);
    claims["items"].as_array().map_or(0, Vec::len)
}
