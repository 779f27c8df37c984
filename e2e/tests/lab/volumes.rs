//! Volumes as their pods see them: correct size, expansion, full volumes, shared volumes, and deletion with the PVC.

mod full;

use std::path::PathBuf;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

use crate::pods;

/// The pod of [`store_manifest`].
pub(crate) const STORE_POD: &str = "store-0";

/// The PVC of [`store_manifest`].
pub(crate) const CLAIM: &str = "data-store-0";

/// Returns a StatefulSet of one restricted pod with a volume at `/data`.
pub(crate) fn store_manifest(class: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: store}}
spec:
  serviceName: store
  selector: {{matchLabels: {{app: store}}}}
  template:
    metadata: {{labels: {{app: store}}}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {{fsGroup: 2000}}
      containers:
        - name: main
          image: {BUSYBOX_IMAGE}
          command: [sh, -c, exec sleep 1000000]
          volumeMounts: [{{name: data, mountPath: /data}}]
          {RESTRICTED}
  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 400Mi}}}}}}
"
    )
}

/// Returns a PVC of the default class.
pub(crate) fn claim(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 400Mi}}}}}}
---
"
    )
}

/// Returns a pod with the volume of a PVC at `/data`.
pub(crate) fn user(name: &str, claim: &str, read_only: bool) -> String {
    let spec = format!(
        "securityContext: {{fsGroup: 2000}}
volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}, readOnly: {read_only}}}}}]"
    );
    pods::pod(
        name,
        "exec sleep 1000000",
        &spec,
        "volumeMounts: [{name: data, mountPath: /data}]",
    )
}

/// Creates the StatefulSet and waits until its pod is Ready.
pub(crate) fn create_store(story: &Story, class: &str) {
    story.apply(&store_manifest(class));
    pods::wait_for(story, &[STORE_POD]);
}

/// Runs a shell script in the pod, which must succeed; returns its output without the final line break.
pub(crate) fn run_in_store(story: &Story, script: &str) -> String {
    match story.shell(STORE_POD, script) {
        Ok(output) => output.trim_end().to_owned(),
        Err(output) => panic!("{output}"),
    }
}

/// Returns the size of the pod's file system in KiB, as `df` shows it.
pub(crate) fn store_size(story: &Story) -> u64 {
    try_store_size(story).expect("df shows the size of /data")
}

/// Returns the same, or `None` if the pod does not answer: for polling.
pub(crate) fn try_store_size(story: &Story) -> Option<u64> {
    let shown = story.shell(STORE_POD, "df -k /data | tail -n 1").ok()?;
    // Busybox breaks the line after a long device name: the numbers are counted from the end.
    let words: Vec<_> = shown.split_whitespace().rev().collect();
    words.get(4).filter(|_| words[0] == "/data")?.parse().ok()
}

/// Returns the files on this machine that hold a volume, on any node.
pub(crate) fn backing_files(story: &Story, volume: &str) -> Vec<PathBuf> {
    let machines = std::fs::read_dir(story.lab().dir().join("machines")).unwrap();
    let files = machines
        .flatten()
        .filter_map(|machine| std::fs::read_dir(machine.path().join("volumes")).ok());
    let files = files.flatten().flatten().map(|file| file.path());
    files
        .filter(|file| file.to_string_lossy().contains(volume))
        .collect()
}

#[test]
fn a_stateful_set_keeps_its_data_when_its_pod_is_deleted() {
    let story = Story::begin("volume-kept");
    create_store(&story, "lab-disk");
    run_in_store(&story, "echo precious > /data/note");
    let before = story.field(&["pod", STORE_POD], ".metadata.uid");
    story.kubectl(&["delete", "pod", STORE_POD]);
    story.eventually("another pod is Ready", || {
        pods::is_ready(&story, STORE_POD)
            && story.field(&["pod", STORE_POD], ".metadata.uid") != before
    });
    assert_eq!(run_in_store(&story, "cat /data/note"), "precious");
}
