//! A stateless web server, which needs no operator: it is scaled, loses a pod, loses a node.

mod alone;
mod full;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story, http_get};

/// Returns a web server that answers with the name of its pod, and its Service.
pub(crate) fn web(replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {{matchLabels: {{app: web}}}}}}
      containers:
        - name: web
          image: {BUSYBOX_IMAGE}
          command: [sh, -c, \"hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp\"]
          readinessProbe: {{httpGet: {{port: 8080, path: /}}, periodSeconds: 1}}
          {RESTRICTED}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
"
    )
}

/// Returns the names of the web server's pods that are Ready and not being deleted.
fn ready_pods(story: &Story) -> BTreeSet<String> {
    ready_on(story).into_keys().collect()
}

/// Returns the same, each with its node.
fn ready_on(story: &Story) -> BTreeMap<String, String> {
    let pods = story.get(&["pods", "-l", "app=web"]);
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let ready = items.iter().filter(|pod| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
            })
    });
    let text = |field: &serde_json::Value| field.as_str().unwrap_or_default().to_owned();
    ready
        .map(|pod| {
            (
                text(&pod["metadata"]["name"]),
                text(&pod["spec"]["nodeName"]),
            )
        })
        .collect()
}
