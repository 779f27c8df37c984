//! Every write carries preconditions, and an object that has changed meanwhile is not written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_kit::testing::{client, failure, not_found};
use evenkeel_runtime::{Reconciler, TestClock, TestRandom};
use http::Method;
use parking_lot::Mutex;

use super::*;
use crate::plan::IdentityChange;
use crate::reconciler::EtcdReconciler;
use crate::testing::{NOW, Scene, claim_uid, empty_caches, name, pod_uid};

type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// Executes an action on a scene; returns the outcome and the requests to the API.
pub(super) async fn executed(
    scene: Scene,
    action: Action<'_, Etcd>,
    answer: impl Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync + 'static,
) -> (Result<Outcome, Error>, Vec<(Method, String, Value)>) {
    let requests = Requests::default();
    let recorded = requests.clone();
    let client = client(move |request, body| {
        let (method, path) = (request.method.clone(), request.uri.path().to_owned());
        let answer = answer(&method, &path, body);
        recorded.lock().push((method, path, body.clone()));
        answer
    });
    let reconciler = EtcdReconciler::new(
        client,
        empty_caches(),
        Duration::ZERO,
        TestClock::new(NOW).shared(),
        TestRandom::shared(1),
    );
    let observation = scene.observation();
    let outcome = reconciler.execute(&observation, &action, &|| true).await;
    let requests = requests.lock().clone();
    (outcome, requests)
}

/// Answers as an API that accepts every write and has the PVCs of the scene.
fn accepts_all(method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let claims = Scene::converged(3).observed.claims;
    let claim = claims
        .values()
        .find(|claim| path.ends_with(&format!("claims/{}", claim.name_any())));
    match claim {
        Some(claim) if *method == Method::GET => (200, serde_json::to_value(claim).unwrap()),
        _ if *method == Method::GET => not_found(),
        _ if *method == Method::DELETE => (200, json!({ "kind": "Status", "status": "Success" })),
        _ => {
            let name = path.split('/').nth(6).unwrap_or("new");
            let mut body = body.clone();
            body["metadata"]["name"] = json!(name);
            body["metadata"]["resourceVersion"] = json!("99");
            // A status patch has no spec, which the kind may require.
            (200, json!({ "metadata": body["metadata"] }))
        }
    }
}

fn patches() -> Vec<EtcdPatch> {
    let (pod, claim) = (pod_uid(1), claim_uid(1));
    vec![
        EtcdPatch::SetStartMode {
            pod,
            from: StartMode::Held,
            to: StartMode::Join([Serial(0), Serial(1)].into()),
        },
        EtcdPatch::RecordJoinedVolume {
            claim,
            volume: Uid::of_name("pv-1"),
        },
        EtcdPatch::MarkJoined {
            pod,
            from: StartMode::ExistingData,
        },
        EtcdPatch::AttachClients { pod },
        EtcdPatch::SetOwner {
            target: OwnerTarget::Identity,
            owned: true,
        },
        EtcdPatch::SetOwner {
            target: OwnerTarget::Claim(claim),
            owned: false,
        },
        EtcdPatch::SetOwner {
            target: OwnerTarget::Pod(pod),
            owned: true,
        },
    ]
}

fn deletions() -> [EtcdDisruption; 2] {
    let (serial, why) = (Serial(1), DeleteReason::MemberRemoved);
    [
        EtcdDisruption::DeletePod {
            pod: pod_uid(1),
            serial,
            why,
        },
        EtcdDisruption::DeleteClaim {
            claim: claim_uid(1),
            serial,
            why,
        },
    ]
}

#[tokio::test]
async fn every_patch_has_uid_and_resource_version_preconditions() {
    for patch in patches() {
        let (outcome, requests) =
            executed(Scene::converged(3), Action::Patch(&patch), accepts_all).await;
        assert_eq!(outcome.unwrap(), Outcome::Done, "{patch:?}");
        let [(method, path, body)] = requests.as_slice() else {
            panic!("expected one write: {requests:?}")
        };
        assert_eq!(method, Method::PATCH);
        let metadata = &body["metadata"];
        assert!(
            metadata["uid"].is_string() && metadata["resourceVersion"].is_string(),
            "{path}: {body}"
        );
    }
}

