//! Stores that fail, agents and operators that are killed, damaged backups, and other versions.

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::s3::S3Server;
use serde_json::{Value, json};

use super::{
    API, apply_backup, condition, revision_of, start_operator, take_backup, wait_complete,
    wait_final,
};
use crate::assertions::{CLUSTER_LIMIT, create_orders, wait_healthy};
use crate::interrupts::spec;

/// How long a store may take to be checked: the pod of the agent starts, and a server that does not answer is tried for a while.
const CHECK_LIMIT: Duration = Duration::from_secs(180);

#[test]
fn a_bad_store_says_what_to_change() {
    let story = Story::begin("bad-stores");
    let _operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("good");
    let good = story.get(&["backupstore", "good"])["spec"].clone();
    let with = |path: &str, value: Value| {
        let mut spec = good.clone();
        *spec.pointer_mut(path).expect("the field exists") = value;
        spec
    };
    story.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: wrong-key}\n\
         stringData: {accessKeyID: unknown, secretAccessKey: wrong}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {name: incomplete}\nstringData: {accessKeyID: incomplete}",
    );
    let cases = [
        (
            "no-bucket",
            "BucketNotFound",
            with("/s3/bucket", json!("no-such-bucket")),
        ),
        (
            "wrong-key",
            "InvalidCredentials",
            with("/s3/credentials", json!({"secret": "wrong-key"})),
        ),
        (
            "no-secret",
            "SecretNotFound",
            with("/s3/credentials", json!({"secret": "no-such-secret"})),
        ),
        (
            "no-key",
            "InvalidSecret",
            with("/s3/credentials", json!({"secret": "incomplete"})),
        ),
        (
            "no-host",
            "Unreachable",
            with("/s3/endpoint", json!("https://no-such-host.invalid")),
        ),
        (
            "metadata",
            "AddressNotAllowed",
            with("/s3/endpoint", json!("https://169.254.169.254")),
        ),
        (
            "private",
            "AddressNotAllowed",
            with("/s3/allowPrivateAddresses", json!(false)),
        ),
        (
            "no-volume",
            "VolumeNotFound",
            json!({"volume": {"claim": "no-such-claim"}}),
        ),
    ];
    for (name, _, spec) in &cases {
        let store = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
            "metadata": {"name": name}, "spec": spec});
        story.apply(&store.to_string());
    }
    wait_store(&story, "good", "True", "Available");
    for (name, reason, _) in &cases {
        wait_store(&story, name, "False", reason);
    }
    assert!(
        server.keys().is_empty(),
        "a check left objects: {:?}",
        server.keys()
    );
    // The Secret is corrected: no other change is needed.
    server.create_store("good");
    let credentials = &server.access().credentials;
    let fixed = json!({"stringData": {"accessKeyID": credentials.access_key_id,
        "secretAccessKey": credentials.secret_access_key}});
    story.kubectl(&[
        "patch",
        "secret",
        "wrong-key",
        "--patch",
        &fixed.to_string(),
    ]);
    wait_store(&story, "wrong-key", "True", "Available");
}

#[test]
fn a_store_that_fails_during_uploads_never_has_an_incomplete_backup() {
    let story = Story::begin("bad-uploads");
    let _operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("prod");
    let cluster = create_orders(&story, &spec(1), 1);
    fill(&cluster, 40);
    wait_store(&story, "prod", "True", "Available");
    // Rejected credentials, a full disk, a stopped server: the backup fails, or waits and is complete once the cause is gone.
    server.fill_disk();
    apply_backup(
        &story,
        "full",
        json!({"cluster": {"name": "orders"}, "store": "prod", "deadline": "2m"}),
    );
    let status = wait_final(&story, "full", Duration::from_secs(240));
    assert_eq!(status["phase"], "Failed", "{status:#}");
    server.free_disk();
    assert_eq!(manifests(&server), 0, "{:?}", server.keys());

    server.stop();
    apply_backup(
        &story,
        "stopped",
        json!({"cluster": {"name": "orders"}, "store": "prod", "deadline": "10m"}),
    );
    story.eventually("the backup was tried", || {
        let backup = story.read(API, "backups/stopped").unwrap_or_default();
        backup["status"]["attempts"].as_i64() >= Some(1)
    });
    server.start_again();
    wait_complete(&story, "stopped");
    assert_eq!(manifests(&server), 1, "{:?}", server.keys());
    let status = take_backup(&story, "last", "orders", "prod");
    assert_eq!(manifests(&server), 2, "{:?}", server.keys());
    assert!(revision_of(status["position"].as_str().unwrap_or_default()) >= 40);
}

