//! The stories of this topic that `make test-all` runs.

use super::*;

/// Clusters of all sizes but three, on the storage that `storage` says, all at once.
fn every_size(story: &Story, storage: &str) {
    let (_operator, lab) = (Operator::start(story), nodes(story));
    let sizes: [usize; 4] = [1, 2, 5, 7];
    let named = |size: usize| Cluster::named(story, &format!("size-{size}"));
    for size in sizes {
        // Little of everything: 15 members on three nodes beside all other stories.
        named(size).set(&format!(
            "version: 3.6.16\nmembers: {size}\nstorage: {storage}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
        ));
    }
    for size in sizes {
        let cluster = named(size);
        cluster.wait_ready(LONG);
        is_of_use(&cluster);
        until_whole(story, &cluster, size);
        cluster.holds_the_same_everywhere();
        // The default is to prefer a spread: of more members than nodes some share one, but never a majority.
        let (nodes, quorum) = (by_node(&cluster), size / 2 + 1);
        assert_eq!(
            budget(story, &cluster),
            quorum.to_string(),
            "the quorum of {size}"
        );
        if nodes_were_well_since(story, &lab) {
            assert_eq!(nodes.len(), size.min(3), "{size} are spread out: {nodes:?}");
            let most = *nodes.values().max().unwrap();
            assert!(
                size < 3 || size - most >= quorum,
                "one node less, and {size} have no quorum: {nodes:?}"
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
fn one_two_five_and_seven_members_come_to_be_on_volumes() {
    every_size(&Story::begin("sizes-kept"), "{size: 1Gi}");
}

#[test]
fn one_two_five_and_seven_members_come_to_be_without_volumes() {
    every_size(&Story::begin("sizes-ephemeral"), "{ephemeral: true}");
}

#[test]
fn the_oldest_and_the_newest_minor_version_come_to_be_too() {
    let story = Story::begin("versions");
    let _operator = Operator::start(&story);
    let versions = ["3.5.35", "3.7.3"];
    let named = |version: &str| Cluster::named(&story, &format!("v{}", version.replace('.', "-")));
    for version in versions {
        named(version).set(&format!("version: {version}\nmembers: 3"));
    }
    for version in versions {
        let cluster = named(version);
        cluster.wait_ready(LONG);
        is_of_use(&cluster);
        until_whole(&story, &cluster, 3);
        cluster.holds_the_same_everywhere();
        let told: Vec<_> = cluster.status()["memberList"].as_array().unwrap().clone();
        assert!(
            told.iter().all(|member| member["version"] == version),
            "{told:?}"
        );
    }
}
