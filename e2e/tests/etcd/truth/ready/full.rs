//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn whoever_waits_for_ready_can_write_at_once_in_every_fresh_cluster() {
    let story = Story::begin("ready-fresh");
    let _operator = Operator::start(&story);
    for round in 0..4 {
        // Two at a time: one member is the quickest to be ready, three have elections and learners on their way.
        let [one, three] = [1, 3].map(|members| {
            let spec = format!("version: 3.6.16\nmembers: {members}\nstorage: {{ephemeral: true}}");
            Cluster::apply(&story, &format!("fresh-{members}-{round}"), &spec)
        });
        write_as_soon_as_it_is_ready(&one);
        write_as_soon_as_it_is_ready(&three);
        story.kubectl(&["delete", "etcd", one.name(), three.name(), "--wait=false"]);
    }
}

/// Whether a write lets clients in to a pod.
fn routes(write: &Write) -> bool {
    write.is_to("pods") && write.body["metadata"]["labels"]["evenkeel.dev/role"] == "voter"
}

#[test]
fn a_healthy_cluster_that_no_client_is_led_to_is_not_ready() {
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
    story.within(LONG, "it has tried three times to let clients in", || {
        tries() >= 3
    });
    let pod = cluster.pods().remove(0);
    cluster
        .etcdctl_at(&pod.ip, &["get", "anything"])
        .expect("etcd itself serves");
    assert!(
        !is_ready(&cluster),
        "nobody is led to it yet: {:#}",
        cluster.status()
    );
    operator.proxy().pass();
    write_as_soon_as_it_is_ready(&cluster);
    until_whole(&story, &cluster, 1);

    // Behind the operator's back, and while it keeps its hands off: the member is as well as before.
    let clients = cluster.workload();
    cluster.patch(&serde_json::json!({"paused": true}));
    story.eventually("it is paused", || {
        cluster.condition("Progressing").1 == "Paused"
    });
    story.kubectl(&["label", "pod", &pod.name, "evenkeel.dev/role-"]);
    until_right("it is not ready, and its member is well", || {
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
        .expect("etcd itself serves");
    cluster.patch(&serde_json::json!({"paused": false}));
    write_as_soon_as_it_is_ready(&cluster);
    until_whole(&story, &cluster, 1);
    clients.finish();
}
