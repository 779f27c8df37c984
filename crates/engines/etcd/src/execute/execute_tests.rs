//! Writes are pinned to what they were decided on, and whatever has changed meanwhile is left alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_runtime::{CacheSync, OwnedCache, TestClock, TestRandom};
use http::Method;
use kube::runtime::reflector;

use super::*;
use crate::fake::{client, failure, not_found};
use crate::observe::objects::Caches;
use crate::plan::{DeleteReason, IdentityChange};
use crate::testing::{NOW, Scene, claim_uid, name, pod_uid};

type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

fn stores() -> Caches {
    Caches {
        clusters: reflector::store().0,
        pods: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        claims: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        identities: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        services: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        budgets: OwnedCache::new(reflector::store().0, labels::CLUSTER),
        nodes: reflector::store().0,
        sync: CacheSync::default(),
    }
}

/// Has an action carried out over a scene; what came of it, and what Kubernetes was asked for.
pub(super) async fn done(
    scene: Scene,
    action: Action<'_, Etcd>,
    answer: impl Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync + 'static,
) -> (Result<Outcome, Error>, Vec<(Method, String, Value)>) {
    let asked = Requests::default();
    let noted = asked.clone();
    let client = client(move |request, body| {
        let (method, path) = (request.method.clone(), request.uri.path().to_owned());
        let answer = answer(&method, &path, body);
        noted.lock().unwrap().push((method, path, body.clone()));
        answer
    });
    let operator = EtcdReconciler::new(
        client,
        stores(),
        Duration::ZERO,
        TestClock::new(NOW).shared(),
        TestRandom::shared(1),
    );
    let observation = scene.observation();
    let outcome = execute(&operator, &observation, &action, &|| true).await;
    let asked = asked.lock().unwrap().clone();
    (outcome, asked)
}

/// An API that takes everything, and has the claims of the scene.
fn takes_all(method: &Method, path: &str, body: &Value) -> (u16, Value) {
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
            // A patch of a status has no spec, which an object of its kind may need.
            (200, json!({ "metadata": body["metadata"] }))
        }
    }
}

