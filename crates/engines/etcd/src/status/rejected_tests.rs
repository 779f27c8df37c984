//! What is refused, as it is told.

use evenkeel_api::Rejection as Refusal;
use evenkeel_api::conditions::ConditionType::Degraded;
use evenkeel_runtime::Error;

use super::status;
use crate::testing::{Scene, condition, pod_uid};

#[test]
fn what_kubernetes_refuses_is_said_in_the_status_unless_clients_are_not_served() {
    let refused = Error::other("create the pod", "exceeded quota: none");
    let mut scene = Scene::converged(3);
    let told = |scene: &Scene| {
        status(
            &scene.observed,
            &scene.facts(),
            &scene.plan(),
            Some(&refused),
        )
    };
    let said = told(&scene);
    assert_eq!(condition(&said, Degraded).1, "WriteRefused");
    assert!(
        condition(&said, Degraded)
            .2
            .contains("exceeded quota: none"),
        "{said:?}"
    );
    assert!(said.waiting_for.last().unwrap().contains("exceeded quota"));
    scene.loses_its_quorum(&[0, 1]);
    assert_eq!(condition(&told(&scene), Degraded).1, "QuorumLost");
    // That is why they are not.
    scene.observed.pods.remove(&pod_uid(0));
    let said = told(&scene);
    assert_eq!(
        (condition(&said, Degraded).1, &*said.phrase),
        ("WriteRefused", "No quorum: 1 of 3 answer")
    );
    assert!(said.waiting_for[0].contains("exceeded quota"), "{said:?}");
}

#[test]
fn a_spec_that_is_refused_is_told_and_what_else_is_so_as_well() {
    let mut scene = Scene::converged(3);
    let refusal = || Refusal {
        field: "spec.version",
        reason: "3.9.9 is not known".to_owned(),
    };
    scene.observed.rejection = Some(refusal());
    let status = scene.status();
    assert_eq!(status.phrase, "Healthy, but spec.version is refused");
    let degraded = status
        .conditions
        .iter()
        .find(|one| one.type_ == "Degraded")
        .unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", "SpecRefused")
    );
    assert!(
        degraded.message.contains("3.9.9 is not known"),
        "{}",
        degraded.message
    );
    assert!(
        degraded.message.contains("stays in force"),
        "{}",
        degraded.message
    );
    assert!(
        status
            .conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    );
    let progressing = status
        .conditions
        .iter()
        .find(|one| one.type_ == "Progressing")
        .unwrap();
    assert_eq!(progressing.reason, "Waiting", "not all is as the spec says");
}
