//! The stories of this topic that harm nodes.

use super::*;

/// The shortest `replaceAfter`.
const SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 30s}";

#[test]
fn an_unreachable_member_is_replaced_and_its_claim_waits_for_its_node() {
    let story = Story::alone("unreachable");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 3);
    let workload = cluster.workload();
    let (lost, since) = (follower(&story, &cluster), workload.now());

    let restored = RestoreNodes(&story);
    story.lab().cut(&lost.node).unwrap();
    wait_lost(&story, &lost.node);
    // The operator dies between its intent and the call; its successor starts the wait again and finishes the replacement.
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        intent_written(write, "orders")
            .filter(|intent| intent.kind == "Remove")
            .map(|intent| intent.kind)
    });
    let (_, held) = held_writes.next();
    held_writes.release("Remove");
    kill_and_restart(&story, &mut operator, held);
    story.within(CLUSTER_LIMIT, "another member replaces it", || {
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
        format_stats("orders", &workload.stats(since))
    );
    let replaced = events(&story, &cluster)
        .into_iter()
        .find(|(reason, _)| reason == "MemberReplaced");
    assert!(replaced.is_none_or(|(_, note)| note.contains(&lost.name)));
    let left = claim(&story, &lost.claim).expect("the PVC on an unreachable node is not deleted");
    assert!(
        !is_retained(&left),
        "the PVC is retained although its pod may still run: {left:#}"
    );
    assert!(
        story
            .read("/api/v1", &format!("pods/{}", lost.name))
            .is_some_and(|pod| pod["metadata"]["uid"] == lost.uid),
        "the pod was force-deleted"
    );

    drop(restored);
    wait_healthy(&story, &cluster, 3);
    story.within(CLUSTER_LIMIT, "the PVC is retained", || {
        claim(&story, &lost.claim).is_some_and(|it| is_retained(&it))
    });
    assert!(!member_ids(&cluster).contains_key(&lost.name));
    wait_idle(&operator);
    cluster.patch(&json!({"storage": {"keepRemovedFor": "0"}}));
    story.within(CLUSTER_LIMIT, "the PVC is deleted", || {
        claim(&story, &lost.claim).is_none()
    });
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_node_that_only_kubernetes_cannot_reach_keeps_its_member() {
    let story = Story::alone("deaf");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 3);
    let (before, victim) = (member_ids(&cluster), follower(&story, &cluster));
    let workload = cluster.workload();
    let restored = RestoreNodes(&story);
    story.lab().deafen(&victim.node).unwrap();
    wait_lost(&story, &victim.node);
    // Longer than `replaceAfter`.
    std::thread::sleep(Duration::from_secs(60));
    assert_eq!(
        member_ids(&cluster),
        before,
        "a member that serves was replaced"
    );
    let mut intents = operator
        .proxy()
        .writes()
        .into_iter()
        .filter_map(|write| intent_written(&write.write, "orders"));
    assert!(!intents.any(|intent| intent.kind == "Remove"));
    drop(restored);
    wait_healthy(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), before);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_member_on_a_drained_node_is_waited_for_and_comes_back() {
    let story = Story::alone("drained");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 3);
    let (before, victim) = (member_ids(&cluster), follower(&story, &cluster));
    let workload = cluster.workload();
    let drain = [
        "drain",
        &victim.node,
        "--ignore-daemonsets",
        "--pod-selector=etcd.evenkeel.dev/cluster=orders",
        "--timeout=120s",
    ];
    let drained = story.try_kubectl(&drain);
    // Much longer than `replaceAfter`.
    std::thread::sleep(Duration::from_secs(90));
    let during = member_ids(&cluster);
    // Other stories need the node, whatever happened here.
    story.kubectl(&["uncordon", &victim.node]);
    drained.unwrap();
    assert_eq!(
        during, before,
        "the member on the drained node was replaced"
    );
    wait_healthy(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), before, "another member came back");
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