fn marks() -> Vec<EtcdPatch> {
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
async fn every_mark_is_pinned_to_the_object_it_was_decided_on() {
    for mark in marks() {
        let (outcome, asked) = done(Scene::converged(3), Action::Patch(&mark), takes_all).await;
        assert_eq!(outcome.unwrap(), Outcome::Done, "{mark:?}");
        let [(method, path, body)] = asked.as_slice() else {
            panic!("one write: {asked:?}")
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
async fn every_deletion_is_pinned_to_the_object_it_was_decided_on() {
    for step in deletions() {
        let (outcome, asked) =
            done(Scene::converged(3), Action::Disruption(&step), takes_all).await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
        let [(method, _, body)] = asked.as_slice() else {
            panic!("{asked:?}")
        };
        assert_eq!(method, Method::DELETE);
        let exactly = &body["preconditions"];
        assert!(
            exactly["uid"].is_string() && exactly["resourceVersion"].is_string(),
            "{body}"
        );
    }
}

#[tokio::test]
async fn an_outdated_pod_that_does_not_run_is_deleted_and_one_that_runs_asks_the_budgets() {
    let anew = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Outdated,
    };
    let mut scene = Scene::converged(3);
    scene.lacks_its_image(1, 90);
    let (_, asked) = done(scene, Action::Disruption(&anew), takes_all).await;
    let [(method, _, body)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(method, Method::DELETE);
    assert!(
        body["preconditions"]["resourceVersion"].is_string(),
        "not if it has come up meanwhile: {body}"
    );
    let (_, asked) = done(Scene::converged(3), Action::Disruption(&anew), takes_all).await;
    let [(method, path, _)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert!(
        *method == Method::POST && path.ends_with("/eviction"),
        "{method} {path}"
    );
}

#[tokio::test]
async fn how_a_pod_starts_and_its_gate_are_one_write() {
    let turn = EtcdPatch::MarkJoined {
        pod: pod_uid(1),
        from: StartMode::Join(BTreeSet::new()),
    };
    let (_, asked) = done(Scene::converged(3), Action::Patch(&turn), takes_all).await;
    let (_, path, body) = &asked[0];
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
        "itself alone: {list}"
    );
    assert_eq!(body["status"]["conditions"][0]["type"], labels::GATE_JOINED);
}

#[tokio::test]
async fn whatever_has_changed_meanwhile_is_left_alone() {
    let conflict =
        |_: &Method, _: &str, _: &Value| failure(409, "Conflict", "it has been modified");
    for mark in marks() {
        let (outcome, _) = done(Scene::converged(3), Action::Patch(&mark), conflict).await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict, "{mark:?}");
    }
    for step in deletions() {
        let (outcome, _) = done(Scene::converged(3), Action::Disruption(&step), conflict).await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict, "{step:?}");
        let (outcome, asked) = done(
            Scene::nothing(json!({})),
            Action::Disruption(&step),
            conflict,
        )
        .await;
        assert_eq!(
            (outcome.unwrap(), asked.len()),
            (Outcome::Conflict, 0),
            "it was not even found"
        );
    }
    let other = EtcdPatch::RecordJoinedVolume {
        claim: claim_uid(1),
        volume: Uid::of_name("pv-other"),
    };
    let (outcome, asked) = done(Scene::converged(3), Action::Patch(&other), takes_all).await;
    assert_eq!(
        (outcome.unwrap(), asked.len()),
        (Outcome::Conflict, 0),
        "another volume than was decided on"
    );
}

#[tokio::test]
async fn an_identity_is_swapped_only_for_the_one_it_was_decided_on() {
    let from = Scene::converged(3).observed.identity.unwrap().1;
    let to = Identity {
        next_serial: Serial(9),
        ..from.clone()
    };
    let step = EtcdDisruption::UpdateIdentity {
        from: from.clone(),
        to: to.clone(),
        why: IdentityChange::SettleIntent,
    };
    let (outcome, asked) = done(Scene::converged(3), Action::Disruption(&step), takes_all).await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    let (method, path, body) = &asked[0];
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

    let step = EtcdDisruption::UpdateIdentity {
        from: to.clone(),
        to: from,
        why: IdentityChange::SettleIntent,
    };
    let (outcome, asked) = done(Scene::converged(3), Action::Disruption(&step), takes_all).await;
    assert_eq!(
        (outcome.unwrap(), asked.len()),
        (Outcome::Conflict, 0),
        "it is something else by now"
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
    let (outcome, asked) = done(
        Scene::converged(3),
        Action::Create(&create(Some(claim_uid(1)))),
        takes_all,
    )
    .await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    assert_eq!(
        asked.iter().map(|(method, ..)| method).collect::<Vec<_>>(),
        [Method::GET, Method::POST]
    );
    for on in [Some(Uid(9)), None] {
        let (outcome, asked) =
            done(Scene::converged(3), Action::Create(&create(on)), takes_all).await;
        assert_eq!(outcome.unwrap(), Outcome::Conflict);
        assert!(
            asked.iter().all(|(method, ..)| *method == Method::GET),
            "nothing was created: {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_names_what_was_refused() {
    let refuses =
        |_: &Method, _: &str, _: &Value| failure(403, "Forbidden", "exceeded quota: pods=10");
    let route = EtcdPatch::AttachClients { pod: pod_uid(1) };
    let (outcome, _) = done(Scene::converged(3), Action::Patch(&route), refuses).await;
    let said = outcome.unwrap_err().to_string();
    assert_eq!(
        said,
        format!("cannot change the Pod {}: exceeded quota: pods=10", name(1))
    );
}

/// An API that has this pod already, and takes changes.
fn has_it(there: &Value) -> impl Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync + 'static {
    let there = there.clone();
    move |method, path, body| match *method {
        Method::POST => failure(409, "AlreadyExists", "it is there"),
        Method::GET if path.ends_with("/pods") => {
            (200, json!({ "metadata": {}, "items": [there] }))
        }
        _ => takes_all(method, path, body),
    }
}

#[tokio::test]
async fn a_pod_that_somebody_took_the_label_off_gets_it_back_and_one_of_somebody_elses_does_not() {
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
    for (there, taken) in all {
        let mut scene = Scene::converged(3);
        scene.observed.pods.remove(&pod_uid(1));
        let create = scene.plan().create.remove(0);
        let (outcome, asked) = done(scene, Action::Create(&create), has_it(&there)).await;
        assert_eq!(
            outcome.unwrap(),
            if taken {
                Outcome::Done
            } else {
                Outcome::Conflict
            },
            "{there}"
        );
        let patched = asked.iter().find(|(method, ..)| *method == Method::PATCH);
        let label = patched.map(|(_, _, body)| &body["metadata"]["labels"][labels::CLUSTER]);
        assert_eq!(label, taken.then_some(&json!("orders")), "{asked:?}");
    }
}
