//! The stories of this topic that `make test-all` runs.

use super::*;

// etcd's followers pass a promotion on to the leader without saying who asked ("auth: user name is empty" in the leader's log),
// and try for as long as they are given. Asked of the leader itself it is done at once.
#[test]
fn with_authentication_switched_on_members_are_replaced_whoever_leads() {
    let story = Story::begin("locked-lost");
    let mut operator = Operator::start(&story);
    let cluster = locked(&story);
    let clients = cluster.workload();
    let mut lost = follower(&story, &cluster).name;
    let stay: BTreeMap<_, _> = ids(&cluster)
        .into_iter()
        .filter(|(name, _)| *name != lost)
        .collect();
    // The same two stay, and each leads once: a member that does not lead passes on what it is asked, and not in the name of
    // who asked.
    for (name, id) in &stay {
        story.eventually(&format!("{name} leads"), || {
            let leads = leader(&story, &cluster);
            if leads.name != *name {
                // Somebody else may lead by now: then that one is asked.
                let _ = cluster.etcdctl_at(&leads.ip, &["move-leader", &format!("{id:x}")]);
            }
            leads.name == *name
        });
        dies_once_noting(&story, &mut operator, &cluster, "Remove", || {
            take_pod_and_claim(&story, &lost)
        });
        until_whole(&story, &cluster, 3);
        let now = ids(&cluster);
        assert!(!now.contains_key(&lost), "{lost} is listed still: {now:?}");
        lost = now
            .into_keys()
            .find(|other| !stay.contains_key(other))
            .unwrap();
    }
    assert!(has_auth(&cluster));
    clients.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_config_map_in_the_place_of_the_identity_is_told_and_left_alone_and_once_gone_the_cluster_comes_up()
 {
    let story = Story::begin("taken-etcd-identity");
    let _operator = Operator::start(&story);
    story.kubectl(&[
        "create",
        "configmap",
        "orders-etcd-identity",
        "--from-literal=who=somebody-else",
    ]);
    let before = substance(story.get(&["configmap", "orders-etcd-identity"]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("it is told", || {
        complaint(&cluster).contains("the ConfigMap orders-etcd-identity")
    });
    let said = complaint(&cluster);
    assert!(
        said.contains("NameConflict") && said.contains("delete or rename it"),
        "{said}"
    );
    assert_eq!(
        substance(story.get(&["configmap", "orders-etcd-identity"])),
        before
    );
    story.kubectl(&["delete", "configmap", "orders-etcd-identity"]);
    until_whole(&story, &cluster, 1);
}

#[test]
fn a_secret_in_the_place_of_an_authority_is_told_and_left_alone_and_once_gone_the_cluster_comes_up()
{
    let story = Story::begin("taken-authority");
    let _operator = Operator::start(&story);
    let secret = "secret/orders-etcd-peer-ca";
    story.kubectl(&[
        "create",
        "secret",
        "generic",
        "orders-etcd-peer-ca",
        "--from-literal=password=secret",
    ]);
    let before = substance(story.get(&[secret]));
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("it is told", || {
        complaint(&cluster).contains("the Secret orders-etcd-peer-ca exists and is not")
    });
    assert_eq!(
        substance(story.get(&[secret])),
        before,
        "it is somebody else's"
    );
    story.kubectl(&["delete", secret]);
    until_whole(&story, &cluster, 1);
}

// What it would have to sign cannot be made; that must hold up nothing that comes after it in a plan.
#[test]
fn a_secret_in_the_place_of_an_authority_keeps_no_member_of_a_running_cluster_from_being_replaced()
{
    let story = Story::begin("taken-signed");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
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
    lives_again(&story, &mut operator);
    let lost = follower(&story, &cluster);
    dies_once_noting(&story, &mut operator, &cluster, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    until_replaced(&story, &cluster, 3, &lost);
    story.eventually("it is told", || {
        cluster.condition("Degraded").1 == "NameConflict"
    });

    // With its label, as it was.
    story.kubectl(&["delete", secret]);
    let metadata = own["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "ownerReferences"));
    story.apply(&own.to_string());
    until_whole(&story, &cluster, 3);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
