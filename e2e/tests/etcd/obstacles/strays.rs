//! Objects with a cluster's label that make no sense, and an identity that makes none: whoever is concerned says so, and
//! everybody else in the namespace is healed as ever.

mod full;

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use serde_json::json;

use super::{complaint, substance};
use crate::look::{LONG, follower, until_whole};
use crate::middle::{ends_well, spec};
use crate::noted::{dies_once_noting, take_pod_and_claim};

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
                && cluster.status()["phrase"] == "Healthy"
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
