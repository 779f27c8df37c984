//! The stories of this topic for `make test-all`.

use super::*;

// etcd's followers forward a promotion to the leader without the user name ("auth: user name is empty" in the leader's log), and
// retry until the request times out. If the leader itself is asked, the promotion succeeds at once.
#[test]
fn members_are_replaced_with_etcd_authentication_enabled() {
    let story = Story::begin("locked-lost");
    let mut operator = Operator::start(&story);
    let cluster = locked(&story);
    let clients = cluster.workload();
    let mut lost = follower(&story, &cluster).name;
    let stay: BTreeMap<_, _> = member_ids(&cluster)
        .into_iter()
        .filter(|(name, _)| *name != lost)
        .collect();
    // The same two stay, and each is the leader once: a follower forwards requests without the user name.
    for (name, id) in &stay {
        story.eventually(&format!("{name} is the leader"), || {
            let current_leader = leader(&story, &cluster);
            if current_leader.name != *name {
                // Ignored: another member may be the leader by now.
                let _ =
                    cluster.etcdctl_at(&current_leader.ip, &["move-leader", &format!("{id:x}")]);
            }
            current_leader.name == *name
        });
        kill_after_intent_and_restart(&story, &mut operator, &cluster, "Remove", || {
            delete_pod_and_claim(&story, &lost)
        });
        wait_healthy(&story, &cluster, 3);
        let now = member_ids(&cluster);
        assert!(!now.contains_key(&lost), "{lost} is still listed: {now:?}");
        lost = now
            .into_keys()
            .find(|other| !stay.contains_key(other))
            .unwrap();
    }
    assert!(has_auth(&cluster));
    clients.finish();
    cluster.wait_same_data();
}

#[test]
fn a_foreign_config_map_with_the_identitys_name_is_reported_and_not_changed() {
    let story = Story::begin("conflict-etcd-identity");
    let _operator = Operator::start(&story);
    story.kubectl(&[
        "create",
        "configmap",
        "orders-etcd-identity",
        "--from-literal=owner=another",
    ]);
    let before = operator_independent_parts(story.get(&["configmap", "orders-etcd-identity"]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("the status names the ConfigMap", || {
        problem_report(&cluster).contains("ConfigMap orders-etcd-identity exists")
    });
    let output = problem_report(&cluster);
    assert!(
        output.contains("NameConflict")
            && output.contains("Delete it, or create the EtcdCluster under another name"),
        "{output}"
    );
    assert_eq!(
        operator_independent_parts(story.get(&["configmap", "orders-etcd-identity"])),
        before
    );
    story.kubectl(&["delete", "configmap", "orders-etcd-identity"]);
    wait_healthy(&story, &cluster, 1);
}

#[test]
fn a_foreign_secret_with_a_cas_name_is_reported_and_not_changed() {
    let story = Story::begin("conflict-ca");
    let _operator = Operator::start(&story);
    let secret = "secret/orders-etcd-peer-ca";
    story.kubectl(&[
        "create",
        "secret",
        "generic",
        "orders-etcd-peer-ca",
        "--from-literal=password=secret",
    ]);
    let before = operator_independent_parts(story.get(&[secret]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("the status names the Secret", || {
        problem_report(&cluster)
            .contains("Secret orders-etcd-peer-ca exists and does not belong to this cluster")
    });
    assert_eq!(
        operator_independent_parts(story.get(&[secret])),
        before,
        "the foreign Secret was changed"
    );
    story.kubectl(&["delete", secret]);
    wait_healthy(&story, &cluster, 1);
}

// Certificates of this CA cannot be signed; that must not block later actions of a plan.
#[test]
fn a_foreign_secret_with_a_cas_name_does_not_block_replacements() {
    let story = Story::begin("conflict-signed");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let clients = cluster.workload();
    operator.kill();
    let secret = "secret/orders-etcd-peer-ca";
    let mut own = story.get(&[secret]);
    story.kubectl(&["delete", secret]);
    story.kubectl(&[
        "create",
        "secret",
        "generic",
        "orders-etcd-peer-ca",
        "--from-literal=password=secret",
    ]);
    start_after_kill(&story, &mut operator);
    let lost = follower(&story, &cluster);
    kill_after_intent_and_restart(&story, &mut operator, &cluster, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_replaced(&story, &cluster, 3, &lost);
    story.eventually("Degraded has the reason NameConflict", || {
        cluster.condition("Degraded").1 == "NameConflict"
    });

    // With its labels and owners, as it was.
    story.kubectl(&["delete", secret]);
    let metadata = own["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "ownerReferences"));
    story.apply(&own.to_string());
    wait_healthy(&story, &cluster, 3);
    clients.finish();
    cluster.wait_same_data();
}
