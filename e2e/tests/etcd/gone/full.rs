//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_cluster_that_lost_its_quorum_in_the_middle_of_a_change_can_be_deleted_with_its_volumes_or_without()
 {
    let story = Story::begin("quorumless");
    let mut operator = Operator::start(&story);
    let clusters = [("kept", "Keep"), ("dropped", "Delete")].map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 3\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 3);
        // One is lost for good, and its removal begun; before it is done another one is.
        let lost = follower(&story, cluster);
        dies_noting(&mut operator, cluster, "Remove", || {
            take_pod_and_claim(&story, &lost.name)
        });
        take_pod_and_claim(&story, &cluster.pods().remove(0).name);
        story.eventually("its pod and its claim are gone", || {
            ["pods", "pvc"]
                .iter()
                .all(|sort| names(&story, cluster.name(), sort).len() == 1)
        });
        lives_again(&story, &mut operator);
        story.within(LONG, "it says that the quorum is lost", || {
            cluster.condition("Degraded") == ("True".to_owned(), "QuorumLost".to_owned())
        });
    }
    let [kept, dropped] = &clusters;
    let volumes = names(&story, "kept", "pvc");
    assert_eq!(
        volumes.len(),
        1,
        "that of the member that is left: {volumes:?}"
    );
    for cluster in &clusters {
        story.kubectl(&["delete", "etcd", cluster.name(), "--timeout=60s"]);
    }
    for cluster in &clusters {
        let mine = format!("etcd.evenkeel.dev/cluster={}", cluster.name());
        story.within(LONG, &format!("{} is gone", cluster.name()), || {
            let left = [
                "get",
                "pods,services,secrets,poddisruptionbudgets",
                "--selector",
                &mine,
                "-o=name",
            ];
            story.kubectl(&left).trim().is_empty()
        });
    }
    story.within(LONG, "volumes go that were to go", || {
        ["pvc", "configmaps"]
            .iter()
            .all(|sort| names(&story, dropped.name(), sort).is_empty())
    });
    assert_eq!(names(&story, kept.name(), "pvc"), volumes);
    assert_eq!(
        names(&story, kept.name(), "configmaps").len(),
        1,
        "the identity stays with the volumes"
    );
}
