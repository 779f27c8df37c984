//! The stories of this topic for `make test-all`.

use super::*;

const DELETE_SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi, onDelete: Delete}";

#[test]
fn a_resource_recreated_during_bootstrap_begins_again() {
    let story = Story::begin("recreated-early");
    let operator = Operator::start(&story);
    // At that point all three are members, and the first promotion is about to be recorded.
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        let first_vote = |cluster: &&str| {
            intent_written(write, cluster)
                .is_some_and(|intent| intent.kind == "Promote" && intent.voters == 1)
        };
        ["plain", "orphaned", "owned"]
            .into_iter()
            .find(first_vote)
            .map(str::to_owned)
    });
    let all = [
        ("plain", KEEP_SPEC, "background"),
        ("orphaned", KEEP_SPEC, "orphan"),
        ("owned", DELETE_SPEC, "background"),
    ];
    let clusters = all.map(|(name, spec, _)| Cluster::apply(&story, name, spec));
    let mut before = Vec::new();
    for _ in &all {
        let (name, held) = held_writes.next();
        let (_, spec, cascade) = all.into_iter().find(|one| one.0 == name).unwrap();
        before.push((
            name.clone(),
            identity(&story, &name),
            names(&story, &name, "pods"),
        ));
        story.kubectl(&["delete", "etcd", &name, &format!("--cascade={cascade}")]);
        Cluster::apply(&story, &name, spec);
        held_writes.release(&name);
        held.resume();
    }
    let known = |name: &str| before.iter().find(|one| one.0 == name).unwrap();
    let [plain, orphaned, owned] = &clusters;
    assert_new_epoch(&story, orphaned, 3, &known("orphaned").2);
    // Before bootstrap is finished the resource owns all objects, so the cluster there now is a new one.
    for cluster in [plain, owned] {
        let name = cluster.name();
        wait_converged(&story, cluster, 3);
        let (was, is) = (&known(name).1, identity(&story, name));
        assert!(
            is["lineage"] != was["lineage"] && is["epoch"] == 1,
            "{is}, before: {was}"
        );
        assert!(names(&story, name, "pods").is_disjoint(&known(name).2));
    }
    wait_idle(&operator);
    run_clients(&clusters);
}

#[test]
fn a_cluster_deleted_before_bootstrap_is_finished_leaves_nothing_behind() {
    let story = Story::begin("never-started");
    let operator = Operator::start(&story);
    // The volumes are never provisioned: there is no such class.
    let spec = "version: 3.6.16\nmembers: 2\nstorage: {size: 1Gi, class: none-of-this-name}";
    let cluster = Cluster::apply(&story, "a", spec);
    story.within(CLUSTER_LIMIT, "both PVCs exist", || {
        names(&story, "a", "pvc").len() == 2
    });
    story.kubectl(&["delete", "etcd", "a"]);
    for kind in ["pods", "pvc", "configmaps"] {
        story.within(CLUSTER_LIMIT, &format!("no {kind} are left"), || {
            names(&story, "a", kind).is_empty()
        });
    }
    // The volumes of a finished bootstrap are kept.
    Cluster::apply(&story, "a", KEEP_SPEC);
    wait_converged(&story, &cluster, 3);
    let volumes = names(&story, "a", "pvc");
    story.kubectl(&["delete", "etcd", "a"]);
    story.within(CLUSTER_LIMIT, "the pods are gone", || {
        names(&story, "a", "pods").is_empty()
    });
    assert_eq!(names(&story, "a", "pvc"), volumes, "the PVCs differ");
    assert_eq!(names(&story, "a", "configmaps").len(), 1);
    drop(operator);
}

#[test]
fn a_resource_that_owned_its_volumes_begins_again_when_they_are_gone() {
    let story = Story::begin("recreated-owned");
    let operator = Operator::start(&story);
    let all = [
        ("volumes", DELETE_SPEC),
        (
            "pods",
            "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        ),
    ];
    let clusters = all.map(|(name, spec)| Cluster::apply(&story, name, spec));
    for (cluster, (name, spec)) in clusters.iter().zip(all) {
        let cluster_id = wait_converged(&story, cluster, 3);
        cluster.etcdctl(&["put", "greeting", "hello"]);
        story.kubectl(&["delete", "etcd", name]);
        Cluster::apply(&story, name, spec);
        // Ready must not be True for the objects that are about to be deleted.
        story.within(CLUSTER_LIMIT, "the new cluster is Ready", || {
            let (id, ready) = (
                cluster.status()["clusterId"].clone(),
                cluster.condition("Ready").0,
            );
            assert!(
                ready != "True" || id != format!("{cluster_id:x}"),
                "{:#}",
                cluster.status()
            );
            ready == "True"
        });
        assert_ne!(wait_converged(&story, cluster, 3), cluster_id);
        assert_eq!(
            cluster
                .etcdctl(&["get", "greeting", "--print-value-only"])
                .trim(),
            ""
        );
    }
    wait_idle(&operator);
    run_clients(&clusters);
}
