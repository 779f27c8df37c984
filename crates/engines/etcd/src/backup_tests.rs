use evenkeel_runtime::TestClock;

use super::*;

const NOW: UnixTime = UnixTime(1_800_000_000);
const UID: &str = "1c9e8a1f-33aa-4bcd-9e01-0123456789ab";

fn member(name: &str) -> Value {
    json!({ "name": name, "role": "Voter", "healthy": true, "version": "3.6.16", "node": "n1" })
}

fn cluster(members: &[Value], change: impl FnOnce(&mut Value)) -> EtcdCluster {
    let mut cluster = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {
            "name": "orders", "namespace": "shop", "uid": UID,
            "annotations": { LAST_APPLIED: "{}", "team": "a" },
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": { "version": "3.6.16" },
        "status": {
            "quota": "2Gi", "leader": "orders-a", "memberList": members,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Serving", "message": "",
                "lastTransitionTime": "2027-01-15T07:00:00Z" }],
        },
    });
    change(&mut cluster);
    serde_json::from_value(cluster).unwrap()
}

fn three() -> Vec<Value> {
    ["orders-a", "orders-b", "orders-c"].map(member).into()
}

fn identity(change: impl FnOnce(&mut Value)) -> Identity {
    let mut identity = json!({ "lineage": 7, "epoch": 2, "seed": 0, "seed_storage": null, "cluster_id": 0xabc,
        "bootstrapped": true, "next_serial": 3, "intent": null, "resource_uid": UID });
    change(&mut identity);
    serde_json::from_value(identity).unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "creationTimestamp": "2027-01-15T07:00:00Z" },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z" }] },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn pods() -> Vec<Pod> {
    ["orders-a", "orders-b", "orders-c"]
        .map(|name| pod(name, |_| ()))
        .into()
}

fn names(source: &ClusterSource) -> Vec<&str> {
    let members = source.members.iter();
    members.map(|it| it.cluster.member.as_str()).collect()
}

fn names_with(members: &[Value], pods: &[Pod]) -> Vec<String> {
    let cluster = cluster(members, |_| ());
    let source = source(&cluster, Some(&identity(|_| ())), pods, NOW);
    assert_eq!(source.members.is_empty(), !source.problem.is_empty());
    names(&source).into_iter().map(ToOwned::to_owned).collect()
}

#[test]
fn a_follower_is_read_rather_than_the_leader() {
    assert_eq!(
        names_with(&three(), &pods()),
        ["orders-b", "orders-c", "orders-a"]
    );
    assert_eq!(names_with(&[member("orders-a")], &pods()), ["orders-a"]);
}

#[test]
fn pods_that_serve_a_cluster_run_where_its_own_pods_run() {
    let cluster = cluster(&three(), |cluster| {
        cluster["spec"]["image"] = json!({ "pullSecrets": ["corp"] });
        cluster["spec"]["scheduling"] = json!({ "nodeSelector": { "disk": "fast" },
            "tolerations": [{ "key": "db", "operator": "Exists" }] });
    });
    let identity = identity(|_| ());
    for identity in [Some(&identity), None] {
        let source = source(&cluster, identity, &pods(), NOW);
        assert_eq!(
            source.placement,
            json!({ "imagePullSecrets": [{ "name": "corp" }], "nodeSelector": { "disk": "fast" },
                "tolerations": [{ "key": "db", "operator": "Exists" }] })
        );
    }
}

#[test]
fn only_healthy_voters_are_read_and_cordoned_nodes_last() {
    for (field, value, expected) in [
        ("healthy", json!(false), &["orders-c", "orders-a"][..]),
        ("role", json!("Learner"), &["orders-c", "orders-a"]),
        ("role", json!("Leaving"), &["orders-c", "orders-a"]),
        ("version", json!(""), &["orders-c", "orders-a"]),
        (
            "nodeStatus",
            json!("Cordoned"),
            &["orders-c", "orders-a", "orders-b"],
        ),
    ] {
        let mut members = three();
        members[1][field] = value;
        assert_eq!(names_with(&members, &pods()), expected, "{field}");
    }
}

#[test]
fn a_member_that_is_starting_or_stopping_is_not_read() {
    let ready = |status: &'static str, since: &'static str| {
        move |pod: &mut Value| {
            let condition = &mut pod["status"]["conditions"][0];
            condition["status"] = json!(status);
            condition["lastTransitionTime"] = json!(since);
        }
    };
    let mut some = pods();
    some[1] = pod("orders-b", ready("True", "2027-01-15T07:59:57Z"));
    assert_eq!(names_with(&three(), &some), ["orders-c", "orders-a"]);
    some[1] = pod("orders-b", ready("False", "2027-01-15T07:00:00Z"));
    assert_eq!(names_with(&three(), &some), ["orders-c", "orders-a"]);
    some[1] = pod("orders-b", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:20Z");
    });
    assert_eq!(names_with(&three(), &some), ["orders-c", "orders-a"]);
    some.remove(1);
    assert_eq!(names_with(&three(), &some), ["orders-c", "orders-a"]);
    assert!(names_with(&three(), &[]).is_empty());
}

