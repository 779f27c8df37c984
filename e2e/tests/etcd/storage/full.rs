//! The stories of this topic that `make test-all` runs.

use super::*;

const CLASS: &str = "/spec/storageClassName";

#[test]
fn where_volumes_cannot_grow_that_is_refused_with_the_reason_and_can_be_taken_back() {
    let story = Story::begin("volumes-fixed");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1, "lab-disk-fixed"), 1);
    let before = uids(&cluster);
    cluster.patch(&json!({ "storage": { "size": "2Gi" } }));
    until_right("it is refused", || {
        let (degraded, status) = (cluster.condition("Degraded"), cluster.status());
        let named = status
            .to_string()
            .contains("the StorageClass lab-disk-fixed does not let volumes grow");
        if degraded.1 == "InvalidSpec" && named {
            Ok(())
        } else {
            Err(format!("{degraded:?}: {status:#}"))
        }
    });
    until_all_claims(&story, "/spec/resources/requests/storage", "1Gi", 1);
    cluster.patch(&json!({ "storage": { "size": "1Gi" } }));
    ends_well(&story, &cluster, 1);
    assert_eq!(uids(&cluster), before, "nobody was restarted");
    comes_to_rest(&operator);
}

/// Waits until every member is another than before.
fn until_moved(cluster: &Cluster<'_>, before: &BTreeMap<String, u64>) {
    until_right("all members are others", || {
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
fn to_another_class_and_a_larger_size_members_move_one_by_one() {
    let story = Story::begin("other-class");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3, "lab-disk-fixed"), 3);
    let (workload, before) = (cluster.workload(), ids(&cluster));
    // Those that cannot grow need not, since they are left.
    cluster.patch(&json!({ "storage": { "class": "lab-disk", "size": "2Gi" } }));
    until_moved(&cluster, &before);
    ends_well(&story, &cluster, 3);
    until_all_claims(&story, CLASS, "lab-disk", 3);
    until_all_claims(&story, CAPACITY, "2Gi", 3);
    let said = refused(&story, &json!({ "storage": { "class": null } }));
    assert!(said.contains("cannot be removed"), "{said}");
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_class_or_size_that_cannot_be_had_is_told_and_can_be_put_right_before_there_is_a_cluster() {
    let story = Story::begin("class-typo");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", &spec(3, "lab-dsik"));
    until_right("it is told", || {
        let status = cluster.status().to_string();
        if status.contains("there is no StorageClass lab-dsik") {
            Ok(())
        } else {
            Err(status)
        }
    });
    // More than any disk has, which takes as long to be found out.
    cluster.patch(&json!({ "storage": { "class": "lab-disk", "size": "900Ti" } }));
    until_all_claims(&story, CLASS, "lab-disk", 3);
    cluster.patch(&json!({ "storage": { "size": "1Gi" } }));
    cluster.wait_ready(LONG);
    ends_well(&story, &cluster, 3);
    until_all_claims(&story, CAPACITY, "1Gi", 3);
    comes_to_rest(&operator);
}

#[test]
fn to_another_zone_a_member_moves_that_its_volume_cannot_follow_to() {
    let story = Story::begin("other-zone");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1, "lab-disk"), 1);
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
    let before = ids(&cluster);
    cluster.patch(&node(other));
    until_moved(&cluster, &before);
    ends_well(&story, &cluster, 1);
    assert_eq!(zone(&story), [other]);
    assert!(cluster.etcdctl(&["get", "kept"]).contains("yes"));
    comes_to_rest(&operator);
}
