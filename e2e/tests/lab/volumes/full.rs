//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_restricted_pod_can_write_with_the_group_of_the_pod() {
    let story = Story::begin("volume-group");
    create_store(&story, "lab-disk");
    assert_eq!(run_in_store(&story, "id -u"), "1000");
    assert_eq!(run_in_store(&story, "stat -c %g /data"), "2000");
    run_in_store(&story, "mkdir /data/dir && echo mine > /data/dir/file");
    assert_eq!(
        run_in_store(&story, "stat -c '%u %g' /data/dir/file"),
        "1000 2000"
    );
}

#[test]
fn a_volume_has_the_requested_size() {
    let story = Story::begin("volume-size");
    create_store(&story, "lab-disk");
    let size = store_size(&story);
    assert!(
        (300 << 10..=400 << 10).contains(&size),
        "400 MiB were requested, the pod has {size} KiB"
    );
    assert_eq!(
        story.field(&["pvc", CLAIM], ".status.capacity.storage"),
        "400Mi"
    );
}

#[test]
fn expanding_a_claim_expands_the_file_system_of_the_running_pod() {
    let story = Story::begin("volume-grows");
    create_store(&story, "lab-disk");
    let (before, uid) = (
        store_size(&story),
        story.field(&["pod", STORE_POD], ".metadata.uid"),
    );
    run_in_store(&story, "echo precious > /data/note");
    let more = r#"{"spec": {"resources": {"requests": {"storage": "900Mi"}}}}"#;
    story.kubectl(&["patch", "pvc", CLAIM, "--patch", more]);
    // 500 MiB more, minus what XFS uses itself.
    story.eventually("the pod sees 450 MiB more", || {
        try_store_size(&story).is_some_and(|size| size >= before + (450 << 10))
    });
    story.eventually("the PVC reports the new size", || {
        story.field(&["pvc", CLAIM], ".status.capacity.storage") == "900Mi"
    });
    run_in_store(
        &story,
        "dd if=/dev/zero of=/data/large bs=1M count=600 && rm /data/large",
    );
    assert_eq!(run_in_store(&story, "cat /data/note"), "precious");
    assert_eq!(
        story.field(&["pod", STORE_POD], ".metadata.uid"),
        uid,
        "the pod was replaced"
    );
    assert_eq!(pods::restarts(&story, STORE_POD), 0);
}

#[test]
fn a_claim_of_the_fixed_class_cannot_be_expanded() {
    let story = Story::begin("volume-fixed");
    create_store(&story, "lab-disk-fixed");
    let more = r#"{"spec": {"resources": {"requests": {"storage": "900Mi"}}}}"#;
    let rejected = story
        .try_kubectl(&["patch", "pvc", CLAIM, "--patch", more])
        .unwrap_err();
    assert!(rejected.contains("must support resize"), "{rejected}");
    assert_eq!(
        story.field(&["pvc", CLAIM], ".spec.resources.requests.storage"),
        "400Mi"
    );
}

#[test]
fn a_pod_that_fills_its_volume_gets_no_space_left() {
    let story = Story::begin("volume-full");
    create_store(&story, "lab-disk");
    let full = story
        .shell(STORE_POD, "dd if=/dev/zero of=/data/large bs=1M count=500")
        .unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    let written: u64 = run_in_store(&story, "stat -c %s /data/large")
        .parse()
        .unwrap();
    assert!(
        (250 << 20..400 << 20).contains(&written),
        "the volume is full after {written} bytes"
    );
    run_in_store(&story, "rm /data/large && echo again > /data/note && sync");
    assert_eq!(run_in_store(&story, "cat /data/note"), "again");
}

#[test]
fn a_volume_filled_from_outside_has_no_space_until_it_is_freed() {
    let story = Story::begin("volume-filled");
    create_store(&story, "lab-disk");
    let write = "dd if=/dev/zero of=/data/some bs=4k count=1";
    run_in_store(&story, write);
    run_in_store(&story, "rm /data/some");
    story
        .lab()
        .pod(story.namespace(), STORE_POD)
        .unwrap()
        .fill_volume(None)
        .unwrap();
    let full = story.shell(STORE_POD, write).unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    story
        .lab()
        .pod(story.namespace(), STORE_POD)
        .unwrap()
        .free_volume(None)
        .unwrap();
    run_in_store(&story, "dd if=/dev/zero of=/data/some bs=1M count=200");
}

#[test]
fn a_wiped_volume_is_empty_and_can_still_be_used() {
    let story = Story::begin("volume-wiped");
    create_store(&story, "lab-disk");
    run_in_store(
        &story,
        "mkdir -p /data/dir/below && touch /data/dir/below/file /data/.hidden",
    );
    // A link that leads out of the volume when it is followed on this machine.
    let outside = std::env::temp_dir().join(story.namespace());
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "not of the volume").unwrap();
    run_in_store(&story, &format!("ln -s {} /data/link", outside.display()));
    story
        .lab()
        .pod(story.namespace(), STORE_POD)
        .unwrap()
        .wipe_volume(Some(CLAIM))
        .unwrap();
    let survived = std::fs::read_to_string(outside.join("file"));
    std::fs::remove_dir_all(&outside).unwrap();
    assert_eq!(survived.unwrap(), "not of the volume");
    assert_eq!(run_in_store(&story, "ls -A /data"), "");
    run_in_store(&story, "echo again > /data/note");
    assert_eq!(run_in_store(&story, "cat /data/note"), "again");
    assert_eq!(pods::restarts(&story, STORE_POD), 0);
}

#[test]
fn deleting_a_claim_removes_its_volume_and_its_file() {
    let story = Story::begin("volume-deleted");
    create_store(&story, "lab-disk");
    let volume = story.field(&["pvc", CLAIM], ".spec.volumeName");
    assert_eq!(
        backing_files(&story, &volume).len(),
        1,
        "not one file holds {volume}"
    );
    story.kubectl(&["delete", "statefulset", "store"]);
    story.kubectl(&["delete", "pvc", CLAIM]);
    story.eventually("the volume is gone", || {
        story
            .kubectl(&["get", "pv", &volume, "--ignore-not-found", "-o", "name"])
            .is_empty()
    });
    assert_eq!(backing_files(&story, &volume), Vec::<PathBuf>::new());
}

#[test]
fn pods_of_one_node_share_a_claim_and_a_read_only_mount_cannot_write() {
    let story = Story::begin("volume-shared");
    let pod = |name: &str, read_only: bool| user(name, "shared", read_only);
    story.apply(&claim("shared"));
    // The first alone, so that its node becomes that of the volume.
    story.apply(&pod("writer", false));
    pods::wait_for(&story, &["writer"]);
    story.apply(&(pod("other", false) + &pod("reader", true)));
    pods::wait_for(&story, &["other", "reader"]);
    let node = story.field(&["pod", "writer"], ".spec.nodeName");
    for one in ["other", "reader"] {
        assert_eq!(
            story.field(&["pod", one], ".spec.nodeName"),
            node,
            "{one} is on another node than the volume"
        );
    }

    story
        .shell("writer", "echo from the writer > /data/note")
        .unwrap();
    for one in ["other", "reader"] {
        assert_eq!(
            story.shell(one, "cat /data/note").unwrap().trim(),
            "from the writer",
            "{one} does not see the write"
        );
    }
    let rejected = story.shell("reader", "echo no > /data/note").unwrap_err();
    assert!(rejected.contains("Read-only file system"), "{rejected}");
    story
        .shell("other", "echo from the other > /data/note")
        .unwrap();
    assert_eq!(
        story.shell("reader", "cat /data/note").unwrap().trim(),
        "from the other"
    );
}
