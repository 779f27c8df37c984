//! Rejected writes and rejected specs in the status.

use evenkeel_api::conditions::ConditionType::Degraded;
use evenkeel_api::{Rejection, RejectionEffect};
use evenkeel_runtime::Error;
use serde_json::json;

use super::{observe_error_status, status};
use crate::effective_spec::{ClusterHistory, effective_spec};
use crate::plan::EtcdWait;
use crate::testing::{NOW, Scene, condition, pod_uid};

#[test]
fn a_rejected_write_is_reported_after_an_outage_only() {
    let error = Error::other("create the pod", "exceeded quota: none");
    let mut scene = Scene::converged(3);
    let status_of =
        |scene: &Scene| status(&scene.observed, &scene.facts(), &scene.plan(), Some(&error));
    let status = status_of(&scene);
    assert_eq!(condition(&status, Degraded).1, "WriteRejected");
    assert!(
        condition(&status, Degraded)
            .2
            .contains("exceeded quota: none"),
        "{status:?}"
    );
    assert!(
        status
            .waiting_for
            .last()
            .unwrap()
            .contains("exceeded quota")
    );
    scene.lose_quorum(&[0, 1]);
    assert_eq!(condition(&status_of(&scene), Degraded).1, "QuorumLost");
    // The rejected pod is the cause of the outage.
    scene.observed.pods.remove(&pod_uid(0));
    let status = status_of(&scene);
    assert_eq!(
        (condition(&status, Degraded).1, &*status.summary),
        ("WriteRejected", "Quorum lost: 1 of 3 voters responds")
    );
    assert!(
        status.waiting_for[0].contains("exceeded quota"),
        "{status:?}"
    );
}

#[test]
fn a_rejected_spec_is_reported_beside_the_other_conditions() {
    let mut scene = Scene::converged(3);
    let rejection = || Rejection::new("spec.version", "3.9.9 is not known");
    scene.observed.rejection = Some(rejection());
    let status = scene.status();
    assert_eq!(status.summary, "Healthy, but spec.version is invalid");
    let degraded = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Degraded")
        .unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", "InvalidSpec")
    );
    assert_eq!(
        degraded.message,
        "spec.version is invalid: 3.9.9 is not known. The last accepted value stays in effect. Correct spec.version."
    );
    assert_eq!(
        status.waiting_for,
        ["a valid spec.version: 3.9.9 is not known"]
    );
    assert!(
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    );
    let progressing = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")
        .unwrap();
    assert_eq!(
        progressing.reason, "Waiting",
        "the effective spec differs from the desired one"
    );
}

#[test]
fn a_spec_that_was_never_accepted_is_reported_as_not_created() {
    let resource = crate::testing::resource(json!({ "version": "3.9.9" }));
    let rejection = effective_spec(&resource, &ClusterHistory::default()).unwrap_err();
    let status = observe_error_status(&resource, NOW, &Error::invalid_spec(rejection));
    let (_, reason, message) = condition(&status, Degraded);
    assert_eq!(reason, "InvalidSpec");
    assert!(
        message.starts_with("spec.version is invalid: ")
            && message.ends_with(" The cluster is not created until the field is corrected."),
        "{message}"
    );
}

#[test]
fn edits_wait_for_valid_windows_if_none_were_accepted() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "resources": { "requests": { "cpu": "1" } } }));
    scene.observed.desired.windows = None;
    let effect = RejectionEffect::DelaysDisruptions;
    let rejection = Rejection::new("spec.maintenance.windows", "the time zone does not exist");
    scene.observed.rejection = Some(Rejection {
        effect,
        ..rejection
    });
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert_eq!(plan.waits, [EtcdWait::InvalidWindows]);
    let message = condition(&scene.status(), Degraded).2.to_owned();
    assert!(
        message
            .contains(" Edits that restart or replace members wait until the field is corrected."),
        "{message}"
    );
}
