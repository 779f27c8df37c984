//! Certificates are judged, and for how long that is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::fake::{client, failure, not_found};
use crate::testing::{NOW, change, desired, secrets};

type All = BTreeMap<OwnedObject, Secret>;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn write(all: &mut All, object: OwnedObject, key: &str, text: &str) {
    let data = all.get_mut(&object).unwrap().data.as_mut().unwrap();
    data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
}

fn belongs_to(all: &mut All, object: OwnedObject, metadata: Value) {
    change(
        all.get_mut(&object).unwrap(),
        json!({ "metadata": metadata }),
    );
}

fn amiss(all: &All, now: UnixTime) -> Vec<(OwnedObject, Drift)> {
    judge(&desired(json!({})), all, now)
        .drift
        .into_iter()
        .collect()
}

#[test]
fn good_certificates_are_not_amiss_and_let_the_operator_in() {
    let all = secrets(&desired(json!({})), NOW);
    let judged = judge(&desired(json!({})), &all, NOW);
    assert_eq!(judged.drift, BTreeMap::new());
    let access = judged.credentials.unwrap();
    assert_eq!(
        Some(access.ca),
        text(&all[&OwnedObject::ClientCa], "tls.crt")
    );
    assert_eq!(
        access.key_pair.certificate,
        key_pair(&all[&OwnedObject::OperatorTls])
            .unwrap()
            .certificate
    );
}

#[test]
fn whatever_is_missing_is_told_one_by_one() {
    let nothing = amiss(&All::new(), NOW);
    assert_eq!(nothing, SECRETS.map(|object| (object, Drift::Missing)));
    for object in SECRETS {
        let mut all = secrets(&desired(json!({})), NOW);
        all.remove(&object);
        let amiss = amiss(&all, NOW);
        assert!(
            amiss.contains(&(object, Drift::Missing)),
            "{object:?}: {amiss:?}"
        );
        // What an authority signed is not good without it.
        let expected = 1 + SECRETS
            .iter()
            .filter(|other| other.signed_by() == Some(object))
            .count();
        assert_eq!(amiss.len(), expected, "{object:?}: {amiss:?}");
    }
}

#[test]
fn a_secret_of_somebody_else_is_left_to_them_and_lets_nobody_in() {
    let mut all = secrets(&desired(json!({})), NOW);
    belongs_to(
        &mut all,
        OwnedObject::OperatorTls,
        json!({ "labels": null, "ownerReferences": null }),
    );
    let judged = judge(&desired(json!({})), &all, NOW);
    assert_eq!(
        judged.drift,
        BTreeMap::from([(OwnedObject::OperatorTls, Drift::NotOwned)])
    );
    assert!(
        judged.credentials.is_none(),
        "somebody else's certificate is never used"
    );
}

#[test]
fn a_secret_of_an_earlier_resource_of_this_name_is_taken_over_and_opens_doors_meanwhile() {
    for owners in [
        json!(null),
        json!([{ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "name": "orders", "uid": Uid(9).to_string(), "controller": true }]),
    ] {
        let mut all = secrets(&desired(json!({})), NOW);
        for object in [OwnedObject::ClientCa, OwnedObject::OperatorTls] {
            belongs_to(&mut all, object, json!({ "ownerReferences": owners }));
        }
        let judged = judge(&desired(json!({})), &all, NOW);
        let taken_over = BTreeMap::from([
            (OwnedObject::ClientCa, Drift::Differs),
            (OwnedObject::OperatorTls, Drift::Differs),
        ]);
        assert_eq!(judged.drift, taken_over, "{owners}");
        assert!(judged.credentials.is_some());
    }
}

