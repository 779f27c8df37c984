//! How long clients cannot write during faults and changes, and the cost of the operator: measured on an otherwise idle lab for
//! `make bench`. Not a story: nothing here fails because it is slow, and `cargo test` does not run it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement that fails ends the program"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::measurement::{
    CLIENT_TIMEOUT, MEASUREMENT_LIMIT, high_rate, median_and_worst, today, wait_settled,
};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::workload::CheckedWorkload;
use evenkeel_e2e::{Story, checkout};
use evenkeel_history::ClientKind;
use serde_json::{Value, json};

/// How often each disturbance is repeated.
const ROUNDS: usize = 5;

fn endpoint_status(cluster: &Cluster<'_>, pod: &MemberPod) -> Option<Value> {
    let output = cluster
        .etcdctl_at(&pod.ip, &["endpoint", "status", "--write-out=json"])
        .ok()?;
    serde_json::from_str::<Value>(&output)
        .ok()?
        .pointer("/0/Status")
        .cloned()
}

fn is_leader(cluster: &Cluster<'_>, pod: &MemberPod) -> bool {
    endpoint_status(cluster, pod)
        .is_some_and(|output| output["leader"] == output["header"]["member_id"])
}

fn find_member(cluster: &Cluster<'_>, is_leading: bool) -> MemberPod {
    let mut pods = cluster.pods().into_iter();
    pods.find(|pod| is_leader(cluster, pod) == is_leading)
        .expect("the cluster has such a member")
}

