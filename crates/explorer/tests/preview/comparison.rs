//! The comparison of a preview with the run of the model from the same state.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::facts::{EtcdFacts, Membership};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::observe::ObservedCluster;
use evenkeel_etcd::observe::objects::ClusterObjects;
use evenkeel_etcd::preview::{Preview, failing_pods, preview};
use evenkeel_explorer::observe::NOW;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::run::{Course, ModelRun, Step};

/// The name of the cluster.
pub(crate) const CLUSTER: &str = "orders";

/// Actions that disturb no client. Those of different members are independent of each other, and
/// their order may differ.
const INDEPENDENT: [&str; 10] = [
    "apply-object",
    "apply-pdb",
    "attach-clients",
    "detach-clients",
    "mark-joined",
    "record-joined-volume",
    "record-removal",
    "record-version",
    "set-owner",
    "set-start-mode",
];

/// Returns the resource with these fields in its spec.
pub(crate) fn resource(spec: &Value) -> EtcdCluster {
    let metadata = json!({
        "name": CLUSTER, "namespace": "shop", "generation": 1, "uid": "00000000-0000-0000-0000-000000000001",
    });
    let mut resource = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": metadata,
        "spec": { "version": "3.6.16", "members": 3 },
    });
    let fields = spec.as_object().unwrap().clone();
    resource["spec"].as_object_mut().unwrap().extend(fields);
    serde_json::from_value(resource).unwrap()
}

/// Returns an observation without objects, which names the members.
pub(crate) fn observation(facts: &EtcdFacts) -> ObservedCluster {
    let resource = resource(&json!({ "members": facts.cluster.members }));
    let desired = DesiredCluster::of(&resource).unwrap();
    let objects = ClusterObjects {
        resource,
        identity: None,
        pods: Vec::new(),
        restore_pods: Vec::new(),
        claims: Vec::new(),
        peer_service: None,
        client_service: None,
        pdb: None,
        backup_schedule: None,
        restores: Vec::new(),
    };
    let observed = ObservedCluster::new(objects, desired, None, NOW, Lineage(7)).unwrap();
    let identity = facts.identity.present().cloned();
    ObservedCluster {
        identity: identity.map(|identity| (ConfigMap::default(), identity)),
        ..observed
    }
}

/// Returns the first difference between a preview from the state of the model and the run of the model.
pub(crate) fn difference(mut run: ModelRun, remembered: Option<Membership>) -> Option<String> {
    let facts = match run.facts() {
        Ok(facts) => facts,
        Err(why) => return Some(why),
    };
    let observed = observation(&facts);
    run.failing = failing_pods(&facts).iter().map(|pod| pod.uid).collect();
    let preview = preview(&observed, facts, remembered);
    let mut predicted = course_of(preview);
    // The model has no versions on volumes.
    predicted
        .steps
        .retain(|step| step.action != "record-version");
    compare(predicted, run.finish(&observed))
}

/// Returns the course that a preview predicts.
pub(crate) fn course_of(preview: Preview) -> Course {
    let steps = preview.steps.into_iter();
    Course {
        steps: steps
            .map(|step| Step {
                action: step.action,
                does: step.does,
            })
            .collect(),
        ends: preview.ends,
        waits_for: preview.waits_for,
    }
}

/// Compares the creations and disruptions in order, the independent actions in any order, and the ends.
pub(crate) fn compare(preview: Course, model: Result<Course, String>) -> Option<String> {
    let model = match model {
        Ok(model) => model,
        Err(why) => return Some(why),
    };
    let same = sorted(&preview) == sorted(&model)
        && preview.ends == model.ends
        && preview.waits_for == model.waits_for;
    let text = |course: &Course| {
        let steps = course.steps.iter();
        let steps: String = steps
            .map(|step| format!("    {}: {}\n", step.action, step.does))
            .collect();
        format!("{steps}    {} {:?}\n", course.ends, course.waits_for)
    };
    (!same).then(|| {
        format!(
            "\n  the preview:\n{}  the model:\n{}",
            text(&preview),
            text(&model)
        )
    })
}

/// Returns the dependent steps in order, and the independent ones sorted.
fn sorted(course: &Course) -> (Vec<&Step>, Vec<&Step>) {
    let is_independent = |step: &&Step| INDEPENDENT.contains(&step.action);
    let (mut independent, dependent): (Vec<_>, Vec<_>) =
        course.steps.iter().partition(is_independent);
    independent.sort();
    (dependent, independent)
}
