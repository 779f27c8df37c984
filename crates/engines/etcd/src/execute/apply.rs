//! What should exist as described: services, certificates, the disruption budget.

use std::collections::BTreeMap;

use evenkeel_runtime::{Error, Outcome};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use super::build_error;
use super::writer::EtcdWriter;
use crate::build::{self, service, tls};
use crate::certificates::{self, KeyPair};
use crate::facts::OwnedObject;
use crate::observe::secrets::{is_ca, is_valid, key_pair};
use crate::observe::{ObservedCluster, Ownership, ownership};
use crate::plan::EtcdApply;

/// Has an object be as it should.
pub(super) async fn apply(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    what: EtcdApply,
) -> Result<Outcome, Error> {
    let desired = &observed.desired;
    match what {
        EtcdApply::PodDisruptionBudget { min, .. } => {
            writer
                .apply(
                    &build::pod_disruption_budget(desired, min).map_err(build_error)?,
                    observed.pdb.as_ref(),
                )
                .await
        }
        EtcdApply::Object(OwnedObject::PeerService) => {
            writer
                .apply(
                    &service::peer(desired).map_err(build_error)?,
                    observed.peer_service.as_ref(),
                )
                .await
        }
        EtcdApply::Object(OwnedObject::ClientService) => {
            let wanted_one = service::client(desired).map_err(build_error)?;
            // What it was created with is not let go by applying something else.
            if let Some((there, without)) = observed.client_service.as_ref().and_then(|there| {
                Some((
                    there,
                    service::stale_annotations(&there.metadata, &wanted_one.metadata)?,
                ))
            }) {
                return writer
                    .patch(there, json!({ "metadata": { "annotations": without } }))
                    .await;
            }
            writer
                .apply(&wanted_one, observed.client_service.as_ref())
                .await
        }
        EtcdApply::Object(OwnedObject::PodDisruptionBudget | OwnedObject::Identity) => {
            Ok(Outcome::Conflict)
        }
        EtcdApply::Object(object) => {
            let outcome = secret(writer, observed, object).await?;
            writer.reconciler.tls_secrets.forget(writer.key);
            Ok(outcome)
        }
    }
}

/// A certificate is made where there is none that is good; one that is good and was an earlier resource's is taken over.
async fn secret(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    object: OwnedObject,
) -> Result<Outcome, Error> {
    let desired = &observed.desired;
    let name = tls::secret_name(desired, object).unwrap_or_default();
    let there: Option<Secret> = writer.read(&name).await?;
    let authority = match tls::leaf(desired, object) {
        None => None,
        Some(leaf) => match authority(writer, observed, leaf.signed_by).await? {
            Some(authority) => Some((leaf, authority)),
            // Its authority comes first, and the rest at the next look.
            None => return Ok(Outcome::Conflict),
        },
    };
    if let Some(there) = &there {
        if ownership(desired, &there.metadata) == Ownership::Other {
            return Ok(Outcome::Conflict);
        }
        let good = match &authority {
            None => is_ca(there),
            Some((leaf, by)) => is_valid(there, leaf, Some(&by.certificate), observed.now),
        };
        if good {
            let owners = json!([build::owner_reference(desired)]);
            return writer
                .patch(there, json!({ "metadata": { "ownerReferences": owners } }))
                .await;
        }
    }
    let (made, by) = match authority {
        None => {
            let made = certificates::generate_ca(
                &format!("{name} of {}", desired.namespace),
                observed.now,
            );
            let made = made.map_err(|why| Error::other(format!("make {name}"), why))?;
            let by = made.certificate.clone();
            (made, by)
        }
        Some((leaf, by)) => {
            let made = certificates::sign_leaf(&leaf, &by, observed.now);
            (
                made.map_err(|why| Error::other(format!("make {name}"), why))?,
                by.certificate,
            )
        }
    };
    let secret = object_of(observed, &name, &made, &by, there.as_ref())?;
    if there.is_some() {
        writer.replace(&secret).await
    } else {
        writer.create(&secret).await
    }
}

async fn authority(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    object: OwnedObject,
) -> Result<Option<KeyPair>, Error> {
    let name = tls::secret_name(&observed.desired, object).unwrap_or_default();
    let secret: Option<Secret> = writer.read(&name).await?;
    let ours =
        secret.filter(|secret| ownership(&observed.desired, &secret.metadata) != Ownership::Other);
    Ok(ours
        .as_ref()
        .filter(|secret| is_ca(secret))
        .and_then(key_pair))
}

fn object_of(
    observed: &ObservedCluster,
    name: &str,
    made: &KeyPair,
    authority: &str,
    there: Option<&Secret>,
) -> Result<Secret, Error> {
    let desired = &observed.desired;
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": desired.namespace,
            "labels": build::common_labels(desired),
            "ownerReferences": [build::owner_reference(desired)],
            "resourceVersion": there.and_then(|there| there.metadata.resource_version.clone()),
        },
    });
    let mut secret: Secret = build::from_json("a secret", object).map_err(build_error)?;
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    secret.data = Some(BTreeMap::from([
        ("ca.crt".to_owned(), bytes(authority)),
        ("tls.crt".to_owned(), bytes(&made.certificate)),
        ("tls.key".to_owned(), bytes(&made.key)),
    ]));
    Ok(secret)
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
