//! Edits of the spec of a converged cluster, with the real objects beside the model.

use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::facts::StorageKind;
use evenkeel_etcd::preview::preview;
use evenkeel_etcd::status;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_runtime::{Engine, UnixTime};
use evenkeel_etcd::Etcd;
use serde_json::{Value, json};

use crate::comparison::{compare, resource, course_of};
use crate::objects::KubeObjects;
use crate::run::ModelRun;

/// A Friday morning, outside the maintenance windows of the edits.
const START_TIME: UnixTime = UnixTime(1_800_000_000);

/// Returns a cluster that has converged to this spec.
fn converged(spec: &Value) -> ModelRun {
    let resource = resource(spec);
    let storage = if resource.spec.storage.ephemeral { StorageKind::Ephemeral } else { StorageKind::Persistent };
    let desired = DesiredCluster::of(&resource).unwrap().facts(START_TIME);
    let model = ClusterModel::new(desired.members, storage, desired.max_learners, FaultBudget::NONE);
    let kube = KubeObjects::new(resource, START_TIME);
    let mut run = ModelRun::new(model, Some(kube));
    run.finish(&run.observed().unwrap()).unwrap();
    let (observed, facts) = (run.observed().unwrap(), run.facts().unwrap());
    let status = status::status(&observed, &facts, &Etcd::decide(&facts), None);
    run.kube.as_mut().unwrap().resource.status = Some(status);
    run
}

#[test]
fn previews_of_edits_match_the_model() {
    let edits = [
        (json!({}), json!({})),
        (json!({}), json!({ "members": 5 })),
        (json!({}), json!({ "members": 1 })),
        (json!({ "storage": { "keepRemovedFor": "0" } }), json!({ "members": 1, "storage": { "keepRemovedFor": "0" } })),
        (json!({}), json!({ "version": "3.6.17" })),
        (json!({}), json!({ "version": "3.7.3" })),
        (json!({}), json!({ "paused": true, "members": 5 })),
        (json!({}), json!({ "resources": { "requests": { "cpu": "500m" } } })),
        (json!({}), json!({ "storage": { "size": "8Gi" } })),
        (json!({ "storage": { "class": "slow" } }), json!({ "storage": { "class": "fast" } })),
        (json!({}), json!({ "storage": { "onDelete": "Delete" } })),
        (json!({}), json!({ "service": { "type": "NodePort" } })),
        (json!({}), json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } })),
        (json!({}), json!({ "resources": { "requests": { "cpu": "500m" } },
            "maintenance": { "windows": [{ "start": "08:02", "duration": "3h" }] } })),
        (json!({ "storage": { "ephemeral": true } }), json!({ "storage": { "ephemeral": true }, "version": "3.6.17" })),
        (json!({ "storage": { "ephemeral": true } }), json!({ "storage": { "ephemeral": true }, "members": 1 })),
    ];
    for (base, edit) in edits {
        let began = std::time::Instant::now();
        let mut run = converged(&base);
        let kube = run.kube.as_mut().unwrap();
        let status = kube.resource.status.take();
        kube.resource = resource(&edit);
        kube.resource.status = status;
        let (observed, facts) = (run.observed().unwrap(), run.facts().unwrap());
        let preview = course_of(preview(&observed, facts, None));
        let difference = compare(preview, run.finish(&observed));
        println!("##### {edit}, {:?} {}", began.elapsed(), difference.unwrap_or_default());
    }
}
