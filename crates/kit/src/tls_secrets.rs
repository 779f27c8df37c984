//! The TLS Secrets of a cluster: evaluating them, caching the result, and creating, renewing or adopting each. Secrets are
//! read by name, never listed or watched. The engine defines the list of Secrets; `K` identifies one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_runtime::{Error, ObjectWriter, Outcome, UnixTime};
use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::certificates::{self, KeyPair, Leaf};
use crate::objects::from_json;
use crate::ownership::{common_labels, owner_reference, ownership};
use crate::{ClusterRef, Ownership, Uid};

/// How long a result is reused after another object of the cluster changed: the observations of one reconcile share it.
const REUSE_AFTER_CHANGE: Duration = Duration::from_secs(5);
/// How soon the Secrets are evaluated again if another object changed after the last evaluation.
const RECHECK_AFTER_CHANGE: Duration = Duration::from_secs(6);

/// The difference between an observed object and the desired one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Drift {
    /// The object does not exist, or its content is unusable.
    Missing,
    /// The object exists and differs.
    Differs,
    /// Another owner has an object of that name.
    NotOwned,
}

/// One Secret of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSpec<K> {
    /// The engine's identifier of the Secret.
    pub key: K,
    /// The name of the Secret.
    pub name: String,
    /// The certificate in the Secret; `None` for a CA.
    pub leaf: Option<Leaf<K>>,
}

/// The TLS Secrets of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSpec<'a, K> {
    /// The cluster.
    pub cluster: ClusterRef<'a>,
    /// The Secrets, CAs first.
    pub secrets: Vec<SecretSpec<K>>,
    /// The Secret with which the operator connects to the application.
    pub operator_secret: K,
}

impl<K: Copy + Ord> TlsSpec<'_, K> {
    fn secret(&self, key: K) -> Option<&SecretSpec<K>> {
        self.secrets.iter().find(|secret| secret.key == key)
    }
}

/// The CA and the certificate with which the operator connects to the application.
#[derive(Clone, Debug)]
pub struct TlsCredentials {
    /// The CA of the servers' certificates, as PEM.
    pub ca: String,
    /// The operator's certificate.
    pub key_pair: KeyPair,
}

impl PartialEq for TlsCredentials {
    fn eq(&self, other: &Self) -> bool {
        self.ca == other.ca && self.key_pair.certificate == other.key_pair.certificate
    }
}

/// The result of an evaluation of a cluster's TLS Secrets.
#[derive(Clone, Debug)]
pub struct TlsState<K> {
    /// The Secrets that differ from the spec.
    pub drift: BTreeMap<K, Drift>,
    /// The expiry times of the certificates.
    pub expires_at: BTreeMap<K, UnixTime>,
    /// The operator's credentials, if its Secret holds any.
    pub credentials: Option<TlsCredentials>,
    /// The time when the Secrets must be evaluated again.
    pub recheck_at: Option<UnixTime>,
}

impl<K> Default for TlsState<K> {
    fn default() -> Self {
        Self {
            drift: BTreeMap::new(),
            expires_at: BTreeMap::new(),
            credentials: None,
            recheck_at: None,
        }
    }
}

/// The time of an observation and the fingerprint of the objects that it saw.
#[derive(Clone, Copy, Debug)]
pub struct ObservedAt {
    /// The wall clock.
    pub now: UnixTime,
    /// The monotonic clock.
    pub uptime: Duration,
    /// The fingerprint of the cluster's other objects, see [`crate::objects::fingerprint`].
    pub fingerprint: u64,
}

/// The last evaluation of one cluster's TLS Secrets.
#[derive(Debug)]
pub struct TlsCache<K> {
    last: Mutex<Option<Evaluation<K>>>,
}

impl<K> Default for TlsCache<K> {
    fn default() -> Self {
        Self {
            last: Mutex::new(None),
        }
    }
}

#[derive(Clone, Debug)]
struct Evaluation<K> {
    /// The uptime at which the Secrets were read.
    read_at: Duration,
    /// The resource that owned the Secrets: they are deleted with it.
    resource_uid: Uid,
    secrets: Vec<SecretSpec<K>>,
    fingerprint: u64,
    state: TlsState<K>,
}

