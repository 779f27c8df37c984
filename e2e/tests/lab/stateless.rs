//! The stateless story, which Kubernetes tells by itself: a web server is scaled, loses a pod, loses a node.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story, http_get};

/// A web server that answers with the name of its pod, and a service before it.
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

/// The names of the web server's pods that are Ready and not on their way out.
fn ready_pods(story: &Story) -> BTreeSet<String> {
    ready_on(story).into_keys().collect()
}

/// The same, each with its node.
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

#[test]
fn a_web_server_is_scaled_and_a_deleted_pod_is_replaced_and_every_replica_answers_by_name() {
    let story = Story::begin("stateless");
    story.apply(&web(1));
    story.eventually("one replica is ready", || ready_pods(&story).len() == 1);
    story.kubectl(&["scale", "deployment/web", "--replicas=3"]);
    story.eventually("three replicas are ready", || ready_pods(&story).len() == 3);

    let before = ready_pods(&story);
    let victim = before.first().unwrap();
    story.kubectl(&["delete", "pod", victim]);
    story.eventually("a new pod has replaced the deleted one", || {
        let now = ready_pods(&story);
        now.len() == 3 && !now.contains(victim)
    });

    let all = ready_pods(&story);
    let asker = all.first().unwrap();
    let name = format!("http://web.{}.svc.cluster.local/", story.namespace());
    let mut answered = BTreeSet::new();
    story.eventually(
        "every replica has answered through the service's name",
        || {
            let answer = story.shell(
                asker,
                &format!("for i in 1 2 3 4 5 6; do wget -qO- {name}; done"),
            );
            answered.extend(answer.unwrap_or_default().lines().map(str::to_owned));
            all.is_subset(&answered)
        },
    );
}

#[test]
fn cluster_and_pod_addresses_answer_from_the_machine_itself() {
    let story = Story::begin("from-host");
    story.apply(&web(2));
    story.eventually("two replicas are ready", || ready_pods(&story).len() == 2);
    let service = story.field(&["service", "web"], ".spec.clusterIP");
    let mut answered = BTreeSet::new();
    story.eventually("both replicas have answered at the cluster address", || {
        answered.extend(http_get(&format!("{service}:80"), "/"));
        answered.len() == 2
    });
    for pod in ready_pods(&story) {
        let address = story.field(&["pod", &pod], ".status.podIP");
        story.eventually(&format!("{pod} answers at its own address"), || {
            http_get(&format!("{address}:8080"), "/").as_ref() == Some(&pod)
        });
    }
}

#[test]
fn the_pods_of_a_node_without_power_come_back_elsewhere() {
    let story = Story::alone("node-lost");
    story.apply(&web(3));
    story.eventually("three replicas are ready", || ready_pods(&story).len() == 3);
    let (victim, node) = ready_on(&story).into_iter().next().unwrap();

    story.lab().power_off(&node).unwrap();
    story.eventually("three replicas are ready on the other nodes", || {
        let now = ready_on(&story);
        now.len() == 3 && now.values().all(|on| *on != node)
    });
    story.lab().power_on(&node).unwrap();
    story.lab().wait_until_ready(&node).unwrap();
    story.eventually("the lost pod is gone for good", || {
        story.try_kubectl(&["get", "pod", &victim]).is_err()
    });
}
