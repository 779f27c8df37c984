//! The stories of this topic that harm nodes.

use super::*;

/// The member whose node is lost while the first member is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostMember {
    /// The member whose turn it is.
    Restarting,
    /// A member with a later turn.
    Waiting,
}

/// Loses a node during a rollout of three. Its member is replaced after `replaceAfter`, and the rollout continues.
fn lose_node(story: &Story, lost_member: LostMember) {
    let operator = Operator::start(story);
    let cluster = create_orders(
        story,
        &format!("{}\nheal: {{replaceAfter: 30s}}", spec("3.6.16", 3)),
        3,
    );
    let (workload, before) = (cluster.workload(), member_ids(&cluster));
    let leader_name = leader(story, &cluster).name;
    let since = workload.now();
    let held_writes = HeldWrites::before(operator.proxy(), evicted_pod);
    cluster.patch(&memory_request("96Mi"));
    let (turn, held) = held_writes.next();
    let is_lost = |pod: &MemberPod| match lost_member {
        LostMember::Restarting => pod.name == turn,
        LostMember::Waiting => pod.name != turn && pod.name != leader_name,
    };
    let lost = cluster
        .pods()
        .into_iter()
        .find(is_lost)
        .expect("one follower is not being restarted");

    let restored = RestoreNodes(story);
    story.lab().cut(&lost.node).unwrap();
    operator.proxy().pass();
    held.resume();
    wait_lost(story, &lost.node);
    wait_until_ok("three reachable members have the new template", || {
        let listed = members(&cluster.try_etcdctl(&["member", "list", "--write-out=json"])?);
        let memory_requests = memory_requests(story);
        let all = listed.iter().all(|one| {
            let has = memory_requests
                .get(&one.name)
                .is_some_and(|amount| amount == "96Mi");
            has && !one.learner && one.name != lost.name
        });
        if listed.len() == 3 && all {
            Ok(())
        } else {
            Err(format!("{listed:?}: {memory_requests:?}"))
        }
    });
    println!(
        "{}",
        format_stats(
            &format!("a node lost in a roll: {lost_member:?}"),
            &workload.stats(since)
        )
    );
    drop(restored);
    wait_converged(story, &cluster, 3);
    let after = member_ids(&cluster);
    let stayed: BTreeSet<_> = before
        .iter()
        .filter(|(name, id)| after.get(*name) == Some(*id))
        .collect();
    assert_eq!(
        stayed.len(),
        2,
        "not only {} was replaced: {before:?}, then {after:?}",
        lost.name
    );
    assert_eq!(count_with_memory(story, "96Mi"), 3);
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_rollout_replaces_the_restarting_member_when_its_node_is_lost() {
    lose_node(&Story::alone("roll-lost"), LostMember::Restarting);
}

#[test]
fn a_rollout_replaces_another_member_when_its_node_is_lost() {
    lose_node(&Story::alone("roll-lost-next"), LostMember::Waiting);
}
