//! The stories of this topic for `make test-all`.

use super::*;

/// Creates clusters of all sizes but three at the same time, with this storage.
fn every_size(story: &Story, storage: &str) {
    let (_operator, lab) = (Operator::start(story), nodes(story));
    let sizes: [usize; 4] = [1, 2, 5, 7];
    let named = |size: usize| Cluster::named(story, &format!("size-{size}"));
    for size in sizes {
        // Small requests: 15 members on three nodes beside all other stories.
        named(size).set(&format!(
            "version: 3.6.16\nmembers: {size}\nstorage: {storage}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
        ));
    }
    for size in sizes {
        let cluster = named(size);
        cluster.wait_ready(CLUSTER_LIMIT);
        assert_usable(&cluster);
        wait_healthy(story, &cluster, size);
        cluster.wait_same_data();
        // By default a spread is preferred: with more members than nodes some share a node, but never a majority.
        let (nodes, quorum) = (members_by_node(&cluster), size / 2 + 1);
        assert_eq!(
            budget(story, &cluster),
            quorum.to_string(),
            "minAvailable is not the quorum of {size}"
        );
        if nodes_were_ready_since(story, &lab) {
            assert_eq!(
                nodes.len(),
                size.min(3),
                "{size} members are not spread: {nodes:?}"
            );
            let most = *nodes.values().max().unwrap();
            assert!(
                size < 3 || size - most >= quorum,
                "{size} members lose the quorum with one node: {nodes:?}"
            );
        }
        let claims: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.claim).collect();
        let expected = if storage.contains("ephemeral") {
            1
        } else {
            size
        };
        assert!(
            claims.len() == expected && claims.contains("") == storage.contains("ephemeral"),
            "{claims:?}"
        );
    }
}

#[test]
fn one_two_five_and_seven_members_form_on_volumes() {
    every_size(&Story::begin("sizes-kept"), "{size: 1Gi}");
}

#[test]
fn one_two_five_and_seven_members_form_without_volumes() {
    every_size(&Story::begin("sizes-ephemeral"), "{ephemeral: true}");
}

#[test]
fn the_oldest_and_the_newest_minor_version_form_clusters() {
    let story = Story::begin("versions");
    let _operator = Operator::start(&story);
    let versions = ["3.5.35", "3.7.3"];
    let named = |version: &str| Cluster::named(&story, &format!("v{}", version.replace('.', "-")));
    for version in versions {
        named(version).set(&format!("version: {version}\nmembers: 3"));
    }
    for version in versions {
        let cluster = named(version);
        cluster.wait_ready(CLUSTER_LIMIT);
        assert_usable(&cluster);
        wait_healthy(&story, &cluster, 3);
        cluster.wait_same_data();
        let reported: Vec<_> = cluster.status()["memberList"].as_array().unwrap().clone();
        assert!(
            reported.iter().all(|member| member["version"] == version),
            "{reported:?}"
        );
    }
}
