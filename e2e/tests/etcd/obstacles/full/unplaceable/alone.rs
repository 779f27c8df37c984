//! The stories of this topic that harm the control plane.

use super::*;

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// A lab without a default StorageClass, until it is dropped.
struct NoDefaultClass<'s>(&'s Story);

impl<'s> NoDefaultClass<'s> {
    fn begin(story: &'s Story) -> Self {
        let this = Self(story);
        story.kubectl(&[
            "annotate",
            "storageclass",
            "lab-disk",
            &format!("{DEFAULT}=false"),
            "--overwrite",
        ]);
        this
    }
}

impl Drop for NoDefaultClass<'_> {
    fn drop(&mut self) {
        let back = format!("{DEFAULT}=true");
        let put =
            self.0
                .try_kubectl(&["annotate", "storageclass", "lab-disk", &back, "--overwrite"]);
        if !std::thread::panicking() {
            put.unwrap();
        }
    }
}

#[test]
fn a_missing_default_storage_class_is_reported_and_blocks_only_new_claims() {
    let story = Story::alone("classless");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let clients = cluster.workload();
    let lacking = NoDefaultClass::begin(&story);

    // A member with a volume needs no StorageClass.
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    wait_healthy(&story, &cluster, 3);

    let fresh = Cluster::apply(&story, "fresh", &spec(1));
    let lost = follower(&story, &cluster);
    kill_after_intent_and_restart(&story, &mut operator, &cluster, "Add", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    for cluster in [&cluster, &fresh] {
        story.within(
            CLUSTER_LIMIT,
            &format!("{} reports the missing StorageClass", cluster.name()),
            || problem_report(cluster).contains("StorageClass"),
        );
        println!("{}: {}", cluster.name(), problem_report(cluster));
        assert_eq!(cluster.condition("Degraded").0, "True");
    }
    story.eventually("the cluster is Ready with two of three members", || {
        cluster.condition("Ready").0 == "True"
    });

    drop(lacking);
    wait_healthy(&story, &cluster, 3);
    wait_healthy(&story, &fresh, 1);
    clients.finish();
    cluster.wait_same_data();
}
