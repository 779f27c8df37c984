//! Pods for several stories, as text for `kubectl apply`.

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

/// Returns a restricted pod that runs a script; `spec` and `container` are further fields of its spec and of its container, each on a
/// line of its own.
pub(crate) fn pod(name: &str, script: &str, spec: &str, container: &str) -> String {
    let (spec, container) = (
        spec.replace('\n', "\n  "),
        container.replace('\n', "\n      "),
    );
    let script = serde_json::Value::from(script);
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  {spec}
  containers:
    - name: main
      image: {BUSYBOX_IMAGE}
      command: [sh, -c, {script}]
      {container}
      {RESTRICTED}
---
"
    )
}

/// Returns a pod that sleeps.
pub(crate) fn idle(name: &str, spec: &str) -> String {
    pod(name, "exec sleep 1000000", spec, "")
}

/// Returns a pod that answers at port 8080 with its name. Its web server is restarted when it exits, and `/tmp/falls` gets a line for
/// each exit.
pub(crate) fn server(name: &str, spec: &str) -> String {
    let serve = "hostname > /tmp/index.html; while :; do httpd -f -p 8080 -h /tmp; echo fell >> /tmp/falls; done";
    pod(name, serve, spec, "")
}

/// Returns the field of a pod's spec that binds it to a node.
pub(crate) fn on(node: &str) -> String {
    format!("nodeSelector: {{kubernetes.io/hostname: {node}}}")
}

/// Whether the pod is Ready and not being deleted.
pub(crate) fn is_ready(story: &Story, pod: &str) -> bool {
    let ready = "-o=jsonpath={.metadata.deletionTimestamp}{.status.conditions[?(@.type==\"Ready\")].status}";
    story
        .try_kubectl(&["get", "pod", pod, ready])
        .is_ok_and(|output| output == "True")
}

/// Waits until these pods are Ready.
pub(crate) fn wait_for(story: &Story, pods: &[&str]) {
    for pod in pods {
        story.eventually(&format!("pod {pod} is ready"), || is_ready(story, pod));
    }
}

/// Returns the number of restarts of a pod's first container; 0 if its status is not known yet.
pub(crate) fn restarts(story: &Story, pod: &str) -> u32 {
    let count = story.field(&["pod", pod], ".status.containerStatuses[0].restartCount");
    if count.is_empty() {
        0
    } else {
        count.parse().unwrap()
    }
}

/// Returns a pod's address with this port.
pub(crate) fn address(story: &Story, pod: &str, port: u16) -> String {
    format!("{}:{port}", story.field(&["pod", pod], ".status.podIP"))
}
