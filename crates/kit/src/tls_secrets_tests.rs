//! TLS Secrets: evaluation, caching, and the writes that bring them to their desired state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_runtime::{Expectations, ResourceKey, TestClock};
use http::Method;
use serde_json::Value;

use super::*;
use crate::testing::{CLUSTER, ENGINE, change, client, failure, not_found};

type Secrets = BTreeMap<Key, Secret>;

const NOW: UnixTime = UnixTime(1_800_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Two CAs, a certificate of the first, and two of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    PeerCa,
    ClientCa,
    Peer,
    Server,
    Operator,
}

const ALL: [Key; 5] = [
    Key::PeerCa,
    Key::ClientCa,
    Key::Peer,
    Key::Server,
    Key::Operator,
];

fn spec(extra_name: Option<&str>) -> TlsSpec<'static, Key> {
    let leaf = |signed_by, names: &[&str]| {
        Some(Leaf {
            signed_by,
            common_name: "x",
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let mut server_names = vec!["orders.shop.svc"];
    server_names.extend(extra_name);
    let secrets = [
        (Key::PeerCa, None),
        (Key::ClientCa, None),
        (Key::Peer, leaf(Key::PeerCa, &["*.orders-peer.shop.svc"])),
        (Key::Server, leaf(Key::ClientCa, &server_names)),
        (Key::Operator, leaf(Key::ClientCa, &[])),
    ];
    let secret = |(key, leaf)| SecretSpec {
        key,
        name: format!("orders-{key:?}").to_lowercase(),
        leaf,
    };
    TlsSpec {
        cluster: CLUSTER,
        secrets: secrets.map(secret).into(),
        operator_secret: Key::Operator,
    }
}

/// Returns every Secret as it should be, generated at `at`.
fn valid_secrets(at: UnixTime) -> Secrets {
    let mut secrets = Secrets::new();
    for secret in spec(None).secrets {
        let (pair, ca) = match &secret.leaf {
            None => {
                let ca = certificates::generate_ca("ca", at).unwrap();
                (ca.clone(), ca.certificate)
            }
            Some(leaf) => {
                let ca = key_pair(&secrets[&leaf.signed_by]).unwrap();
                (
                    certificates::sign_leaf(leaf, &ca, at).unwrap(),
                    ca.certificate,
                )
            }
        };
        let mut object = build(CLUSTER, &secret.name, &pair, &ca, None).unwrap();
        change(
            &mut object,
            json!({ "metadata": { "uid": Uid(3).to_string(), "resourceVersion": "50" } }),
        );
        secrets.insert(secret.key, object);
    }
    secrets
}

fn write(secrets: &mut Secrets, key: Key, data_key: &str, text: &str) {
    let data = secrets.get_mut(&key).unwrap().data.as_mut().unwrap();
    data.insert(data_key.to_owned(), ByteString(text.as_bytes().to_vec()));
}

fn remove(secrets: &mut Secrets, key: Key, data_key: &str) {
    let data = secrets.get_mut(&key).unwrap().data.as_mut().unwrap();
    data.remove(data_key);
}

fn set_metadata(secrets: &mut Secrets, key: Key, metadata: Value) {
    change(
        secrets.get_mut(&key).unwrap(),
        json!({ "metadata": metadata }),
    );
}

fn previous_owner() -> Value {
    json!([{ "apiVersion": ENGINE.api_version, "kind": ENGINE.kind, "name": "orders", "uid": Uid(9).to_string(),
        "controller": true }])
}

fn drift_of(secrets: &Secrets, now: UnixTime) -> Vec<(Key, Drift)> {
    evaluate(&spec(None), secrets, now)
        .drift
        .into_iter()
        .collect()
}

#[test]
fn valid_secrets_have_no_drift_and_yield_the_operators_credentials() {
    let secrets = valid_secrets(NOW);
    let state = evaluate(&spec(None), &secrets, NOW);
    assert_eq!(state.drift, BTreeMap::new());
    let credentials = state.credentials.unwrap();
    assert_eq!(
        Some(credentials.ca),
        text(&secrets[&Key::ClientCa], "tls.crt")
    );
    assert_eq!(
        credentials.key_pair.certificate,
        key_pair(&secrets[&Key::Operator]).unwrap().certificate
    );
    assert_eq!(state.expires_at.len(), ALL.len());
}

#[test]
fn a_missing_ca_also_invalidates_the_certificates_that_it_signed() {
    assert_eq!(
        drift_of(&Secrets::new(), NOW),
        ALL.map(|key| (key, Drift::Missing))
    );
    for key in ALL {
        let mut secrets = valid_secrets(NOW);
        secrets.remove(&key);
        let drift = drift_of(&secrets, NOW);
        assert!(drift.contains(&(key, Drift::Missing)), "{key:?}: {drift:?}");
        let is_signed_by = |secret: &&SecretSpec<Key>| {
            secret
                .leaf
                .as_ref()
                .is_some_and(|leaf| leaf.signed_by == key)
        };
        let signed = spec(None).secrets.iter().filter(is_signed_by).count();
        assert_eq!(drift.len(), 1 + signed, "{key:?}: {drift:?}");
    }
}

#[test]
fn a_foreign_secret_is_reported_and_its_certificate_is_never_used() {
    let mut secrets = valid_secrets(NOW);
    set_metadata(
        &mut secrets,
        Key::Operator,
        json!({ "labels": null, "ownerReferences": null }),
    );
    let state = evaluate(&spec(None), &secrets, NOW);
    assert_eq!(
        state.drift,
        BTreeMap::from([(Key::Operator, Drift::NotOwned)])
    );
    assert!(state.credentials.is_none());
}

#[test]
fn a_secret_of_a_previous_resource_is_adopted_and_usable_meanwhile() {
    for owners in [json!(null), previous_owner()] {
        let mut secrets = valid_secrets(NOW);
        for key in [Key::ClientCa, Key::Operator] {
            set_metadata(&mut secrets, key, json!({ "ownerReferences": owners }));
        }
        let state = evaluate(&spec(None), &secrets, NOW);
        let adopted = [Key::ClientCa, Key::Operator].map(|key| (key, Drift::Differs));
        assert_eq!(state.drift, BTreeMap::from(adopted), "{owners}");
        assert!(state.credentials.is_some());
    }
}

#[test]
fn certificates_are_due_before_they_expire_and_cas_never_are() {
    let secrets = valid_secrets(NOW);
    assert_eq!(drift_of(&secrets, NOW.after(DAY * 243)), []);
    let due = evaluate(&spec(None), &secrets, NOW.after(DAY * 244));
    let leaves = [Key::Peer, Key::Server, Key::Operator].map(|key| (key, Drift::Differs));
    assert_eq!(due.drift, BTreeMap::from(leaves));
    assert!(due.credentials.is_some(), "due is not expired");
    assert_eq!(drift_of(&secrets, NOW.after(DAY * 366)), leaves);
    assert_eq!(drift_of(&secrets, NOW.after(DAY * 365 * 11)), leaves);
}

#[test]
fn a_certificate_of_another_ca_or_for_other_names_is_renewed() {
    let mut secrets = valid_secrets(NOW);
    secrets.insert(Key::Server, valid_secrets(NOW)[&Key::Server].clone());
    assert_eq!(drift_of(&secrets, NOW), [(Key::Server, Drift::Differs)]);
    let renamed = evaluate(&spec(Some("db.example")), &valid_secrets(NOW), NOW);
    assert_eq!(
        renamed.drift,
        BTreeMap::from([(Key::Server, Drift::Differs)])
    );
}

#[test]
fn an_unusable_ca_counts_as_missing() {
    for data_key in ["tls.crt", "tls.key"] {
        let mut secrets = valid_secrets(NOW);
        remove(&mut secrets, Key::PeerCa, data_key);
        let drift = drift_of(&secrets, NOW);
        assert!(
            drift.contains(&(Key::PeerCa, Drift::Missing)),
            "without {data_key}"
        );
    }
    let mut secrets = valid_secrets(NOW);
    let other_key = text(&secrets[&Key::ClientCa], "tls.key").unwrap();
    write(&mut secrets, Key::PeerCa, "tls.key", &other_key);
    assert_eq!(
        drift_of(&secrets, NOW),
        [(Key::PeerCa, Drift::Missing)],
        "the key of another CA"
    );
    let malformed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for certificate in ["", "garbage", malformed] {
        let mut secrets = valid_secrets(NOW);
        write(&mut secrets, Key::PeerCa, "tls.crt", certificate);
        let expected = [(Key::PeerCa, Drift::Missing), (Key::Peer, Drift::Differs)];
        assert_eq!(drift_of(&secrets, NOW), expected, "{certificate}");
    }
}

#[test]
fn an_unreadable_certificate_is_renewed_and_yields_no_credentials() {
    let mut secrets = valid_secrets(NOW);
    write(&mut secrets, Key::Peer, "tls.crt", "garbage");
    let other_key = text(&secrets[&Key::PeerCa], "tls.key").unwrap();
    write(&mut secrets, Key::Server, "tls.key", &other_key);
    remove(&mut secrets, Key::Operator, "tls.key");
    let state = evaluate(&spec(None), &secrets, NOW);
    let renewed = [Key::Peer, Key::Server, Key::Operator].map(|key| (key, Drift::Differs));
    assert_eq!(state.drift, BTreeMap::from(renewed));
    assert!(state.credentials.is_none());
}

/// A cache, an API with Secrets, and the number of requests so far.
struct CachedEvaluation {
    cache: TlsCache<Key>,
    client: Client,
    requests: Arc<AtomicUsize>,
}

impl CachedEvaluation {
    fn of(secrets: Secrets) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        let client = client(move |request, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            let path = request.uri.path();
            let is_named = |secret: &&Secret| {
                let name = secret.metadata.name.as_deref().unwrap_or_default();
                path == format!("/api/v1/namespaces/shop/secrets/{name}")
            };
            secrets
                .values()
                .find(is_named)
                .map_or_else(not_found, |secret| {
                    (200, serde_json::to_value(secret).unwrap())
                })
        });
        Self {
            cache: TlsCache::default(),
            client,
            requests,
        }
    }

    async fn state(
        &self,
        spec: &TlsSpec<'_, Key>,
        seconds: u64,
        fingerprint: u64,
    ) -> TlsState<Key> {
        let at = ObservedAt {
            now: NOW,
            uptime: Duration::from_secs(seconds),
            fingerprint,
        };
        let interval = Duration::from_secs(600);
        self.cache
            .evaluate(&self.client, spec, at, interval)
            .await
            .unwrap()
    }

    /// Evaluates after this uptime, and returns true if the Secrets were read for it.
    async fn reads(&self, spec: &TlsSpec<'_, Key>, seconds: u64, fingerprint: u64) -> bool {
        let before = self.requests.load(Ordering::Relaxed);
        self.state(spec, seconds, fingerprint).await;
        let requests = self.requests.load(Ordering::Relaxed) - before;
        assert!(requests == 0 || requests == ALL.len(), "each once, by name");
        requests > 0
    }
}

