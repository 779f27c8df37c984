//! The stories of this topic that `make test-all` runs.

use super::*;

const DELETED: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi, onDelete: Delete}";

#[test]
fn a_resource_created_again_before_the_seal_begins_again_whatever_was_left_of_the_first() {
    let story = Story::begin("anew-early");
    let operator = Operator::start(&story);
    // All three are members by then, and the first vote is about to be given.
    let stops = Stops::before(operator.proxy(), |write| {
        let first_vote = |cluster: &&str| {
            intent_in(write, cluster)
                .is_some_and(|intent| intent.kind == "Promote" && intent.voters == 1)
        };
        ["plain", "orphaned", "owned"]
            .into_iter()
            .find(first_vote)
            .map(str::to_owned)
    });
    let all = [
        ("plain", KEPT, "background"),
        ("orphaned", KEPT, "orphan"),
        ("owned", DELETED, "background"),
    ];
    let clusters = all.map(|(name, spec, _)| Cluster::apply(&story, name, spec));
    let mut before = Vec::new();
    for _ in &all {
        let (name, stopped) = stops.next();
        let (_, spec, cascade) = all.into_iter().find(|one| one.0 == name).unwrap();
        before.push((
            name.clone(),
            identity(&story, &name),
            names(&story, &name, "pods"),
        ));
        story.kubectl(&["delete", "etcd", &name, &format!("--cascade={cascade}")]);
        Cluster::apply(&story, &name, spec);
        stops.let_go(&name);
        stopped.go_on();
    }
    let known = |name: &str| before.iter().find(|one| one.0 == name).unwrap();
    for cluster in clusters.iter().filter(|cluster| cluster.name() != "owned") {
        has_begun_again(&story, cluster, 3, &known(cluster.name()).2);
    }
    // All of it was to go with the resource, and what is there now is quite another.
    let owned = &clusters[2];
    ends_well(&story, owned, 3);
    let (was, is) = (&known("owned").1, identity(&story, "owned"));
    assert!(
        is["lineage"] != was["lineage"] && is["epoch"] == 1,
        "{is}, and was {was}"
    );
    assert!(names(&story, "owned", "pods").is_disjoint(&known("owned").2));
    comes_to_rest(&operator);
    serve_clients(&clusters);
}

#[test]
fn a_resource_that_takes_its_volumes_along_begins_anew_when_they_are_gone_and_is_not_ready_before()
{
    let story = Story::begin("anew-owned");
    let operator = Operator::start(&story);
    let all = [
        ("volumes", DELETED),
        (
            "pods",
            "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        ),
    ];
    let clusters = all.map(|(name, spec)| Cluster::apply(&story, name, spec));
    for (cluster, (name, spec)) in clusters.iter().zip(all) {
        let formed = ends_well(&story, cluster, 3);
        cluster.etcdctl(&["put", "greeting", "hello"]);
        story.kubectl(&["delete", "etcd", name]);
        Cluster::apply(&story, name, spec);
        // Whoever waits for Ready must not be led to what is about to go.
        story.within(LONG, "another cluster is ready", || {
            let (id, ready) = (
                cluster.status()["clusterId"].clone(),
                cluster.condition("Ready").0,
            );
            assert!(
                ready != "True" || id != format!("{formed:x}"),
                "{:#}",
                cluster.status()
            );
            ready == "True"
        });
        assert_ne!(ends_well(&story, cluster, 3), formed);
        assert_eq!(
            cluster
                .etcdctl(&["get", "greeting", "--print-value-only"])
                .trim(),
            ""
        );
    }
    comes_to_rest(&operator);
    serve_clients(&clusters);
}
