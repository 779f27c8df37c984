//! Warnings about doubtful specs, which the API server returns to `kubectl apply`.

use evenkeel_e2e::operator::install;
use evenkeel_e2e::{Story, checkout};
use serde_json::{Value, json};

/// The name of the policy and its binding in the manifests.
const NAME: &str = "evenkeel-warnings";

/// Installs the policy for the story's namespace only, under a name of its own, and deletes it on drop: other stories compare the
/// output of `kubectl`.
struct Policy<'s> {
    story: &'s Story,
    name: String,
}

impl<'s> Policy<'s> {
    fn install(story: &'s Story) -> Self {
        let name = format!("{NAME}-{}", story.namespace());
        let manifest = checkout().join("deploy/operator/warnings.yaml");
        let text = std::fs::read_to_string(manifest).unwrap();
        for document in text.split("---\n").filter(|text| text.contains("kind:")) {
            let mut object: Value = serde_saphyr::from_str(document).unwrap();
            assert_eq!(object["metadata"]["name"], NAME);
            object["metadata"]["name"] = json!(name);
            if object["kind"] == "ValidatingAdmissionPolicyBinding" {
                assert_eq!(object["spec"]["policyName"], NAME);
                assert_eq!(object["spec"]["validationActions"], json!(["Warn"]));
                object["spec"]["policyName"] = json!(name);
                let only =
                    json!({ "matchLabels": { "kubernetes.io/metadata.name": story.namespace() } });
                object["spec"]["matchResources"] = json!({ "namespaceSelector": only });
            }
            story.apply(&object.to_string());
        }
        Self { story, name }
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        for kind in [
            "validatingadmissionpolicybinding",
            "validatingadmissionpolicy",
        ] {
            let _ = self.story.try_kubectl(&["delete", kind, &self.name]);
        }
    }
}

/// Applies a cluster in a dry run; returns the output of `kubectl`, warnings included.
fn apply(story: &Story, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": { "name": "orders" },
        "spec": spec,
    });
    let command = story.command(&["apply", "--dry-run=server", "-f", "-"]);
    let (accepted, output) = command.input(object.to_string()).attempt().unwrap();
    assert!(accepted, "{output}");
    output
}

fn warnings(output: &str) -> Vec<&str> {
    let lines = output.lines();
    lines.filter(|line| line.starts_with("Warning: ")).collect()
}

#[test]
fn doubtful_specs_are_accepted_with_warnings() {
    let story = Story::begin("warnings");
    install(&story);
    let _policy = Policy::install(&story);
    let unknown = json!({ "version": "3.6.99", "members": 3 });
    story.eventually("the API server enforces the policy", || {
        !warnings(&apply(&story, &unknown)).is_empty()
    });
    for (spec, expected) in [
        (
            unknown,
            vec![
                "etcd 3.6.99 is not known to this version of Evenkeel (newest known: 3.6.16). If the image does not exist, the \
                 rollout stops at the first member.",
            ],
        ),
        (json!({ "version": "3.6.16", "members": 3 }), vec![]),
        (
            json!({ "version": "3.6.16", "members": 4 }),
            vec!["4 members tolerate no more failures than 3"],
        ),
        (
            json!({ "version": "3.6.16", "members": 1 }),
            vec!["A cluster of one or two members tolerates no failure"],
        ),
        (
            json!({
                "version": "3.7.99",
                "members": 2,
                "storage": { "ephemeral": true },
                "resources": { "limits": { "cpu": "2" } },
            }),
            vec![
                "etcd 3.7.99 is not known",
                "spec.resources.limits.cpu is set",
                "spec.storage.ephemeral is true",
                "A cluster of one or two members",
            ],
        ),
    ] {
        let output = apply(&story, &spec);
        let found = warnings(&output);
        assert_eq!(found.len(), expected.len(), "{spec}: {output}");
        for text in expected {
            assert!(
                found.iter().any(|line| line.contains(text)),
                "{text}: {output}"
            );
        }
    }
}
