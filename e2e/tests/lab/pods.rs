//! Pods that several stories run, as text for `kubectl apply`.

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};

/// A restricted pod that runs a script; `spec` and `container` are further fields of its spec and of its container,
/// each on a line of its own.
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

/// A pod that only waits to be used.
pub(crate) fn idle(name: &str, spec: &str) -> String {
    pod(name, "exec sleep 1000000", spec, "")
}

/// A pod that answers at port 8080 with its own name. Its web server is started again should it end, and `/tmp/falls`
/// has a line for each time it did.
pub(crate) fn server(name: &str, spec: &str) -> String {
    let serve = "hostname > /tmp/index.html; while :; do httpd -f -p 8080 -h /tmp; echo fell >> /tmp/falls; done";
    pod(name, serve, spec, "")
}

/// The field of a pod's spec that binds it to a node.
pub(crate) fn on(node: &str) -> String {
    format!("nodeSelector: {{kubernetes.io/hostname: {node}}}")
}

/// Whether Kubernetes says that the pod is Ready and not on its way out.
pub(crate) fn is_ready(story: &Story, pod: &str) -> bool {
    let ready = "-o=jsonpath={.metadata.deletionTimestamp}{.status.conditions[?(@.type==\"Ready\")].status}";
    story
        .try_kubectl(&["get", "pod", pod, ready])
        .is_ok_and(|said| said == "True")
}

/// Waits until these pods are Ready.
pub(crate) fn wait_for(story: &Story, pods: &[&str]) {
    for pod in pods {
        story.eventually(&format!("pod {pod} is ready"), || is_ready(story, pod));
    }
}

/// How often a pod's first container was started again. One of which nothing is known yet never was.
pub(crate) fn restarts(story: &Story, pod: &str) -> u32 {
    let count = story.field(&["pod", pod], ".status.containerStatuses[0].restartCount");
    if count.is_empty() {
        0
    } else {
        count.parse().unwrap()
    }
}

/// A pod's address with this port.
pub(crate) fn address(story: &Story, pod: &str, port: u16) -> String {
    format!("{}:{port}", story.field(&["pod", pod], ".status.podIP"))
}
