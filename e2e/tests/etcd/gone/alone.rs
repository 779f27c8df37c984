//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

/// The API server runs again when the story is over, whatever becomes of it.
struct Started<'s>(&'s Story);

impl Drop for Started<'_> {
    fn drop(&mut self) {
        let started = self.0.lab().start_api();
        if !std::thread::panicking() {
            started.unwrap();
        }
    }
}

/// How long the API server is away: longer than any lease, and than a watch is mourned.
const AWAY: Duration = Duration::from_secs(60);

/// Each member's pod, and how often its etcd was started.
fn lives(story: &Story) -> BTreeMap<String, u64> {
    let pods = story.get(&["pods", "--selector", "etcd.evenkeel.dev/cluster=orders"]);
    let life = |pod: &serde_json::Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"]
            .as_u64()
            .unwrap();
        (
            pod["metadata"]["uid"].as_str().unwrap().to_owned(),
            restarts,
        )
    };
    pods["items"].as_array().unwrap().iter().map(life).collect()
}

#[test]
fn an_api_server_that_is_away_for_a_minute_costs_clients_nothing_and_no_member_its_life() {
    let story = Story::alone("api-away");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let before = ids(&cluster);
    let clients = cluster.workload();

    let started = Started(&story);
    story.lab().stop_api().unwrap();
    let (began, mut since) = (Instant::now(), clients.now());
    let mut ended = 0;
    while began.elapsed() < AWAY {
        // In a pod it would be started again whenever it ends.
        if !operator.is_running() {
            operator.restart();
            ended += 1;
        }
        std::thread::sleep(AWAY / 3);
        let stats = clients.stats(since);
        since = clients.now();
        assert!(
            stats.acknowledged_writes > 0,
            "no client could write: {stats}"
        );
    }
    println!("the operator ended {ended} times while there was no API server");
    drop(started);
    // As long as Kubernetes takes a node that was slow to come back for lost, it sends pods away from there.
    story.within(LONG, "all nodes are well", || are_well(&nodes(&story)));
    story.within(LONG, "nobody is being sent away", || {
        let pods = story.get(&["pods", "--selector", "etcd.evenkeel.dev/cluster=orders"]);
        pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
    });
    until_whole(&story, &cluster, 3);
    // Kubernetes itself may have taken a node for lost that was slow to come back, and sent its pod away.
    let deleted = operator.proxy().writes_since(began);
    let deleted: Vec<_> = deleted
        .iter()
        .filter(|one| one.write.verb == "DELETE" && one.write.is_to("pods"))
        .collect();
    assert!(deleted.is_empty(), "the operator deleted pods: {deleted:?}");
    assert_eq!(ids(&cluster), before, "nobody was replaced");
    let pods = lives(&story);

    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    until_whole(&story, &cluster, 3);
    assert!(operator.is_running(), "by itself");
    assert_eq!(ids(&cluster), before, "the same members");
    let now = lives(&story);
    let mut others = pods.iter().filter(|(uid, _)| **uid != victim.uid);
    assert!(
        others.all(|(uid, restarts)| now.get(uid) == Some(restarts)),
        "{pods:?} became {now:?}"
    );
    let lost = follower(&story, &cluster);
    dies_once_noting(&story, &mut operator, &cluster, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    ends_well(&story, &cluster, 3);
    println!(
        "{}",
        told("an API server away for a minute", &clients.stats(since))
    );
    clients.finish();
    cluster.holds_the_same_everywhere();
}
