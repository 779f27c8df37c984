//! Lost members: a pod is deleted, gracefully or by force, alone or together with its PVC. Clients continue meanwhile, and no
//! acknowledged write is lost.

mod full;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::workload::{CheckedWorkload, format_stats};
use evenkeel_history::ClientKind;

use crate::assertions::{CLUSTER_LIMIT, events, follower, leader, member_ids, wait_healthy};

/// The longest time without a write for a client that knows all members. An election takes about a second; the rest is for two busy
/// cores. The actual time is printed.
const MAX_WRITE_GAP: Duration = Duration::from_secs(60);

/// The pod that is deleted, and how.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A follower's, gracefully.
    Follower,
    /// The leader's, gracefully.
    Leader,
    /// The leader's, by force: etcd is killed, and the pod object is deleted at once.
    LeaderByForce,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Follower, Self::Leader, Self::LeaderByForce];

    fn victim(self, story: &Story, cluster: &Cluster<'_>) -> MemberPod {
        match self {
            Self::Follower => follower(story, cluster),
            Self::Leader | Self::LeaderByForce => leader(story, cluster),
        }
    }

    /// Deletes the pod, and waits until it is gone.
    fn inject(self, story: &Story, cluster: &Cluster<'_>, victim: &MemberPod) {
        let by_force: &[&str] = match self {
            Self::LeaderByForce => &["--grace-period=0", "--force"],
            Self::Follower | Self::Leader => &[],
        };
        let command = story.command(&["delete", "pod", &victim.name, "--wait=false"]);
        command.args(by_force.iter().copied()).run().unwrap();
        story.eventually(&format!("{} is gone ({self:?})", victim.name), || {
            cluster.pods().iter().all(|pod| pod.uid != victim.uid)
        });
    }
}

/// Returns the PVCs of the namespace: name and uid.
fn claims(story: &Story) -> BTreeMap<String, String> {
    let list = story.get(&["pvc"]);
    let text = |claim: &serde_json::Value, field: &str| {
        claim["metadata"][field].as_str().unwrap().to_owned()
    };
    let all = list["items"].as_array().unwrap().iter();
    all.map(|claim| (text(claim, "name"), text(claim, "uid")))
        .collect()
}

/// Prints the longest write gap of clients that know all members, and asserts a limit.
fn assert_clients_continued(
    what: &str,
    clients: &CheckedWorkload,
    since: evenkeel_history::RunTime,
) {
    let stats = clients.stats(since);
    println!("{}", format_stats(what, &stats));
    let gap = stats.longest_write_gap_by_kind[&ClientKind::AllMembers];
    assert!(
        gap < MAX_WRITE_GAP,
        "{what}: no write for {gap:?} while one member of three was missing"
    );
}

/// Creates a cluster of three with this storage, and waits until it is healthy.
fn create_three<'s>(story: &'s Story, storage: &str) -> Cluster<'s> {
    let cluster = Cluster::apply(
        story,
        "orders",
        &format!("version: 3.6.16\nmembers: 3\nstorage: {storage}"),
    );
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(story, &cluster, 3);
    cluster
}

#[test]
fn a_deleted_pod_comes_back_as_the_same_member_on_the_same_claim() {
    let story = Story::begin("missing-kept");
    let _operator = Operator::start(&story);
    let cluster = create_three(&story, "{size: 1Gi}");
    let (members, volumes) = (member_ids(&cluster), claims(&story));
    let clients = cluster.workload();
    for fault in Fault::ALL {
        let victim = fault.victim(&story, &cluster);
        let since = clients.now();
        fault.inject(&story, &cluster, &victim);
        wait_healthy(&story, &cluster, 3);
        assert_ne!(
            cluster.pod(&victim.name).uid,
            victim.uid,
            "{fault:?}: the pod is not new"
        );
        assert_eq!(
            member_ids(&cluster),
            members,
            "{fault:?}: the members differ"
        );
        assert_eq!(claims(&story), volumes, "{fault:?}: the PVCs differ");
        assert_clients_continued(&format!("on volumes, {fault:?}"), &clients, since);
    }
    clients.finish();
    cluster.wait_same_data();
}

/// Asserts that the victim is not listed any more, the new member has a name that was never used, and the others are unchanged.
fn assert_replaced(
    cluster: &Cluster<'_>,
    before: &BTreeMap<String, u64>,
    victim: &MemberPod,
    names: &mut BTreeSet<String>,
) {
    let now = member_ids(cluster);
    assert!(
        !now.contains_key(&victim.name),
        "{} is still listed: {now:?}",
        victim.name
    );
    for (name, id) in before.iter().filter(|(name, _)| **name != victim.name) {
        assert_eq!(now.get(name), Some(id), "{name} changed");
    }
    let fresh: Vec<_> = now
        .keys()
        .filter(|name| !before.contains_key(*name))
        .collect();
    assert_eq!(fresh.len(), 1, "{now:?}");
    assert!(
        names.insert(fresh[0].clone()),
        "{} was used before: {names:?}",
        fresh[0]
    );
}

#[test]
fn a_pod_deleted_with_its_claim_is_replaced_by_a_member_on_a_new_claim() {
    let story = Story::begin("missing-claim");
    let _operator = Operator::start(&story);
    let cluster = create_three(&story, "{size: 1Gi}");
    let mut names: BTreeSet<String> = member_ids(&cluster).into_keys().collect();
    let (clients, mut removed) = (cluster.workload(), BTreeSet::new());
    for (order, fault) in [
        (["pvc", "pod"], Fault::Follower),
        (["pod", "pvc"], Fault::Leader),
    ] {
        let victim = fault.victim(&story, &cluster);
        let (before, volumes) = (member_ids(&cluster), claims(&story));
        let since = clients.now();
        let both = order.map(|kind| format!("{kind}/{}", victim.name));
        // Returns when both are gone: Kubernetes keeps the PVC as long as a pod uses it.
        story.kubectl(&["delete", &both[0], &both[1], "--timeout=120s"]);
        wait_healthy(&story, &cluster, 3);
        assert_replaced(&cluster, &before, &victim, &mut names);
        let now = claims(&story);
        let members: BTreeSet<_> = member_ids(&cluster).into_keys().collect();
        assert_eq!(
            now.keys().cloned().collect::<BTreeSet<_>>(),
            members,
            "the PVCs are not those of the members"
        );
        assert!(
            now.values().all(|uid| *uid != volumes[&victim.name]),
            "the old PVC still exists: {now:?}"
        );
        assert_clients_continued(
            &format!("together with its claim, {fault:?}"),
            &clients,
            since,
        );
        // The member list shows the removal. If etcd answers too late there is no event; but there is no event for another member, and none
        // twice.
        removed.insert(format!("Removed member {}", victim.name));
        let mut format_stats = events(&story, &cluster);
        format_stats.retain(|(reason, _)| reason == "MemberRemoved");
        let notes: BTreeSet<_> = format_stats.iter().map(|(_, note)| note.clone()).collect();
        assert!(
            notes.is_subset(&removed) && notes.len() == format_stats.len(),
            "{format_stats:?}"
        );
    }
    clients.finish();
    cluster.wait_same_data();
}
