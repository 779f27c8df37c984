//! The certificates in a cluster's Secrets, judged. Secrets are read by name, never listed or watched, and remembered for a
//! while; of what is in them only the operator's own certificate is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_runtime::{Error, ResourceKey, UnixTime};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::etcd::TlsCredentials;
use super::{Ownership, ownership};
use crate::build::tls::{self, Leaf, SECRETS};
use crate::certificates::{self, KeyPair};
use crate::desired::DesiredCluster;
use crate::facts::{Drift, OwnedObject};
use crate::identity::Uid;

/// What is known of a cluster's Secrets.
#[derive(Clone, Debug, Default)]
pub struct TlsState {
    /// Those that are not as they should be.
    pub drift: BTreeMap<OwnedObject, Drift>,
    /// Until when the certificates in them are good.
    pub ends: BTreeMap<OwnedObject, UnixTime>,
    /// The operator's own certificate, if it is good.
    pub credentials: Option<TlsCredentials>,
    /// When they must be looked at again: shortly, if something else has changed since they were read.
    pub recheck_at: Option<UnixTime>,
}

#[derive(Clone, Debug)]
struct Remembered {
    read: Duration,
    /// Whose they were: with a resource that is deleted and created again its Secrets go.
    resource: Uid,
    leaves: Vec<Option<Leaf>>,
    /// What all else was like.
    print: u64,
    judged: TlsState,
}

/// What is remembered of all clusters' Secrets.
#[derive(Debug)]
pub struct TlsSecrets {
    /// How long it is remembered that all is well.
    interval: Duration,
    remembered: Mutex<HashMap<ResourceKey, Remembered>>,
}

/// How long it is remembered that all is well, when something else has changed meanwhile: the looks of one go are enough.
const BRIEFLY: Duration = Duration::from_secs(5);
/// How soon they are looked at again that were looked at just before something else changed.
const AGAIN: Duration = Duration::from_secs(6);

impl TlsSecrets {
    /// Read again after so long, should nothing else give reason to.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            remembered: Mutex::default(),
        }
    }

    /// How the Secrets are: as remembered if that is recent and nothing was amiss, else as they are read now. When anything
    /// else has changed, which `print` shows, what is remembered counts for a moment only: whoever changed that may have
    /// touched the Secrets, too, which nobody watches.
    pub async fn judge(
        &self,
        client: &Client,
        key: &ResourceKey,
        desired: &DesiredCluster,
        (now, uptime): (UnixTime, Duration),
        print: u64,
    ) -> Result<TlsState, Error> {
        let leaves: Vec<_> = SECRETS
            .iter()
            .map(|object| tls::leaf(desired, *object))
            .collect();
        let recent = |remembered: &&Remembered| {
            let long = if remembered.print == print {
                self.interval
            } else {
                BRIEFLY
            };
            uptime.saturating_sub(remembered.read) < long
                && remembered.judged.drift.is_empty()
                && remembered.leaves == leaves
                && remembered.resource == desired.uid
        };
        if let Some(remembered) = self.lock().get(key).filter(recent) {
            let long = if remembered.print == print {
                self.interval
            } else {
                AGAIN
            };
            let left = long.saturating_sub(uptime.saturating_sub(remembered.read));
            return Ok(TlsState {
                recheck_at: Some(now.after(left)),
                ..remembered.judged.clone()
            });
        }
        let judged = judge(desired, &read(client, desired).await?, now);
        let judged = TlsState {
            recheck_at: Some(now.after(self.interval)),
            ..judged
        };
        let remembered = Remembered {
            read: uptime,
            resource: desired.uid,
            leaves,
            print,
            judged: judged.clone(),
        };
        self.lock().insert(key.clone(), remembered);
        Ok(judged)
    }

    /// What was remembered of a cluster is forgotten.
    pub fn forget(&self, key: &ResourceKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ResourceKey, Remembered>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(
    client: &Client,
    desired: &DesiredCluster,
) -> Result<BTreeMap<OwnedObject, Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &desired.namespace);
    let secrets = SECRETS.iter().map(|object| {
        let api = api.clone();
        async move {
            let name = tls::secret_name(desired, *object).unwrap_or_default();
            let secret = api
                .get_opt(&name)
                .await
                .map_err(Error::kubernetes(format!("read the secret {name}")))?;
            Ok::<_, Error>((*object, secret))
        }
    });
    let secrets = try_join_all(secrets).await?;
    Ok(secrets
        .into_iter()
        .filter_map(|(object, secret)| Some((object, secret?)))
        .collect())
}

/// How these Secrets are.
pub fn judge(
    desired: &DesiredCluster,
    secrets: &BTreeMap<OwnedObject, Secret>,
    now: UnixTime,
) -> TlsState {
    let mut judged = TlsState::default();
    for object in SECRETS {
        if let Some(amiss) = look_at(desired, secrets, object, now) {
            judged.drift.insert(object, amiss);
        }
        let said = secrets
            .get(&object)
            .and_then(|secret| certificates::parse(&text(secret, "tls.crt")?));
        judged.ends.extend(said.map(|said| (object, said.ends)));
    }
    // One that is due to be renewed opens doors until it is.
    if judged.drift.get(&OwnedObject::OperatorTls) != Some(&Drift::NotOwned) {
        judged.credentials = secrets.get(&OwnedObject::OperatorTls).and_then(|secret| {
            Some(TlsCredentials {
                ca: text(secret, "ca.crt")?,
                key_pair: key_pair(secret)?,
            })
        });
    }
    judged
}

fn look_at(
    desired: &DesiredCluster,
    secrets: &BTreeMap<OwnedObject, Secret>,
    object: OwnedObject,
    now: UnixTime,
) -> Option<Drift> {
    let Some(secret) = secrets.get(&object) else {
        return Some(Drift::Missing);
    };
    let owner = ownership(desired, &secret.metadata);
    if owner == Ownership::Other {
        return Some(Drift::NotOwned);
    }
    let good = match tls::leaf(desired, object) {
        // An authority is never replaced at a stroke: one that can sign is kept, however old.
        None if !is_ca(secret) => return Some(Drift::Missing),
        None => true,
        Some(leaf) => {
            let authority = secrets
                .get(&leaf.signed_by)
                .and_then(|ca| text(ca, "tls.crt"));
            is_valid(secret, &leaf, authority.as_deref(), now)
        }
    };
    (!good || owner == Ownership::PreviousResource).then_some(Drift::Differs)
}

/// Whether a Secret holds a certificate as it should be, of the authority that is in force.
pub fn is_valid(secret: &Secret, leaf: &Leaf, authority: Option<&str>, now: UnixTime) -> bool {
    key_pair(secret).is_some_and(|pair| {
        certificates::is_valid_leaf(leaf, &pair.certificate, now)
            && certificates::key_matches(&pair)
    }) && text(secret, "ca.crt").as_deref() == authority
}

/// Whether a Secret holds an authority that can sign.
pub fn is_ca(secret: &Secret) -> bool {
    key_pair(secret).is_some_and(|pair| certificates::key_matches(&pair))
}

/// The certificate and key in a Secret.
pub fn key_pair(secret: &Secret) -> Option<KeyPair> {
    Some(KeyPair {
        certificate: text(secret, "tls.crt")?,
        key: text(secret, "tls.key")?,
    })
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
