//! The certificates in a cluster's Secrets, judged. Secrets are read by name, never listed or watched, and remembered for a
//! while; of what is in them only the operator's own certificate is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel::{Error, Key, Time};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::ask::Access;
use super::{Owner, owner};
use crate::build::tls::{self, Leaf, SECRETS};
use crate::certificates::{self, Pair};
use crate::facts::{Amiss, Object};
use crate::identity::Uid;
use crate::wanted::Wanted;

/// What is known of a cluster's Secrets.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Those that are not as they should be.
    pub amiss: BTreeMap<Object, Amiss>,
    /// Until when the certificates in them are good.
    pub ends: BTreeMap<Object, Time>,
    /// The operator's own certificate, if it is good.
    pub access: Option<Access>,
    /// When they must be looked at again: shortly, if something else has changed since they were read.
    pub again: Option<Time>,
}

#[derive(Clone, Debug)]
struct Remembered {
    read: Duration,
    /// Whose they were: with a resource that is deleted and created again its Secrets go.
    resource: Uid,
    leaves: Vec<Option<Leaf>>,
    /// What all else was like.
    print: u64,
    judged: Judged,
}

/// What is remembered of all clusters' Secrets.
#[derive(Debug)]
pub struct Secrets {
    /// How long it is remembered that all is well.
    interval: Duration,
    remembered: Mutex<HashMap<Key, Remembered>>,
}

/// How long it is remembered that all is well, when something else has changed meanwhile: the looks of one go are enough.
const BRIEFLY: Duration = Duration::from_secs(5);
/// How soon they are looked at again that were looked at just before something else changed.
const AGAIN: Duration = Duration::from_secs(6);

impl Secrets {
    /// Read again after so long, should nothing else give reason to.
    pub fn every(interval: Duration) -> Self {
        Self { interval, remembered: Mutex::default() }
    }

    /// How the Secrets are: as remembered if that is recent and nothing was amiss, else as they are read now. When anything
    /// else has changed, which `print` shows, what is remembered counts for a moment only: whoever changed that may have
    /// touched the Secrets, too, which nobody watches.
    pub async fn judge(
        &self,
        client: &Client,
        key: &Key,
        wanted: &Wanted,
        (now, uptime): (Time, Duration),
        print: u64,
    ) -> Result<Judged, Error> {
        let leaves: Vec<_> = SECRETS.iter().map(|object| tls::leaf(wanted, *object)).collect();
        let recent = |remembered: &&Remembered| {
            let long = if remembered.print == print { self.interval } else { BRIEFLY };
            uptime.saturating_sub(remembered.read) < long
                && remembered.judged.amiss.is_empty()
                && remembered.leaves == leaves
                && remembered.resource == wanted.uid
        };
        if let Some(remembered) = self.lock().get(key).filter(recent) {
            let long = if remembered.print == print { self.interval } else { AGAIN };
            let left = long.saturating_sub(uptime.saturating_sub(remembered.read));
            return Ok(Judged { again: Some(now.after(left)), ..remembered.judged.clone() });
        }
        let judged = judge(wanted, &read(client, wanted).await?, now);
        let judged = Judged { again: Some(now.after(self.interval)), ..judged };
        let remembered =
            Remembered { read: uptime, resource: wanted.uid, leaves, print, judged: judged.clone() };
        self.lock().insert(key.clone(), remembered);
        Ok(judged)
    }

    /// What was remembered of a cluster is forgotten.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(client: &Client, wanted: &Wanted) -> Result<BTreeMap<Object, Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &wanted.namespace);
    let secrets = SECRETS.iter().map(|object| {
        let api = api.clone();
        async move {
            let name = tls::secret_name(wanted, *object).unwrap_or_default();
            let secret =
                api.get_opt(&name).await.map_err(Error::kubernetes(format!("read the secret {name}")))?;
            Ok::<_, Error>((*object, secret))
        }
    });
    let secrets = try_join_all(secrets).await?;
    Ok(secrets.into_iter().filter_map(|(object, secret)| Some((object, secret?))).collect())
}

/// How these Secrets are.
pub fn judge(wanted: &Wanted, secrets: &BTreeMap<Object, Secret>, now: Time) -> Judged {
    let mut judged = Judged::default();
    for object in SECRETS {
        if let Some(amiss) = look_at(wanted, secrets, object, now) {
            judged.amiss.insert(object, amiss);
        }
        let said = secrets.get(&object).and_then(|secret| certificates::read(&text(secret, "tls.crt")?));
        judged.ends.extend(said.map(|said| (object, said.ends)));
    }
    // One that is due to be renewed opens doors until it is.
    if judged.amiss.get(&Object::OperatorTls) != Some(&Amiss::NotOurs) {
        judged.access = secrets
            .get(&Object::OperatorTls)
            .and_then(|secret| Some(Access { authority: text(secret, "ca.crt")?, pair: pair(secret)? }));
    }
    judged
}

fn look_at(wanted: &Wanted, secrets: &BTreeMap<Object, Secret>, object: Object, now: Time) -> Option<Amiss> {
    let Some(secret) = secrets.get(&object) else { return Some(Amiss::Missing) };
    let owner = owner(wanted, &secret.metadata);
    if owner == Owner::NotOurs {
        return Some(Amiss::NotOurs);
    }
    let good = match tls::leaf(wanted, object) {
        // An authority is never replaced at a stroke: one that can sign is kept, however old.
        None if !is_authority(secret) => return Some(Amiss::Missing),
        None => true,
        Some(leaf) => {
            let authority = secrets.get(&leaf.signed_by).and_then(|ca| text(ca, "tls.crt"));
            is_good(secret, &leaf, authority.as_deref(), now)
        }
    };
    (!good || owner == Owner::Earlier).then_some(Amiss::Differs)
}

/// Whether a Secret holds a certificate as it should be, of the authority that is in force.
pub fn is_good(secret: &Secret, leaf: &Leaf, authority: Option<&str>, now: Time) -> bool {
    pair(secret).is_some_and(|pair| {
        certificates::is_good(leaf, &pair.certificate, now) && certificates::is_whole(&pair)
    }) && text(secret, "ca.crt").as_deref() == authority
}

/// Whether a Secret holds an authority that can sign.
pub fn is_authority(secret: &Secret) -> bool {
    pair(secret).is_some_and(|pair| certificates::is_whole(&pair))
}

/// The certificate and key in a Secret.
pub fn pair(secret: &Secret) -> Option<Pair> {
    Some(Pair { certificate: text(secret, "tls.crt")?, key: text(secret, "tls.key")? })
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
