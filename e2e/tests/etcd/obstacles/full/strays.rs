//! Invalid objects with a cluster's label, and an invalid identity: the cluster concerned reports it, and all other clusters in the
//! namespace are recovered as usual.

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use serde_json::json;

use crate::assertions::{CLUSTER_LIMIT, follower, wait_healthy};
use crate::intents::{delete_pod_and_claim, kill_after_intent_and_restart};
use crate::interrupts::{spec, wait_converged};
use crate::obstacles::{operator_independent_parts, problem_report};

#[test]
fn a_stray_claim_blocks_the_bootstrap_until_its_label_is_removed() {
    let story = Story::begin("stray-first");
    let _operator = Operator::start(&story);
    story.apply(&claim("orders"));
    let before = operator_independent_parts(story.get(&["pvc/stray"]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("Degraded has the reason InconsistentObjects", || {
        cluster.condition("Degraded").1 == "InconsistentObjects"
    });
    let output = problem_report(&cluster);
    assert!(
        output.contains("remove the label from objects that do not belong to this cluster"),
        "{output}"
    );
    assert_eq!(
        cluster.pods(),
        [],
        "a bootstrap began beside a PVC that may have data"
    );
    assert_eq!(
        operator_independent_parts(story.get(&["pvc/stray"])),
        before
    );
    story.kubectl(&["label", "pvc", "stray", "etcd.evenkeel.dev/cluster-"]);
    wait_converged(&story, &cluster, 1);
}

#[test]
fn an_invalid_identity_is_reported_and_does_not_affect_other_clusters() {
    let story = Story::begin("bad-identity");
    let mut operator = Operator::start(&story);
    let [broken, orders] = [("broken", 1), ("orders", 3)].map(|(name, members)| {
        let cluster = Cluster::apply(&story, name, &spec(members));
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, &cluster, members);
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
    story.eventually("the status names the identity", || {
        problem_report(&broken).contains("broken-etcd-identity")
    });
    assert_eq!(
        story.field(&["configmap", "broken-etcd-identity"], ".data.identity"),
        "{nonsense",
        "the invalid identity was changed"
    );

    let lost = follower(&story, &orders);
    kill_after_intent_and_restart(&story, &mut operator, &orders, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_healthy(&story, &orders, 3);

    edit(&text);
    wait_healthy(&story, &broken, 1);
    for clients in clients {
        clients.finish();
    }
    orders.wait_same_data();
}

/// Returns metadata with a valid cluster label and otherwise invalid values.
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
fn stray_objects_with_the_cluster_label_are_not_changed() {
    let story = Story::begin("strays");
    let mut operator = Operator::start(&story);
    let clusters = [("orders", 3), ("other", 1)].map(|(name, members)| {
        let cluster = Cluster::apply(&story, name, &spec(members));
        (cluster, members)
    });
    for (cluster, members) in &clusters {
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, cluster, *members);
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
    let before = strays.map(|path| operator_independent_parts(story.get(&[path])));
    // A query by label returns the stray pod, too.
    let members = |cluster: &Cluster<'_>| {
        let pods = cluster.pods().into_iter().filter(|pod| pod.name != "stray");
        pods.collect::<Vec<_>>()
    };
    for (cluster, count) in &clusters {
        let victim = members(cluster).remove(0);
        story.kubectl(&["delete", "pod", &victim.name]);
        story.within(CLUSTER_LIMIT, &format!("{} is back", victim.name), || {
            let pods = members(cluster);
            pods.len() == *count
                && pods.iter().all(|pod| pod.ready && pod.uid != victim.uid)
                && cluster.status()["summary"] == "Healthy"
        });
    }
    let after = strays.map(|path| operator_independent_parts(story.get(&[path])));
    assert_eq!(after, before, "a foreign object was changed");
    story.kubectl(&["delete", "pod", "stray", "--grace-period=1"]);

    let lost = follower(&story, orders);
    kill_after_intent_and_restart(&story, &mut operator, orders, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_healthy(&story, orders, 3);
    assert!(
        orders.pods().iter().all(|pod| pod.name != lost.name),
        "the member was not replaced"
    );
    wait_healthy(&story, other, 1);
    for (path, before) in strays.into_iter().zip(before).skip(1) {
        assert_eq!(
            operator_independent_parts(story.get(&[path])),
            before,
            "a foreign object was changed"
        );
    }
    clients.finish();
    orders.wait_same_data();
}
