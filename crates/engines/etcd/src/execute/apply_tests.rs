//! TLS Secrets of a cluster are created and replaced with the list of Secrets of this engine. The kit tests each case.

use std::collections::BTreeMap;

use evenkeel_kit::testing::not_found;
use evenkeel_runtime::Action;
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use super::super::tests::executed;
use super::*;
use crate::observe::secrets::evaluate;
use crate::testing::{NOW, Scene, change, secrets};

type Secrets = BTreeMap<OwnedObject, Secret>;

fn valid_secrets() -> Secrets {
    secrets(&Scene::converged(3).observed.desired, NOW)
}

/// Applies one Secret in a namespace with these Secrets; returns the outcome and the writes.
async fn applied(object: OwnedObject, secrets: Secrets) -> (Outcome, Vec<(Method, Secret)>) {
    let answer = move |method: &Method, path: &str, body: &Value| {
        let is_named =
            |secret: &&Secret| secret.metadata.name.as_deref() == path.rsplit('/').next();
        match secrets.values().find(is_named) {
            Some(secret) if *method == Method::GET => (200, serde_json::to_value(secret).unwrap()),
            None if *method == Method::GET => not_found(),
            _ => (200, body.clone()),
        }
    };
    let apply = EtcdApply::Object(object);
    let (outcome, requests) = executed(Scene::converged(3), Action::Apply(&apply), answer).await;
    let writes = requests
        .into_iter()
        .filter(|(method, ..)| *method != Method::GET)
        .map(|(method, _, body)| (method, serde_json::from_value(body).unwrap()));
    (outcome.unwrap(), writes.collect())
}

#[tokio::test]
async fn every_missing_secret_is_created_and_is_valid() {
    let desired = Scene::converged(3).observed.desired;
    for object in tls::SECRETS {
        let mut secrets = valid_secrets();
        secrets.remove(&object);
        let (outcome, writes) = applied(object, secrets.clone()).await;
        let [(method, secret)] = writes.as_slice() else {
            panic!("{object:?}: {writes:?}")
        };
        assert_eq!((outcome, method), (Outcome::Done, &Method::POST));
        secrets.insert(object, secret.clone());
        let drift = evaluate(&desired, &secrets, NOW).drift;
        assert!(!drift.contains_key(&object), "{object:?}: {drift:?}");
    }
}

#[tokio::test]
async fn a_foreign_secret_is_never_written() {
    for object in tls::SECRETS {
        let mut secrets = valid_secrets();
        let secret = secrets.get_mut(&object).unwrap();
        change(secret, json!({ "metadata": { "labels": null } }));
        let (outcome, writes) = applied(object, secrets).await;
        assert_eq!((outcome, writes.len()), (Outcome::Conflict, 0));
    }
}
