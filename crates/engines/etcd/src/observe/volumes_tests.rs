//! Where volumes are, and where they are not to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::fake::{client, failure, not_found};
use crate::testing::{Scene, change, name};

fn term(key: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": values }] })
}

/// A volume that can be reached from where any of these terms says.
fn volume(terms: &[Value]) -> PersistentVolume {
    serde_json::from_value(json!({ "metadata": { "name": "pv-0" },
        "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } }))
    .unwrap()
}

#[test]
fn a_volume_is_on_a_nodes_own_disk_if_it_can_be_reached_from_there_alone() {
    let on = |terms: &[Value]| match place(&volume(terms)) {
        Some(VolumeLocation::Node(name)) => Some(name),
        _ => None,
    };
    assert_eq!(on(&[term(HOSTNAME, &["a"])]).as_deref(), Some("a"));
    assert_eq!(
        on(&[term(HOSTNAME, &["a"]), term(HOSTNAME, &["a"])]).as_deref(),
        Some("a")
    );
    assert_eq!(
        on(&[term(HOSTNAME, &["a"]), term(HOSTNAME, &["b"])]),
        None,
        "terms are alternatives"
    );
    assert_eq!(
        on(&[
            term(HOSTNAME, &["a"]),
            term("topology.kubernetes.io/zone", &["z"])
        ]),
        None
    );
    assert_eq!(on(&[term(HOSTNAME, &["a", "b"])]), None);
    assert_eq!(on(&[term("topology.kubernetes.io/zone", &["z"])]), None);
    assert_eq!(on(&[]), None);
    let mut apart = volume(&[term(HOSTNAME, &["a"])]);
    change(&mut apart, json!({ "spec": { "nodeAffinity": null } }));
    assert_eq!(
        place(&apart),
        Some(VolumeLocation::Anywhere),
        "on the network"
    );
    assert_eq!(
        place(&volume(&[term("topology.kubernetes.io/zone", &["z"])])),
        None,
        "nobody knows from which nodes"
    );
    let not_in =
        json!({ "matchExpressions": [{ "key": HOSTNAME, "operator": "NotIn", "values": ["a"] }] });
    assert_eq!(on(&[not_in]), None);
}

/// Kubernetes with the volume of the first member on node `a`, and an answer about nodes.
fn kubernetes(
    nodes: impl Fn() -> (u16, Value) + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = client(move |request, _| match request.uri.path() {
        "/api/v1/persistentvolumes/pv-0" => {
            count.fetch_add(1, Ordering::Relaxed);
            (
                200,
                serde_json::to_value(volume(&[term(HOSTNAME, &["a"])])).unwrap(),
            )
        }
        "/api/v1/nodes" => {
            let query = request.uri.query().unwrap_or_default();
            assert!(
                query.contains("labelSelector=kubernetes.io%2Fhostname%3Da"),
                "{query}"
            );
            nodes()
        }
        _ => not_found(),
    });
    (client, asked)
}

fn nodes(names: &[&str]) -> (u16, Value) {
    let nodes: Vec<_> = names
        .iter()
        .map(|name| json!({ "metadata": { "name": name } }))
        .collect();
    (
        200,
        json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": nodes }),
    )
}

fn claims() -> Vec<PersistentVolumeClaim> {
    Scene::converged(2).observed.claims.into_values().collect()
}

#[tokio::test]
async fn a_claim_is_lost_with_its_node_and_only_if_kubernetes_has_no_such_node() {
    let gone = |known: &[&str], answer: fn() -> (u16, Value)| {
        let known: BTreeSet<_> = known.iter().map(|name| (*name).to_owned()).collect();
        async move {
            let (client, _) = kubernetes(answer);
            let places = Volumes::default()
                .locations(&client, &known, &claims())
                .await?;
            assert_eq!(
                places.keys().collect::<Vec<_>>(),
                [&name(0)],
                "the other is on no node's own disk"
            );
            let place = &places[&name(0)];
            assert!(
                *place == VolumeLocation::Gone || *place == VolumeLocation::Node("a".to_owned())
            );
            Ok::<_, Error>(*place == VolumeLocation::Gone)
        }
    };
    assert!(gone(&["b"], || nodes(&[])).await.unwrap());
    assert!(
        !gone(&["b"], || nodes(&["a"])).await.unwrap(),
        "the watch lags behind"
    );
    assert!(
        !gone(&["a"], || nodes(&[])).await.unwrap(),
        "it is there, as far as is known"
    );
    let forbidden = || failure(403, "Forbidden", "nodes are forbidden");
    assert!(
        !gone(&[], forbidden).await.unwrap(),
        "what is unknown is not lost"
    );
    assert!(
        gone(&[], || failure(500, "InternalError", "etcd is down"))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn where_a_volume_is_is_asked_once() {
    let (client, asked) = kubernetes(|| nodes(&["a"]));
    let volumes = Volumes::default();
    for _ in 0..3 {
        volumes
            .locations(&client, &BTreeSet::new(), &claims())
            .await
            .unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_volume_that_is_not_found_is_not_lost_and_one_that_cannot_be_read_is_an_error() {
    let none = client(|_, _| not_found());
    assert!(
        Volumes::default()
            .locations(&none, &BTreeSet::new(), &claims())
            .await
            .unwrap()
            .is_empty()
    );
    let broken = client(|_, _| failure(500, "InternalError", "etcd is down"));
    let said = Volumes::default()
        .locations(&broken, &BTreeSet::new(), &claims())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(said, "cannot read the volume pv-0: etcd is down");
}

#[test]
fn a_volume_is_misplaced_where_some_nodes_reach_it_and_none_that_is_allowed() {
    let nodes: Vec<BTreeMap<String, String>> = [("a", "x"), ("b", "x"), ("c", "y")]
        .map(|(host, zone)| {
            [(HOSTNAME, host), ("zone", zone)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        })
        .into();
    let misplaced = |key: &str, value: &str, terms: &[Value]| {
        let (there, selector) = (volume(terms), [(key.to_owned(), value.to_owned())].into());
        excludes(&selector, reached_from(&there).unwrap(), &nodes)
    };
    assert!(misplaced("zone", "y", &[term(HOSTNAME, &["a"])]));
    assert!(!misplaced("zone", "x", &[term(HOSTNAME, &["a"])]));
    assert!(misplaced("zone", "y", &[term("zone", &["x"])]));
    assert!(
        !misplaced("zone", "y", &[term("zone", &["x"]), term("zone", &["y"])]),
        "terms are alternatives"
    );
    assert!(
        !misplaced("zone", "y", &[term(HOSTNAME, &["gone"])]),
        "its node may come back"
    );
    assert!(
        !misplaced("disk", "ssd", &[term("zone", &["x"])]),
        "no node at all has that label"
    );
}

#[tokio::test]
async fn whether_volumes_can_grow_is_asked_of_their_class_and_only_for_those_that_are_to() {
    let class = |grows: Value| {
        client(move |request, _| match request.uri.path() {
            "/apis/storage.k8s.io/v1/storageclasses/fast" => (
                200,
                json!({ "metadata": { "name": "fast" }, "provisioner": "p", "allowVolumeExpansion": grows }),
            ),
            _ => not_found(),
        })
    };
    let mut claims = claims();
    for claim in &mut claims {
        change(claim, json!({ "spec": { "storageClassName": "fast" } }));
    }
    let size = claim::requested_size(&claims[0]);
    let asked = |client: Client, size: u64, claims: Vec<PersistentVolumeClaim>| async move {
        Volumes::default()
            .fixed_size_class(&client, size, &claims)
            .await
            .unwrap()
    };
    assert_eq!(
        asked(class(json!(null)), size + 1, claims.clone())
            .await
            .as_deref(),
        Some("fast")
    );
    assert_eq!(
        asked(class(json!(true)), size + 1, claims.clone()).await,
        None
    );
    assert_eq!(
        asked(
            client(|_, _| unreachable!("nothing is asked")),
            size,
            claims.clone()
        )
        .await,
        None
    );
    let forbidden = client(|_, _| failure(403, "Forbidden", "storageclasses are forbidden"));
    assert_eq!(
        asked(forbidden, size + 1, claims).await,
        None,
        "it is tried, then"
    );
}

#[tokio::test]
async fn a_class_is_missing_that_kubernetes_does_not_have_and_no_volume_is_of() {
    let client = client(|request, _| match request.uri.path() {
        "/apis/storage.k8s.io/v1/storageclasses/fast" => (
            200,
            json!({ "metadata": { "name": "fast" }, "provisioner": "csi.example" }),
        ),
        _ => not_found(),
    });
    let (volumes, mut scene) = (
        Volumes::default(),
        Scene::with(1, json!({ "members": 1, "storage": { "class": "fsat" } })),
    );
    let claims = |scene: &Scene| scene.observed.claims.values().cloned().collect::<Vec<_>>();
    let bound = claims(&scene);
    assert_eq!(
        volumes
            .missing_class(&client, Some("fsat"), &bound)
            .await
            .unwrap(),
        None,
        "there is a volume of it"
    );
    change(scene.claim(0), json!({ "spec": { "volumeName": null } }));
    let unbound = claims(&scene);
    assert_eq!(
        volumes
            .missing_class(&client, Some("fsat"), &unbound)
            .await
            .unwrap()
            .as_deref(),
        Some("fsat"),
        "a claim alone is no sign of it"
    );
    assert_eq!(
        volumes
            .missing_class(&client, Some("fast"), &unbound)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        volumes
            .missing_class(&client, None, &unbound)
            .await
            .unwrap(),
        None
    );
}
