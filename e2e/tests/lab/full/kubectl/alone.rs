//! The stories of this topic that harm nodes.

use super::*;

/// Uncordons a node on drop.
struct Uncordon<'a>(&'a Story, &'a str);

impl Drop for Uncordon<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_kubectl(&["uncordon", self.1]);
    }
}

#[test]
fn draining_respects_a_disruption_budget_and_uncordoning_reverts_it() {
    let story = Story::alone("kubectl-drain");
    story.apply(&web(2));
    let budget = |least: u32| {
        story.apply(&format!(
            "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web}}
spec: {{minAvailable: {least}, selector: {{matchLabels: {{app: web}}}}}}
"
        ));
        story.eventually("the budget is up to date", || {
            let counted = "-o=jsonpath={.metadata.generation} {.status.observedGeneration} {.status.disruptionsAllowed}";
            let output = story.kubectl(&["get", "pdb", "web", counted]);
            let words: Vec<_> = output.split(' ').collect();
            words.len() == 3 && words[0] == words[1] && words[2] == (2 - least).to_string()
        });
    };
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    budget(2);
    let pods = || {
        story.get(&["pods", "-l", "app=web"])["items"]
            .as_array()
            .unwrap()
            .clone()
    };
    let names = || {
        pods()
            .iter()
            .map(|pod| pod["metadata"]["name"].to_string())
            .collect::<Vec<_>>()
    };
    let node = pods()[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let drain = |limit: &str| {
        let limit = format!("--timeout={limit}");
        story.try_kubectl(&[
            "drain",
            &node,
            "--force",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            &limit,
        ])
    };

    let _opened = Uncordon(&story, &node);
    let before = names();
    let rejected = drain("8s").unwrap_err();
    assert!(
        rejected.contains("violate the pod's disruption budget"),
        "{rejected}"
    );
    assert_eq!(names(), before, "a pod was evicted");
    assert_eq!(story.field(&["node", &node], ".spec.unschedulable"), "true");

    budget(1);
    drain("90s").unwrap();
    assert!(
        pods()
            .iter()
            .all(|pod| pod["spec"]["nodeName"] != node.as_str()),
        "a pod is still on {node}"
    );
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);

    story.kubectl(&["uncordon", &node]);
    story.apply(&pods::idle("back", &pods::on(&node)));
    pods::wait_for(&story, &["back"]);
}
