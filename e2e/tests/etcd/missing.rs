//! The missing member: a pod is deleted, gently or by force, alone or together with its claim. Clients go on meanwhile,
//! and nothing they were promised is lost.

mod full;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::watched::{Watched, told};
use evenkeel_history::ClientKind;

use crate::look::{LONG, events, follower, ids, leader, until_whole};

/// For how long a client that knows all members may be without a write. An election takes about a second; the rest is
/// for two cores that carry everything. How long it was is printed: that is for people to judge.
const UNAVAILABLE: Duration = Duration::from_secs(60);

/// Which pod goes, and how.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A follower's, with time to say goodbye.
    Follower,
    /// The leader's, with time to hand over.
    Leader,
    /// The leader's, with none: etcd is killed, and Kubernetes forgets the pod at once.
    LeaderByForce,
}

impl Blow {
    const ALL: [Self; 3] = [Self::Follower, Self::Leader, Self::LeaderByForce];

    fn victim(self, story: &Story, cluster: &Cluster<'_>) -> MemberPod {
        match self {
            Self::Follower => follower(story, cluster),
            Self::Leader | Self::LeaderByForce => leader(story, cluster),
        }
    }

    /// Deletes the pod, and waits until it is another one or gone.
    fn strike(self, story: &Story, cluster: &Cluster<'_>, victim: &MemberPod) {
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

/// The claims of the namespace: name and uid.
fn claims(story: &Story) -> BTreeMap<String, String> {
    let list = story.get(&["pvc"]);
    let text = |claim: &serde_json::Value, field: &str| {
        claim["metadata"][field].as_str().unwrap().to_owned()
    };
    let all = list["items"].as_array().unwrap().iter();
    all.map(|claim| (text(claim, "name"), text(claim, "uid")))
        .collect()
}

/// Clients that know all members went on: a figure for the log, and a limit.
fn clients_went_on(what: &str, clients: &Watched, since: evenkeel_history::RunTime) {
    let stats = clients.stats(since);
    println!("{}", told(what, &stats));
    let gap = stats.longest_write_gap_by_kind[&ClientKind::AllMembers];
    assert!(
        gap < UNAVAILABLE,
        "{what}: no write for {gap:?}, though one member of three was missing"
    );
}

/// A cluster of three on this storage, whole.
fn of_three<'s>(story: &'s Story, storage: &str) -> Cluster<'s> {
    let cluster = Cluster::apply(
        story,
        "orders",
        &format!("version: 3.6.16\nmembers: 3\nstorage: {storage}"),
    );
    cluster.wait_ready(LONG);
    until_whole(story, &cluster, 3);
    cluster
}

#[test]
fn a_deleted_pod_comes_back_as_the_same_member_on_the_same_claim() {
    let story = Story::begin("missing-kept");
    let _operator = Operator::start(&story);
    let cluster = of_three(&story, "{size: 1Gi}");
    let (members, volumes) = (ids(&cluster), claims(&story));
    let clients = cluster.workload();
    for blow in Blow::ALL {
        let victim = blow.victim(&story, &cluster);
        let since = clients.now();
        blow.strike(&story, &cluster, &victim);
        until_whole(&story, &cluster, 3);
        assert_ne!(
            cluster.pod(&victim.name).uid,
            victim.uid,
            "{blow:?}: another pod"
        );
        assert_eq!(ids(&cluster), members, "{blow:?}: the same members");
        assert_eq!(claims(&story), volumes, "{blow:?}: the same claims");
        clients_went_on(&format!("on volumes, {blow:?}"), &clients, since);
    }
    clients.finish();
    cluster.holds_the_same_everywhere();
}

/// The others are who they were; the victim is not listed any more, and whoever came has a name that nobody ever had.
fn is_replaced(
    cluster: &Cluster<'_>,
    before: &BTreeMap<String, u64>,
    victim: &MemberPod,
    names: &mut BTreeSet<String>,
) {
    let now = ids(cluster);
    assert!(
        !now.contains_key(&victim.name),
        "{} is listed still: {now:?}",
        victim.name
    );
    for (name, id) in before.iter().filter(|(name, _)| **name != victim.name) {
        assert_eq!(now.get(name), Some(id), "{name} was left alone");
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
fn a_pod_deleted_together_with_its_claim_is_replaced_by_a_member_on_a_new_one() {
    let story = Story::begin("missing-claim");
    let _operator = Operator::start(&story);
    let cluster = of_three(&story, "{size: 1Gi}");
    let mut names: BTreeSet<String> = ids(&cluster).into_keys().collect();
    let (clients, mut removed) = (cluster.workload(), BTreeSet::new());
    for (order, blow) in [
        (["pvc", "pod"], Blow::Follower),
        (["pod", "pvc"], Blow::Leader),
    ] {
        let victim = blow.victim(&story, &cluster);
        let (before, volumes) = (ids(&cluster), claims(&story));
        let since = clients.now();
        let both = order.map(|kind| format!("{kind}/{}", victim.name));
        // It returns when both are gone: the claim is held for as long as a pod uses it.
        story.kubectl(&["delete", &both[0], &both[1], "--timeout=120s"]);
        until_whole(&story, &cluster, 3);
        is_replaced(&cluster, &before, &victim, &mut names);
        let now = claims(&story);
        let members: BTreeSet<_> = ids(&cluster).into_keys().collect();
        assert_eq!(
            now.keys().cloned().collect::<BTreeSet<_>>(),
            members,
            "each member has its claim, and no more"
        );
        assert!(
            now.values().all(|uid| *uid != volumes[&victim.name]),
            "the old claim is gone: {now:?}"
        );
        clients_went_on(
            &format!("together with its claim, {blow:?}"),
            &clients,
            since,
        );
        // The list of members has told that it was removed. When etcd answers too late that is no event; but nobody else is
        // said to be removed, and nobody twice.
        removed.insert(format!("removed {} from the cluster", victim.name));
        let mut told = events(&story, &cluster);
        told.retain(|(reason, _)| reason == "MemberRemoved");
        let notes: BTreeSet<_> = told.iter().map(|(_, note)| note.clone()).collect();
        assert!(
            notes.is_subset(&removed) && notes.len() == told.len(),
            "{told:?}"
        );
    }
    clients.finish();
    cluster.holds_the_same_everywhere();
}
