//! `Ready` is a linearizable read through the client Service, no less: scripts that wait for it write at once.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Write};

use crate::look::{LONG, leader, until_right, until_whole};

/// Waits as scripts do, and writes as they do next: once, and it must succeed.
fn write_as_soon_as_it_is_ready(cluster: &Cluster<'_>) {
    cluster.wait_ready(LONG);
    let written = cluster.try_etcdctl(&["put", "first", "word", "--command-timeout=30s"]);
    if let Err(said) = written {
        panic!(
            "{} was Ready, and a client could not write: {said}\n{:#}",
            cluster.name(),
            cluster.status()
        );
    }
}

fn is_ready(cluster: &Cluster<'_>) -> bool {
    cluster.condition("Ready").0 == "True"
}

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

/// How a member is kept from answering, and let answer again.
#[derive(Clone, Copy, Debug)]
enum Silence {
    Frozen,
    Cut,
}

impl Silence {
    fn begin(self, story: &Story, pod: &MemberPod) {
        let faults = story.lab().pod(story.namespace(), &pod.name).unwrap();
        match self {
            Self::Frozen => faults.freeze(None, None).unwrap(),
            Self::Cut => faults.cut().unwrap(),
        }
    }

    fn end(self, story: &Story, pod: &MemberPod) {
        let faults = story.lab().pod(story.namespace(), &pod.name).unwrap();
        match self {
            Self::Frozen => faults.thaw(None, None).unwrap(),
            Self::Cut => faults.mend().unwrap(),
        }
    }
}

#[test]
fn without_a_quorum_it_is_not_ready_until_there_is_one_again() {
    let story = Story::begin("ready-quorum");
    let _operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 3");
    write_as_soon_as_it_is_ready(&cluster);
    until_whole(&story, &cluster, 3);
    let before = cluster.member_list();
    let uids = |pods: Vec<MemberPod>| pods.into_iter().map(|pod| pod.uid).collect::<Vec<_>>();
    let (pods, clients) = (uids(cluster.pods()), cluster.workload());
    for silence in [Silence::Frozen, Silence::Cut] {
        // With the leader among them, so that an election is due, too.
        let first = leader(&story, &cluster);
        let second = cluster
            .pods()
            .into_iter()
            .find(|pod| pod.name != first.name)
            .unwrap();
        let silenced = [first, second];
        let since = clients.now();
        silenced.iter().for_each(|pod| silence.begin(&story, pod));
        // The status may lag behind by a look at etcd: ten seconds, and what that look itself takes.
        // They fall silent one after the other, and that may be told, too.
        until_right("it is not ready, says why, and names who is silent", || {
            let (status, said) = (cluster.status(), |kind: &str| cluster.condition(kind).1);
            let lost = said("Ready") == "QuorumLost" && said("Degraded") == "QuorumLost";
            let waits = status["waitingFor"].to_string();
            let named = silenced.iter().all(|pod| waits.contains(&pod.name));
            let told = lost && named && status["phrase"] == "No quorum: 1 of 3 answer";
            if told && !is_ready(&cluster) {
                Ok(())
            } else {
                Err(format!("{silence:?}: {status:#}"))
            }
        });
        silenced.iter().for_each(|pod| silence.end(&story, pod));
        write_as_soon_as_it_is_ready(&cluster);
        println!("{silence:?}: {}", clients.stats(since));
        until_whole(&story, &cluster, 3);
    }
    assert_eq!(
        cluster.member_list(),
        before,
        "nobody was replaced for being silent for a while"
    );
    assert_eq!(uids(cluster.pods()), pods, "and no pod was touched");
    clients.finish();
    cluster.holds_the_same_everywhere();
}
