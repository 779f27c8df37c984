//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_claim_that_says_it_is_of_a_cluster_yet_to_begin_is_told_and_without_the_label_it_begins() {
    let story = Story::begin("stray-first");
    let _operator = Operator::start(&story);
    story.apply(&claim("orders"));
    let before = substance(story.get(&["pvc/stray"]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("it is told", || {
        cluster.condition("Degraded").1 == "VolumesFound"
    });
    let said = complaint(&cluster);
    assert!(
        said.contains("take the label off those that are not its own"),
        "{said}"
    );
    assert_eq!(
        cluster.pods(),
        [],
        "nothing is begun beside what may be somebody's data"
    );
    assert_eq!(substance(story.get(&["pvc/stray"])), before);
    story.kubectl(&["label", "pvc", "stray", "etcd.evenkeel.dev/cluster-"]);
    ends_well(&story, &cluster, 1);
}

#[test]
fn an_identity_that_became_nonsense_is_told_and_others_are_healed_and_put_back_it_serves_again() {
    let story = Story::begin("nonsense");
    let mut operator = Operator::start(&story);
    let [broken, orders] = [("broken", 1), ("orders", 3)].map(|(name, members)| {
        let cluster = Cluster::apply(&story, name, &spec(members));
        cluster.wait_ready(LONG);
        until_whole(&story, &cluster, members);
        cluster
    });
    let clients = [&broken, &orders].map(Cluster::workload);
    let text = story.field(&["configmap", "broken-etcd-identity"], ".data.identity");
    let edit = |text: &str| {
        let patch = json!({"data": {"identity": text}}).to_string();
        story.kubectl(&[
            "patch",
            "configmap",
            "broken-etcd-identity",
            "--type=merge",
            "--patch",
            &patch,
        ]);
    };
    edit("{nonsense");
    story.eventually("it is told", || {
        complaint(&broken).contains("broken-etcd-identity")
    });
    assert_eq!(
        story.field(&["configmap", "broken-etcd-identity"], ".data.identity"),
        "{nonsense",
        "it is let be"
    );

    let lost = follower(&story, &orders);
    dies_once_noting(&story, &mut operator, &orders, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    until_whole(&story, &orders, 3);

    edit(&text);
    until_whole(&story, &broken, 1);
    for clients in clients {
        clients.finish();
    }
    orders.holds_the_same_everywhere();
}
