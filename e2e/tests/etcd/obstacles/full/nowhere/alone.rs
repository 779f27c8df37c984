//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// There is no default storage class, for as long as this lives.
struct NoDefault<'s>(&'s Story);

impl<'s> NoDefault<'s> {
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

impl Drop for NoDefault<'_> {
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
fn without_a_default_storage_class_that_is_told_pods_come_back_and_newcomers_follow_when_there_is_one()
 {
    let story = Story::alone("classless");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let clients = cluster.workload();
    let lacking = NoDefault::begin(&story);

    // Whoever has a volume needs no class.
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    until_whole(&story, &cluster, 3);

    let fresh = Cluster::apply(&story, "fresh", &spec(1));
    let lost = follower(&story, &cluster);
    dies_once_noting(&story, &mut operator, &cluster, "Add", || {
        take_pod_and_claim(&story, &lost.name)
    });
    for cluster in [&cluster, &fresh] {
        story.within(
            LONG,
            &format!("{} says what it lacks", cluster.name()),
            || complaint(cluster).contains("StorageClass"),
        );
        println!("{}: {}", cluster.name(), complaint(cluster));
        assert_eq!(cluster.condition("Degraded").0, "True");
    }
    story.eventually("two of three serve", || {
        cluster.condition("Ready").0 == "True"
    });

    drop(lacking);
    until_whole(&story, &cluster, 3);
    until_whole(&story, &fresh, 1);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