#[tokio::test]
async fn a_result_is_reused_for_the_interval_and_briefly_after_a_change() {
    let (spec, secrets) = (spec(None), CachedEvaluation::of(valid_secrets(NOW)));
    assert!(secrets.reads(&spec, 100, 1).await, "nothing is cached");
    assert!(!secrets.reads(&spec, 699, 1).await);
    assert!(secrets.reads(&spec, 700, 1).await, "after the interval");
    assert!(!secrets.reads(&spec, 704, 2).await, "the same reconcile");
    assert!(secrets.reads(&spec, 705, 2).await, "another object changed");
    assert!(
        !secrets.reads(&spec, 1304, 2).await,
        "nothing changed since"
    );
    for (fingerprint, seconds) in [(2, 599), (3, 5)] {
        let recheck_at = secrets.state(&spec, 706, fingerprint).await.recheck_at;
        assert_eq!(recheck_at, Some(NOW.after(Duration::from_secs(seconds))));
    }
    secrets.cache.forget();
    assert!(secrets.reads(&spec, 1304, 2).await);
}

#[tokio::test]
async fn a_result_with_drift_is_not_reused() {
    let mut all = valid_secrets(NOW);
    all.remove(&Key::Server);
    let (spec, secrets) = (spec(None), CachedEvaluation::of(all));
    for _ in 0..3 {
        assert!(secrets.reads(&spec, 100, 1).await);
    }
}

