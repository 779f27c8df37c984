//! The tour that `make up` ends with, on the lab that `LAB` names: clients write to a cluster, the pod of the member that leads
//! is deleted, and what came of it is told from the clients' own history, which is checked.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::measured::eager;
use evenkeel_history::{ClientKind, WorkloadConfig};

/// How long healing may take on a slow machine.
const LONG: Duration = Duration::from_secs(180);
/// How long it may take until it is well.
const SETTLE: Duration = Duration::from_secs(30);
/// For how long clients write before and after.
const AROUND: Duration = Duration::from_secs(3);

fn main() {
    let mut args = std::env::args().skip(1);
    let (namespace, name) = (
        args.next().unwrap_or("default".into()),
        args.next().unwrap_or("orders".into()),
    );
    let story = Story::visit(&namespace);
    let cluster = Cluster::named(&story, &name);
    if let Some(why) = unfit(&cluster, story.lab().patience().times(SETTLE)) {
        println!("The tour is left out: {name} {why}.");
        return;
    }
    println!("Clients write to {name}: some know all members, some go through the Service.");
    // On a slow machine clients ask less often and wait longer, or no write would be acknowledged in time.
    let (patience, eager) = (story.lab().patience(), eager());
    let rate = eager.operations_per_second / f64::from(u8::from(patience));
    let workload = cluster.workload_with(WorkloadConfig {
        operations_per_second: rate,
        timeout: patience.times(eager.timeout),
        ..eager
    });
    std::thread::sleep(AROUND);
    let leader = cluster.status()["leader"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let (before, members) = (cluster.pod(&leader), cluster.pods().len());
    println!("Now the pod of {leader} is deleted, which leads.");
    let (since, began) = (workload.now(), Instant::now());
    story.kubectl(&["delete", "pod", &leader, "--wait=false"]);
    story.within(LONG, "it is healed", || {
        let pods = cluster.pods();
        let back = pods
            .iter()
            .any(|pod| pod.name == leader && pod.uid != before.uid);
        back && pods.len() == members
            && pods.iter().all(|pod| pod.ready)
            && cluster.status()["summary"] == "Healthy"
    });
    let healed = began.elapsed();
    std::thread::sleep(AROUND);
    let stats = workload.stats(since);
    let gap = |kind| {
        stats
            .longest_write_gap_by_kind
            .get(&kind)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
    };
    // Fails, and says why, if anything that was acknowledged is lost.
    workload.finish();
    println!();
    println!(
        "  all members are back after   {:.1} s",
        healed.as_secs_f64()
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

/// Why this is not the moment to break it, if it is not: only what is well is broken for show.
fn unfit(cluster: &Cluster<'_>, settle: Duration) -> Option<String> {
    let began = Instant::now();
    loop {
        let status = cluster.status();
        let serve = status["memberList"].as_array().map_or(0, Vec::len);
        let well = status["summary"] == "Healthy" && status["leader"].is_string() && serve >= 3;
        if well {
            return None;
        }
        if began.elapsed() > settle {
            return Some(format!(
                "is {} with {serve} members, and only one of three or more that is Healthy is broken for show",
                status["summary"]
            ));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
