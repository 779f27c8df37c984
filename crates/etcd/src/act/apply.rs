//! What should exist as described: services, certificates, the disruption budget.

use std::collections::BTreeMap;

use evenkeel::{Error, Outcome};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use super::built;
use super::write::Hand;
use crate::build::{self, service, tls};
use crate::certificates::{self, Pair};
use crate::facts::Object;
use crate::observe::secrets::{is_authority, is_good, pair};
use crate::observe::{Found, Owner, owner};
use crate::plan::Apply;

/// Has an object be as it should.
pub(super) async fn apply(hand: &Hand<'_>, found: &Found, what: Apply) -> Result<Outcome, Error> {
    let wanted = &found.wanted;
    match what {
        Apply::Budget { min, .. } => {
            hand.apply(&build::budget(wanted, min).map_err(built)?, found.budget.as_ref()).await
        }
        Apply::Object(Object::PeerService) => {
            hand.apply(&service::peer(wanted).map_err(built)?, found.peer_service.as_ref()).await
        }
        Apply::Object(Object::ClientService) => {
            let wanted_one = service::client(wanted).map_err(built)?;
            // What it was created with is not let go by applying something else.
            if let Some((there, without)) = found
                .client_service
                .as_ref()
                .and_then(|there| Some((there, service::stale(&there.metadata, &wanted_one.metadata)?)))
            {
                return hand.patch(there, json!({ "metadata": { "annotations": without } })).await;
            }
            hand.apply(&wanted_one, found.client_service.as_ref()).await
        }
        Apply::Object(Object::Budget | Object::Identity) => Ok(Outcome::Overtaken),
        Apply::Object(object) => {
            let outcome = secret(hand, found, object).await?;
            hand.operator.secrets.forget(hand.key);
            Ok(outcome)
        }
    }
}

/// A certificate is made where there is none that is good; one that is good and was an earlier resource's is taken over.
async fn secret(hand: &Hand<'_>, found: &Found, object: Object) -> Result<Outcome, Error> {
    let wanted = &found.wanted;
    let name = tls::secret_name(wanted, object).unwrap_or_default();
    let there: Option<Secret> = hand.read(&name).await?;
    let authority = match tls::leaf(wanted, object) {
        None => None,
        Some(leaf) => match authority(hand, found, leaf.signed_by).await? {
            Some(authority) => Some((leaf, authority)),
            // Its authority comes first, and the rest at the next look.
            None => return Ok(Outcome::Overtaken),
        },
    };
    if let Some(there) = &there {
        if owner(wanted, &there.metadata) == Owner::NotOurs {
            return Ok(Outcome::Overtaken);
        }
        let good = match &authority {
            None => is_authority(there),
            Some((leaf, by)) => is_good(there, leaf, Some(&by.certificate), found.now),
        };
        if good {
            let owners = json!([build::owner(wanted)]);
            return hand.patch(there, json!({ "metadata": { "ownerReferences": owners } })).await;
        }
    }
    let (made, by) = match authority {
        None => {
            let made = certificates::authority(&format!("{name} of {}", wanted.namespace), found.now);
            let made = made.map_err(|why| Error::other(format!("make {name}"), why))?;
            let by = made.certificate.clone();
            (made, by)
        }
        Some((leaf, by)) => {
            let made = certificates::signed(&leaf, &by, found.now);
            (made.map_err(|why| Error::other(format!("make {name}"), why))?, by.certificate)
        }
    };
    let secret = object_of(found, &name, &made, &by, there.as_ref())?;
    if there.is_some() { hand.replace(&secret).await } else { hand.create(&secret).await }
}

async fn authority(hand: &Hand<'_>, found: &Found, object: Object) -> Result<Option<Pair>, Error> {
    let name = tls::secret_name(&found.wanted, object).unwrap_or_default();
    let secret: Option<Secret> = hand.read(&name).await?;
    let ours = secret.filter(|secret| owner(&found.wanted, &secret.metadata) != Owner::NotOurs);
    Ok(ours.as_ref().filter(|secret| is_authority(secret)).and_then(pair))
}

fn object_of(
    found: &Found,
    name: &str,
    made: &Pair,
    authority: &str,
    there: Option<&Secret>,
) -> Result<Secret, Error> {
    let wanted = &found.wanted;
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": wanted.namespace,
            "labels": build::common_labels(wanted),
            "ownerReferences": [build::owner(wanted)],
            "resourceVersion": there.and_then(|there| there.metadata.resource_version.clone()),
        },
    });
    let mut secret: Secret = build::typed("a secret", object).map_err(built)?;
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
