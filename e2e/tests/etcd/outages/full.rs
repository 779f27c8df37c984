//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_cluster_without_quorum_can_be_deleted_with_or_without_volumes() {
    let story = Story::begin("quorumless");
    let mut operator = Operator::start(&story);
    let clusters = [("kept", "Keep"), ("dropped", "Delete")].map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 3\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, cluster, 3);
        // The pod and PVC of one member are deleted, and its removal is recorded; before it is done, those of a second one are deleted.
        let lost = follower(&story, cluster);
        kill_after_intent(&mut operator, cluster, "Remove", || {
            delete_pod_and_claim(&story, &lost.name)
        });
        delete_pod_and_claim(&story, &cluster.pods().remove(0).name);
        story.eventually("one pod and one PVC are left", || {
            ["pods", "pvc"]
                .iter()
                .all(|sort| names(&story, cluster.name(), sort).len() == 1)
        });
        start_after_kill(&story, &mut operator);
        story.within(CLUSTER_LIMIT, "Degraded has the reason QuorumLost", || {
            cluster.condition("Degraded") == ("True".to_owned(), "QuorumLost".to_owned())
        });
    }
    let [kept, dropped] = &clusters;
    let volumes = names(&story, "kept", "pvc");
    assert_eq!(
        volumes.len(),
        1,
        "not only the PVC of the remaining member: {volumes:?}"
    );
    for cluster in &clusters {
        story.kubectl(&["delete", "etcd", cluster.name(), "--timeout=60s"]);
    }
    for cluster in &clusters {
        let mine = format!("etcd.evenkeel.dev/cluster={}", cluster.name());
        story.within(
            CLUSTER_LIMIT,
            &format!("{} is gone", cluster.name()),
            || {
                let left = [
                    "get",
                    "pods,services,secrets,poddisruptionbudgets",
                    "--selector",
                    &mine,
                    "-o=name",
                ];
                story.kubectl(&left).trim().is_empty()
            },
        );
    }
    story.within(CLUSTER_LIMIT, "PVCs and identity are deleted", || {
        ["pvc", "configmaps"]
            .iter()
            .all(|sort| names(&story, dropped.name(), sort).is_empty())
    });
    assert_eq!(names(&story, kept.name(), "pvc"), volumes);
    assert_eq!(
        names(&story, kept.name(), "configmaps").len(),
        1,
        "the identity is not kept with the PVCs"
    );
}