#[test]
fn certificates_are_due_in_time_and_open_doors_until_they_are_renewed() {
    let all = secrets(&desired(json!({})), NOW);
    assert_eq!(amiss(&all, NOW.after(DAY * 243)), []);
    let due = judge(&desired(json!({})), &all, NOW.after(DAY * 244));
    let leaves = [
        OwnedObject::PeerTls,
        OwnedObject::ServerTls,
        OwnedObject::OperatorTls,
        OwnedObject::ClientTls,
    ];
    assert_eq!(
        due.drift,
        BTreeMap::from(leaves.map(|leaf| (leaf, Drift::Differs)))
    );
    assert!(due.credentials.is_some(), "due is not expired");
    let expired = judge(&desired(json!({})), &all, NOW.after(DAY * 366));
    assert_eq!(
        expired.drift, due.drift,
        "authorities are never replaced at a stroke"
    );
    assert_eq!(
        amiss(&all, NOW.after(DAY * 365 * 11)),
        amiss(&all, NOW.after(DAY * 366)),
        "not even late"
    );
}

#[test]
fn a_certificate_of_another_authority_is_made_anew() {
    let mut all = secrets(&desired(json!({})), NOW);
    let other = secrets(&desired(json!({})), NOW);
    all.insert(
        OwnedObject::ServerTls,
        other[&OwnedObject::ServerTls].clone(),
    );
    assert_eq!(amiss(&all, NOW), [(OwnedObject::ServerTls, Drift::Differs)]);
}

#[test]
fn a_certificate_for_other_names_is_made_anew() {
    let all = secrets(&desired(json!({})), NOW);
    let renamed = desired(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    let amiss: Vec<_> = judge(&renamed, &all, NOW).drift.into_iter().collect();
    assert_eq!(amiss, [(OwnedObject::ServerTls, Drift::Differs)]);
}

#[test]
fn an_authority_that_cannot_be_read_is_as_good_as_none() {
    for key in ["tls.crt", "tls.key"] {
        let mut all = secrets(&desired(json!({})), NOW);
        all.get_mut(&OwnedObject::PeerCa)
            .unwrap()
            .data
            .as_mut()
            .unwrap()
            .remove(key);
        assert!(
            amiss(&all, NOW).contains(&(OwnedObject::PeerCa, Drift::Missing)),
            "without {key}"
        );
    }
    let mut all = secrets(&desired(json!({})), NOW);
    let other = text(&all[&OwnedObject::ClientCa], "tls.key").unwrap();
    write(&mut all, OwnedObject::PeerCa, "tls.key", &other);
    assert_eq!(
        amiss(&all, NOW),
        [(OwnedObject::PeerCa, Drift::Missing)],
        "what another's key signs is trusted by nobody"
    );
    for garbage in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let mut all = secrets(&desired(json!({})), NOW);
        write(&mut all, OwnedObject::PeerCa, "tls.crt", garbage);
        let amiss = amiss(&all, NOW);
        assert_eq!(
            amiss,
            [
                (OwnedObject::PeerCa, Drift::Missing),
                (OwnedObject::PeerTls, Drift::Differs)
            ],
            "{garbage}"
        );
    }
}

#[test]
fn a_leaf_that_cannot_be_read_is_made_anew_and_lets_nobody_in_without_its_key() {
    let mut all = secrets(&desired(json!({})), NOW);
    write(&mut all, OwnedObject::ClientTls, "tls.crt", "garbage");
    let other = text(&all[&OwnedObject::PeerTls], "tls.key").unwrap();
    write(&mut all, OwnedObject::ServerTls, "tls.key", &other);
    all.get_mut(&OwnedObject::OperatorTls)
        .unwrap()
        .data
        .as_mut()
        .unwrap()
        .remove("tls.key");
    let judged = judge(&desired(json!({})), &all, NOW);
    let anew = [
        OwnedObject::ServerTls,
        OwnedObject::OperatorTls,
        OwnedObject::ClientTls,
    ];
    assert_eq!(
        judged.drift,
        BTreeMap::from(anew.map(|object| (object, Drift::Differs)))
    );
    assert!(judged.credentials.is_none());
}

/// Kubernetes with these Secrets, and how often it was asked for one.
fn kubernetes(all: All) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = client(move |request, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let path = request.uri.path();
        let named = |secret: &&Secret| {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            path == format!("/api/v1/namespaces/shop/secrets/{name}")
        };
        all.values().find(named).map_or_else(not_found, |secret| {
            (200, serde_json::to_value(secret).unwrap())
        })
    });
    (client, asked)
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    }
}