impl<K: Copy + Ord> TlsCache<K> {
    /// Returns the state of the Secrets: the cached one if it is recent and shows no drift, else a new evaluation. A result
    /// is reused for `recheck_interval`, and only for a few seconds after another object of the cluster changed: the change
    /// may have affected the Secrets, which are not watched.
    pub async fn evaluate(
        &self,
        client: &Client,
        spec: &TlsSpec<'_, K>,
        at: ObservedAt,
        recheck_interval: Duration,
    ) -> Result<TlsState<K>, Error> {
        if let Some(state) = self.cached(spec, at, recheck_interval) {
            return Ok(state);
        }
        let state = TlsState {
            recheck_at: Some(at.now.after(recheck_interval)),
            ..evaluate(spec, &read(client, spec).await?, at.now)
        };
        *self.last.lock() = Some(Evaluation {
            read_at: at.uptime,
            resource_uid: spec.cluster.uid,
            secrets: spec.secrets.clone(),
            fingerprint: at.fingerprint,
            state: state.clone(),
        });
        Ok(state)
    }

    fn cached(
        &self,
        spec: &TlsSpec<'_, K>,
        at: ObservedAt,
        recheck_interval: Duration,
    ) -> Option<TlsState<K>> {
        let last = self.last.lock();
        let last = last.as_ref()?;
        let (reuse_for, recheck_after) = if last.fingerprint == at.fingerprint {
            (recheck_interval, recheck_interval)
        } else {
            (REUSE_AFTER_CHANGE, RECHECK_AFTER_CHANGE)
        };
        let age = at.uptime.saturating_sub(last.read_at);
        let is_current = age < reuse_for
            && last.state.drift.is_empty()
            && last.secrets == spec.secrets
            && last.resource_uid == spec.cluster.uid;
        is_current.then(|| TlsState {
            recheck_at: Some(at.now.after(recheck_after.saturating_sub(age))),
            ..last.state.clone()
        })
    }

    /// Drops the cached evaluation, because a Secret was written.
    pub fn forget(&self) {
        *self.last.lock() = None;
    }
}

async fn read<K: Copy + Ord>(
    client: &Client,
    spec: &TlsSpec<'_, K>,
) -> Result<BTreeMap<K, Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), spec.cluster.namespace);
    let secrets = spec.secrets.iter().map(|secret| {
        let api = api.clone();
        async move {
            let name = &secret.name;
            let object = api
                .get_opt(name)
                .await
                .map_err(Error::kubernetes(format!("read Secret {name}")))?;
            Ok::<_, Error>((secret.key, object))
        }
    });
    let secrets = try_join_all(secrets).await?;
    Ok(secrets
        .into_iter()
        .filter_map(|(key, object)| Some((key, object?)))
        .collect())
}

/// Evaluates the Secrets as they were read.
pub fn evaluate<K: Copy + Ord>(
    spec: &TlsSpec<'_, K>,
    secrets: &BTreeMap<K, Secret>,
    now: UnixTime,
) -> TlsState<K> {
    let mut state = TlsState::default();
    for secret in &spec.secrets {
        let drift = drift(spec.cluster, secret, secrets, now);
        state.drift.extend(drift.map(|drift| (secret.key, drift)));
        let info = secrets
            .get(&secret.key)
            .and_then(|object| certificates::parse(&text(object, "tls.crt")?));
        let expiry = info.map(|info| (secret.key, info.not_after));
        state.expires_at.extend(expiry);
    }
    // A certificate that is due for renewal is usable until it is renewed.
    if state.drift.get(&spec.operator_secret) != Some(&Drift::NotOwned) {
        state.credentials = secrets.get(&spec.operator_secret).and_then(|object| {
            Some(TlsCredentials {
                ca: text(object, "ca.crt")?,
                key_pair: key_pair(object)?,
            })
        });
    }
    state
}

fn drift<K: Copy + Ord>(
    cluster: ClusterRef<'_>,
    secret: &SecretSpec<K>,
    secrets: &BTreeMap<K, Secret>,
    now: UnixTime,
) -> Option<Drift> {
    let Some(object) = secrets.get(&secret.key) else {
        return Some(Drift::Missing);
    };
    let owner = ownership(cluster, &object.metadata);
    if owner == Ownership::Other {
        return Some(Drift::NotOwned);
    }
    let is_valid = match &secret.leaf {
        // A CA that can sign is kept, however old: replacing it at once would break every connection.
        None if !is_ca(object) => return Some(Drift::Missing),
        None => true,
        Some(leaf) => {
            let ca = secrets
                .get(&leaf.signed_by)
                .and_then(|ca| text(ca, "tls.crt"));
            is_valid(object, leaf, ca.as_deref(), now)
        }
    };
    (!is_valid || owner == Ownership::PreviousResource).then_some(Drift::Differs)
}

