//! The evaluation of the list of TLS Secrets. The kit tests the evaluation of a single Secret and
//! the cache.

use evenkeel_kit::tls_secrets::key_pair;
use serde_json::json;

use super::*;
use crate::build::tls::SECRETS;
use crate::facts::Drift;
use crate::testing::{NOW, desired, secrets};

#[test]
fn valid_secrets_have_no_drift_and_yield_the_operators_credentials() {
    let desired = desired(json!({}));
    let secrets = secrets(&desired, NOW);
    let state = evaluate(&desired, &secrets, NOW);
    assert_eq!(state.drift, BTreeMap::new());
    let operator = key_pair(&secrets[&OwnedObject::OperatorTls]).unwrap();
    let credentials = state.credentials.unwrap();
    assert_eq!(credentials.key_pair.certificate, operator.certificate);
    let client_ca = key_pair(&secrets[&OwnedObject::ClientCa]).unwrap();
    assert_eq!(credentials.ca, client_ca.certificate);
}

#[test]
fn every_missing_secret_is_reported_with_the_certificates_that_it_signed() {
    let desired = desired(json!({}));
    for object in SECRETS {
        let mut secrets = secrets(&desired, NOW);
        secrets.remove(&object);
        let drift = evaluate(&desired, &secrets, NOW).drift;
        assert_eq!(drift.get(&object), Some(&Drift::Missing), "{object:?}");
        let signed = SECRETS
            .iter()
            .filter(|other| other.signed_by() == Some(object));
        assert_eq!(drift.len(), 1 + signed.count(), "{object:?}: {drift:?}");
    }
}

#[test]
fn additional_names_in_the_spec_renew_the_server_certificate() {
    let secrets = secrets(&desired(json!({})), NOW);
    let renamed = desired(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    assert_eq!(
        evaluate(&renamed, &secrets, NOW).drift,
        BTreeMap::from([(OwnedObject::ServerTls, Drift::Differs)])
    );
}