#[test]
fn no_member_is_read_without_a_quorum_or_before_the_bootstrap_is_finished() {
    let no_quorum = cluster(&three(), |cluster| {
        let ready = &mut cluster["status"]["conditions"][0];
        ready["status"] = json!("False");
        ready["reason"] = json!("QuorumLost");
    });
    let found = source(&no_quorum, Some(&identity(|_| ())), &pods(), NOW);
    assert!(found.members.is_empty() && found.problem.contains("quorum"));
    assert_eq!(found.lineage.as_deref(), Some("00000007"));
    let serving = cluster(&three(), |_| ());
    for identity in [
        None,
        Some(identity(|it| it["bootstrapped"] = json!(false))),
        Some(identity(|it| it["cluster_id"] = json!(null))),
        Some(identity(|it| {
            it["resource_uid"] = json!("2c9e8a1f-33aa-4bcd-9e01-0123456789ab")
        })),
    ] {
        let found = source(&serving, identity.as_ref(), &pods(), NOW);
        assert!(found.members.is_empty() && found.problem.contains("bootstrap"));
    }
    // Without space the data can be read, and a backup is needed the more.
    let no_space = cluster(&three(), |cluster| {
        let ready = &mut cluster["status"]["conditions"][0];
        ready["status"] = json!("False");
        ready["reason"] = json!("NoSpace");
    });
    let found = source(&no_space, Some(&identity(|_| ())), &pods(), NOW);
    assert_eq!(found.members.len(), 3);
}

#[tokio::test]
async fn the_task_names_the_member_the_cluster_and_the_resource() {
    let cluster = cluster(&three(), |_| ());
    let source = source(&cluster, Some(&identity(|_| ())), &pods(), NOW);
    let client = evenkeel_kit::testing::client(|_, _| evenkeel_kit::testing::not_found());
    let backups = EtcdBackups::new(client, TestClock::default().shared());
    let task = backups.snapshot_task(&source.members[0], "nightly", "/etc/evenkeel/tls".into());
    let expected = json!({ "snapshotEtcd": {
        "endpoint": "https://orders-b.orders-etcd-peer.shop.svc:2379",
        "tls": "/etc/evenkeel/tls",
        "cluster": { "namespace": "shop", "name": "orders", "lineage": "00000007", "clusterId": "abc",
            "member": "orders-b" },
        "epoch": 2,
        "version": "3.6.16",
        "quota": 2_u64 << 30,
        "resource": source.members[0].resource,
        "name": "nightly",
    } });
    assert_eq!(serde_json::to_value(task).unwrap(), expected);
    assert_eq!(source.members[0].tls_secret, "orders-etcd-operator-tls");
    let resource = &source.members[0].resource;
    assert_eq!(resource["spec"]["version"], "3.6.16");
    assert_eq!(resource["metadata"]["annotations"], json!({ "team": "a" }));
    assert!(
        resource.get("status").is_none() && resource["metadata"].get("managedFields").is_none()
    );
}

#[tokio::test]
async fn a_cluster_that_is_being_deleted_is_not_found() {
    let key = ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    };
    let client = evenkeel_kit::testing::client(|head, _| match head.uri.path() {
        "/apis/evenkeel.dev/v1alpha1/namespaces/shop/etcdclusters/orders" => {
            let cluster = cluster(&three(), |cluster| {
                cluster["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
            });
            (200, json!(cluster))
        }
        "/api/v1/namespaces/shop/pods" => (200, json!({ "metadata": {}, "items": [] })),
        _ => evenkeel_kit::testing::not_found(),
    });
    let backups = EtcdBackups::new(client, TestClock::default().shared());
    assert_eq!(backups.cluster(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_restore_reads_the_id_the_progress_and_the_obstacles_of_the_cluster() {
    let key = |name: &str| ResourceKey {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    };
    let client = evenkeel_kit::testing::client(|head, _| {
        let name = head.uri.path().rsplit('/').next().unwrap_or_default();
        let change = |cluster: &mut Value| match name {
            "orders" => {
                cluster["spec"]["paused"] = json!(true);
                cluster["status"]["clusterId"] = json!("abc");
                cluster["status"]["restore"] =
                    json!({ "name": "back", "phase": "Preparing", "replaces": "abc" });
            }
            "new" => cluster["spec"]["storage"] = json!({ "ephemeral": true }),
            _ => cluster["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z"),
        };
        (200, json!(cluster(&[], change)))
    });
    let backups = EtcdBackups::new(client, TestClock::default().shared());
    let state = backups
        .restore_state(&key("orders"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(state.cluster_id.as_deref(), Some("abc"));
    assert_eq!(state.progress.unwrap().name, "back");
    assert_eq!(state.version, "3.6.16");
    assert!(state.is_paused && !state.is_ephemeral);
    let state = backups.restore_state(&key("new")).await.unwrap().unwrap();
    assert_eq!((state.cluster_id, state.progress), (None, None));
    assert!(!state.is_paused && state.is_ephemeral);
    assert_eq!(backups.restore_state(&key("gone")).await.unwrap(), None);
}

#[tokio::test]
async fn data_of_an_earlier_minor_version_can_be_read() {
    let client = evenkeel_kit::testing::client(|_, _| evenkeel_kit::testing::not_found());
    let backups = EtcdBackups::new(client, TestClock::default().shared());
    for (version, data, can_read) in [
        ("3.6.16", "3.6.16", true),
        ("3.6.13", "3.6.16", true),
        ("3.7.3", "3.5.35", true),
        ("3.6.16", "3.7.3", false),
        ("3.5.35", "3.6.11", false),
        ("3.6.16", "", false),
        ("3.6.16", "new", false),
    ] {
        assert_eq!(
            backups.can_read(version, data),
            can_read,
            "{version} {data}"
        );
    }
}
