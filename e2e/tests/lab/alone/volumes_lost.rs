//! Volumes and their nodes: what a power cut keeps and loses, and that a volume is available only on its node.

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_lab::up::{add_node, delete_node};

use crate::pods;
use crate::volumes::{
    CLAIM, STORE_POD, backing_files, claim, create_store, run_in_store, store_size, try_store_size,
    user,
};

/// Long enough for a node to boot and to restart its pods.
const BOOT: Duration = Duration::from_secs(180);

fn node_of(story: &Story) -> String {
    story.field(&["pod", STORE_POD], ".spec.nodeName")
}

/// Returns the scheduler's message, if the pod is on no node.
fn why_pending(story: &Story) -> String {
    let why =
        "-o=jsonpath={.spec.nodeName}{.status.conditions[?(@.reason==\"Unschedulable\")].message}";
    story
        .try_kubectl(&["get", "pod", STORE_POD, why])
        .unwrap_or_default()
}

/// Force-deletes the lost pod, as a user would who knows that its node is gone, and waits until the scheduler reports that no node fits
/// its successor.
fn wait_unschedulable(story: &Story) -> String {
    let lost = story.field(&["pod", STORE_POD], ".metadata.uid");
    story.kubectl(&["delete", "pod", STORE_POD, "--force", "--grace-period=0"]);
    story.eventually("no node fits the successor", || {
        let uid = story.try_kubectl(&["get", "pod", STORE_POD, "-o=jsonpath={.metadata.uid}"]);
        uid.is_ok_and(|uid| uid != lost) && why_pending(story).contains("nodes are available")
    });
    why_pending(story)
}

#[test]
fn a_pod_waits_for_the_node_of_its_volume_and_finds_its_data() {
    let story = Story::alone("volume-bound");
    create_store(&story, "lab-disk");
    run_in_store(&story, "echo precious > /data/note && sync");
    let node = node_of(&story);

    story.lab().power_off(&node).unwrap();
    story.eventually("Kubernetes reports the node as lost", || {
        story
            .field(&["node", &node], ".spec.taints[*].key")
            .contains("node.kubernetes.io/unreachable")
    });
    let why = wait_unschedulable(&story);
    let others = story.lab().nodes().len() - 1;
    assert!(
        why.contains(&format!(
            "{others} node(s) didn't match PersistentVolume's node affinity"
        )),
        "{why}"
    );

    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.within(BOOT, "the pod runs", || pods::is_ready(&story, STORE_POD));
    assert_eq!(node_of(&story), node);
    assert_eq!(run_in_store(&story, "cat /data/note"), "precious");
}

#[test]
fn volume_requests_while_the_node_is_off_are_done_when_it_is_back() {
    let story = Story::alone("volume-asked");
    create_store(&story, "lab-disk");
    let (node, before) = (node_of(&story), store_size(&story));
    run_in_store(&story, "echo precious > /data/note && sync");
    let user = user("user", "given-up", false).replacen(
        "spec:\n",
        &format!("spec:\n  {}\n", pods::on(&node)),
        1,
    );
    story.apply(&(claim("given-up") + &user));
    pods::wait_for(&story, &["user"]);
    let given_up = story.field(&["pvc", "given-up"], ".spec.volumeName");
    assert_eq!(backing_files(&story, &given_up).len(), 1);

    story.lab().power_off(&node).unwrap();
    let more = r#"{"spec": {"resources": {"requests": {"storage": "900Mi"}}}}"#;
    story.kubectl(&["patch", "pvc", CLAIM, "--patch", more]);
    story.kubectl(&["delete", "pod", "user", "--force", "--grace-period=0"]);
    story.kubectl(&["delete", "pvc", "given-up"]);
    assert_eq!(
        backing_files(&story, &given_up).len(),
        1,
        "the file was removed while the node was off"
    );
    assert_eq!(
        story.field(&["pvc", CLAIM], ".status.capacity.storage"),
        "400Mi",
        "the volume was expanded while the node was off"
    );

    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.within(BOOT, "the deleted volume is gone", || {
        story.try_kubectl(&["get", "pv", &given_up]).is_err()
    });
    assert!(backing_files(&story, &given_up).is_empty());
    story.within(BOOT, "the pod runs again", || {
        pods::is_ready(&story, STORE_POD) && story.shell(STORE_POD, "true").is_ok()
    });
    story.eventually("the pod sees 450 MiB more", || {
        try_store_size(&story).is_some_and(|size| size >= before + (450 << 10))
    });
    story.eventually("the PVC reports the new size", || {
        story.field(&["pvc", CLAIM], ".status.capacity.storage") == "900Mi"
    });
    assert_eq!(run_in_store(&story, "cat /data/note"), "precious");
}

