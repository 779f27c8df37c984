//! The stories of this topic that harm nodes.

use super::*;

#[test]
fn pods_of_a_node_without_power_are_recreated_on_other_nodes() {
    let story = Story::alone("node-lost");
    story.apply(&web(3));
    story.eventually("three replicas are ready", || ready_pods(&story).len() == 3);
    let (victim, node) = ready_on(&story).into_iter().next().unwrap();

    story.lab().power_off(&node).unwrap();
    story.eventually("three replicas are ready on the other nodes", || {
        let now = ready_on(&story);
        now.len() == 3 && now.values().all(|on| *on != node)
    });
    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.eventually("the lost pod is gone", || {
        story.try_kubectl(&["get", "pod", &victim]).is_err()
    });
}
