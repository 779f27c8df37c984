//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_client_that_waits_for_ready_can_write_at_once() {
    let story = Story::begin("ready-fresh");
    let _operator = Operator::start(&story);
    for round in 0..4 {
        // Two clusters at a time: one member is Ready first, three have elections and learners.
        let [one, three] = [1, 3].map(|members| {
            let spec = format!("version: 3.6.16\nmembers: {members}\nstorage: {{ephemeral: true}}");
            Cluster::apply(&story, &format!("fresh-{members}-{round}"), &spec)
        });
        write_when_ready(&one);
        write_when_ready(&three);
        story.kubectl(&["delete", "etcd", one.name(), three.name(), "--wait=false"]);
    }
}

/// Whether a write routes clients to a pod.
fn routes(write: &Write) -> bool {
    write.is_to("pods") && write.body["metadata"]["labels"]["evenkeel.dev/role"] == "voter"
}

#[test]
fn a_healthy_cluster_without_routed_clients_is_not_ready() {
    let story = Story::begin("ready-routed");
    let operator = Operator::start(&story);
    operator.proxy().rule(|write| {
        if routes(write) {
            Verdict::Fail(503)
        } else {
            Verdict::Pass
        }
    });
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 1");
    let tries = || {
        operator
            .proxy()
            .writes()
            .iter()
            .filter(|written| routes(&written.write))
            .count()
    };
    story.within(
        CLUSTER_LIMIT,
        "the operator has tried three times to route clients",
        || tries() >= 3,
    );
    let pod = cluster.pods().remove(0);
    cluster
        .etcdctl_at(&pod.ip, &["get", "anything"])
        .expect("etcd answers a direct client");
    assert!(
        !is_ready(&cluster),
        "Ready before clients are routed: {:#}",
        cluster.status()
    );
    operator.proxy().pass();
    write_when_ready(&cluster);
    wait_healthy(&story, &cluster, 1);

    // The label is removed while the cluster is paused: the member stays healthy.
    let clients = cluster.workload();
    cluster.patch(&serde_json::json!({"paused": true}));
    story.eventually("the status reports the pause", || {
        cluster.condition("Progressing").1 == "Paused"
    });
    story.kubectl(&["label", "pod", &pod.name, "evenkeel.dev/role-"]);
    wait_until_ok("Ready is False, and the member is healthy", || {
        let status = cluster.status();
        let well = status["memberList"][0]["healthy"] == true;
        let unserved = cluster.condition("Ready") == ("False".to_owned(), "NotServing".to_owned());
        if unserved && well {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    cluster
        .etcdctl_at(&pod.ip, &["get", "anything"])
        .expect("etcd answers a direct client");
    cluster.patch(&serde_json::json!({"paused": false}));
    write_when_ready(&cluster);
    wait_healthy(&story, &cluster, 1);
    clients.finish();
}
