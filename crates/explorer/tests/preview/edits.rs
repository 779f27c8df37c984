//! Edits of the spec of a converged cluster, with the real objects besides the model, so that versions, sizes, Services,
//! Secrets and maintenance windows are compared as well.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::preview::preview;
use evenkeel_etcd::status;
use evenkeel_runtime::{Engine, UnixTime};
use serde_json::{Value, json};

use crate::comparison::{compare, course_of, resource};
use crate::objects::{KubeObjects, model_of};
use crate::run::ModelRun;

/// Friday, 08:00 UTC.
const START_TIME: UnixTime = UnixTime(1_800_000_000);

/// Returns the specs before and after each edit.
fn edits() -> Vec<(Value, Value)> {
    let ephemeral = |fields: Value| merged(fields, &json!({ "storage": { "ephemeral": true } }));
    let resources = || json!({ "resources": { "requests": { "cpu": "500m" } } });
    let no_retention = || json!({ "storage": { "keepRemovedFor": "0" } });
    // Opens in two minutes.
    let window = json!({ "maintenance": { "windows": [{ "start": "08:02", "duration": "3h" }] } });
    vec![
        (json!({}), json!({})),
        (json!({}), json!({ "members": 5 })),
        (json!({}), json!({ "members": 1 })),
        (
            no_retention(),
            merged(no_retention(), &json!({ "members": 1 })),
        ),
        (json!({}), json!({ "version": "3.6.17" })),
        (json!({}), json!({ "version": "3.7.3" })),
        (json!({}), json!({ "paused": true, "members": 5 })),
        (json!({}), resources()),
        (json!({}), merged(resources(), &window)),
        (json!({}), json!({ "storage": { "size": "8Gi" } })),
        (
            json!({ "storage": { "class": "slow" } }),
            json!({ "storage": { "class": "fast" } }),
        ),
        (json!({}), json!({ "storage": { "onDelete": "Delete" } })),
        (json!({}), json!({ "service": { "type": "NodePort" } })),
        (
            json!({}),
            json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }),
        ),
        (ephemeral(json!({})), ephemeral(json!({ "members": 1 }))),
        (ephemeral(json!({})), ephemeral(resources())),
    ]
}

fn merged(mut fields: Value, others: &Value) -> Value {
    let others = others.as_object().unwrap().clone();
    fields.as_object_mut().unwrap().extend(others);
    fields
}

/// Returns a cluster that has converged to this spec.
fn converged(spec: &Value) -> ModelRun {
    let resource = resource(spec);
    let model = model_of(&resource, START_TIME);
    let kube = KubeObjects::new(resource, START_TIME);
    let mut run = ModelRun::new(model, Some(kube));
    let course = run.finish(&run.observed().unwrap()).unwrap();
    assert!(!course.steps.is_empty() && course.waits_for.is_empty());
    let (observed, facts) = (run.observed().unwrap(), run.facts().unwrap());
    let status = status::status(&observed, &facts, &Etcd::decide(&facts), None);
    run.kube.as_mut().unwrap().resource.status = Some(status);
    run
}

#[test]
fn previews_of_edits_match_the_model_with_real_objects() {
    for (before, after) in edits() {
        let mut run = converged(&before);
        let kube = run.kube.as_mut().unwrap();
        let status = kube.resource.status.take();
        kube.resource = resource(&after);
        kube.resource.status = status;
        // Until the cluster has converged, the resource may own data that an edit asks to keep, and the reverse.
        run.model.owns_data = true;
        let (observed, facts) = (run.observed().unwrap(), run.facts().unwrap());
        let predicted = course_of(preview(&observed, facts, None));
        let difference = compare(predicted, run.finish(&observed));
        assert!(
            difference.is_none(),
            "from {before} to {after}:\n{}",
            difference.unwrap_or_default()
        );
    }
}
