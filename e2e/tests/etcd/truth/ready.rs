//! `Ready` is a linearizable read through the client Service, no less: scripts that wait for it write at once.

mod full;

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
            let told = lost && named && status["summary"] == "No quorum: 1 of 3 answer";
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
