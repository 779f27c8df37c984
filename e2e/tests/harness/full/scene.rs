//! What a story that fails leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

#[test]
fn a_story_that_fails_leaves_its_objects_decisions_and_logs_in_one_file() {
    let mut file = None;
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let story = Story::begin("scene");
        file = Some(story.scene_file());
        story.kubectl(&[
            "create",
            "configmap",
            "orders-etcd-decisions",
            "--from-literal=1=it was decided",
        ]);
        let container = format!(
            "{{name: main, image: {BUSYBOX_IMAGE}, command: [sh, -c, 'echo it was logged; sleep 600'], {RESTRICTED}}}"
        );
        story.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: talks}}, spec: {{terminationGracePeriodSeconds: 0, containers: [{container}]}}}}"
        ));
        story.eventually("it has said something", || {
            story
                .try_kubectl(&["logs", "talks"])
                .is_ok_and(|log| log.contains("it was logged"))
        });
        panic!("it fails on purpose");
    }));
    assert!(failed.is_err());
    let scene = std::fs::read_to_string(file.unwrap()).unwrap();
    let words = [
        "it fails on purpose",
        "it was decided",
        "it was logged",
        "=== events",
        "pod/talks",
        "node-1",
    ];
    for word in words {
        assert!(scene.contains(word), "{word} is not in the scene:\n{scene}");
    }
}
