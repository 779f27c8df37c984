//! Certificates are judged, and for how long that is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::fake::{client, failure, not_found};
use crate::testing::{NOW, change, secrets, wanted};

type All = BTreeMap<Object, Secret>;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn write(all: &mut All, object: Object, key: &str, text: &str) {
    let data = all.get_mut(&object).unwrap().data.as_mut().unwrap();
    data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
}

fn belongs_to(all: &mut All, object: Object, metadata: Value) {
    change(all.get_mut(&object).unwrap(), json!({ "metadata": metadata }));
}

fn amiss(all: &All, now: Time) -> Vec<(Object, Amiss)> {
    judge(&wanted(json!({})), all, now).amiss.into_iter().collect()
}

#[test]
fn good_certificates_are_not_amiss_and_let_the_operator_in() {
    let all = secrets(&wanted(json!({})), NOW);
    let judged = judge(&wanted(json!({})), &all, NOW);
    assert_eq!(judged.amiss, BTreeMap::new());
    let access = judged.access.unwrap();
    assert_eq!(Some(access.authority), text(&all[&Object::ClientCa], "tls.crt"));
    assert_eq!(access.pair.certificate, pair(&all[&Object::OperatorTls]).unwrap().certificate);
}

#[test]
fn whatever_is_missing_is_told_one_by_one() {
    let nothing = amiss(&All::new(), NOW);
    assert_eq!(nothing, SECRETS.map(|object| (object, Amiss::Missing)));
    for object in SECRETS {
        let mut all = secrets(&wanted(json!({})), NOW);
        all.remove(&object);
        let amiss = amiss(&all, NOW);
        assert!(amiss.contains(&(object, Amiss::Missing)), "{object:?}: {amiss:?}");
        // What an authority signed is not good without it.
        let expected = 1 + SECRETS.iter().filter(|other| other.signed_by() == Some(object)).count();
        assert_eq!(amiss.len(), expected, "{object:?}: {amiss:?}");
    }
}

#[test]
fn a_secret_of_somebody_else_is_left_to_them_and_lets_nobody_in() {
    let mut all = secrets(&wanted(json!({})), NOW);
    belongs_to(&mut all, Object::OperatorTls, json!({ "labels": null, "ownerReferences": null }));
    let judged = judge(&wanted(json!({})), &all, NOW);
    assert_eq!(judged.amiss, BTreeMap::from([(Object::OperatorTls, Amiss::NotOurs)]));
    assert!(judged.access.is_none(), "somebody else's certificate is never used");
}

#[test]
fn a_secret_of_an_earlier_resource_of_this_name_is_taken_over_and_opens_doors_meanwhile() {
    for owners in [
        json!(null),
        json!([{ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "name": "orders", "uid": Uid(9).to_string(), "controller": true }]),
    ] {
        let mut all = secrets(&wanted(json!({})), NOW);
        for object in [Object::ClientCa, Object::OperatorTls] {
            belongs_to(&mut all, object, json!({ "ownerReferences": owners }));
        }
        let judged = judge(&wanted(json!({})), &all, NOW);
        let taken_over =
            BTreeMap::from([(Object::ClientCa, Amiss::Differs), (Object::OperatorTls, Amiss::Differs)]);
        assert_eq!(judged.amiss, taken_over, "{owners}");
        assert!(judged.access.is_some());
    }
}

#[test]
fn certificates_are_due_in_time_and_open_doors_until_they_are_renewed() {
    let all = secrets(&wanted(json!({})), NOW);
    assert_eq!(amiss(&all, NOW.after(DAY * 243)), []);
    let due = judge(&wanted(json!({})), &all, NOW.after(DAY * 244));
    let leaves = [Object::PeerTls, Object::ServerTls, Object::OperatorTls, Object::ClientTls];
    assert_eq!(due.amiss, BTreeMap::from(leaves.map(|leaf| (leaf, Amiss::Differs))));
    assert!(due.access.is_some(), "due is not expired");
    let expired = judge(&wanted(json!({})), &all, NOW.after(DAY * 366));
    assert_eq!(expired.amiss, due.amiss, "authorities are never replaced at a stroke");
    assert_eq!(amiss(&all, NOW.after(DAY * 365 * 11)), amiss(&all, NOW.after(DAY * 366)), "not even late");
}

#[test]
fn a_certificate_of_another_authority_is_made_anew() {
    let mut all = secrets(&wanted(json!({})), NOW);
    let other = secrets(&wanted(json!({})), NOW);
    all.insert(Object::ServerTls, other[&Object::ServerTls].clone());
    assert_eq!(amiss(&all, NOW), [(Object::ServerTls, Amiss::Differs)]);
}