#[test]
fn a_stateful_set_keeps_its_data_across_a_power_cycle_of_the_whole_lab() {
    let story = Story::alone("volume-cycled");
    create_store(&story, "lab-disk");
    run_in_store(&story, "echo precious > /data/note && sync");
    // Either the container is restarted, or the pod is another one.
    let life = "-o=jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
    let life = || story.try_kubectl(&["get", "pod", STORE_POD, life]).ok();
    let (node, before) = (node_of(&story), life().expect("the pod exists"));
    story.lab().power_cycle().unwrap();
    story.within(BOOT, "the pod runs again", || {
        let again = life().is_some_and(|now| now != before);
        again && pods::is_ready(&story, STORE_POD) && story.shell(STORE_POD, "true").is_ok()
    });
    assert_eq!(node_of(&story), node);
    assert_eq!(run_in_store(&story, "cat /data/note"), "precious");
}

#[test]
fn a_power_cut_loses_only_unsynced_data() {
    let story = Story::alone("volume-unsynced");
    create_store(&story, "lab-disk");
    let node = node_of(&story);
    // Any process on this machine that calls sync syncs all file systems: that unsynced data survives once proves nothing.
    let lost_in = (1..=3).find(|round| {
        run_in_store(
            &story,
            &format!("dd if=/dev/urandom of=/data/synced-{round} bs=1M count=8; sync"),
        );
        let sums = run_in_store(&story, "cd /data && sha256sum synced-*");
        run_in_store(&story, &format!("echo fleeting > /data/unsynced-{round}"));
        assert_eq!(
            run_in_store(&story, &format!("cat /data/unsynced-{round}")),
            "fleeting"
        );

        story.lab().power_off(&node).unwrap();
        story.lab().power_on(&node).unwrap();
        story.lab().wait_until_ready(&node).unwrap();
        story.within(BOOT, "the pod runs again", || {
            pods::is_ready(&story, STORE_POD) && story.shell(STORE_POD, "true").is_ok()
        });
        assert_eq!(run_in_store(&story, "cd /data && sha256sum synced-*"), sums);
        // The name may have been written without the contents.
        story
            .shell(STORE_POD, &format!("cat /data/unsynced-{round}"))
            .unwrap_or_default()
            != "fleeting\n"
    });
    assert!(lost_in.is_some(), "three power cuts lost no unsynced data");
}

/// Adds a node on drop, for the one that the story deletes.
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
fn a_pod_whose_node_is_deleted_stays_pending_with_a_reason() {
    let story = Story::alone("volume-gone");
    create_store(&story, "lab-disk");
    let (node, volume) = (
        node_of(&story),
        story.field(&["pvc", CLAIM], ".spec.volumeName"),
    );

    delete_node(story.lab().name(), &node).unwrap();
    let replacement = Replacement(&story);
    assert!(
        story.try_kubectl(&["get", "node", &node]).is_err(),
        "{node} still exists"
    );
    let others = story.lab().nodes().len() - 1;
    let why = wait_unschedulable(&story);
    assert!(
        why.contains(&format!(
            "{others} node(s) didn't match PersistentVolume's node affinity"
        )),
        "{why}"
    );
    drop(replacement);
    // A new node is not the old one: the pod stays pending.
    story.eventually("the scheduler has considered the new node, too", || {
        why_pending(&story).contains(&format!(
            "{} node(s) didn't match PersistentVolume's node affinity",
            others + 1
        ))
    });

    // No node is left that could report the lost disk: a user deletes the objects.
    story.kubectl(&["delete", "statefulset", "store"]);
    story.kubectl(&["delete", "pvc", CLAIM]);
    story.kubectl(&["delete", "pv", &volume, "--wait=false"]);
    story.kubectl(&[
        "patch",
        "pv",
        &volume,
        "--patch",
        r#"{"metadata": {"finalizers": null}}"#,
    ]);
    story.eventually("the PersistentVolume is gone", || {
        story.try_kubectl(&["get", "pv", &volume]).is_err()
    });
}
