//! The scene file of a failed story.

use std::panic::{AssertUnwindSafe, catch_unwind};

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

#[test]
fn a_failed_story_writes_its_objects_decisions_and_logs_to_one_file() {
    let mut file = None;
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let story = Story::begin("scene");
        file = Some(story.scene_file());
        story.kubectl(&[
            "create",
            "configmap",
            "orders-etcd-decisions",
            "--from-literal=1=a test decision",
        ]);
        let container = format!(
            "{{name: main, image: {BUSYBOX_IMAGE}, command: [sh, -c, 'echo a test log line; sleep 600'], {RESTRICTED}}}"
        );
        story.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: talks}}, spec: {{terminationGracePeriodSeconds: 0, containers: [{container}]}}}}"
        ));
        story.eventually("the pod has logged its line", || {
            story
                .try_kubectl(&["logs", "talks"])
                .is_ok_and(|log| log.contains("a test log line"))
        });
        panic!("a deliberate failure");
    }));
    assert!(failed.is_err());
    let scene = std::fs::read_to_string(file.unwrap()).unwrap();
    let words = [
        "a deliberate failure",
        "a test decision",
        "a test log line",
        "=== events",
        "pod/talks",
        "node-1",
    ];
    for word in words {
        assert!(scene.contains(word), "{word} is not in the scene:\n{scene}");
    }
}
