//! For how long clients cannot write while something is done to their cluster, and what the operator costs: measured on a lab
//! that does nothing else, for `make bench`. Not a story: nothing here fails for being slow, and `cargo test` leaves it out.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be measured ends the measuring"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::measured::{LIMIT, PATIENCE, eager, median_and_worst, settle, today};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::watched::Watched;
use evenkeel_e2e::{Story, checkout};
use evenkeel_history::ClientKind;
use serde_json::{Value, json};

/// How often each thing is done: the worst counts.
const ROUNDS: usize = 5;

fn says(cluster: &Cluster<'_>, pod: &MemberPod) -> Option<Value> {
    let said = cluster
        .etcdctl_at(&pod.ip, &["endpoint", "status", "--write-out=json"])
        .ok()?;
    serde_json::from_str::<Value>(&said)
        .ok()?
        .pointer("/0/Status")
        .cloned()
}

fn is_leader(cluster: &Cluster<'_>, pod: &MemberPod) -> bool {
    says(cluster, pod).is_some_and(|said| said["leader"] == said["header"]["member_id"])
}

fn find(cluster: &Cluster<'_>, leads: bool) -> MemberPod {
    let mut pods = cluster.pods().into_iter();
    pods.find(|pod| is_leader(cluster, pod) == leads)
        .expect("there is such a member")
}

/// What is done, and what it is called in the table.
type Deed = (&'static str, &'static str, fn(&Story, &Cluster<'_>));

fn delete(story: &Story, pod: &MemberPod, how: &[&str]) {
    story
        .command(&["delete", "pod", &pod.name, "--wait=false"])
        .args(how.iter().copied())
        .run()
        .unwrap();
    story.within(LIMIT, "it is gone", || {
        story
            .read("/api/v1", &format!("pods/{}", pod.name))
            .is_none_or(|there| there["metadata"]["uid"] != pod.uid)
    });
}

fn evict(story: &Story, pod: &MemberPod) {
    story.eventually("it may be evicted", || story.evict(&pod.name).is_ok());
}

const DEEDS: [Deed; 7] = [
    ("a follower's pod is deleted", "0.3 s", |story, cluster| {
        delete(story, &find(cluster, false), &[])
    }),
    ("the leader's pod is deleted", "0.3 s", |story, cluster| {
        delete(story, &find(cluster, true), &[])
    }),
    (
        "the leader's pod is evicted, as by a drain",
        "0.3 s",
        |story, cluster| evict(story, &find(cluster, true)),
    ),
    ("scaled from 3 to 5", "0.3 s", |story, cluster| {
        cluster.patch(&json!({"members": 5}));
        settle(story, cluster, 5);
    }),
    ("scaled from 5 to 3", "0.3 s", |story, cluster| {
        cluster.patch(&json!({"members": 5}));
        settle(story, cluster, 5);
    }),
    (
        "a member's pod and claim are deleted",
        "–",
        |story, cluster| {
            let pod = find(cluster, false);
            let both = [format!("pod/{}", pod.name), format!("pvc/{}", pod.name)];
            story.kubectl(&["delete", &both[0], &both[1], "--wait=false"]);
            story.within(LIMIT, "another is in its place", || {
                cluster.pods().iter().all(|other| other.name != pod.name)
            });
        },
    ),
    (
        "the leader is killed, with no time to hand over",
        "3 s",
        |story, cluster| {
            let leader = find(cluster, true);
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

/// The worst gaps of some rounds, by kind of client.
fn measure(
    story: &Story,
    cluster: &Cluster<'_>,
    deed: &Deed,
) -> BTreeMap<ClientKind, Vec<Duration>> {
    let mut gaps: BTreeMap<ClientKind, Vec<Duration>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        settle(story, cluster, 3);
        // Scaling down is measured from five on.
        let down = deed.0.ends_with("to 3");
        if down {
            (deed.2)(story, cluster);
        }
        let clients: Watched = cluster.workload_with(eager());
        std::thread::sleep(Duration::from_secs(2));
        let since = clients.now();
        if down {
            cluster.patch(&json!({"members": 3}));
        } else {
            (deed.2)(story, cluster);
        }
        let members = if deed.0.ends_with("to 5") { 5 } else { 3 };
        settle(story, cluster, members);
        for (kind, gap) in clients.stats(since).longest_write_gap_by_kind {
            gaps.entry(kind).or_default().push(gap);
        }
        clients.finish();
        if members == 5 {
            cluster.patch(&json!({"members": 3}));
        }
    }
    println!("{}: {gaps:?}", deed.0);
    gaps
}

/// What the operator costs with ten clusters: memory, and what it asks of Kubernetes when nothing happens.
fn costs(story: &Story, operator: &Operator) -> (u64, usize, usize) {
    let spec = "version: 3.6.16\nmembers: 1\nresources: {requests: {cpu: 10m, memory: 64Mi}}";
    let clusters: Vec<_> = (0..9)
        .map(|n| Cluster::apply(story, &format!("small-{n}"), spec))
        .collect();
    clusters
        .iter()
        .for_each(|cluster| cluster.wait_ready(LIMIT));
    operator
        .proxy()
        .becomes_quiet(Duration::from_secs(20), LIMIT);
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
    cluster.wait_ready(LIMIT);
    // ONLY=word looks at those alone, ONLY=costs at the costs, and nothing is written down.
    if let Ok(only) = std::env::var("ONLY") {
        if only == "costs" {
            println!("bytes, requests and writes: {:?}", costs(&story, &operator));
        }
        DEEDS
            .iter()
            .filter(|deed| deed.0.contains(&only))
            .for_each(|deed| _ = measure(&story, &cluster, deed));
        return;
    }
    let measured = DEEDS.map(|deed| (deed, measure(&story, &cluster, &deed)));
    settle(&story, &cluster, 3);
    let (memory, requests, writes) = costs(&story, &operator);

    let mut page = format!(
        "# For how long clients cannot write, and what the operator costs\n\n`make bench`, {}, on 2 cores: the median (and the \
         worst) of {ROUNDS} rounds, each the longest time without an acknowledged write of the worst client of its kind, with \
         clients that each write about 65 times a second and wait for an answer for {} ms before they ask another member: \
         etcd drops what a follower passes on to a leader that is just handing over, and says nothing. The lab does nothing \
         else.\n\n| | knowing all members | through the Service \
         | at most |\n|---|---|---|---|\n",
        today(),
        PATIENCE.as_millis()
    );
    for ((what, most, _), gaps) in &measured {
        let of = |kind: ClientKind| {
            gaps.get(&kind)
                .map(|gaps| median_and_worst(gaps))
                .unwrap_or_default()
        };
        writeln!(
            page,
            "| {what} | {} | {} | {most} |",
            of(ClientKind::AllMembers),
            of(ClientKind::Service)
        )
        .unwrap();
    }
    writeln!(
        page,
        "\n| with ten clusters | measured | at most |\n|---|---|---|\n| memory of the operator | {} MiB | 30 MiB |\n| requests \
         in two idle minutes, beside its lease | {requests} | 20 |\n| writes in two idle minutes, beside its lease | {writes} | 0 |",
        memory >> 20
    )
    .unwrap();
    println!("{page}");
    std::fs::write(checkout().join("bench/results/gaps.md"), page).unwrap();
}
