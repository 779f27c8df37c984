//! The stories of this topic for `make test-all`.

use super::*;

const CLASS: &str = "/spec/storageClassName";

#[test]
fn an_expansion_that_the_class_forbids_is_rejected_and_can_be_reverted() {
    let story = Story::begin("volumes-fixed");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1, "lab-disk-fixed"), 1);
    let before = uids(&cluster);
    cluster.patch(&json!({ "storage": { "size": "2Gi" } }));
    wait_until_ok("Degraded has the reason InvalidSpec", || {
        let (degraded, status) = (cluster.condition("Degraded"), cluster.status());
        let named = status
            .to_string()
            .contains("StorageClass lab-disk-fixed does not set allowVolumeExpansion");
        if degraded.1 == "InvalidSpec" && named {
            Ok(())
        } else {
            Err(format!("{degraded:?}: {status:#}"))
        }
    });
    wait_all_claims(&story, "/spec/resources/requests/storage", "1Gi", 1);
    cluster.patch(&json!({ "storage": { "size": "1Gi" } }));
    wait_converged(&story, &cluster, 1);
    assert_eq!(uids(&cluster), before, "a member was restarted");
    wait_idle(&operator);
}

/// Waits until no earlier member is left.
fn wait_all_replaced(cluster: &Cluster<'_>, before: &BTreeMap<String, u64>) {
    wait_until_ok("all members are replaced", || {
        let left: Vec<_> = uids(cluster)
            .into_keys()
            .filter(|name| before.contains_key(name))
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}: {:#}", cluster.status()))
        }
    });
}

#[test]
fn members_move_to_another_class_and_size_one_by_one() {
    let story = Story::begin("other-class");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3, "lab-disk-fixed"), 3);
    let (workload, before) = (cluster.workload(), member_ids(&cluster));
    // Volumes that cannot be expanded are not, because their members are replaced.
    cluster.patch(&json!({ "storage": { "class": "lab-disk", "size": "2Gi" } }));
    wait_all_replaced(&cluster, &before);
    wait_converged(&story, &cluster, 3);
    wait_all_claims(&story, CLASS, "lab-disk", 3);
    wait_all_claims(&story, CAPACITY, "2Gi", 3);
    let output = rejection(&story, &json!({ "storage": { "class": null } }));
    assert!(output.contains("cannot be removed"), "{output}");
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn an_unavailable_class_or_size_is_reported_and_can_be_corrected() {
    let story = Story::begin("class-typo");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", &spec(3, "lab-dsik"));
    wait_until_ok("the status reports the missing StorageClass", || {
        let status = cluster.status().to_string();
        if status.contains("StorageClass lab-dsik") {
            Ok(())
        } else {
            Err(status)
        }
    });
    // A size that no disk has.
    cluster.patch(&json!({ "storage": { "class": "lab-disk", "size": "900Ti" } }));
    wait_all_claims(&story, CLASS, "lab-disk", 3);
    cluster.patch(&json!({ "storage": { "size": "1Gi" } }));
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_converged(&story, &cluster, 3);
    wait_all_claims(&story, CAPACITY, "1Gi", 3);
    wait_idle(&operator);
}

#[test]
fn a_member_moves_to_another_zone_by_replacement() {
    let story = Story::begin("other-zone");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1, "lab-disk"), 1);
    cluster.etcdctl(&["put", "kept", "yes"]);
    let node = |name: &str| json!({ "scheduling": { "nodeSelector": { "topology.kubernetes.io/zone": name } } });
    let zone = |story: &Story| {
        let of = |pod: &Value| {
            pod["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .replace("node", "zone")
        };
        pods(story).iter().map(of).collect::<Vec<_>>()
    };
    let there = zone(&story);
    let other = ["zone-1", "zone-2", "zone-3"]
        .into_iter()
        .find(|name| there != [*name])
        .unwrap();
    let before = member_ids(&cluster);
    cluster.patch(&node(other));
    wait_all_replaced(&cluster, &before);
    wait_converged(&story, &cluster, 1);
    assert_eq!(zone(&story), [other]);
    assert!(cluster.etcdctl(&["get", "kept"]).contains("yes"));
    wait_idle(&operator);
}
