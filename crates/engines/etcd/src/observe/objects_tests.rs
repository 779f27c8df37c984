//! Unreadable identities, and the isolation from clusters of other engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_kit::identity_object::IDENTITY_KEY;
use evenkeel_kit::testing::{client, failure, not_found};
use evenkeel_runtime::{Engine, Reconciler, TestClock, TestRandom};
use kube::ResourceExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::decide::Etcd;
use crate::facts::{Drift, OwnedObject};
use crate::identity::Uid;
use crate::reconciler::EtcdReconciler;
use crate::testing::{LINEAGE, NOW, Scene};

#[test]
fn an_unreadable_identity_is_an_error_and_not_absent() {
    let (object, identity) = Scene::converged(1).observed.identity.unwrap();
    assert_eq!(parse_identity(object.clone()).unwrap().1, identity);
    let mut incomplete = object;
    incomplete.data = serde_json::from_value(json!({ IDENTITY_KEY: "{\"lineage\": 7}" })).unwrap();
    let error = parse_identity(incomplete).unwrap_err().to_string();
    assert!(
        error.contains("the identity in ConfigMap orders-etcd-identity"),
        "{error}"
    );
}

/// The name of the client Service, which another owner has.
const CLIENT_SERVICE: &str = "orders-etcd-client";

/// Returns the metadata of an object of the PostgreSQL cluster `shop/orders`.
fn postgres_metadata(name: &str, lineage: u32) -> Value {
    json!({
        "name": name,
        "namespace": "shop",
        "uid": Uid(0x9_0000 + u128::from(lineage)).to_string(),
        "resourceVersion": "7",
        "labels": { "postgres.evenkeel.dev/cluster": "orders", "app.kubernetes.io/name": "postgres" },
        "annotations": {
            labels::LINEAGE: format!("{lineage:08x}"),
            labels::EPOCH: "1",
            labels::SERIAL: "0",
        },
        "ownerReferences": [{ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "PostgresCluster", "name": "orders",
            "uid": Uid(9).to_string(), "controller": true }],
    })
}

/// The objects of a namespace by their API paths, and the requests that change them.
#[derive(Clone, Default)]
struct Namespace {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    writes: Arc<Mutex<Vec<String>>>,
}

impl Namespace {
    fn insert(&self, path: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.objects.lock().insert(format!("{path}/{name}"), object);
    }

    /// Returns a client for the namespace. It implements label selectors of the form `key=value`, and rejects writes.
    fn client(&self) -> Client {
        let namespace = self.clone();
        client(move |request, body| {
            let path = request.uri.path();
            if request.method != http::Method::GET {
                let mut writes = namespace.writes.lock();
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let write = format!("{} {path} {name}", request.method);
                writes.push(write.trim_end().to_owned());
                return failure(500, "InternalError", "read-only");
            }
            let objects = namespace.objects.lock();
            if let Some(object) = objects.get(path) {
                return (200, object.clone());
            }
            let query = request.uri.query().unwrap_or_default();
            let Some((_, selector)) = query.split_once("labelSelector=") else {
                return not_found();
            };
            let selector = selector.split('&').next().unwrap_or_default();
            let selector = selector.replace("%2F", "/").replace("%3D", "=");
            let (label, value) = selector.split_once('=').unwrap();
            let is_selected = |(object_path, object): &(&String, &Value)| {
                object_path.rsplit_once('/').map(|(parent, _)| parent) == Some(path)
                    && object["metadata"]["labels"][label] == value
            };
            let selected = objects.iter().filter(is_selected);
            let items: Vec<_> = selected.map(|(_, object)| object.clone()).collect();
            (200, json!({ "metadata": {}, "items": items }))
        })
    }
}

