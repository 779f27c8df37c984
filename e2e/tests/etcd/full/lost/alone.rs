//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

/// Patience as short as it may be.
const SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 30s}";

#[test]
fn a_member_that_nobody_reaches_is_replaced_and_what_it_left_waits_for_its_node() {
    let story = Story::alone("unreachable");
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
fn a_node_that_only_kubernetes_cannot_reach_costs_nobody_its_place() {
    let story = Story::alone("deaf");
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