#[test]
fn a_certificate_for_other_names_is_made_anew() {
    let all = secrets(&wanted(json!({})), NOW);
    let renamed = wanted(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    let amiss: Vec<_> = judge(&renamed, &all, NOW).amiss.into_iter().collect();
    assert_eq!(amiss, [(Object::ServerTls, Amiss::Differs)]);
}

#[test]
fn an_authority_that_cannot_be_read_is_as_good_as_none() {
    for key in ["tls.crt", "tls.key"] {
        let mut all = secrets(&wanted(json!({})), NOW);
        all.get_mut(&Object::PeerCa).unwrap().data.as_mut().unwrap().remove(key);
        assert!(amiss(&all, NOW).contains(&(Object::PeerCa, Amiss::Missing)), "without {key}");
    }
    let mut all = secrets(&wanted(json!({})), NOW);
    let other = text(&all[&Object::ClientCa], "tls.key").unwrap();
    write(&mut all, Object::PeerCa, "tls.key", &other);
    assert_eq!(
        amiss(&all, NOW),
        [(Object::PeerCa, Amiss::Missing)],
        "what another's key signs is trusted by nobody"
    );
    for garbage in ["", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let mut all = secrets(&wanted(json!({})), NOW);
        write(&mut all, Object::PeerCa, "tls.crt", garbage);
        let amiss = amiss(&all, NOW);
        assert_eq!(amiss, [(Object::PeerCa, Amiss::Missing), (Object::PeerTls, Amiss::Differs)], "{garbage}");
    }
}

#[test]
fn a_leaf_that_cannot_be_read_is_made_anew_and_lets_nobody_in_without_its_key() {
    let mut all = secrets(&wanted(json!({})), NOW);
    write(&mut all, Object::ClientTls, "tls.crt", "garbage");
    let other = text(&all[&Object::PeerTls], "tls.key").unwrap();
    write(&mut all, Object::ServerTls, "tls.key", &other);
    all.get_mut(&Object::OperatorTls).unwrap().data.as_mut().unwrap().remove("tls.key");
    let judged = judge(&wanted(json!({})), &all, NOW);
    let anew = [Object::ServerTls, Object::OperatorTls, Object::ClientTls];
    assert_eq!(judged.amiss, BTreeMap::from(anew.map(|object| (object, Amiss::Differs))));
    assert!(judged.access.is_none());
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
        all.values().find(named).map_or_else(not_found, |secret| (200, serde_json::to_value(secret).unwrap()))
    });
    (client, asked)
}

fn key() -> Key {
    Key { namespace: "shop".to_owned(), name: "orders".to_owned() }
}

/// Whether Kubernetes is asked by a look after so many seconds of uptime.
struct Looks {
    secrets: Secrets,
    client: Client,
    asked: Arc<AtomicUsize>,
}

impl Looks {
    fn at(all: All) -> Self {
        let (client, asked) = kubernetes(all);
        Self { secrets: Secrets::every(Duration::from_secs(600)), client, asked }
    }

    async fn asks(&self, wanted: &Wanted, seconds: u64, print: u64) -> bool {
        let before = self.asked.load(Ordering::Relaxed);
        let times = (NOW, Duration::from_secs(seconds));
        self.secrets.judge(&self.client, &key(), wanted, times, print).await.unwrap();
        let asked = self.asked.load(Ordering::Relaxed) - before;
        assert!(asked == 0 || asked == SECRETS.len(), "each once, by name: {asked}");
        asked > 0
    }
}

#[tokio::test]
async fn what_is_well_is_remembered_for_ten_minutes_and_for_a_moment_when_anything_else_changes() {
    let wanted = wanted(json!({}));
    let looks = Looks::at(secrets(&wanted, NOW));
    assert!(looks.asks(&wanted, 100, 1).await, "nothing is remembered yet");
    assert!(!looks.asks(&wanted, 699, 1).await);
    assert!(looks.asks(&wanted, 700, 1).await, "after ten minutes");
    assert!(!looks.asks(&wanted, 704, 2).await, "the looks of one go are enough");
    assert!(looks.asks(&wanted, 705, 2).await, "something has changed");
    assert!(!looks.asks(&wanted, 1304, 2).await, "and nothing since");
    for (print, left) in [(2, 599), (3, 5)] {
        let times = (NOW, Duration::from_secs(706));
        let judged = looks.secrets.judge(&looks.client, &key(), &wanted, times, print).await.unwrap();
        let again = Some(NOW.after(Duration::from_secs(left)));
        assert_eq!(judged.again, again, "whoever has not looked since the last change looks again shortly");
    }
    looks.secrets.forget(&key());
    assert!(looks.asks(&wanted, 1304, 2).await, "it was forgotten");
}

#[tokio::test]
async fn what_is_amiss_is_looked_at_each_time() {
    let wanted = wanted(json!({}));
    let mut all = secrets(&wanted, NOW);
    all.remove(&Object::ClientTls);
    let looks = Looks::at(all);
    assert!(looks.asks(&wanted, 100, 2).await);
    assert!(looks.asks(&wanted, 100, 2).await && looks.asks(&wanted, 100, 1).await);
}

#[tokio::test]
async fn what_is_remembered_is_of_this_spec_and_this_resource() {
    let first = wanted(json!({}));
    let looks = Looks::at(secrets(&first, NOW));
    assert!(looks.asks(&first, 100, 1).await);
    let created_anew = Wanted { uid: Uid(9), ..first.clone() };
    assert!(looks.asks(&created_anew, 101, 1).await, "the Secrets go with the resource they belong to");

    let looks = Looks::at(secrets(&first, NOW));
    assert!(looks.asks(&first, 100, 1).await);
    let renamed = wanted(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    assert!(looks.asks(&renamed, 101, 1).await);
}

#[tokio::test]
async fn what_could_not_be_read_is_an_error_and_not_missing() {
    let client = client(|_, _| failure(403, "Forbidden", "secrets are forbidden"));
    let times = (NOW, Duration::ZERO);
    let judged = Secrets::every(Duration::ZERO).judge(&client, &key(), &wanted(json!({})), times, 1).await;
    let said = judged.unwrap_err().to_string();
    assert_eq!(said, "cannot read the secret orders-peer-ca: secrets are forbidden");
}