#[tokio::test]
async fn a_result_is_reused_only_for_the_same_spec_and_resource() {
    let first = spec(None);
    let secrets = CachedEvaluation::of(valid_secrets(NOW));
    assert!(secrets.reads(&first, 100, 1).await);
    let mut recreated = spec(None);
    recreated.cluster.uid = Uid(9);
    assert!(
        secrets.reads(&recreated, 101, 1).await,
        "Secrets are deleted with their resource"
    );
    let secrets = CachedEvaluation::of(valid_secrets(NOW));
    assert!(secrets.reads(&first, 100, 1).await);
    assert!(secrets.reads(&spec(Some("db.example")), 101, 1).await);
}

#[tokio::test]
async fn a_failed_read_is_an_error_and_not_a_missing_secret() {
    let client = client(|_, _| failure(403, "Forbidden", "secrets are forbidden"));
    let at = ObservedAt {
        now: NOW,
        uptime: Duration::ZERO,
        fingerprint: 1,
    };
    let state = TlsCache::default()
        .evaluate(&client, &spec(None), at, Duration::ZERO)
        .await;
    let error = state.unwrap_err().to_string();
    assert!(
        error.contains("read Secret orders-peerca: secrets are forbidden"),
        "{error}"
    );
}

/// Applies one Secret in a namespace with these Secrets; returns the outcome and the writes.
async fn applied(key: Key, secrets: Secrets) -> (Outcome, Vec<(Method, Secret)>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let recorded = writes.clone();
    let client = client(move |request, body| {
        let name = request.uri.path().rsplit('/').next();
        let is_named = |secret: &&Secret| secret.metadata.name.as_deref() == name;
        match secrets.values().find(is_named) {
            Some(secret) if request.method == Method::GET => {
                (200, serde_json::to_value(secret).unwrap())
            }
            None if request.method == Method::GET => not_found(),
            _ => {
                let written = serde_json::from_value(body.clone()).unwrap();
                recorded.lock().push((request.method.clone(), written));
                (200, body.clone())
            }
        }
    });
    let expectations = Expectations::new(TestClock::new(NOW).shared());
    let resource = ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    };
    let writer = ObjectWriter {
        client: &client,
        expectations: &expectations,
        key: &resource,
        field_manager: "evenkeel",
        unwatched_kinds: &["Secret"],
    };
    let outcome = apply(&writer, &spec(None), key, NOW).await.unwrap();
    let writes = writes.lock().clone();
    (outcome, writes)
}

