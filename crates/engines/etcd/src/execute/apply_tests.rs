//! Certificates are made, renewed and taken over, and authorities are kept.

use evenkeel_runtime::Action;
use http::Method;
use serde_json::Value;

use super::super::tests::done;
use super::*;
use crate::facts::OwnedObject;
use crate::fake::not_found;
use crate::identity::Uid;
use crate::testing::{NOW, Scene, change, secrets};

type Secrets = BTreeMap<OwnedObject, Secret>;

fn good() -> Secrets {
    secrets(&Scene::converged(3).observed.desired, NOW)
}

/// Has one object be as it should in a world with these Secrets: what came of it, and what was written.
async fn applied(object: OwnedObject, there: Secrets) -> (Outcome, Vec<(Method, Secret)>) {
    let answer = move |method: &Method, path: &str, body: &Value| {
        let named = |secret: &&Secret| secret.metadata.name.as_deref() == path.rsplit('/').next();
        match there.values().find(named) {
            Some(secret) if *method == Method::GET => (200, serde_json::to_value(secret).unwrap()),
            None if *method == Method::GET => not_found(),
            _ => (200, body.clone()),
        }
    };
    let (outcome, asked) = done(
        Scene::converged(3),
        Action::Apply(&EtcdApply::Object(object)),
        answer,
    )
    .await;
    let written = asked
        .into_iter()
        .filter(|(method, ..)| *method != Method::GET);
    let written = written.map(|(method, _, body)| (method, serde_json::from_value(body).unwrap()));
    (outcome.unwrap(), written.collect())
}

/// The judgement of the next look, with what was written.
fn is_good_now(mut all: Secrets, object: OwnedObject, written: &Secret) -> bool {
    let desired = Scene::converged(3).observed.desired;
    all.insert(object, written.clone());
    match tls::leaf(&desired, object) {
        None => is_ca(written),
        Some(leaf) => {
            let by = key_pair(&all[&leaf.signed_by]).unwrap().certificate;
            is_valid(written, &leaf, Some(&by), NOW)
        }
    }
}

#[tokio::test]
async fn what_is_missing_is_created_and_is_good() {
    for object in tls::SECRETS {
        let mut all = good();
        all.remove(&object);
        let (outcome, written) = applied(object, all.clone()).await;
        let [(method, secret)] = written.as_slice() else {
            panic!("{object:?}: {written:?}")
        };
        assert_eq!(
            (outcome, method),
            (Outcome::Done, &Method::POST),
            "{object:?}"
        );
        assert!(is_good_now(all, object, secret), "{object:?}");
        assert_eq!(
            ownership(&Scene::converged(3).observed.desired, &secret.metadata),
            Ownership::ThisResource
        );
    }
}

#[tokio::test]
async fn nothing_is_signed_without_an_authority_that_can() {
    let mut without = good();
    without.remove(&OwnedObject::ClientCa);
    let mut torn = good();
    let key = torn[&OwnedObject::PeerCa].data.as_ref().unwrap()["tls.key"].clone();
    torn.get_mut(&OwnedObject::ClientCa)
        .unwrap()
        .data
        .as_mut()
        .unwrap()
        .insert("tls.key".to_owned(), key);
    let mut theirs = good();
    change(
        theirs.get_mut(&OwnedObject::ClientCa).unwrap(),
        json!({ "metadata": { "labels": null } }),
    );
    for mut all in [without, torn, theirs] {
        all.remove(&OwnedObject::ServerTls);
        let (outcome, written) = applied(OwnedObject::ServerTls, all).await;
        assert_eq!((outcome, written.len()), (Outcome::Conflict, 0));
    }
}

#[tokio::test]
async fn an_authority_that_can_sign_is_never_replaced() {
    let mut all = good();
    let earlier = json!([{ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "name": "orders",
        "uid": Uid(9).to_string(), "controller": true }]);
    change(
        all.get_mut(&OwnedObject::PeerCa).unwrap(),
        json!({ "metadata": { "ownerReferences": earlier } }),
    );
    let (outcome, written) = applied(OwnedObject::PeerCa, all).await;
    let [(method, patch)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(
        (outcome, method),
        (Outcome::Done, &Method::PATCH),
        "only whose it is"
    );
    assert!(patch.data.is_none(), "its certificate and key stay");
    assert_eq!(patch.metadata.resource_version.as_deref(), Some("50"));
}

#[tokio::test]
async fn a_certificate_that_is_due_is_replaced_where_it_was_found() {
    let desired = Scene::converged(3).observed.desired;
    let long_ago = evenkeel_runtime::UnixTime(NOW.0 - 300 * 24 * 3600);
    let all = secrets(&desired, long_ago);
    let (outcome, written) = applied(OwnedObject::OperatorTls, all.clone()).await;
    let [(method, secret)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!((outcome, method), (Outcome::Done, &Method::PUT));
    assert_eq!(
        secret.metadata.resource_version.as_deref(),
        Some("50"),
        "unless somebody else was quicker"
    );
    assert!(is_good_now(all, OwnedObject::OperatorTls, secret));
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_never_touched() {
    for object in [OwnedObject::PeerCa, OwnedObject::ServerTls] {
        let mut all = good();
        change(
            all.get_mut(&object).unwrap(),
            json!({ "metadata": { "labels": null } }),
        );
        let (outcome, written) = applied(object, all).await;
        assert_eq!(
            (outcome, written.len()),
            (Outcome::Conflict, 0),
            "{object:?}"
        );
    }
}
