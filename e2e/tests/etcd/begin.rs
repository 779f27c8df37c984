//! A bootstrap that is disturbed: its first member lost, its resource edited, deleted, created again, all in the middle of
//! it. Nobody has written to it yet, so it may begin again, but it must end as one cluster, with nothing left over.

mod anew;
mod unplaced;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Stopped, Verdict};
use evenkeel_lab::up::{add_node, delete_node};
use serde_json::json;

use crate::look::LONG;
use crate::middle::{comes_to_rest, ends_well, identity, intent_in, names, notes, pod_of};

/// How long clients work on a cluster whose members stay as they are.
const A_WHILE: Duration = Duration::from_secs(4);

/// The cluster whose identity a stopped write is about to change.
fn cluster_of(stopped: &Stopped) -> String {
    let name = stopped.write.name().and_then(|name| name.strip_suffix("-identity"));
    name.expect("an identity has its cluster's name").to_owned()
}

/// Has clients work on a cluster that stays as it is, and proves what they saw.
fn serves_clients(cluster: &Cluster<'_>) {
    let workload = cluster.workload();
    std::thread::sleep(A_WHILE);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

/// That a cluster has begun again, under names that nothing had before.
fn has_begun_again(story: &Story, cluster: &Cluster<'_>, members: usize, before: &BTreeSet<String>) {
    ends_well(story, cluster, members);
    let identity = identity(story, cluster.name());
    assert_eq!(identity["epoch"], 2, "{identity}");
    let now = names(story, cluster.name(), "pods");
    assert!(now.is_disjoint(before), "{now:?} has a name of {before:?}");
}

#[test]
fn a_seed_whose_claim_is_lost_in_the_middle_makes_way_for_a_new_epoch_and_nothing_of_the_old_is_left() {
    let story = Story::begin("seed-lost");
    let operator = Operator::start(&story);
    // One before anybody else is a member, the other with a learner that has joined.
    operator.proxy().rule(|write| {
        let now = notes(write, "early", "Add", 1) || notes(write, "late", "Add", 2);
        if now { Verdict::StopBefore } else { Verdict::Pass }
    });
    let clusters = ["early", "late"].map(|name| Cluster::apply(&story, name, "version: 3.6.16\nmembers: 3"));
    let mut before = BTreeSet::new();
    for _ in &clusters {
        let stopped = operator.proxy().stopped(LONG);
        let name = cluster_of(&stopped);
        before.extend(names(&story, &name, "pods"));
        let seed = pod_of(&story, &name, 0);
        // Pods and claims are called alike.
        story.kubectl(&["delete", &format!("pod/{seed}"), &format!("pvc/{seed}")]);
        if name == "early" {
            // It never lands.
            drop(stopped);
        } else {
            // It lands, and the call that it announces finds nobody.
            stopped.go_on();
        }
    }
    for cluster in &clusters {
        has_begun_again(&story, cluster, 3, &before);
    }
    comes_to_rest(&operator);
    clusters.iter().for_each(serves_clients);
}

/// Gives the lab as many nodes as it had, whatever becomes of the story.
struct Replacement<'a>(&'a Story);

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        let added = add_node(self.0.lab().name());
        if !std::thread::panicking() {
            added.unwrap();
        }
    }
}

#[test]
fn a_seed_whose_node_is_gone_for_good_in_the_middle_makes_way_for_a_new_epoch() {
    let story = Story::alone("seed-node");
    let operator = Operator::start(&story);
    operator.proxy().once(Verdict::StopBefore, |write| notes(write, "a", "Add", 2));
    let cluster = Cluster::apply(&story, "a", "version: 3.6.16\nmembers: 3");
    let stopped = operator.proxy().stopped(LONG);
    let before = names(&story, "a", "pods");
    let seed = cluster.pod(&pod_of(&story, "a", 0));
    let volume = story.field(&["pvc", &seed.claim], ".spec.volumeName");

    delete_node(story.lab().name(), &seed.node).unwrap();
    let _replacement = Replacement(&story);
    stopped.go_on();
    has_begun_again(&story, &cluster, 3, &before);
    assert!(cluster.pods().iter().all(|pod| pod.node != seed.node), "{:?}", cluster.pods());
    comes_to_rest(&operator);
    serves_clients(&cluster);

    // Nobody is left to take the lost disk's volume away.
    story.kubectl(&["patch", "pv", &volume, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    story.kubectl(&["delete", "pv", &volume, "--ignore-not-found", "--wait=false"]);
}

#[test]
fn members_edited_in_the_middle_end_as_exactly_so_many_with_nothing_left_over() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    // Each has two members by then, the second without a vote, and a third that is about to be added.
    operator.proxy().rule(|write| {
        let now = ["fewer", "more", "less"].iter().any(|cluster| notes(write, cluster, "Add", 2));
        if now { Verdict::StopBefore } else { Verdict::Pass }
    });
    let edits = [("fewer", 3, 1), ("more", 3, 5), ("less", 5, 3)];
    let clusters = edits.map(|(name, members, _)| {
        Cluster::apply(&story, name, &format!("version: 3.6.16\nmembers: {members}"))
    });
    for _ in &edits {
        let stopped = operator.proxy().stopped(LONG);
        assert_eq!(intent_in(&stopped.write, &cluster_of(&stopped)).unwrap().voters, 1);
        let (name, _, members) = edits.into_iter().find(|edit| edit.0 == cluster_of(&stopped)).unwrap();
        Cluster::named(&story, name).patch(&json!({"members": members}));
        // What was decided before the edit lands after it.
        stopped.go_on();
    }
    for (cluster, (_, _, members)) in clusters.iter().zip(edits) {
        ends_well(&story, cluster, members);
        assert_eq!(identity(&story, cluster.name())["epoch"], 1, "nothing was lost, nothing begins again");
    }
    comes_to_rest(&operator);
    clusters.iter().for_each(serves_clients);
}
