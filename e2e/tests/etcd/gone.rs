//! What everything stands on goes: the namespace with the operator in it, the API server, and, of a cluster that is to be
//! deleted, the quorum.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::{ACCOUNT, Operator, built, grant, install};
use evenkeel_e2e::watched::told;
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::parts::images;

use crate::look::{LONG, are_well, follower, formed, ids, nodes, until_whole};
use crate::middle::{ends_well, lives_again, names, spec};
use crate::noted::{dies_noting, dies_once_noting, take_pod_and_claim};

const IMAGE: &str = "evenkeel-operator:0.1.0";

/// Deploys the operator into the story's own namespace, to look after that one only.
fn deploy_inside(story: &Story) {
    images::load_program(story.lab(), IMAGE, &built()).unwrap();
    install(story);
    grant(story);
    let manifest =
        std::fs::read_to_string(checkout().join("deploy/operator/operator.yaml")).unwrap();
    let (all, only) = ("value: \"\"", format!("value: {}", story.namespace()));
    assert!(
        manifest.contains(all),
        "where the namespaces are said has moved"
    );
    let manifest = manifest
        .replace(
            "namespace: evenkeel-system",
            &format!("namespace: {}", story.namespace()),
        )
        .replace(
            "serviceAccountName: evenkeel-operator",
            &format!("serviceAccountName: {ACCOUNT}"),
        )
        .replace(all, &only);
    story.apply(&manifest);
    story.kubectl(&[
        "rollout",
        "status",
        "deployment/evenkeel-operator",
        "--timeout=180s",
    ]);
}

#[test]
fn a_namespace_is_gone_within_a_minute_though_the_operator_is_in_it_and_a_change_was_under_way() {
    let story = Story::begin("namespace");
    deploy_inside(&story);
    let policies = [("kept", "Keep"), ("dropped", "Delete")];
    let clusters = policies.map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 1\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 1);
        // In the middle of it.
        story.kubectl(&["scale", "etcd", cluster.name(), "--replicas=3"]);
    }
    let [kept, _] = &clusters;
    story.within(LONG, "somebody joins", || {
        let listed = kept.try_etcdctl(&["member", "list", "--write-out=json"]);
        listed.is_ok_and(|printed| members(&printed).len() > 1)
    });
    let began = Instant::now();
    story.kubectl(&["delete", "namespace", story.namespace(), "--wait=false"]);
    story.within(Duration::from_secs(60), "the namespace is gone", || {
        story
            .field(
                &["namespace", story.namespace(), "--ignore-not-found"],
                ".metadata.name",
            )
            .is_empty()
    });
    println!(
        "the namespace was gone after {:.0} s",
        began.elapsed().as_secs_f64()
    );
}

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
#[ignore = "it hurts nodes: make test-hurt"]
fn an_api_server_that_is_away_for_a_minute_costs_clients_nothing_and_no_member_its_life() {
    let story = Story::apart("api-away");
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

#[test]
fn a_cluster_that_lost_its_quorum_in_the_middle_of_a_change_can_be_deleted_with_its_volumes_or_without()
 {
    let story = Story::begin("quorumless");
    let mut operator = Operator::start(&story);
    let clusters = [("kept", "Keep"), ("dropped", "Delete")].map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 3\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 3);
        // One is lost for good, and its removal begun; before it is done another one is.
        let lost = follower(&story, cluster);
        dies_noting(&mut operator, cluster, "Remove", || {
            take_pod_and_claim(&story, &lost.name)
        });
        take_pod_and_claim(&story, &cluster.pods().remove(0).name);
        story.eventually("its pod and its claim are gone", || {
            ["pods", "pvc"]
                .iter()
                .all(|sort| names(&story, cluster.name(), sort).len() == 1)
        });
        lives_again(&story, &mut operator);
        story.within(LONG, "it says that the quorum is lost", || {
            cluster.condition("Degraded") == ("True".to_owned(), "QuorumLost".to_owned())
        });
    }
    let [kept, dropped] = &clusters;
    let volumes = names(&story, "kept", "pvc");
    assert_eq!(
        volumes.len(),
        1,
        "that of the member that is left: {volumes:?}"
    );
    for cluster in &clusters {
        story.kubectl(&["delete", "etcd", cluster.name(), "--timeout=60s"]);
    }
    for cluster in &clusters {
        let mine = format!("etcd.evenkeel.dev/cluster={}", cluster.name());
        story.within(LONG, &format!("{} is gone", cluster.name()), || {
            let left = [
                "get",
                "pods,services,secrets,poddisruptionbudgets",
                "--selector",
                &mine,
                "-o=name",
            ];
            story.kubectl(&left).trim().is_empty()
        });
    }
    story.within(LONG, "volumes go that were to go", || {
        ["pvc", "configmaps"]
            .iter()
            .all(|sort| names(&story, dropped.name(), sort).is_empty())
    });
    assert_eq!(names(&story, kept.name(), "pvc"), volumes);
    assert_eq!(
        names(&story, kept.name(), "configmaps").len(),
        1,
        "the identity stays with the volumes"
    );
}