/// The name in the table, the target, and the function of a disturbance.
type Disturbance = (&'static str, &'static str, fn(&Story, &Cluster<'_>));

fn delete(story: &Story, pod: &MemberPod, how: &[&str]) {
    story
        .command(&["delete", "pod", &pod.name, "--wait=false"])
        .args(how.iter().copied())
        .run()
        .unwrap();
    story.within(MEASUREMENT_LIMIT, "the pod is gone", || {
        story
            .read("/api/v1", &format!("pods/{}", pod.name))
            .is_none_or(|there| there["metadata"]["uid"] != pod.uid)
    });
}

fn evict(story: &Story, pod: &MemberPod) {
    story.eventually("the eviction is accepted", || {
        story.evict(&pod.name).is_ok()
    });
}

const DISTURBANCES: [Disturbance; 7] = [
    ("a follower's pod is deleted", "0.3 s", |story, cluster| {
        delete(story, &find_member(cluster, false), &[])
    }),
    ("the leader's pod is deleted", "0.3 s", |story, cluster| {
        delete(story, &find_member(cluster, true), &[])
    }),
    (
        "the leader's pod is evicted, as by a drain",
        "0.3 s",
        |story, cluster| evict(story, &find_member(cluster, true)),
    ),
    ("scaled from 3 to 5", "0.3 s", |story, cluster| {
        cluster.patch(&json!({"members": 5}));
        wait_settled(story, cluster, 5);
    }),
    ("scaled from 5 to 3", "0.3 s", |story, cluster| {
        cluster.patch(&json!({"members": 5}));
        wait_settled(story, cluster, 5);
    }),
    (
        "a member's pod and PVC are deleted",
        "–",
        |story, cluster| {
            let pod = find_member(cluster, false);
            let both = [format!("pod/{}", pod.name), format!("pvc/{}", pod.name)];
            story.kubectl(&["delete", &both[0], &both[1], "--wait=false"]);
            story.within(MEASUREMENT_LIMIT, "another member replaces it", || {
                cluster.pods().iter().all(|other| other.name != pod.name)
            });
        },
    ),
    (
        "the leader is killed without a leader transfer",
        "3 s",
        |story, cluster| {
            let leader = find_member(cluster, true);
            story
                .lab()
                .pod(story.namespace(), &leader.name)
                .unwrap()
                .kill(Some("etcd"), None)
                .unwrap();
            delete(story, &leader, &["--grace-period=0", "--force"]);
        },
    ),
];

/// Returns the gaps of all rounds, by kind of client.
fn measure(
    story: &Story,
    cluster: &Cluster<'_>,
    disturbance: &Disturbance,
) -> BTreeMap<ClientKind, Vec<Duration>> {
    let mut gaps: BTreeMap<ClientKind, Vec<Duration>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        wait_settled(story, cluster, 3);
        // Scaling down is measured from five members on.
        let down = disturbance.0.ends_with("to 3");
        if down {
            (disturbance.2)(story, cluster);
        }
        let clients: CheckedWorkload = cluster.workload_with(high_rate());
        std::thread::sleep(Duration::from_secs(2));
        let since = clients.now();
        if down {
            cluster.patch(&json!({"members": 3}));
        } else {
            (disturbance.2)(story, cluster);
        }
        let members = if disturbance.0.ends_with("to 5") {
            5
        } else {
            3
        };
        wait_settled(story, cluster, members);
        for (kind, gap) in clients.stats(since).longest_write_gap_by_kind {
            gaps.entry(kind).or_default().push(gap);
        }
        clients.finish();
        if members == 5 {
            cluster.patch(&json!({"members": 3}));
        }
    }
    println!("{}: {gaps:?}", disturbance.0);
    gaps
}

/// Measures the operator with ten clusters: memory, and idle requests and writes.
fn costs(story: &Story, operator: &Operator) -> (u64, usize, usize) {
    let spec = "version: 3.6.16\nmembers: 1\nresources: {requests: {cpu: 10m, memory: 64Mi}}";
    let clusters: Vec<_> = (0..9)
        .map(|n| Cluster::apply(story, &format!("small-{n}"), spec))
        .collect();
    clusters
        .iter()
        .for_each(|cluster| cluster.wait_ready(MEASUREMENT_LIMIT));
    operator
        .proxy()
        .wait_idle(Duration::from_secs(20), MEASUREMENT_LIMIT);
    let is_own = |(_, path): &(String, String)| path.contains("leases");
    let all = || {
        operator
            .proxy()
            .requests()
            .into_iter()
            .filter(|(what, _)| !is_own(what))
    };
    let count = || all().map(|(_, count)| count).sum::<usize>();
    let (before, since) = (count(), Instant::now());
    std::thread::sleep(Duration::from_secs(120));
    (
        operator.rss(),
        count() - before,
        operator.proxy().writes_since(since).len(),
    )
}

#[test]
fn gaps_and_costs() {
    let story = Story::alone("gaps");
    let operator = Operator::start(&story);
    let spec = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi, keepRemovedFor: \"0\"}";
    let cluster = Cluster::apply(&story, "orders", spec);
    cluster.wait_ready(MEASUREMENT_LIMIT);
    // ONLY=word measures the matching disturbances, ONLY=costs the costs; neither writes the file.
    if let Ok(only) = std::env::var("ONLY") {
        if only == "costs" {
            println!("bytes, requests and writes: {:?}", costs(&story, &operator));
        }
        DISTURBANCES
            .iter()
            .filter(|disturbance| disturbance.0.contains(&only))
            .for_each(|disturbance| _ = measure(&story, &cluster, disturbance));
        return;
    }
    let measurement =
        DISTURBANCES.map(|disturbance| (disturbance, measure(&story, &cluster, &disturbance)));
    wait_settled(&story, &cluster, 3);
    let (memory, requests, writes) = costs(&story, &operator);

    let mut page = format!(
        "# Write gaps of clients, and cost of the operator\n\n`make bench`, {}, on 2 cores: the median (and the \
         worst) of {ROUNDS} rounds, each the longest time without an acknowledged write of the worst client of its kind, with \
         clients that each write about 65 times a second and try another member after {} ms without an answer: \
         etcd drops a write that a follower forwards during a leader transfer, without an error. The lab is otherwise \
         idle.\n\n| | knowing all members | through the Service \
         | at most |\n|---|---|---|---|\n",
        today(),
        CLIENT_TIMEOUT.as_millis()
    );
    for ((what, limit, _), gaps) in &measurement {
        let of = |kind: ClientKind| {
            gaps.get(&kind)
                .map(|gaps| median_and_worst(gaps))
                .unwrap_or_default()
        };
        writeln!(
            page,
            "| {what} | {} | {} | {limit} |",
            of(ClientKind::AllMembers),
            of(ClientKind::Service)
        )
        .unwrap();
    }
    writeln!(
        page,
        "\n| with ten clusters | measured | at most |\n|---|---|---|\n| memory of the operator | {} MiB | 30 MiB |\n| requests \
         in two idle minutes, without the lease | {requests} | 20 |\n| writes in two idle minutes, without the lease | {writes} | 0 |",
        memory >> 20
    )
    .unwrap();
    println!("{page}");
    std::fs::write(checkout().join("bench/results/gaps.md"), page).unwrap();
}