fn to_json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Returns a namespace with an EtcdCluster and a PostgresCluster of the name `orders`, and a Service with the name of the
/// client Service that belongs to neither. The peer Service is missing, so that there is something to write.
fn shared_namespace() -> Namespace {
    let namespace = Namespace::default();
    let observed = Scene::converged(3).observed;
    let core = "/api/v1/namespaces/shop";
    for pod in observed.pods.values() {
        namespace.insert(&format!("{core}/pods"), to_json(pod));
    }
    for claim in observed.claims.values() {
        namespace.insert(&format!("{core}/persistentvolumeclaims"), to_json(claim));
    }
    let (identity, _) = observed.identity.as_ref().unwrap();
    namespace.insert(&format!("{core}/configmaps"), to_json(identity));
    namespace.insert(
        "/apis/evenkeel.dev/v1alpha1/namespaces/shop/etcdclusters",
        to_json(&observed.resource),
    );
    // The other engine's objects. Their lineage differs, so that reading one of them would be a contradiction.
    let foreign = LINEAGE.0 + 1;
    for (kind, name) in [
        ("pods", "orders-postgres-x"),
        ("persistentvolumeclaims", "orders-postgres-x"),
        ("configmaps", "orders-postgres-identity"),
        ("services", "orders-postgres-client"),
    ] {
        let object = json!({ "metadata": postgres_metadata(name, foreign) });
        namespace.insert(&format!("{core}/{kind}"), object);
    }
    // A Service with our name that is not ours.
    let taken = json!({ "metadata": { "name": CLIENT_SERVICE, "namespace": "shop", "uid": Uid(5).to_string() },
        "spec": { "selector": { "app": "other" } } });
    namespace.insert(&format!("{core}/services"), taken);
    namespace
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    }
}

#[tokio::test]
async fn objects_of_another_engine_with_the_same_cluster_name_are_not_read() {
    let namespace = shared_namespace();
    let objects = read_live(&namespace.client(), &key())
        .await
        .unwrap()
        .unwrap();
    let is_foreign = |name: String| name.contains("postgres");
    assert_eq!((objects.pods.len(), objects.claims.len()), (3, 3));
    assert!(!objects.pods.iter().any(|pod| is_foreign(pod.name_any())));
    assert!(
        !objects
            .claims
            .iter()
            .any(|claim| is_foreign(claim.name_any()))
    );
    let identity = objects.identity.unwrap();
    assert_eq!(identity.name_any(), "orders-etcd-identity");
}

#[tokio::test]
async fn cached_objects_of_another_engine_are_not_read_either() {
    let mut writer = Writer::<Pod>::default();
    let cache = OwnedCache::new(writer.as_reader(), labels::CLUSTER);
    let foreign = json!({ "metadata": postgres_metadata("orders-postgres-x", 8) });
    let foreign: Pod = serde_json::from_value(foreign).unwrap();
    writer.apply_watcher_event(&Event::Apply(foreign));
    for pod in Scene::converged(1).observed.pods.into_values() {
        writer.apply_watcher_event(&Event::Apply(pod));
    }
    let pods = cache.owned_by(&key());
    assert_eq!(pods.len(), 1);
    assert!(!pods[0].name_any().contains("postgres"));
}

#[tokio::test]
async fn a_plan_next_to_another_engine_touches_only_our_own_objects() {
    let namespace = shared_namespace();
    let reconciler = EtcdReconciler::new(
        namespace.client(),
        crate::testing::empty_caches(),
        std::time::Duration::ZERO,
        TestClock::new(NOW).shared(),
        TestRandom::shared(1),
    );
    let observation = reconciler
        .observe(&key(), evenkeel_runtime::ObserveFrom::Live)
        .await
        .unwrap()
        .unwrap();
    let facts = &observation.facts;
    assert_eq!(facts.lineages, [Some(LINEAGE)].into());
    assert_eq!(
        facts.drift.get(&OwnedObject::ClientService),
        Some(&Drift::NotOwned)
    );
    let plan = Etcd::decide(facts);
    for action in plan.actions() {
        let _ = reconciler.execute(&observation, &action, &|| true).await;
    }
    let writes = namespace.writes.lock().clone();
    let is_peer_service = |write: &String| write.contains("services orders-etcd-peer");
    assert!(writes.iter().any(is_peer_service), "{writes:?}");
    let is_foreign =
        |write: &&String| write.contains("postgres") || write.ends_with(CLIENT_SERVICE);
    let foreign: Vec<_> = writes.iter().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}
