//! The state of a cluster's TLS Secrets, as the kit evaluates them.

use std::collections::BTreeMap;

use evenkeel_kit::tls_secrets;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::Secret;

use crate::build::tls;
use crate::client::TlsCredentials;
use crate::desired::DesiredCluster;
use crate::facts::{Drift, OwnedObject};

pub use evenkeel_kit::tls_secrets::{is_ca, is_valid, key_pair};

/// The state of a cluster's TLS Secrets.
#[derive(Clone, Debug, Default)]
pub struct TlsState {
    /// The Secrets that differ from the desired ones.
    pub drift: BTreeMap<OwnedObject, Drift>,
    /// The expiry times of the certificates.
    pub ends: BTreeMap<OwnedObject, UnixTime>,
    /// The operator's credentials, if its Secret holds any.
    pub credentials: Option<TlsCredentials>,
    /// The time when the Secrets must be evaluated again.
    pub recheck_at: Option<UnixTime>,
}

impl From<tls_secrets::TlsState<OwnedObject>> for TlsState {
    fn from(state: tls_secrets::TlsState<OwnedObject>) -> Self {
        let drift = state.drift.into_iter();
        Self {
            drift: drift
                .map(|(object, drift)| (object, drift.into()))
                .collect(),
            ends: state.expires_at,
            credentials: state.credentials,
            recheck_at: state.recheck_at,
        }
    }
}

/// Evaluates Secrets as they were read.
pub fn evaluate(
    desired: &DesiredCluster,
    secrets: &BTreeMap<OwnedObject, Secret>,
    now: UnixTime,
) -> TlsState {
    tls_secrets::evaluate(&tls::spec(desired), secrets, now).into()
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
