//! A cluster of another engine with the same name in the same namespace: its objects have the shape of a PostgresCluster's, and the
//! etcd engine neither counts nor changes them.

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use serde_json::Value;

use crate::assertions::{CLUSTER_LIMIT, create_orders, follower, wait_healthy};
use crate::interrupts::{spec, wait_idle};
use crate::obstacles::operator_independent_parts;

/// The objects of a PostgresCluster `orders`. Their lineage is not the EtcdCluster's: reading one of them as etcd's own would be a
/// contradiction, which stops all changes.
const OBJECTS: [&str; 6] = [
    "pod/orders-postgres-x",
    "pvc/orders-postgres-x",
    "configmap/orders-postgres-identity",
    "service/orders-postgres-client",
    "secret/orders-postgres-client-tls",
    "pdb/orders-postgres",
];

fn objects() -> String {
    let metadata = |name: &str| {
        format!(
            "metadata:\n  name: {name}\n  labels: {{postgres.evenkeel.dev/cluster: orders, app.kubernetes.io/name: postgres}}\n  \
             annotations: {{evenkeel.dev/lineage: 0badcafe, evenkeel.dev/epoch: \"1\", evenkeel.dev/serial: \"0\"}}\n"
        )
    };
    [
        format!(
            "apiVersion: v1\nkind: Pod\n{}spec:\n  containers:\n    - name: postgres\n      image: {BUSYBOX_IMAGE}\n      \
             command: [sleep, \"3600\"]\n      {RESTRICTED}\n",
            metadata("orders-postgres-x")
        ),
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\n{}spec:\n  accessModes: [ReadWriteOnce]\n  \
             resources: {{requests: {{storage: 1Gi}}}}\n",
            metadata("orders-postgres-x")
        ),
        format!(
            "apiVersion: v1\nkind: ConfigMap\n{}data: {{identity: '{{\"lineage\":\"0badcafe\"}}'}}\n",
            metadata("orders-postgres-identity")
        ),
        format!(
            "apiVersion: v1\nkind: Service\n{}spec:\n  selector: {{postgres.evenkeel.dev/cluster: orders}}\n  ports: [{{port: 5432}}]\n",
            metadata("orders-postgres-client")
        ),
        format!(
            "apiVersion: v1\nkind: Secret\n{}stringData: {{password: secret}}\n",
            metadata("orders-postgres-client-tls")
        ),
        format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\n{}spec:\n  maxUnavailable: 1\n  \
             selector: {{matchLabels: {{postgres.evenkeel.dev/cluster: orders}}}}\n",
            metadata("orders-postgres")
        ),
    ]
    .join("---\n")
}

fn state(story: &Story) -> Vec<Value> {
    OBJECTS
        .iter()
        .map(|path| operator_independent_parts(story.get(&[path])))
        .collect()
}

#[test]
fn clusters_of_two_engines_with_one_name_live_in_one_namespace() {
    let story = Story::begin("same-name");
    let operator = Operator::start(&story);
    story.apply(&objects());
    story.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/orders-postgres-x",
        "--timeout=120s",
    ]);
    let before = state(&story);

    // Bootstrap, recovery of a pod, and a scale-in beside the other cluster.
    let spec_of = |members| {
        format!(
            "{}\nstorage: {{size: 1Gi, onDelete: Delete}}",
            spec(members).replace("\nstorage: {size: 1Gi}", "")
        )
    };
    let orders: Cluster<'_> = create_orders(&story, &spec_of(3), 3);
    let pods = orders.pods();
    assert!(
        pods.iter().all(|pod| !pod.name.contains("postgres")),
        "{pods:?}"
    );
    let lost = follower(&story, &orders);
    story.kubectl(&["delete", "pod", &lost.name]);
    story.within(CLUSTER_LIMIT, "the pod is back", || {
        let pods = orders.pods();
        pods.len() == 3 && pods.iter().all(|pod| pod.ready && pod.uid != lost.uid)
    });
    wait_healthy(&story, &orders, 3);
    orders.set(&spec_of(1));
    wait_healthy(&story, &orders, 1);
    wait_idle(&operator);
    assert_eq!(
        state(&story),
        before,
        "an object of the other engine was changed"
    );

    // `onDelete: Delete` deletes the volumes of this cluster, and no other.
    story.kubectl(&["delete", "etcd", "orders", "--wait=true"]);
    story.within(
        CLUSTER_LIMIT,
        "the EtcdCluster's objects are deleted",
        || {
            let left = story.kubectl(&[
                "get",
                "pods,pvc,configmaps,services,secrets,pdb",
                "--selector=etcd.evenkeel.dev/cluster=orders",
                "--output=name",
            ]);
            left.trim().is_empty()
        },
    );
    assert_eq!(
        state(&story),
        before,
        "an object of the other engine was changed"
    );
}
