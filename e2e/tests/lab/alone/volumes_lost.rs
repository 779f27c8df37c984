//! Volumes and their nodes: what a power cut keeps and loses, and that a volume is where its node is, or nowhere.

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_lab::up::{add_node, delete_node};

use crate::pods;
use crate::volumes::{
    CLAIM, KEEPER, backing_files, claim, inside, keep, size_inside, size_seen, user,
};

/// Long enough for a node to boot and its pods to be started again.
const BOOT: Duration = Duration::from_secs(180);

fn node_of(story: &Story) -> String {
    story.field(&["pod", KEEPER], ".spec.nodeName")
}

/// Why the keeper is on no node, if the scheduler has said so.
fn why_pending(story: &Story) -> String {
    let why =
        "-o=jsonpath={.spec.nodeName}{.status.conditions[?(@.reason==\"Unschedulable\")].message}";
    story
        .try_kubectl(&["get", "pod", KEEPER, why])
        .unwrap_or_default()
}

/// Gives the lost keeper up, as a person would who knows that its node is gone, and waits until the scheduler has
/// found no place for its successor.
fn replace_in_vain(story: &Story) -> String {
    let lost = story.field(&["pod", KEEPER], ".metadata.uid");
    story.kubectl(&["delete", "pod", KEEPER, "--force", "--grace-period=0"]);
    story.eventually("its successor finds no node", || {
        let uid = story.try_kubectl(&["get", "pod", KEEPER, "-o=jsonpath={.metadata.uid}"]);
        uid.is_ok_and(|uid| uid != lost) && why_pending(story).contains("nodes are available")
    });
    why_pending(story)
}

#[test]
fn a_pod_waits_for_the_node_of_its_volume_and_finds_its_data_when_that_has_power_again() {
    let story = Story::alone("volume-bound");
    keep(&story, "lab-disk");
    inside(&story, "echo precious > /data/note && sync");
    let node = node_of(&story);

    story.lab().power_off(&node).unwrap();
    story.eventually("the node is taken for lost", || {
        story
            .field(&["node", &node], ".spec.taints[*].key")
            .contains("node.kubernetes.io/unreachable")
    });
    let why = replace_in_vain(&story);
    let others = story.lab().nodes().len() - 1;
    assert!(
        why.contains(&format!(
            "{others} node(s) didn't match PersistentVolume's node affinity"
        )),
        "{why}"
    );

    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.within(BOOT, "the pod runs", || pods::is_ready(&story, KEEPER));
    assert_eq!(node_of(&story), node);
    assert_eq!(inside(&story, "cat /data/note"), "precious");
}

#[test]
fn what_is_asked_of_a_volume_while_its_node_is_off_is_done_when_that_has_power_again() {
    let story = Story::alone("volume-asked");
    keep(&story, "lab-disk");
    let (node, before) = (node_of(&story), size_inside(&story));
    inside(&story, "echo precious > /data/note && sync");
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
        "nobody is there to remove the file"
    );
    assert_eq!(
        story.field(&["pvc", CLAIM], ".status.capacity.storage"),
        "400Mi",
        "nor to grow the other"
    );

    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.within(BOOT, "the given up volume is gone", || {
        story.try_kubectl(&["get", "pv", &given_up]).is_err()
    });
    assert!(backing_files(&story, &given_up).is_empty());
    story.within(BOOT, "the pod runs again", || {
        pods::is_ready(&story, KEEPER) && story.shell(KEEPER, "true").is_ok()
    });
    story.eventually("the pod sees 450 MiB more", || {
        size_seen(&story).is_some_and(|size| size >= before + (450 << 10))
    });
    story.eventually("the claim says so", || {
        story.field(&["pvc", CLAIM], ".status.capacity.storage") == "900Mi"
    });
    assert_eq!(inside(&story, "cat /data/note"), "precious");
}

