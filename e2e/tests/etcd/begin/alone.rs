//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

/// Gives the lab as many nodes as it had, whatever becomes of the story.
struct Replacement<'a>(&'a Story);

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        let added = add_node(self.0.lab().name());
        if !std::thread::panicking() {
            added.unwrap();
        }
    }
}

#[test]
fn a_seed_whose_node_is_gone_for_good_in_the_middle_makes_way_for_a_new_epoch() {
    let story = Story::alone("seed-node");
    let operator = Operator::start(&story);
    let stops = Stops::before(operator.proxy(), |write| {
        notes(write, "a", "Add", 2).then(|| "a".to_owned())
    });
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let (_, stopped) = stops.next();
    let before = names(&story, "a", "pods");
    let seed = cluster.pod(&pod_of(&story, "a", 0));
    let volume = story.field(&["pvc", &seed.claim], ".spec.volumeName");

    delete_node(story.lab().name(), &seed.node).unwrap();
    let _replacement = Replacement(&story);
    stops.let_go("a");
    stopped.go_on();
    has_begun_again(&story, &cluster, 3, &before);
    assert!(
        cluster.pods().iter().all(|pod| pod.node != seed.node),
        "{:?}",
        cluster.pods()
    );
    comes_to_rest(&operator);
    serve_clients(&[cluster]);

    // Nobody is left to take the lost disk's volume away.
    story.kubectl(&[
        "patch",
        "pv",
        &volume,
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    story.kubectl(&[
        "delete",
        "pv",
        &volume,
        "--ignore-not-found",
        "--wait=false",
    ]);
}