/// Returns the drift of a Secret after this one was written.
fn drift_after(mut secrets: Secrets, key: Key, written: &Secret) -> Option<Drift> {
    secrets.insert(key, written.clone());
    evaluate(&spec(None), &secrets, NOW).drift.remove(&key)
}

#[tokio::test]
async fn a_missing_secret_is_created_and_is_valid() {
    for key in ALL {
        let mut secrets = valid_secrets(NOW);
        secrets.remove(&key);
        let (outcome, writes) = applied(key, secrets.clone()).await;
        let [(method, secret)] = writes.as_slice() else {
            panic!("{key:?}: {writes:?}")
        };
        assert_eq!((outcome, method), (Outcome::Done, &Method::POST), "{key:?}");
        assert_eq!(drift_after(secrets, key, secret), None, "{key:?}");
    }
}

#[tokio::test]
async fn no_certificate_is_signed_without_a_usable_ca_of_our_own() {
    let mut missing = valid_secrets(NOW);
    missing.remove(&Key::ClientCa);
    let mut unusable = valid_secrets(NOW);
    let other_key = text(&unusable[&Key::PeerCa], "tls.key").unwrap();
    write(&mut unusable, Key::ClientCa, "tls.key", &other_key);
    let mut foreign = valid_secrets(NOW);
    set_metadata(&mut foreign, Key::ClientCa, json!({ "labels": null }));
    for mut secrets in [missing, unusable, foreign] {
        secrets.remove(&Key::Server);
        let (outcome, writes) = applied(Key::Server, secrets).await;
        assert_eq!((outcome, writes.len()), (Outcome::Conflict, 0));
    }
}

#[tokio::test]
async fn a_usable_ca_is_adopted_and_never_replaced() {
    let mut secrets = valid_secrets(NOW);
    let owners = json!({ "ownerReferences": previous_owner() });
    set_metadata(&mut secrets, Key::PeerCa, owners);
    let (outcome, writes) = applied(Key::PeerCa, secrets).await;
    let [(method, patch)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!((outcome, method), (Outcome::Done, &Method::PATCH));
    assert!(patch.data.is_none(), "certificate and key stay");
    assert_eq!(patch.metadata.resource_version.as_deref(), Some("50"));
}

#[tokio::test]
async fn a_certificate_that_is_due_is_replaced_with_a_precondition() {
    let secrets = valid_secrets(UnixTime(NOW.0 - 300 * 24 * 3600));
    let (outcome, writes) = applied(Key::Operator, secrets.clone()).await;
    let [(method, secret)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!((outcome, method), (Outcome::Done, &Method::PUT));
    assert_eq!(secret.metadata.resource_version.as_deref(), Some("50"));
    assert_eq!(drift_after(secrets, Key::Operator, secret), None);
}

#[tokio::test]
async fn a_foreign_secret_is_never_written() {
    for key in [Key::PeerCa, Key::Server] {
        let mut secrets = valid_secrets(NOW);
        set_metadata(&mut secrets, key, json!({ "labels": null }));
        let (outcome, writes) = applied(key, secrets).await;
        assert_eq!((outcome, writes.len()), (Outcome::Conflict, 0), "{key:?}");
    }
}