#[test]
fn a_stateful_set_keeps_its_data_across_a_power_cycle_of_the_whole_lab() {
    let story = Story::alone("volume-cycled");
    keep(&story, "lab-disk");
    inside(&story, "echo precious > /data/note && sync");
    // Its container is started again, or it is another pod: either is a life of its own.
    let life = "-o=jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
    let life = || story.try_kubectl(&["get", "pod", KEEPER, life]).ok();
    let (node, before) = (node_of(&story), life().expect("the keeper is there"));
    story.lab().power_cycle().unwrap();
    story.within(BOOT, "the pod runs again", || {
        let again = life().is_some_and(|now| now != before);
        again && pods::is_ready(&story, KEEPER) && story.shell(KEEPER, "true").is_ok()
    });
    assert_eq!(node_of(&story), node);
    assert_eq!(inside(&story, "cat /data/note"), "precious");
}

#[test]
fn a_power_cut_loses_what_was_not_synced_and_nothing_else() {
    let story = Story::alone("volume-unsynced");
    keep(&story, "lab-disk");
    let node = node_of(&story);
    // Whoever syncs on this machine, syncs every file system: that what was not synced survives proves nothing, once.
    let lost_in = (1..=3).find(|round| {
        inside(
            &story,
            &format!("dd if=/dev/urandom of=/data/synced-{round} bs=1M count=8; sync"),
        );
        let sums = inside(&story, "cd /data && sha256sum synced-*");
        inside(&story, &format!("echo fleeting > /data/unsynced-{round}"));
        assert_eq!(
            inside(&story, &format!("cat /data/unsynced-{round}")),
            "fleeting"
        );

        story.lab().power_off(&node).unwrap();
        story.lab().power_on(&node).unwrap();
        story.lab().wait_until_ready(&node).unwrap();
        story.within(BOOT, "the pod runs again", || {
            pods::is_ready(&story, KEEPER) && story.shell(KEEPER, "true").is_ok()
        });
        assert_eq!(inside(&story, "cd /data && sha256sum synced-*"), sums);
        // Its name may have been written and its contents not.
        story
            .shell(KEEPER, &format!("cat /data/unsynced-{round}"))
            .unwrap_or_default()
            != "fleeting\n"
    });
    assert!(
        lost_in.is_some(),
        "three power cuts in a row have lost nothing that was not synced"
    );
}

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
fn a_pod_whose_node_is_gone_for_good_stays_pending_and_says_why() {
    let story = Story::alone("volume-gone");
    keep(&story, "lab-disk");
    let (node, volume) = (
        node_of(&story),
        story.field(&["pvc", CLAIM], ".spec.volumeName"),
    );

    delete_node(story.lab().name(), &node).unwrap();
    let replacement = Replacement(&story);
    assert!(
        story.try_kubectl(&["get", "node", &node]).is_err(),
        "{node} is still known"
    );
    let others = story.lab().nodes().len() - 1;
    let why = replace_in_vain(&story);
    assert!(
        why.contains(&format!(
            "{others} node(s) didn't match PersistentVolume's node affinity"
        )),
        "{why}"
    );
    drop(replacement);
    // A new node is not the old one.
    story.eventually("the scheduler has considered the new node, too", || {
        why_pending(&story).contains(&format!(
            "{} node(s) didn't match PersistentVolume's node affinity",
            others + 1
        ))
    });

    // Nobody is left who could tell that the disk is gone: a person says so.
    story.kubectl(&["delete", "statefulset", "keeper"]);
    story.kubectl(&["delete", "pvc", CLAIM]);
    story.kubectl(&["delete", "pv", &volume, "--wait=false"]);
    story.kubectl(&[
        "patch",
        "pv",
        &volume,
        "--patch",
        r#"{"metadata": {"finalizers": null}}"#,
    ]);
    story.eventually("the volume is forgotten", || {
        story.try_kubectl(&["get", "pv", &volume]).is_err()
    });
}
