//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn deleting_a_cluster_deletes_or_keeps_its_volumes_as_configured() {
    let story = Story::begin("deleted");
    let _operator = Operator::start(&story);
    let clusters =
        [("kept", "Keep"), ("dropped", "Delete"), ("other", "Keep")].map(|(name, policy)| {
            let spec =
                format!("version: 3.6.16\nmembers: 1\nstorage: {{size: 1Gi, onDelete: {policy}}}");
            Cluster::apply(&story, name, &spec)
        });
    clusters
        .iter()
        .for_each(|cluster| cluster.wait_ready(CLUSTER_LIMIT));
    let [kept, dropped, other] = &clusters;
    let workload = other.workload();
    let volumes = |cluster: &Cluster<'_>| names(&story, cluster.name(), "pvc").len();
    // A frozen etcd blocks nothing.
    let pod = dropped.pods().remove(0);
    story
        .lab()
        .pod(story.namespace(), &pod.name)
        .unwrap()
        .freeze(Some("etcd"), None)
        .unwrap();
    for cluster in [kept, dropped] {
        story.kubectl(&["delete", "etcd", cluster.name()]);
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
    story.eventually("the PVC and the identity of `dropped` are deleted", || {
        volumes(dropped) == 0 && names(&story, "dropped", "configmaps").is_empty()
    });
    assert_eq!((volumes(kept), volumes(other)), (1, 1));
    assert_eq!(
        names(&story, "kept", "configmaps").len(),
        1,
        "the identity is not kept with the PVCs"
    );
    wait_healthy(&story, other, 1);
    workload.finish();
}