#[tokio::test]
async fn every_deletion_has_uid_and_resource_version_preconditions() {
    for disruption in deletions() {
        let (outcome, requests) = executed(
            Scene::converged(3),
            Action::Disruption(&disruption),
            accepts_all,
        )
        .await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
        let [(method, _, body)] = requests.as_slice() else {
            panic!("{requests:?}")
        };
        assert_eq!(method, Method::DELETE);
        let preconditions = &body["preconditions"];
        assert!(
            preconditions["uid"].is_string() && preconditions["resourceVersion"].is_string(),
            "{body}"
        );
    }
}

#[tokio::test]
async fn an_outdated_idle_pod_is_deleted_and_a_running_one_is_evicted() {
    let delete = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Outdated,
    };
    let mut scene = Scene::converged(3);
    scene.lose_image(1, 90);
    let (_, requests) = executed(scene, Action::Disruption(&delete), accepts_all).await;
    let [(method, _, body)] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert_eq!(method, Method::DELETE);
    assert!(
        body["preconditions"]["resourceVersion"].is_string(),
        "a pod that has started meanwhile is kept: {body}"
    );
    let (_, requests) = executed(
        Scene::converged(3),
        Action::Disruption(&delete),
        accepts_all,
    )
    .await;
    let [(method, path, _)] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert!(
        *method == Method::POST && path.ends_with("/eviction"),
        "{method} {path}"
    );
}

#[tokio::test]
async fn start_mode_and_readiness_gate_are_one_write() {
    let patch = EtcdPatch::MarkJoined {
        pod: pod_uid(1),
        from: StartMode::Join(BTreeSet::new()),
    };
    let (_, requests) = executed(Scene::converged(3), Action::Patch(&patch), accepts_all).await;
    let (_, path, body) = &requests[0];
    assert!(
        path.ends_with(&format!("/pods/{}/status", name(1))),
        "{path}"
    );
    assert_eq!(
        body["metadata"]["annotations"][labels::INITIAL_CLUSTER_STATE],
        "existing"
    );
    let list = body["metadata"]["annotations"][labels::INITIAL_CLUSTER]
        .as_str()
        .unwrap();
    assert!(
        list.starts_with(&name(1)) && !list.contains(','),
        "only itself: {list}"
    );
    assert_eq!(body["status"]["conditions"][0]["type"], labels::GATE_JOINED);
}

#[tokio::test]
async fn an_object_that_changed_meanwhile_is_left_alone() {
    let conflict =
        |_: &Method, _: &str, _: &Value| failure(409, "Conflict", "it has been modified");
    for patch in patches() {
        let (outcome, _) = executed(Scene::converged(3), Action::Patch(&patch), conflict).await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict, "{patch:?}");
    }
    for disruption in deletions() {
        let (outcome, _) = executed(
            Scene::converged(3),
            Action::Disruption(&disruption),
            conflict,
        )
        .await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict, "{disruption:?}");
        let (outcome, requests) = executed(
            Scene::nothing(json!({})),
            Action::Disruption(&disruption),
            conflict,
        )
        .await;
        assert_eq!(
            (outcome.unwrap(), requests.len()),
            (Outcome::Conflict, 0),
            "the object was not observed"
        );
    }
    let other = EtcdPatch::RecordJoinedVolume {
        claim: claim_uid(1),
        volume: Uid::of_name("pv-other"),
    };
    let (outcome, requests) =
        executed(Scene::converged(3), Action::Patch(&other), accepts_all).await;
    assert_eq!(
        (outcome.unwrap(), requests.len()),
        (Outcome::Conflict, 0),
        "another volume than was decided on"
    );
}

