//! `Ready` means that a linearizable read through the client Service succeeds: scripts that wait for it write at once.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Write};

use crate::assertions::{CLUSTER_LIMIT, leader, wait_healthy, wait_until_ok};

/// Waits for Ready as scripts do, then writes once, which must succeed.
fn write_when_ready(cluster: &Cluster<'_>) {
    cluster.wait_ready(CLUSTER_LIMIT);
    let written = cluster.try_etcdctl(&["put", "first", "word", "--command-timeout=30s"]);
    if let Err(output) = written {
        panic!(
            "{} was Ready, but a client could not write: {output}\n{:#}",
            cluster.name(),
            cluster.status()
        );
    }
}

fn is_ready(cluster: &Cluster<'_>) -> bool {
    cluster.condition("Ready").0 == "True"
}

/// The way in which a member is kept from answering.
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
fn a_cluster_without_quorum_is_not_ready() {
    let story = Story::begin("ready-quorum");
    let _operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 3");
    write_when_ready(&cluster);
    wait_healthy(&story, &cluster, 3);
    let before = cluster.member_list();
    let uids = |pods: Vec<MemberPod>| pods.into_iter().map(|pod| pod.uid).collect::<Vec<_>>();
    let (pods, clients) = (uids(cluster.pods()), cluster.workload());
    for silence in [Silence::Frozen, Silence::Cut] {
        // Including the leader, so that an election is due, too.
        let first = leader(&story, &cluster);
        let second = cluster
            .pods()
            .into_iter()
            .find(|pod| pod.name != first.name)
            .unwrap();
        let silenced = [first, second];
        let since = clients.now();
        silenced.iter().for_each(|pod| silence.begin(&story, pod));
        // The status may lag by one probe: ten seconds, plus the duration of the probe. The members stop answering one after the other, and
        // the status may report that, too.
        wait_until_ok(
            "Ready is False with reason QuorumLost, and the status names the silent members",
            || {
                let (status, output) = (cluster.status(), |kind: &str| cluster.condition(kind).1);
                let lost = output("Ready") == "QuorumLost" && output("Degraded") == "QuorumLost";
                let waits = status["waitingFor"].to_string();
                let named = silenced.iter().all(|pod| waits.contains(&pod.name));
                let reported =
                    lost && named && status["summary"] == "Quorum lost: 1 of 3 voters responds";
                if reported && !is_ready(&cluster) {
                    Ok(())
                } else {
                    Err(format!("{silence:?}: {status:#}"))
                }
            },
        );
        silenced.iter().for_each(|pod| silence.end(&story, pod));
        write_when_ready(&cluster);
        println!("{silence:?}: {}", clients.stats(since));
        wait_healthy(&story, &cluster, 3);
    }
    assert_eq!(cluster.member_list(), before, "a member was replaced");
    assert_eq!(uids(cluster.pods()), pods, "a pod was replaced");
    clients.finish();
    cluster.wait_same_data();
}
