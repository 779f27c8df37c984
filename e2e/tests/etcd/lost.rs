//! Nodes that are gone for a while, or look as if they were: who is replaced, who is not, and what comes of those who return.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::watched::told;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, ids, until_whole};
use crate::middle::{Stops, comes_to_rest, intent_in, kill_and_restart, member_pod, names};

/// Patience as short as it may be.
const SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 30s}";

/// Has a node be as it was, whatever becomes of the story.
pub(crate) struct Healed<'s>(pub(crate) &'s Story);

impl Drop for Healed<'_> {
    fn drop(&mut self) {
        let _ = self.0.lab().heal();
        for node in self.0.lab().nodes() {
            let _ = self.0.lab().wait_until_ready(&node.name);
        }
    }
}

/// The claim of this name, as Kubernetes has it.
fn claim(story: &Story, name: &str) -> Option<Value> {
    story.read("/api/v1", &format!("persistentvolumeclaims/{name}"))
}

fn is_kept(claim: &Value) -> bool {
    claim["metadata"]["annotations"]
        .get("evenkeel.dev/removed-at")
        .is_some()
}

pub(crate) fn until_lost(story: &Story, node: &str) {
    let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    story.eventually(&format!("Kubernetes takes {node} for lost"), || {
        story.kubectl(&["get", "node", node, ready]) == "Unknown"
    });
}

#[test]
#[ignore = "it hurts nodes: make test-hurt"]
fn a_member_that_nobody_reaches_is_replaced_and_what_it_left_waits_for_its_node() {
    let story = Story::apart("unreachable");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, SPEC, 3);
    let workload = cluster.workload();
    let (lost, since) = (follower(&story, &cluster), workload.now());

    let healed = Healed(&story);
    story.lab().cut(&lost.node).unwrap();
    until_lost(&story, &lost.node);
    // The operator dies between its intent and the call; its successor counts anew, and finishes what was begun.
    let stops = Stops::before(operator.proxy(), |write| {
        intent_in(write, "orders")
            .filter(|intent| intent.kind == "Remove")
            .map(|intent| intent.kind)
    });
    let (_, stopped) = stops.next();
    stops.let_go("Remove");
    kill_and_restart(&story, &mut operator, stopped);
    story.within(LONG, "somebody else is in its place", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        list.is_ok_and(|list| {
            let list = evenkeel_e2e::etcd::members(&list);
            list.len() == 3
                && list
                    .iter()
                    .all(|member| !member.learner && member.name != lost.name)
        })
    });
    println!(
        "replaced on another node: {}",
        told("orders", &workload.stats(since))
    );
    let replaced = events(&story, &cluster)
        .into_iter()
        .find(|(reason, _)| reason == "MemberReplaced");
    assert!(replaced.is_none_or(|(_, note)| note.contains(&lost.name)));
    let left = claim(&story, &lost.claim)
        .expect("nobody can know what is done on a node that does not answer");
    assert!(
        !is_kept(&left),
        "its pod is not known to have ended: {left:#}"
    );
    assert!(
        story
            .read("/api/v1", &format!("pods/{}", lost.name))
            .is_some_and(|pod| pod["metadata"]["uid"] == lost.uid),
        "its pod is never forgotten by force"
    );

    drop(healed);
    until_whole(&story, &cluster, 3);
    story.within(LONG, "its claim is kept aside", || {
        claim(&story, &lost.claim).is_some_and(|it| is_kept(&it))
    });
    assert!(!ids(&cluster).contains_key(&lost.name));
    comes_to_rest(&operator);
    cluster.patch(&json!({"storage": {"keepRemovedFor": "0"}}));
    story.within(LONG, "its claim goes", || {
        claim(&story, &lost.claim).is_none()
    });
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
#[ignore = "it hurts nodes: make test-hurt"]
fn a_node_that_only_kubernetes_cannot_reach_costs_nobody_its_place() {
    let story = Story::apart("deaf");
    let operator = Operator::start(&story);
    let cluster = formed(&story, SPEC, 3);
    let (before, victim) = (ids(&cluster), follower(&story, &cluster));
    let workload = cluster.workload();
    let healed = Healed(&story);
    story.lab().deafen(&victim.node).unwrap();
    until_lost(&story, &victim.node);
    // Longer than a member is waited for that nobody reaches.
    std::thread::sleep(Duration::from_secs(60));
    assert_eq!(
        ids(&cluster),
        before,
        "it serves, and is replaced all the same"
    );
    let mut intents = operator
        .proxy()
        .writes()
        .into_iter()
        .filter_map(|write| intent_in(&write.write, "orders"));
    assert!(!intents.any(|intent| intent.kind == "Remove"));
    drop(healed);
    until_whole(&story, &cluster, 3);
    assert_eq!(ids(&cluster), before);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn volumes_of_members_that_left_are_kept_for_as_long_as_was_said() {
    let story = Story::begin("kept");
    let operator = Operator::start(&story);
    let cluster = formed(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
        3,
    );
    let all = names(&story, "orders", "pvc");
    cluster.patch(&json!({"members": 1}));
    until_whole(&story, &cluster, 1);
    let stays: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.claim).collect();
    let left: Vec<_> = all.difference(&stays).cloned().collect();
    story.eventually("those who left leave volumes that are kept", || {
        left.iter()
            .all(|name| claim(&story, name).is_some_and(|claim| is_kept(&claim)))
    });
    comes_to_rest(&operator);
    assert_eq!(
        cluster.status()["members"],
        1,
        "they are no members: {:#}",
        cluster.status()
    );

    // A cluster that loses its only pod comes back as it was: nobody else's volume brings a member back.
    let pod = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &pod.name]);
    until_whole(&story, &cluster, 1);
    assert!((1..3).all(|serial| member_pod(&story, "orders", serial).is_none()));
    cluster.patch(&json!({"storage": {"keepRemovedFor": "0"}}));
    story.within(LONG, "they go", || {
        left.iter().all(|name| claim(&story, name).is_none())
    });
    assert_eq!(names(&story, "orders", "pvc"), stays);
}