/// Returns true if a Secret holds the desired certificate, signed by the current CA.
pub fn is_valid<K>(secret: &Secret, leaf: &Leaf<K>, ca: Option<&str>, now: UnixTime) -> bool {
    key_pair(secret).is_some_and(|pair| {
        certificates::is_valid_leaf(leaf, &pair.certificate, now)
            && certificates::key_matches(&pair)
    }) && text(secret, "ca.crt").as_deref() == ca
}

/// Returns true if a Secret holds a CA that can sign.
pub fn is_ca(secret: &Secret) -> bool {
    key_pair(secret).is_some_and(|pair| certificates::key_matches(&pair))
}

/// Returns the certificate and the private key in a Secret.
pub fn key_pair(secret: &Secret) -> Option<KeyPair> {
    Some(KeyPair {
        certificate: text(secret, "tls.crt")?,
        key: text(secret, "tls.key")?,
    })
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

/// Brings one Secret to its desired state: a valid one of a deleted resource is adopted; a missing one is created; an
/// invalid one is replaced. A Secret of another owner is a conflict, and so is a missing CA: it is created first.
pub async fn apply<K: Copy + Ord>(
    writer: &ObjectWriter<'_>,
    spec: &TlsSpec<'_, K>,
    key: K,
    now: UnixTime,
) -> Result<Outcome, Error> {
    let Some(secret) = spec.secret(key) else {
        return Ok(Outcome::Conflict);
    };
    let observed: Option<Secret> = writer.read(&secret.name).await?;
    let signer = match &secret.leaf {
        None => None,
        Some(leaf) => match read_ca(writer, spec, leaf.signed_by).await? {
            Some(ca) => Some((leaf, ca)),
            None => return Ok(Outcome::Conflict),
        },
    };
    if let Some(observed) = &observed {
        if ownership(spec.cluster, &observed.metadata) == Ownership::Other {
            return Ok(Outcome::Conflict);
        }
        let is_valid = match &signer {
            None => is_ca(observed),
            Some((leaf, ca)) => is_valid(observed, leaf, Some(&ca.certificate), now),
        };
        if is_valid {
            let owners = json!([owner_reference(spec.cluster)]);
            let adoption = json!({ "metadata": { "ownerReferences": owners } });
            return writer.patch(observed, adoption).await;
        }
    }
    let generated = match &signer {
        None => {
            let subject = format!("{} of {}", secret.name, spec.cluster.namespace);
            certificates::generate_ca(&subject, now)
        }
        Some((leaf, ca)) => certificates::sign_leaf(leaf, ca, now),
    };
    let pair =
        generated.map_err(|error| Error::other(format!("generate {}", secret.name), error))?;
    let ca = signer.map_or_else(|| pair.certificate.clone(), |(_, ca)| ca.certificate);
    let object = build(spec.cluster, &secret.name, &pair, &ca, observed.as_ref())?;
    if observed.is_some() {
        writer.replace(&object).await
    } else {
        writer.create(&object).await
    }
}

async fn read_ca<K: Copy + Ord>(
    writer: &ObjectWriter<'_>,
    spec: &TlsSpec<'_, K>,
    key: K,
) -> Result<Option<KeyPair>, Error> {
    let Some(secret) = spec.secret(key) else {
        return Ok(None);
    };
    let object: Option<Secret> = writer.read(&secret.name).await?;
    Ok(object
        .as_ref()
        .filter(|object| ownership(spec.cluster, &object.metadata) != Ownership::Other)
        .filter(|object| is_ca(object))
        .and_then(key_pair))
}

/// Returns a TLS Secret. It has the resourceVersion of the observed one, so that a replacement conflicts with other writes.
pub fn build(
    cluster: ClusterRef<'_>,
    name: &str,
    pair: &KeyPair,
    ca: &str,
    observed: Option<&Secret>,
) -> Result<Secret, Error> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": common_labels(cluster),
            "ownerReferences": [owner_reference(cluster)],
            "resourceVersion": observed.and_then(|secret| secret.metadata.resource_version.clone()),
        },
    });
    let mut secret: Secret = from_json("Secret", object)?;
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    secret.data = Some(BTreeMap::from([
        ("ca.crt".to_owned(), bytes(ca)),
        ("tls.crt".to_owned(), bytes(&pair.certificate)),
        ("tls.key".to_owned(), bytes(&pair.key)),
    ]));
    Ok(secret)
}

#[cfg(test)]
#[path = "tls_secrets_tests.rs"]
mod tests;