#[test]
fn a_killed_agent_and_a_killed_operator_leave_one_backup() {
    let story = Story::begin("killed-agents");
    let mut operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("prod");
    let cluster = create_orders(&story, &spec(3), 3);
    fill(&cluster, 20);
    apply_backup(
        &story,
        "first",
        json!({"cluster": {"name": "orders"}, "store": "prod"}),
    );
    let mut pod = String::new();
    story.eventually("the agent runs", || {
        let pods = story.read(
            "/api/v1",
            "pods?labelSelector=backup.evenkeel.dev/backup=first",
        );
        let pods = pods.unwrap_or_default();
        pod = pods["items"][0]["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        !pod.is_empty()
    });
    story.kubectl(&["delete", "pod", &pod, "--grace-period=0", "--force"]);
    operator.restart();
    wait_complete(&story, "first");
    assert_eq!(manifests(&server), 1, "{:?}", server.keys());
}

#[test]
fn a_damaged_backup_is_rejected_before_anything_is_touched() {
    let story = Story::begin("damaged");
    let _operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("prod");
    let cluster = create_orders(&story, &spec(1), 1);
    fill(&cluster, 10);
    let bad = take_backup(&story, "bad", "orders", "prod");
    let data = format!("{}/data.zst", bad["location"].as_str().unwrap_or_default());
    let middle = server.read(&data).len() / 2;
    server.damage(&data, middle);
    take_backup(&story, "good", "orders", "prod");
    let from = |backup: &str| format!("{}\nbootstrap: {{from: {{backup: {backup}}}}}", spec(1));
    let copy = Cluster::apply(&story, "copy", &from("bad"));
    story.within(CLUSTER_LIMIT, "the damage is reported", || {
        copy.condition("Degraded") == ("True".to_owned(), "RestoreFailed".to_owned())
    });
    let pods = copy.pods();
    assert!(
        pods.iter().all(|pod| pod.name.ends_with("-restore")),
        "a member was started: {pods:?}"
    );
    copy.set(&from("good"));
    copy.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &copy, 1);
    assert_eq!(
        copy.etcdctl(&["get", "key-9", "--print-value-only"]).len(),
        cluster
            .etcdctl(&["get", "key-9", "--print-value-only"])
            .len()
    );
}

#[test]
fn a_backup_is_restored_by_the_same_and_later_versions_only() {
    let story = Story::begin("versions");
    let _operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("prod");
    for (old, allowed, rejected) in [
        ("3.5.35", &["3.5.35", "3.6.16", "3.7.3"][..], &[][..]),
        ("3.7.3", &["3.7.3"], &["3.6.16", "3.5.35"]),
    ] {
        let stamp = old.replace('.', "-");
        let source = Cluster::apply(
            &story,
            &format!("from-{stamp}"),
            &format!("version: {old}\nmembers: 1"),
        );
        source.wait_ready(CLUSTER_LIMIT);
        fill(&source, 3);
        let backup = format!("backup-{stamp}");
        take_backup(&story, &backup, source.name(), "prod");
        for version in allowed {
            let name = format!("to-{}-{stamp}", version.replace('.', "-"));
            let spec = format!(
                "version: {version}\nmembers: 1\nbootstrap: {{from: {{backup: {backup}}}}}"
            );
            let copy = Cluster::apply(&story, &name, &spec);
            copy.wait_ready(CLUSTER_LIMIT);
            assert!(copy.etcdctl(&["get", "key-2", "--print-value-only"]).len() > 100);
        }
        for version in rejected {
            let name = format!("to-{}-{stamp}", version.replace('.', "-"));
            let spec = format!(
                "version: {version}\nmembers: 1\nbootstrap: {{from: {{backup: {backup}}}}}"
            );
            let copy = Cluster::apply(&story, &name, &spec);
            story.within(CLUSTER_LIMIT, "the older version is rejected", || {
                copy.condition("Degraded").1 == "RestoreFailed"
            });
            assert!(copy.pods().is_empty(), "{:?}", copy.pods());
        }
    }
}

#[test]
fn retention_deletes_old_backups_and_their_objects() {
    let story = Story::begin("retention");
    let _operator = start_operator(&story);
    let server = S3Server::start(&story);
    server.create_store("prod");
    wait_store(&story, "prod", "True", "Available");
    let policy = "backup: {store: prod, schedule: \"* * * * *\", keep: {last: 1}}";
    let _cluster = create_orders(&story, &format!("{}\n{policy}", spec(1)), 1);
    let names = || {
        let backups = story.read(API, "backups").unwrap_or_default();
        let items = backups["items"].as_array().cloned().unwrap_or_default();
        let name = |backup: &Value| backup["metadata"]["name"].as_str().map(str::to_owned);
        items.iter().filter_map(name).collect::<Vec<_>>()
    };
    story.within(CLUSTER_LIMIT, "the first backup is there", || {
        !names().is_empty()
    });
    let first = names();
    // The next one follows within a minute, and the first one is then deleted, in the store and in Kubernetes.
    story.within(Duration::from_secs(300), "the first backup is gone", || {
        let now = names();
        !now.is_empty() && first.iter().all(|name| !now.contains(name))
    });
    story.within(CLUSTER_LIMIT, "the store has at most two backups", || {
        (1..=2).contains(&manifests(&server))
    });
}

/// Writes values of 64 KiB.
fn fill(cluster: &Cluster<'_>, keys: usize) {
    let value = "x".repeat(64 << 10);
    for number in 0..keys {
        cluster.etcdctl(&["put", &format!("key-{number}"), &value]);
    }
}

fn manifests(server: &S3Server<'_>) -> usize {
    let keys = server.keys();
    keys.iter()
        .filter(|key| key.ends_with("/manifest.json"))
        .count()
}

fn wait_store(story: &Story, name: &str, status: &str, reason: &str) {
    let mut store = Value::Null;
    let what = format!("Ready of BackupStore {name} is {status} with reason {reason}");
    let expected = (status.to_owned(), reason.to_owned());
    story.within(CHECK_LIMIT, &what, || {
        store = story
            .read(API, &format!("backupstores/{name}"))
            .unwrap_or_default();
        condition(&store, "Ready") == expected
    });
    let message = store["status"]["conditions"][0]["message"]
        .as_str()
        .unwrap_or_default();
    println!("{name}: {message}");
}
