//! Volume locations, misplaced volumes, StorageClasses, and how often each is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::claims::{ClaimParams, claim};
use crate::testing::{CLUSTER, change, client, failure, member, member_name, not_found};

const UPTIME: Duration = Duration::from_secs(1000);

fn term(key: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": values }] })
}

/// Returns a volume whose node affinity has these terms.
fn volume(terms: &[Value]) -> PersistentVolume {
    serde_json::from_value(json!({ "metadata": { "name": "pv-0" },
        "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } }))
    .unwrap()
}

/// Returns the PVCs of two members, bound to `pv-0` and `pv-1`.
fn claims(class: Option<&str>) -> Vec<PersistentVolumeClaim> {
    let bound = |serial: u16| {
        let params = ClaimParams {
            member: member(serial),
            size: "2Gi",
            class,
            is_owned: false,
        };
        let mut claim = claim(CLUSTER, params).unwrap();
        change(
            &mut claim,
            json!({ "spec": { "volumeName": format!("pv-{serial}") } }),
        );
        claim
    };
    [0, 1].map(bound).into()
}

#[test]
fn a_volume_is_on_a_nodes_disk_if_only_that_node_reaches_it() {
    let node = |terms: &[Value]| match location(&volume(terms)) {
        Some(VolumeLocation::Node(name)) => Some(name),
        _ => None,
    };
    assert_eq!(node(&[term(HOSTNAME, &["a"])]).as_deref(), Some("a"));
    assert_eq!(
        node(&[term(HOSTNAME, &["a"]), term(HOSTNAME, &["a"])]).as_deref(),
        Some("a")
    );
    assert_eq!(
        node(&[term(HOSTNAME, &["a"]), term(HOSTNAME, &["b"])]),
        None,
        "terms are alternatives"
    );
    let zone = || term("topology.kubernetes.io/zone", &["z"]);
    assert_eq!(node(&[term(HOSTNAME, &["a"]), zone()]), None);
    assert_eq!(node(&[term(HOSTNAME, &["a", "b"])]), None);
    assert_eq!(node(&[zone()]), None);
    assert_eq!(node(&[]), None);
    let not_in =
        json!({ "matchExpressions": [{ "key": HOSTNAME, "operator": "NotIn", "values": ["a"] }] });
    assert_eq!(node(&[not_in]), None);
    let mut network = volume(&[term(HOSTNAME, &["a"])]);
    change(&mut network, json!({ "spec": { "nodeAffinity": null } }));
    assert_eq!(location(&network), Some(VolumeLocation::Anywhere));
    assert_eq!(location(&volume(&[zone()])), None, "some nodes of a zone");
}

/// Returns an API with `pv-0` on node `a` that answers `nodes()` to a list of nodes, and a counter of volume reads.
fn kubernetes(
    nodes: impl Fn() -> (u16, Value) + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let client = client(move |request, _| match request.uri.path() {
        "/api/v1/persistentvolumes/pv-0" => {
            counter.fetch_add(1, Ordering::Relaxed);
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
    (client, reads)
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

#[tokio::test]
async fn a_volume_is_gone_only_if_a_live_list_shows_no_such_node() {
    let is_gone = |cached: &[&str], answer: fn() -> (u16, Value)| {
        let cached: BTreeSet<_> = cached.iter().map(|name| (*name).to_owned()).collect();
        async move {
            let (client, _) = kubernetes(answer);
            let locations = VolumeCache::default()
                .locations(&client, &cached, &claims(None))
                .await?;
            assert_eq!(
                locations.keys().collect::<Vec<_>>(),
                [&member_name(0)],
                "the location of pv-1 is unknown"
            );
            let location = &locations[&member_name(0)];
            assert!(
                *location == VolumeLocation::Gone
                    || *location == VolumeLocation::Node("a".to_owned())
            );
            Ok::<_, Error>(*location == VolumeLocation::Gone)
        }
    };
    assert!(is_gone(&["b"], || nodes(&[])).await.unwrap());
    assert!(
        !is_gone(&["b"], || nodes(&["a"])).await.unwrap(),
        "the cache lags behind"
    );
    assert!(
        !is_gone(&["a"], || nodes(&[])).await.unwrap(),
        "the cache has the node"
    );
    let forbidden = || failure(403, "Forbidden", "nodes are forbidden");
    assert!(
        !is_gone(&[], forbidden).await.unwrap(),
        "unknown is not gone"
    );
    let broken = || failure(500, "InternalError", "the API server is down");
    assert!(is_gone(&[], broken).await.is_err());
}

#[tokio::test]
async fn a_volume_is_read_once_and_forgotten_with_its_claim() {
    let (client, reads) = kubernetes(|| nodes(&["a"]));
    let volumes = VolumeCache::default();
    let no_nodes = BTreeSet::new();
    for _ in 0..3 {
        volumes
            .locations(&client, &no_nodes, &claims(None))
            .await
            .unwrap();
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    volumes.locations(&client, &no_nodes, &[]).await.unwrap();
    assert!(volumes.volumes.lock().is_empty());
}

#[tokio::test]
async fn a_missing_volume_is_not_lost_and_a_failed_read_is_an_error() {
    let no_nodes = BTreeSet::new();
    let missing = client(|_, _| not_found());
    let claims = claims(None);
    let locations = VolumeCache::default()
        .locations(&missing, &no_nodes, &claims)
        .await;
    assert!(locations.unwrap().is_empty());
    let broken = client(|_, _| failure(500, "InternalError", "the API server is down"));
    let locations = VolumeCache::default()
        .locations(&broken, &no_nodes, &claims)
        .await;
    let error = locations.unwrap_err().to_string();
    assert!(
        error.contains("read PersistentVolume pv-0: the API server is down"),
        "{error}"
    );
}

#[test]
fn a_volume_is_misplaced_if_no_allowed_node_reaches_it_and_another_does() {
    let nodes: Vec<NodeLabels> = [("a", "x"), ("b", "x"), ("c", "y")]
        .map(|(host, zone)| {
            [(HOSTNAME, host), ("zone", zone)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        })
        .into();
    let is_misplaced = |key: &str, value: &str, terms: &[Value]| {
        let selector = [(key.to_owned(), value.to_owned())].into();
        let volume = volume(terms);
        excludes(&selector, node_affinity(&volume).unwrap(), &nodes)
    };
    assert!(is_misplaced("zone", "y", &[term(HOSTNAME, &["a"])]));
    assert!(!is_misplaced("zone", "x", &[term(HOSTNAME, &["a"])]));
    assert!(is_misplaced("zone", "y", &[term("zone", &["x"])]));
    assert!(
        !is_misplaced("zone", "y", &[term("zone", &["x"]), term("zone", &["y"])]),
        "terms are alternatives"
    );
    assert!(
        !is_misplaced("zone", "y", &[term(HOSTNAME, &["gone"])]),
        "the node may come back"
    );
    assert!(
        !is_misplaced("disk", "ssd", &[term("zone", &["x"])]),
        "no node has that label"
    );
}

/// Returns an API with the class `fast`, and a counter of requests.
fn with_class(allow_expansion: Value) -> (Client, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let client = client(move |request, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        match request.uri.path() {
            "/apis/storage.k8s.io/v1/storageclasses/fast" => (
                200,
                json!({ "metadata": { "name": "fast" }, "provisioner": "csi.example",
                    "allowVolumeExpansion": allow_expansion }),
            ),
            _ => not_found(),
        }
    });
    (client, reads)
}

#[tokio::test]
async fn a_class_is_read_only_for_claims_that_have_to_grow() {
    let claims = claims(Some("fast"));
    let size = claims::requested_size(&claims[0]);
    let fixed_size_class = |client: Client, size: u64| {
        let claims = claims.clone();
        async move {
            StorageClasses::default()
                .fixed_size_class(&client, UPTIME, size, &claims)
                .await
                .unwrap()
        }
    };
    let class = fixed_size_class(with_class(json!(null)).0, size + 1).await;
    assert_eq!(class.as_deref(), Some("fast"));
    let class = fixed_size_class(with_class(json!(true)).0, size + 1).await;
    assert_eq!(class, None);
    let (client_, reads) = with_class(json!(null));
    assert_eq!(fixed_size_class(client_, size).await, None);
    assert_eq!(reads.load(Ordering::Relaxed), 0, "no claim has to grow");
    let forbidden = client(|_, _| failure(403, "Forbidden", "storageclasses are forbidden"));
    assert_eq!(
        fixed_size_class(forbidden, size + 1).await,
        None,
        "unknown does not block a resize"
    );
}

#[tokio::test]
async fn a_class_is_cached_for_a_minute_and_then_dropped() {
    let (client, reads) = with_class(json!(true));
    let classes = StorageClasses::default();
    let claims = claims(Some("fast"));
    let size = claims::requested_size(&claims[0]) + 1;
    for (seconds, expected_reads) in [(0, 1), (59, 1), (60, 2)] {
        let uptime = UPTIME + Duration::from_secs(seconds);
        let class = classes.fixed_size_class(&client, uptime, size, &claims);
        class.await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), expected_reads, "{seconds} s");
    }
    let later = UPTIME + Duration::from_secs(600);
    classes
        .missing_class(&client, later, Some("missing"), &claims)
        .await
        .unwrap();
    assert!(
        classes.classes.lock().is_empty(),
        "the old entry is dropped"
    );
}

#[tokio::test]
async fn a_class_is_missing_if_it_does_not_exist_and_no_volume_has_it() {
    let (client, _) = with_class(json!(true));
    let classes = StorageClasses::default();
    let bound = claims(Some("fsat"));
    let mut unbound = bound.clone();
    for claim in &mut unbound {
        change(claim, json!({ "spec": { "volumeName": null } }));
    }
    let missing = async |desired: Option<&str>, claims: &[PersistentVolumeClaim]| {
        let missing = classes.missing_class(&client, UPTIME, desired, claims);
        missing.await.unwrap()
    };
    assert_eq!(missing(Some("fsat"), &bound).await, None, "a volume has it");
    assert_eq!(
        missing(Some("fsat"), &unbound).await.as_deref(),
        Some("fsat"),
        "an unbound claim does not prove that the class exists"
    );
    assert_eq!(missing(Some("fast"), &unbound).await, None);
    assert_eq!(missing(None, &unbound).await, None);
}

#[tokio::test]
async fn a_class_that_may_not_be_read_is_neither_missing_nor_checked() {
    let forbidden = client(|_, _| failure(403, "Forbidden", "storageclasses are forbidden"));
    let classes = StorageClasses::default();
    let missing = classes.missing_class(&forbidden, UPTIME, Some("fast"), &[]);
    assert_eq!(missing.await.unwrap(), None);
    assert_eq!(classes.forbidden(), ["fast".to_owned()].into());
    let (readable, _) = with_class(json!(true));
    let classes = StorageClasses::default();
    let missing = classes.missing_class(&readable, UPTIME, Some("fast"), &[]);
    assert_eq!(missing.await.unwrap(), None);
    assert!(classes.forbidden().is_empty());
}
