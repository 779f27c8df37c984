//! The state of a cluster's TLS Secrets, as the kit evaluates them.

use std::collections::BTreeMap;

use evenkeel_kit::tls_secrets;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::Secret;

use crate::build::tls;
use crate::desired::DesiredCluster;
use crate::facts::OwnedObject;

/// The state of a cluster's TLS Secrets.
pub type TlsState = tls_secrets::TlsState<OwnedObject>;

/// Evaluates Secrets as they were read.
pub fn evaluate(
    desired: &DesiredCluster,
    secrets: &BTreeMap<OwnedObject, Secret>,
    now: UnixTime,
) -> TlsState {
    tls_secrets::evaluate(&tls::spec(desired), secrets, now)
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
