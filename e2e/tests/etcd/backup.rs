//! Backups: taken under load, and restored into a new cluster from the bucket alone.

mod full;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::s3::{S3Server, agent_image};
use evenkeel_history::{Key, RunTime, Value as WrittenValue};
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, wait_healthy};
use crate::interrupts::spec;

/// The API of the resources.
const API: &str = "/apis/evenkeel.dev/v1alpha1";

#[test]
fn a_destroyed_namespace_comes_back_from_the_bucket_alone() {
    let elsewhere = Story::begin("bucket");
    let server = S3Server::start(&elsewhere);
    let (history, revision) = {
        let shop = Story::begin("shop");
        let _operator = start_operator(&shop);
        shop.apply(&server.access().store_manifest("prod"));
        let cluster = create_orders(&shop, &spec(3), 3);
        let workload = cluster.workload();
        shop.eventually("clients have written", || {
            workload.stats(RunTime::default()).acknowledged_writes > 200
        });
        let status = take_backup(&shop, "first", "orders", "prod");
        let position = status["position"].as_str().unwrap_or_default().to_owned();
        let history = workload.finish();
        shop.kubectl(&["delete", "namespace", shop.namespace(), "--wait=false"]);
        shop.within(CLUSTER_LIMIT, "the namespace is gone", || {
            shop.try_kubectl(&["get", "namespace", shop.namespace()])
                .is_err()
        });
        (history, revision_of(&position))
    };

    // Nothing but the bucket is left.
    let location = only_backup(&server);
    let shop = Story::begin("shop-again");
    let _operator = start_operator(&shop);
    shop.apply(&server.access().store_manifest("prod"));
    apply_backup(
        &shop,
        "imported",
        json!({"cluster": {"name": "orders"}, "store": "prod", "existing": location}),
    );
    wait_complete(&shop, "imported");
    let restored = Cluster::apply(
        &shop,
        "orders",
        &format!("{}\nbootstrap: {{from: {{backup: imported}}}}", spec(3)),
    );
    restored.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&shop, &restored, 3);
    let expected: BTreeMap<_, _> = history
        .state_at(revision)
        .into_iter()
        .map(|(key, state)| (key, (state.value, state.version)))
        .collect();
    assert!(expected.len() > 1, "the backup has hardly any keys");
    assert_eq!(keys_of(&restored), expected, "at revision {revision}");
    // A restored cluster is a cluster: clients write, and revisions have not gone back.
    let workload = restored.workload();
    let again = workload.finish();
    assert!(
        again.start.revision > revision + 1_000_000,
        "revisions were not bumped: {}",
        again.start.revision
    );
    restored.wait_same_data();
}

#[test]
fn a_schedule_on_a_volume_takes_backups_and_proves_one_by_a_drill() {
    let story = Story::begin("scheduled");
    let _operator = start_operator(&story);
    story.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: backups}\n\
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n---\n\
         apiVersion: evenkeel.dev/v1alpha1\nkind: BackupStore\nmetadata: {name: disk}\n\
         spec: {volume: {claim: backups}}",
    );
    let spec = format!(
        "{}\nbackup: {{store: disk, schedule: \"@hourly\", drill: \"@daily\"}}",
        spec(1)
    );
    let cluster = create_orders(&story, &spec, 1);
    cluster.etcdctl(&["put", "greeting", "hello"]);
    let mut schedule = Value::Null;
    story.within(CLUSTER_LIMIT, "a drill has proven a backup", || {
        schedule = story
            .read(API, "backupschedules/orders-etcd")
            .unwrap_or_default();
        condition(&schedule, "Recoverable").0 == "True"
    });
    let status = &schedule["status"];
    let last = &status["drill"]["lastSuccess"];
    assert_eq!(last["result"], "Proven", "{status:#}");
    let proven = last["backup"].as_str().unwrap_or_default();
    let backup = story
        .read(API, &format!("backups/{proven}"))
        .unwrap_or_default();
    assert!(backup["status"]["proven"]["at"].is_string(), "{backup:#}");
    assert_eq!(status["lastSuccess"]["name"], proven, "{status:#}");
    assert!(status["nextBackup"].is_string(), "{status:#}");
    // The schedule follows `spec.backup`; without it the schedule is deleted, and no backup.
    cluster.patch(&json!({"backup": {"keep": {"last": 3}}}));
    story.eventually("the schedule has the new retention", || {
        let schedule = story.read(API, "backupschedules/orders-etcd");
        schedule.is_some_and(|schedule| schedule["spec"]["keep"]["last"] == 3)
    });
    cluster.patch(&json!({"backup": null}));
    story.eventually("the schedule is deleted", || {
        story.read(API, "backupschedules/orders-etcd").is_none()
    });
    assert!(
        story.read(API, &format!("backups/{proven}")).is_some(),
        "the backup was deleted with its schedule"
    );
    // Agent pods are deleted when their outcome is recorded.
    story.eventually("no agent pod is left", || {
        let selector = "pods?labelSelector=backup.evenkeel.dev/task";
        story
            .read("/api/v1", selector)
            .is_some_and(|pods| pods["items"].as_array().is_some_and(Vec::is_empty))
    });
}

