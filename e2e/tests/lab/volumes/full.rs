//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_restricted_pod_that_is_not_root_can_write_and_its_files_have_the_group_of_the_pod() {
    let story = Story::begin("volume-group");
    keep(&story, "lab-disk");
    assert_eq!(inside(&story, "id -u"), "1000");
    assert_eq!(inside(&story, "stat -c %g /data"), "2000");
    inside(&story, "mkdir /data/dir && echo mine > /data/dir/file");
    assert_eq!(
        inside(&story, "stat -c '%u %g' /data/dir/file"),
        "1000 2000"
    );
}

#[test]
fn a_volume_has_the_size_that_was_asked_for() {
    let story = Story::begin("volume-size");
    keep(&story, "lab-disk");
    let size = size_inside(&story);
    assert!(
        (300 << 10..=400 << 10).contains(&size),
        "400 MiB were asked for, the pod has {size} KiB"
    );
    assert_eq!(
        story.field(&["pvc", CLAIM], ".status.capacity.storage"),
        "400Mi"
    );
}

#[test]
fn growing_the_claim_grows_the_file_system_under_the_running_pod() {
    let story = Story::begin("volume-grows");
    keep(&story, "lab-disk");
    let (before, uid) = (
        size_inside(&story),
        story.field(&["pod", KEEPER], ".metadata.uid"),
    );
    inside(&story, "echo precious > /data/note");
    let more = r#"{"spec": {"resources": {"requests": {"storage": "900Mi"}}}}"#;
    story.kubectl(&["patch", "pvc", CLAIM, "--patch", more]);
    // 500 MiB more, but for what XFS takes for itself.
    story.eventually("the pod sees 450 MiB more", || {
        size_seen(&story).is_some_and(|size| size >= before + (450 << 10))
    });
    story.eventually("the claim says so", || {
        story.field(&["pvc", CLAIM], ".status.capacity.storage") == "900Mi"
    });
    inside(
        &story,
        "dd if=/dev/zero of=/data/large bs=1M count=600 && rm /data/large",
    );
    assert_eq!(inside(&story, "cat /data/note"), "precious");
    assert_eq!(
        story.field(&["pod", KEEPER], ".metadata.uid"),
        uid,
        "it is the same pod"
    );
    assert_eq!(pods::restarts(&story, KEEPER), 0);
}

#[test]
fn a_claim_of_the_fixed_class_cannot_be_grown() {
    let story = Story::begin("volume-fixed");
    keep(&story, "lab-disk-fixed");
    let more = r#"{"spec": {"resources": {"requests": {"storage": "900Mi"}}}}"#;
    let refused = story
        .try_kubectl(&["patch", "pvc", CLAIM, "--patch", more])
        .unwrap_err();
    assert!(refused.contains("must support resize"), "{refused}");
    assert_eq!(
        story.field(&["pvc", CLAIM], ".spec.resources.requests.storage"),
        "400Mi"
    );
}

#[test]
fn a_pod_that_fills_its_volume_is_told_that_no_space_is_left() {
    let story = Story::begin("volume-full");
    keep(&story, "lab-disk");
    let full = story
        .shell(KEEPER, "dd if=/dev/zero of=/data/large bs=1M count=500")
        .unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    let written: u64 = inside(&story, "stat -c %s /data/large").parse().unwrap();
    assert!(
        (250 << 20..400 << 20).contains(&written),
        "full after {written} bytes"
    );
    inside(&story, "rm /data/large && echo again > /data/note && sync");
    assert_eq!(inside(&story, "cat /data/note"), "again");
}

#[test]
fn a_volume_that_is_filled_from_outside_has_no_space_left_until_it_is_freed() {
    let story = Story::begin("volume-filled");
    keep(&story, "lab-disk");
    let write = "dd if=/dev/zero of=/data/some bs=4k count=1";
    inside(&story, write);
    inside(&story, "rm /data/some");
    story
        .lab()
        .pod(story.namespace(), KEEPER)
        .unwrap()
        .fill_volume(None)
        .unwrap();
    let full = story.shell(KEEPER, write).unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    story
        .lab()
        .pod(story.namespace(), KEEPER)
        .unwrap()
        .free_volume(None)
        .unwrap();
    inside(&story, "dd if=/dev/zero of=/data/some bs=1M count=200");
}

#[test]
fn a_wiped_volume_is_empty_and_can_still_be_used() {
    let story = Story::begin("volume-wiped");
    keep(&story, "lab-disk");
    inside(
        &story,
        "mkdir -p /data/dir/below && touch /data/dir/below/file /data/.hidden",
    );
    // A link that would lead out of the volume, seen from this machine.
    let outside = std::env::temp_dir().join(story.namespace());
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "not of the volume").unwrap();
    inside(&story, &format!("ln -s {} /data/link", outside.display()));
    story
        .lab()
        .pod(story.namespace(), KEEPER)
        .unwrap()
        .wipe_volume(Some(CLAIM))
        .unwrap();
    let survived = std::fs::read_to_string(outside.join("file"));
    std::fs::remove_dir_all(&outside).unwrap();
    assert_eq!(survived.unwrap(), "not of the volume");
    assert_eq!(inside(&story, "ls -A /data"), "");
    inside(&story, "echo anew > /data/note");
    assert_eq!(inside(&story, "cat /data/note"), "anew");
    assert_eq!(pods::restarts(&story, KEEPER), 0);
}

#[test]
fn deleting_the_claim_removes_its_volume_and_the_file_behind_it() {
    let story = Story::begin("volume-deleted");
    keep(&story, "lab-disk");
    let volume = story.field(&["pvc", CLAIM], ".spec.volumeName");
    assert_eq!(
        backing_files(&story, &volume).len(),
        1,
        "one file is behind {volume}"
    );
    story.kubectl(&["delete", "statefulset", "keeper"]);
    story.kubectl(&["delete", "pvc", CLAIM]);
    story.eventually("the volume is gone", || {
        story
            .kubectl(&["get", "pv", &volume, "--ignore-not-found", "-o", "name"])
            .is_empty()
    });
    assert_eq!(backing_files(&story, &volume), Vec::<PathBuf>::new());
}

#[test]
fn pods_of_one_node_share_a_claim_and_one_that_mounts_it_to_read_cannot_write() {
    let story = Story::begin("volume-shared");
    let pod = |name: &str, read_only: bool| user(name, "shared", read_only);
    story.apply(&claim("shared"));
    // The first alone, so that it is the one that decides where the volume is.
    story.apply(&pod("writer", false));
    pods::wait_for(&story, &["writer"]);
    story.apply(&(pod("other", false) + &pod("reader", true)));
    pods::wait_for(&story, &["other", "reader"]);
    let node = story.field(&["pod", "writer"], ".spec.nodeName");
    for one in ["other", "reader"] {
        assert_eq!(
            story.field(&["pod", one], ".spec.nodeName"),
            node,
            "{one} is where the volume is"
        );
    }

    story
        .shell("writer", "echo from the writer > /data/note")
        .unwrap();
    for one in ["other", "reader"] {
        assert_eq!(
            story.shell(one, "cat /data/note").unwrap().trim(),
            "from the writer",
            "seen by {one}"
        );
    }
    let refused = story.shell("reader", "echo no > /data/note").unwrap_err();
    assert!(refused.contains("Read-only file system"), "{refused}");
    story
        .shell("other", "echo from the other > /data/note")
        .unwrap();
    assert_eq!(
        story.shell("reader", "cat /data/note").unwrap().trim(),
        "from the other"
    );
}
