//! The tour at the end of `make up`, on the lab that `LAB` names: clients write to a cluster, the leader's pod is deleted, and
//! the effect is printed from the clients' history, which is checked.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::measurement::high_rate;
use evenkeel_history::{ClientKind, WorkloadConfig};

/// The longest time that the recovery may take on a slow machine.
const RECOVERY_LIMIT: Duration = Duration::from_secs(180);
/// How long the tour waits for a healthy cluster.
const HEALTHY_LIMIT: Duration = Duration::from_secs(30);
/// For how long clients write before the fault and after the recovery.
const WRITE_TIME: Duration = Duration::from_secs(3);

fn main() {
    let mut args = std::env::args().skip(1);
    let (namespace, name) = (
        args.next().unwrap_or("default".into()),
        args.next().unwrap_or("orders".into()),
    );
    let story = Story::in_existing_namespace(&namespace);
    let cluster = Cluster::named(&story, &name);
    if let Some(reason) = skip_reason(&cluster, story.lab().patience().times(HEALTHY_LIMIT)) {
        println!("The tour is skipped: {name} {reason}.");
        return;
    }
    println!("Clients write to {name}: some know all members, some go through the Service.");
    // On a slow machine clients write less often and wait longer; otherwise no write would be acknowledged in time.
    let (patience, high_rate) = (story.lab().patience(), high_rate());
    let rate = high_rate.operations_per_second / f64::from(u8::from(patience));
    let workload = cluster.workload_with(WorkloadConfig {
        operations_per_second: rate,
        timeout: patience.times(high_rate.timeout),
        ..high_rate
    });
    std::thread::sleep(WRITE_TIME);
    let leader = cluster.status()["leader"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let (before, members) = (cluster.pod(&leader), cluster.pods().len());
    println!("Deleting the pod of the leader, {leader}.");
    let (since, began) = (workload.now(), Instant::now());
    story.kubectl(&["delete", "pod", &leader, "--wait=false"]);
    story.within(RECOVERY_LIMIT, "all members are back", || {
        let pods = cluster.pods();
        let back = pods
            .iter()
            .any(|pod| pod.name == leader && pod.uid != before.uid);
        back && pods.len() == members
            && pods.iter().all(|pod| pod.ready)
            && cluster.status()["summary"] == "Healthy"
    });
    let recovered = began.elapsed();
    std::thread::sleep(WRITE_TIME);
    let stats = workload.stats(since);
    let gap = |kind| {
        stats
            .longest_write_gap_by_kind
            .get(&kind)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
    };
    // Panics with the reason if an acknowledged write is lost.
    workload.finish();
    println!();
    println!(
        "  all members are back after   {:.1} s",
        recovered.as_secs_f64()
    );
    println!(
        "  longest gap between writes   {:.2} s for clients that know all members",
        gap(ClientKind::AllMembers)
    );
    println!(
        "                               {:.2} s through the Service",
        gap(ClientKind::Service)
    );
    println!("  acknowledged writes lost     0");
}

/// Returns the reason why the tour must not break this cluster, if there is one.
fn skip_reason(cluster: &Cluster<'_>, limit: Duration) -> Option<String> {
    let began = Instant::now();
    loop {
        let status = cluster.status();
        let members = status["memberList"].as_array().map_or(0, Vec::len);
        let is_healthy =
            status["summary"] == "Healthy" && status["leader"].is_string() && members >= 3;
        if is_healthy {
            return None;
        }
        if began.elapsed() > limit {
            return Some(format!(
                "is {} with {members} members; the tour needs a healthy cluster of three or more",
                status["summary"]
            ));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
