//! The tour at the end of `make up`, on the lab that `LAB` names: clients write to a cluster, the leader's pod is deleted, and
//! the effect is printed from the clients' history, which is checked. If the cluster has backups, a second cluster is then
//! restored from one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::measurement::high_rate;
use evenkeel_history::{ClientKind, WorkloadConfig};
use serde_json::{Value, json};

/// The longest time that the recovery may take on a slow machine.
const RECOVERY_LIMIT: Duration = Duration::from_secs(180);
/// How long the tour waits for a healthy cluster.
const HEALTHY_LIMIT: Duration = Duration::from_secs(30);
/// For how long clients write before the fault and after the recovery.
const WRITE_TIME: Duration = Duration::from_secs(3);
/// How long a backup, a drill or a restore may take on a slow machine.
const BACKUP_LIMIT: Duration = Duration::from_secs(300);
/// The API of the resources.
const API: &str = "/apis/evenkeel.dev/v1alpha1";

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
    survive_deletion(&story, &cluster);
    if !cluster.spec()["backup"].is_null() {
        restore_copy(&story, &cluster);
    }
}

/// Deletes the pod of the leader while clients write, and prints what the clients noticed.
fn survive_deletion(story: &Story, cluster: &Cluster<'_>) {
    let name = cluster.name();
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

/// Waits for the first drill, restores a backup into a second cluster of one member, compares a key, and deletes that cluster.
fn restore_copy(story: &Story, cluster: &Cluster<'_>) {
    let name = cluster.name();
    let limit = story.lab().patience().times(BACKUP_LIMIT);
    println!();
    println!(
        "{name} is backed up every hour. A drill restores a backup into a separate etcd and compares it."
    );
    let read = |resource: &str| story.read(API, resource).unwrap_or_default();
    let schedule = format!("backupschedules/{name}-etcd");
    story.within(limit, "a drill has proven a backup", || {
        has_condition(&read(&schedule), "Recoverable")
    });
    let drill = read(&schedule)["status"]["drill"]["lastSuccess"].clone();
    let unique = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let backup = format!("{name}-tour-{unique}");
    cluster.etcdctl(&["put", "tour", &backup]);
    println!("Taking backup {backup} and restoring it into a second cluster, {name}-copy.");
    let began = Instant::now();
    let spec = json!({"cluster": {"name": name}, "store": cluster.spec()["backup"]["store"]});
    let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": {"name": backup}, "spec": spec});
    story.apply(&object.to_string());
    story.within(limit, "the backup is complete", || {
        has_condition(&read(&format!("backups/{backup}")), "Complete")
    });
    let backed_up = began.elapsed();
    let copy = Cluster::named(story, &format!("{name}-copy"));
    // A tour that was interrupted may have left one.
    delete(story, &copy);
    let version = &cluster.spec()["version"];
    let spec = json!({"version": version, "members": 1, "storage": {"size": "1Gi", "onDelete": "Delete"},
        "bootstrap": {"from": {"backup": backup}}});
    let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": copy.name()}, "spec": spec});
    let began = Instant::now();
    story.apply(&object.to_string());
    copy.wait_ready(limit);
    let restored = began.elapsed();
    let value = copy.etcdctl(&["get", "tour", "--print-value-only"]);
    assert_eq!(value.trim(), backup, "the restored cluster has other data");
    println!();
    println!(
        "  the drill took               {} s until the first read",
        drill["seconds"]
    );
    println!(
        "  the backup took              {:.1} s",
        backed_up.as_secs_f64()
    );
    println!(
        "  the copy serves after        {:.1} s, with the data of the backup",
        restored.as_secs_f64()
    );
    delete(story, &copy);
}

fn delete(story: &Story, cluster: &Cluster<'_>) {
    story.kubectl(&["delete", "etcd", cluster.name(), "--ignore-not-found"]);
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    })
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
