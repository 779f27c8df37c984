//! The stories of this topic that harm the control plane.

use std::time::Duration;

use super::*;

/// Starts the API server on drop.
struct StartApiServer<'s>(&'s Story);

impl Drop for StartApiServer<'_> {
    fn drop(&mut self) {
        let started = self.0.lab().start_api();
        if !std::thread::panicking() {
            started.unwrap();
        }
    }
}

/// How long the API server is down: longer than any lease, and than a watch takes to fail.
const DOWNTIME: Duration = Duration::from_secs(60);

/// Returns the number of starts of each member's etcd, by pod uid.
fn starts(story: &Story) -> BTreeMap<String, u64> {
    let pods = story.get(&["pods", "--selector", "etcd.evenkeel.dev/cluster=orders"]);
    let start = |pod: &serde_json::Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"]
            .as_u64()
            .unwrap();
        (
            pod["metadata"]["uid"].as_str().unwrap().to_owned(),
            restarts,
        )
    };
    pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(start)
        .collect()
}

#[test]
fn an_api_server_down_for_a_minute_disturbs_no_client_and_no_member() {
    let story = Story::alone("api-away");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let before = member_ids(&cluster);
    let clients = cluster.workload();

    let started = StartApiServer(&story);
    story.lab().stop_api().unwrap();
    let (began, mut since) = (Instant::now(), clients.now());
    let mut ended = 0;
    while began.elapsed() < DOWNTIME {
        // In a pod the operator would be restarted when it exits.
        if !operator.is_running() {
            operator.restart();
            ended += 1;
        }
        std::thread::sleep(DOWNTIME / 3);
        let stats = clients.stats(since);
        since = clients.now();
        assert!(
            stats.acknowledged_writes > 0,
            "no client could write: {stats}"
        );
    }
    println!("the operator exited {ended} times while the API server was down");
    drop(started);
    // While Kubernetes reports a node as lost, it evicts pods from there.
    story.within(CLUSTER_LIMIT, "all nodes are Ready", || {
        are_ready(&nodes(&story))
    });
    story.within(CLUSTER_LIMIT, "no pod is being deleted", || {
        let pods = story.get(&["pods", "--selector", "etcd.evenkeel.dev/cluster=orders"]);
        pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
    });
    wait_healthy(&story, &cluster, 3);
    // Kubernetes itself may have evicted the pod of a node that was reported as lost.
    let deleted = operator.proxy().writes_since(began);
    let deleted: Vec<_> = deleted
        .iter()
        .filter(|one| one.write.verb == "DELETE" && one.write.is_to("pods"))
        .collect();
    assert!(deleted.is_empty(), "the operator deleted pods: {deleted:?}");
    assert_eq!(member_ids(&cluster), before, "a member was replaced");
    let pods = starts(&story);

    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    wait_healthy(&story, &cluster, 3);
    assert!(operator.is_running(), "the operator exited");
    assert_eq!(member_ids(&cluster), before, "the members differ");
    let now = starts(&story);
    let mut others = pods.iter().filter(|(uid, _)| **uid != victim.uid);
    assert!(
        others.all(|(uid, restarts)| now.get(uid) == Some(restarts)),
        "another pod or container was restarted: {pods:?}, then {now:?}"
    );
    let lost = follower(&story, &cluster);
    kill_after_intent_and_restart(&story, &mut operator, &cluster, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_converged(&story, &cluster, 3);
    println!(
        "{}",
        format_stats("an API server away for a minute", &clients.stats(since))
    );
    clients.finish();
    cluster.wait_same_data();
}
