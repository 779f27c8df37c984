//! Objects with a cluster's label that make no sense, and an identity that makes none: whoever is concerned says so, and
//! everybody else in the namespace is healed as ever.

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use serde_json::json;

use crate::look::{LONG, follower, until_whole};
use crate::middle::{ends_well, spec};
use crate::noted::{dies_once_noting, take_pod_and_claim};
use crate::obstacles::{complaint, substance};

#[test]
fn a_claim_that_says_it_is_of_a_cluster_yet_to_begin_is_told_and_without_the_label_it_begins() {
    let story = Story::begin("stray-first");
    let _operator = Operator::start(&story);
    story.apply(&claim("orders"));
    let before = substance(story.get(&["pvc/stray"]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("it is told", || {
        cluster.condition("Degraded").1 == "InconsistentObjects"
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

/// Metadata that says whose it is, and about all else nonsense.
fn metadata(of: &str) -> String {
    format!(
        "{{name: stray, labels: {{etcd.evenkeel.dev/cluster: {of}}}, annotations: {{evenkeel.dev/lineage: nonsense, \
         evenkeel.dev/epoch: \"-1\", evenkeel.dev/serial: many, evenkeel.dev/initial-cluster: \"=,=\"}}}}"
    )
}

fn pod(of: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec:\n  containers:\n    - name: stray\n      image: {BUSYBOX_IMAGE}\n      \
         command: [sleep, \"3600\"]\n      {RESTRICTED}\n",
        metadata(of)
    )
}

fn claim(of: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {}\nspec:\n  accessModes: [ReadWriteOnce]\n  \
         resources: {{requests: {{storage: 1Gi}}}}\n",
        metadata(of)
    )
}

fn config_map(of: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\ndata: {{identity: nonsense}}\n",
        metadata(of)
    )
}

#[test]
fn nonsense_with_a_clusters_label_is_left_alone_and_members_are_brought_back_and_replaced_beside_it()
 {
    let story = Story::begin("strays");
    let mut operator = Operator::start(&story);
    let clusters = [("orders", 3), ("other", 1)].map(|(name, members)| {
        let cluster = Cluster::apply(&story, name, &spec(members));
        (cluster, members)
    });
    for (cluster, members) in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, *members);
    }
    let [(orders, _), (other, _)] = &clusters;
    let clients = orders.workload();
    for object in [pod("orders"), claim("orders"), config_map("orders")] {
        story.apply(&object);
    }
    let strays = ["pod/stray", "pvc/stray", "configmap/stray"];
    story.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/stray",
        "--timeout=120s",
    ]);
    let before = strays.map(|path| substance(story.get(&[path])));
    // The stray is a pod like the others to whoever looks by the label.
    let members = |cluster: &Cluster<'_>| {
        let pods = cluster.pods().into_iter().filter(|pod| pod.name != "stray");
        pods.collect::<Vec<_>>()
    };
    for (cluster, count) in &clusters {
        let victim = members(cluster).remove(0);
        story.kubectl(&["delete", "pod", &victim.name]);
        story.within(LONG, &format!("{} is back", victim.name), || {
            let pods = members(cluster);
            pods.len() == *count
                && pods.iter().all(|pod| pod.ready && pod.uid != victim.uid)
                && cluster.status()["summary"] == "Healthy"
        });
    }
    let after = strays.map(|path| substance(story.get(&[path])));
    assert_eq!(after, before, "nobody's business");
    story.kubectl(&["delete", "pod", "stray", "--grace-period=1"]);

    let lost = follower(&story, orders);
    dies_once_noting(&story, &mut operator, orders, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    until_whole(&story, orders, 3);
    assert!(
        orders.pods().iter().all(|pod| pod.name != lost.name),
        "it was replaced"
    );
    until_whole(&story, other, 1);
    for (path, before) in strays.into_iter().zip(before).skip(1) {
        assert_eq!(substance(story.get(&[path])), before, "nobody's business");
    }
    clients.finish();
    orders.holds_the_same_everywhere();
}