/// Starts the operator with the image of the agent.
pub(crate) fn start_operator(story: &Story) -> Operator {
    let options = Options {
        agent_image: Some(agent_image(story).to_owned()),
        ..Options::default()
    };
    Operator::with(story, options)
}

/// Creates a `Backup`.
pub(crate) fn apply_backup(story: &Story, name: &str, spec: Value) {
    let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": {"name": name}, "spec": spec});
    story.apply(&object.to_string());
}

/// Creates a `Backup` of a cluster and waits until it is complete; returns its status.
pub(crate) fn take_backup(story: &Story, name: &str, cluster: &str, store: &str) -> Value {
    apply_backup(
        story,
        name,
        json!({"cluster": {"name": cluster}, "store": store}),
    );
    wait_complete(story, name)
}

/// Waits until a `Backup` is complete; returns its status.
pub(crate) fn wait_complete(story: &Story, name: &str) -> Value {
    let status = wait_final(story, name, CLUSTER_LIMIT);
    assert_eq!(status["phase"], "Complete", "{status:#}");
    status
}

/// Waits until a `Backup` is complete or has failed; returns its status.
pub(crate) fn wait_final(story: &Story, name: &str, limit: Duration) -> Value {
    let mut status = Value::Null;
    story.within(limit, &format!("Backup {name} ends"), || {
        let backup = story.read(API, &format!("backups/{name}"));
        status = backup.map_or(Value::Null, |backup| backup["status"].clone());
        matches!(status["phase"].as_str(), Some("Complete" | "Failed"))
    });
    status
}

/// Returns the status and the reason of a condition.
pub(crate) fn condition(object: &Value, kind: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    let text = |field: &str| {
        found
            .and_then(|condition| condition[field].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    (text("status"), text("reason"))
}

/// Returns the place of the only complete backup in the bucket.
pub(crate) fn only_backup(server: &S3Server<'_>) -> String {
    let keys = server.keys();
    let manifests: Vec<_> = keys
        .iter()
        .filter_map(|key| key.strip_suffix("/manifest.json"))
        .collect();
    let [only] = manifests.as_slice() else {
        panic!("the bucket has not one backup: {keys:?}");
    };
    (*only).to_owned()
}

/// Returns the revision in a position such as `revision 4711`.
pub(crate) fn revision_of(position: &str) -> i64 {
    position
        .strip_prefix("revision ")
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("not a position of etcd: {position:?}"))
}

/// Returns the value and the version of each key of the workload, as etcd has them.
pub(crate) fn keys_of(cluster: &Cluster<'_>) -> BTreeMap<Key, (WrittenValue, i64)> {
    let printed = cluster.etcdctl(&["get", "", "--from-key", "--write-out=json"]);
    let printed: Value = serde_json::from_str(&printed).expect("etcdctl prints JSON");
    let decode = |value: &Value| {
        STANDARD
            .decode(value.as_str().unwrap_or_default())
            .expect("etcdctl prints base64")
    };
    let keys = printed["kvs"].as_array().cloned().unwrap_or_default();
    keys.iter()
        .map(|entry| {
            let name = decode(&entry["key"]);
            let number = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let value = WrittenValue::parse(&decode(&entry["value"]));
            let version = entry["version"].as_i64().unwrap_or_default();
            (Key::parse(number), (value, version))
        })
        .collect()
}
