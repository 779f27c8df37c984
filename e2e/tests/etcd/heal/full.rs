//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_deleted_cluster_goes_with_its_volumes_or_without_as_was_said_and_nothing_else_goes() {
    let story = Story::begin("deleted");
    let _operator = Operator::start(&story);
    let clusters =
        [("kept", "Keep"), ("dropped", "Delete"), ("other", "Keep")].map(|(name, policy)| {
            let spec =
                format!("version: 3.6.16\nmembers: 1\nstorage: {{size: 1Gi, onDelete: {policy}}}");
            Cluster::apply(&story, name, &spec)
        });
    clusters.iter().for_each(|cluster| cluster.wait_ready(LONG));
    let [kept, dropped, other] = &clusters;
    let workload = other.workload();
    let volumes = |cluster: &Cluster<'_>| names(&story, cluster.name(), "pvc").len();
    // Broken etcd holds nothing up.
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
    story.eventually("the volume goes that was to go, and its identity", || {
        volumes(dropped) == 0 && names(&story, "dropped", "configmaps").is_empty()
    });
    assert_eq!((volumes(kept), volumes(other)), (1, 1));
    assert_eq!(
        names(&story, "kept", "configmaps").len(),
        1,
        "the identity stays with the volumes"
    );
    until_whole(&story, other, 1);
    workload.finish();
}