#[tokio::test]
async fn an_identity_is_replaced_only_by_compare_and_swap() {
    let from = Scene::converged(3).observed.identity.unwrap().1;
    let to = Identity {
        next_serial: Serial(9),
        ..from.clone()
    };
    let disruption = EtcdDisruption::UpdateIdentity {
        from: from.clone(),
        to: to.clone(),
        why: IdentityChange::SettleIntent,
    };
    let (outcome, requests) = executed(
        Scene::converged(3),
        Action::Disruption(&disruption),
        accepts_all,
    )
    .await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    let (method, path, body) = &requests[0];
    assert_eq!(
        (method, path.as_str()),
        (
            &Method::PUT,
            "/api/v1/namespaces/shop/configmaps/orders-etcd-identity"
        )
    );
    assert_eq!(body["metadata"]["resourceVersion"], "20");
    let written: Identity =
        serde_json::from_str(body["data"]["identity"].as_str().unwrap()).unwrap();
    assert_eq!(written, to);

    let disruption = EtcdDisruption::UpdateIdentity {
        from: to.clone(),
        to: from,
        why: IdentityChange::SettleIntent,
    };
    let (outcome, requests) = executed(
        Scene::converged(3),
        Action::Disruption(&disruption),
        accepts_all,
    )
    .await;
    assert_eq!(
        (outcome.unwrap(), requests.len()),
        (Outcome::Conflict, 0),
        "the identity has changed"
    );
}

#[tokio::test]
async fn a_pod_is_created_only_on_the_claim_it_was_decided_on() {
    let create = |on| EtcdCreate::Pod {
        serial: Serial(1),
        epoch: Epoch::FIRST,
        claim: on,
        start_mode: StartMode::ExistingData,
        template_hash: Uid(0),
    };
    let (outcome, requests) = executed(
        Scene::converged(3),
        Action::Create(&create(Some(claim_uid(1)))),
        accepts_all,
    )
    .await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    assert_eq!(
        requests
            .iter()
            .map(|(method, ..)| method)
            .collect::<Vec<_>>(),
        [Method::GET, Method::POST]
    );
    for on in [Some(Uid(9)), None] {
        let (outcome, requests) = executed(
            Scene::converged(3),
            Action::Create(&create(on)),
            accepts_all,
        )
        .await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict);
        assert!(
            requests.iter().all(|(method, ..)| *method == Method::GET),
            "nothing was created: {requests:?}"
        );
    }
}

#[tokio::test]
async fn a_rejected_write_names_the_object() {
    let rejects =
        |_: &Method, _: &str, _: &Value| failure(403, "Forbidden", "exceeded quota: pods=10");
    let patch = EtcdPatch::AttachClients { pod: pod_uid(1) };
    let (outcome, _) = executed(Scene::converged(3), Action::Patch(&patch), rejects).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(&name(1)), "{error}");
    assert!(error.contains("exceeded quota: pods=10"), "{error}");
}

/// Answers as an API that has this pod already and accepts patches.
fn has_pod(
    existing: &Value,
) -> impl Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync + 'static {
    let existing = existing.clone();
    move |method, path, body| match *method {
        Method::POST => failure(409, "AlreadyExists", "the pod exists"),
        Method::GET if path.ends_with("/pods") => {
            (200, json!({ "metadata": {}, "items": [existing] }))
        }
        _ => accepts_all(method, path, body),
    }
}

#[tokio::test]
async fn a_removed_cluster_label_is_restored_on_our_own_pod_only() {
    let mut scene = Scene::converged(3);
    let ours = scene.observed.pods.remove(&pod_uid(1)).unwrap();
    let ours = serde_json::to_value(ours).unwrap();
    let labelled = |with: Value| {
        let mut pod = ours.clone();
        pod["metadata"]["labels"][labels::CLUSTER] = with;
        pod
    };
    let mut other = labelled(json!("another"));
    other["metadata"]["annotations"][labels::LINEAGE] = json!("00000001");
    let all = [
        (labelled(json!("another")), true),
        (ours.clone(), false),
        (other, false),
    ];
    for (existing, is_relabelled) in all {
        let mut scene = Scene::converged(3);
        scene.observed.pods.remove(&pod_uid(1));
        let create = scene.plan().create.remove(0);
        let (outcome, requests) =
            executed(scene, Action::Create(&create), has_pod(&existing)).await;
        assert_eq!(
            outcome.unwrap(),
            if is_relabelled {
                Outcome::Done
            } else {
                Outcome::Conflict
            },
            "{existing}"
        );
        let patched = requests
            .iter()
            .find(|(method, ..)| *method == Method::PATCH);
        let label = patched.map(|(_, _, body)| &body["metadata"]["labels"][labels::CLUSTER]);
        assert_eq!(
            label,
            is_relabelled.then_some(&json!("orders")),
            "{requests:?}"
        );
    }
}
