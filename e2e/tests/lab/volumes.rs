//! Volumes, as the pods that use them see them: of true size, growing, filling up, shared, and gone with their claim.

mod full;

use std::path::PathBuf;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

use crate::pods;

/// The one pod of [`keeper`].
pub(crate) const KEEPER: &str = "keeper-0";

/// Its claim.
pub(crate) const CLAIM: &str = "data-keeper-0";

/// A StatefulSet of one restricted pod with a volume at `/data`.
pub(crate) fn keeper(class: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: keeper}}
spec:
  serviceName: keeper
  selector: {{matchLabels: {{app: keeper}}}}
  template:
    metadata: {{labels: {{app: keeper}}}}
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

/// A claim of the default class.
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

/// A pod with the volume of a claim at `/data`.
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

/// Begins with a keeper that is ready.
pub(crate) fn keep(story: &Story, class: &str) {
    story.apply(&keeper(class));
    pods::wait_for(story, &[KEEPER]);
}

/// Runs a shell command in the keeper, which must succeed; without the line's end.
pub(crate) fn inside(story: &Story, script: &str) -> String {
    match story.shell(KEEPER, script) {
        Ok(said) => said.trim_end().to_owned(),
        Err(said) => panic!("{said}"),
    }
}

/// The size of the keeper's file system in KiB, as `df` shows it in the pod.
pub(crate) fn size_inside(story: &Story) -> u64 {
    size_seen(story).expect("df shows the size of /data")
}

/// The same, if the pod can be asked: for as long as it is waited for.
pub(crate) fn size_seen(story: &Story) -> Option<u64> {
    let shown = story.shell(KEEPER, "df -k /data | tail -n 1").ok()?;
    // Busybox breaks the line after a long device: the numbers are counted from its end.
    let words: Vec<_> = shown.split_whitespace().rev().collect();
    words.get(4).filter(|_| words[0] == "/data")?.parse().ok()
}

/// The files on this machine that are behind a volume, on whichever node.
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
    keep(&story, "lab-disk");
    inside(&story, "echo precious > /data/note");
    let before = story.field(&["pod", KEEPER], ".metadata.uid");
    story.kubectl(&["delete", "pod", KEEPER]);
    story.eventually("another pod has taken its place", || {
        pods::is_ready(&story, KEEPER) && story.field(&["pod", KEEPER], ".metadata.uid") != before
    });
    assert_eq!(inside(&story, "cat /data/note"), "precious");
}