/// Whether Kubernetes is asked by a look after so many seconds of uptime.
struct Looks {
    secrets: TlsSecrets,
    client: Client,
    asked: Arc<AtomicUsize>,
}

impl Looks {
    fn at(all: All) -> Self {
        let (client, asked) = kubernetes(all);
        Self {
            secrets: TlsSecrets::every(Duration::from_secs(600)),
            client,
            asked,
        }
    }

    async fn asks(&self, desired: &DesiredCluster, seconds: u64, print: u64) -> bool {
        let before = self.asked.load(Ordering::Relaxed);
        let times = (NOW, Duration::from_secs(seconds));
        self.secrets
            .judge(&self.client, &key(), desired, times, print)
            .await
            .unwrap();
        let asked = self.asked.load(Ordering::Relaxed) - before;
        assert!(
            asked == 0 || asked == SECRETS.len(),
            "each once, by name: {asked}"
        );
        asked > 0
    }
}

#[tokio::test]
async fn what_is_well_is_remembered_for_ten_minutes_and_for_a_moment_when_anything_else_changes() {
    let desired = desired(json!({}));
    let looks = Looks::at(secrets(&desired, NOW));
    assert!(
        looks.asks(&desired, 100, 1).await,
        "nothing is remembered yet"
    );
    assert!(!looks.asks(&desired, 699, 1).await);
    assert!(looks.asks(&desired, 700, 1).await, "after ten minutes");
    assert!(
        !looks.asks(&desired, 704, 2).await,
        "the looks of one go are enough"
    );
    assert!(looks.asks(&desired, 705, 2).await, "something has changed");
    assert!(!looks.asks(&desired, 1304, 2).await, "and nothing since");
    for (print, left) in [(2, 599), (3, 5)] {
        let times = (NOW, Duration::from_secs(706));
        let judged = looks
            .secrets
            .judge(&looks.client, &key(), &desired, times, print)
            .await
            .unwrap();
        let again = Some(NOW.after(Duration::from_secs(left)));
        assert_eq!(
            judged.recheck_at, again,
            "whoever has not looked since the last change looks again shortly"
        );
    }
    looks.secrets.forget(&key());
    assert!(looks.asks(&desired, 1304, 2).await, "it was forgotten");
}

#[tokio::test]
async fn what_is_amiss_is_looked_at_each_time() {
    let desired = desired(json!({}));
    let mut all = secrets(&desired, NOW);
    all.remove(&OwnedObject::ClientTls);
    let looks = Looks::at(all);
    assert!(looks.asks(&desired, 100, 2).await);
    assert!(looks.asks(&desired, 100, 2).await && looks.asks(&desired, 100, 1).await);
}

#[tokio::test]
async fn what_is_remembered_is_of_this_spec_and_this_resource() {
    let first = desired(json!({}));
    let looks = Looks::at(secrets(&first, NOW));
    assert!(looks.asks(&first, 100, 1).await);
    let created_anew = DesiredCluster {
        uid: Uid(9),
        ..first.clone()
    };
    assert!(
        looks.asks(&created_anew, 101, 1).await,
        "the Secrets go with the resource they belong to"
    );

    let looks = Looks::at(secrets(&first, NOW));
    assert!(looks.asks(&first, 100, 1).await);
    let renamed = desired(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    assert!(looks.asks(&renamed, 101, 1).await);
}

#[tokio::test]
async fn what_could_not_be_read_is_an_error_and_not_missing() {
    let client = client(|_, _| failure(403, "Forbidden", "secrets are forbidden"));
    let times = (NOW, Duration::ZERO);
    let judged = TlsSecrets::every(Duration::ZERO)
        .judge(&client, &key(), &desired(json!({})), times, 1)
        .await;
    let said = judged.unwrap_err().to_string();
    assert_eq!(
        said,
        "cannot read the secret orders-etcd-peer-ca: secrets are forbidden"
    );
}
