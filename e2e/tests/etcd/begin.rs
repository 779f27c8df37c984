//! A bootstrap that is disturbed: its first member lost, its resource edited, deleted, created again, all in the middle of
//! it. Nobody has written to it yet, so it may begin again, but it must end as one cluster, with nothing left over.

mod anew;
mod unplaced;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Written, lives};
use evenkeel_lab::up::{add_node, delete_node};
use serde_json::json;

use crate::middle::{
    Stops, comes_to_rest, ends_well, identity, intent_in, names, notes, pod_of, spec,
};

/// How long clients work on a cluster whose members stay as they are.
const A_WHILE: Duration = Duration::from_secs(4);

/// Has clients work on clusters that stay as they are, and proves what they saw.
fn serve_clients(clusters: &[Cluster<'_>]) {
    let workloads: Vec<_> = clusters.iter().map(Cluster::workload).collect();
    std::thread::sleep(A_WHILE);
    for (workload, cluster) in workloads.into_iter().zip(clusters) {
        workload.finish();
        cluster.holds_the_same_everywhere();
    }
}

/// That a cluster has begun again, under names that nothing had before.
fn has_begun_again(
    story: &Story,
    cluster: &Cluster<'_>,
    members: usize,
    before: &BTreeSet<String>,
) {
    ends_well(story, cluster, members);
    let identity = identity(story, cluster.name());
    assert_eq!(identity["epoch"], 2, "{identity}");
    let now = names(story, cluster.name(), "pods");
    assert!(now.is_disjoint(before), "{now:?} has a name of {before:?}");
}

#[test]
fn a_seed_whose_claim_is_lost_in_the_middle_makes_way_for_a_new_epoch_and_nothing_of_the_old_is_left()
 {
    let story = Story::begin("seed-lost");
    let operator = Operator::start(&story);
    // One before anybody else is a member, the other with a learner that has joined.
    let stops = Stops::before(operator.proxy(), |write| {
        let at = [("early", 1), ("late", 2)]
            .into_iter()
            .find(|(name, nth)| notes(write, name, "Add", *nth))?;
        Some(at.0.to_owned())
    });
    let clusters = ["early", "late"].map(|name| Cluster::apply(&story, name, &spec(3)));
    let mut before = BTreeSet::new();
    for _ in &clusters {
        let (name, stopped) = stops.next();
        before.extend(names(&story, &name, "pods"));
        let seed = pod_of(&story, &name, 0);
        // Pods and claims are called alike.
        story.kubectl(&["delete", &format!("pod/{seed}"), &format!("pvc/{seed}")]);
        stops.let_go(&name);
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
    serve_clients(&clusters);
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
#[ignore = "it hurts nodes: make test-hurt"]
fn a_seed_whose_node_is_gone_for_good_in_the_middle_makes_way_for_a_new_epoch() {
    let story = Story::apart("seed-node");
    let operator = Operator::start(&story);
    let stops = Stops::before(operator.proxy(), |write| {
        notes(write, "a", "Add", 2).then(|| "a".to_owned())
    });
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let (_, stopped) = stops.next();
    let before = names(&story, "a", "pods");
    let seed = cluster.pod(&pod_of(&story, "a", 0));
    let volume = story.field(&["pvc", &seed.claim], ".spec.volumeName");

    delete_node(story.lab().name(), &seed.node).unwrap();
    let _replacement = Replacement(&story);
    stops.let_go("a");
    stopped.go_on();
    has_begun_again(&story, &cluster, 3, &before);
    assert!(
        cluster.pods().iter().all(|pod| pod.node != seed.node),
        "{:?}",
        cluster.pods()
    );
    comes_to_rest(&operator);
    serve_clients(&[cluster]);

    // Nobody is left to take the lost disk's volume away.
    story.kubectl(&[
        "patch",
        "pv",
        &volume,
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    story.kubectl(&[
        "delete",
        "pv",
        &volume,
        "--ignore-not-found",
        "--wait=false",
    ]);
}

#[test]
fn members_edited_in_the_middle_end_as_exactly_so_many_with_nothing_left_over() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    // Each has two members by then, the second as a rule without a vote, and a third that is about to be added.
    let stops = Stops::before(operator.proxy(), |write| {
        let all = ["fewer", "more", "less"].into_iter();
        all.filter(|name| notes(write, name, "Add", 2))
            .map(str::to_owned)
            .next()
    });
    let edits = [("fewer", 3, 1), ("more", 3, 5), ("less", 5, 3)];
    let clusters = edits.map(|(name, members, _)| Cluster::apply(&story, name, &spec(members)));
    for _ in &edits {
        let (name, stopped) = stops.next();
        let (_, _, members) = edits.into_iter().find(|edit| edit.0 == name).unwrap();
        Cluster::named(&story, &name).patch(&json!({"members": members}));
        // What was decided before the edit lands after it.
        stops.let_go(&name);
        stopped.go_on();
    }
    for (cluster, (_, _, members)) in clusters.iter().zip(edits) {
        ends_well(&story, cluster, members);
        assert_eq!(
            identity(&story, cluster.name())["epoch"],
            1,
            "nothing was lost, nothing begins again"
        );
    }
    comes_to_rest(&operator);
    serve_clients(&clusters);
}

#[test]
fn an_intent_that_is_noted_and_not_yet_done_has_nobody_prepared_beyond_those_who_are_wanted() {
    let story = Story::begin("noted");
    let operator = Operator::start(&story);
    // Noted, and the operator does not know: it looks again, and finds the intent open.
    operator
        .proxy()
        .once(Verdict::FailAfter(500), |write| notes(write, "a", "Add", 1));
    let cluster = Cluster::apply(&story, "a", &spec(3));
    ends_well(&story, &cluster, 3);
    let lives = lives(&operator.proxy().writes());
    let claims: Vec<_> = lives
        .iter()
        .filter(|(object, _)| object.starts_with("persistentvolumeclaims/"))
        .collect();
    // A learner that did not start in time is removed, and another one prepared in its stead.
    let removals =
        |it: &&Written| intent_in(&it.write, "a").is_some_and(|intent| intent.kind == "Remove");
    let removed = operator
        .proxy()
        .writes()
        .iter()
        .filter(removals)
        .filter(|it| it.is_applied())
        .count();
    assert!(
        claims.len() <= 3 + removed,
        "more were prepared than are wanted: {claims:?}"
    );
}
