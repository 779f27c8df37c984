//! The tour that `make up` ends with, on the lab that `LAB` names: clients write to a cluster, the pod of the member that leads
//! is deleted, and what came of it is told from the clients' own history, which is checked.
#![expect(clippy::expect_used, reason = "a tour that cannot go on ends")]

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_history::Kind;

/// How long healing may take on a slow machine.
const LONG: Duration = Duration::from_secs(180);
/// For how long clients write before and after.
const AROUND: Duration = Duration::from_secs(3);

fn main() {
    let mut args = std::env::args().skip(1);
    let (namespace, name) = (args.next().unwrap_or("default".into()), args.next().unwrap_or("orders".into()));
    let story = Story::visit(&namespace);
    let cluster = Cluster::named(&story, &name);
    println!("Clients write to {name}: through each member, and through the Service.");
    let workload = cluster.workload();
    std::thread::sleep(AROUND);
    let leader = cluster.status()["leader"].as_str().expect("somebody leads").to_owned();
    let before = cluster.pod(&leader);
    println!("Now the pod of {leader} is deleted, which leads.");
    let (since, began) = (workload.now(), Instant::now());
    story.kubectl(&["delete", "pod", &leader, "--wait=false"]);
    let members = cluster.pods().len();
    story.within(LONG, "it is healed", || {
        let pods = cluster.pods();
        let back = pods.iter().any(|pod| pod.name == leader && pod.uid != before.uid);
        back && pods.len() == members
            && pods.iter().all(|pod| pod.ready)
            && cluster.status()["phrase"] == "Healthy"
    });
    let healed = began.elapsed();
    std::thread::sleep(AROUND);
    let stats = workload.stats(since);
    let gap = |kind| stats.gaps.get(&kind).copied().unwrap_or_default().as_secs_f64();
    // Fails, and says why, if anything that was acknowledged is lost.
    workload.finish();
    println!();
    println!("  all members are back after   {:.1} s", healed.as_secs_f64());
    println!(
        "  longest gap between writes   {:.2} s for clients that know all members",
        gap(Kind::Everywhere)
    );
    println!("                               {:.2} s through the Service", gap(Kind::Service));
    println!("  acknowledged writes lost     0");
}
