//! The stories of this topic that harm nodes.

use super::*;

/// Adds a node on drop, for the one that the story deletes.
struct AddNodeOnDrop<'a>(&'a Story);

impl Drop for AddNodeOnDrop<'_> {
    fn drop(&mut self) {
        let added = add_node(self.0.lab().name());
        if !std::thread::panicking() {
            added.unwrap();
        }
    }
}

#[test]
fn a_bootstrap_whose_seed_loses_its_node_begins_a_new_epoch() {
    let story = Story::alone("seed-node");
    let operator = Operator::start(&story);
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        records_intent(write, "a", "Add", 2).then(|| "a".to_owned())
    });
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let (_, held) = held_writes.next();
    let before = names(&story, "a", "pods");
    let seed = cluster.pod(&pod_name(&story, "a", 0));
    let volume = story.field(&["pvc", &seed.claim], ".spec.volumeName");

    delete_node(story.lab().name(), &seed.node).unwrap();
    let _add_node = AddNodeOnDrop(&story);
    held_writes.release("a");
    held.resume();
    assert_new_epoch(&story, &cluster, 3, &before);
    assert!(
        cluster.pods().iter().all(|pod| pod.node != seed.node),
        "{:?}",
        cluster.pods()
    );
    wait_idle(&operator);
    run_clients(&[cluster]);

    // No node is left that could delete the lost disk's PersistentVolume.
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
