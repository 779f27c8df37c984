//! How a pod's etcd finds its cluster, as it is written on the pod: annotations that its arguments read at every start of
//! its container. Never `ETCD_*` variables: an empty one makes etcd default to a *new* cluster of itself (tried); an empty
//! argument is refused.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::labels;
use k8s_openapi::api::core::v1::Pod;

use crate::desired::DesiredCluster;
use crate::facts::StartMode;
use crate::names::{Lineage, Serial, member_name, peer_url};

/// What a pod that waits would mount its data from. It cannot: a path that is absolute is refused by the kubelet before it
/// creates the container, with this text in its complaint. Volumes are provided and mounted, and a sandbox is made, but etcd
/// does not start. (A scheduling gate would hold all of that up, too.)
const HELD_SUB_PATH: &str = "/waiting until Evenkeel lets it start";
/// What etcd's data is mounted from, within its volume.
const DATA_SUB_PATH: &str = "member";

/// Whether what the kubelet complains about is no more than a pod that waits as it should.
pub fn is_held_message(complaint: &str) -> bool {
    complaint.contains(HELD_SUB_PATH)
}

/// The annotations that have a pod start this way.
pub fn annotations(
    desired: &DesiredCluster,
    lineage: Lineage,
    serial: Serial,
    start: &StartMode,
) -> BTreeMap<String, String> {
    let entry = |serial: Serial| {
        let name = member_name(&desired.name, lineage, serial);
        let url = peer_url(&desired.name, &desired.namespace, &name);
        format!("{name}={url}")
    };
    let mounted = if *start == StartMode::Held {
        HELD_SUB_PATH
    } else {
        DATA_SUB_PATH
    };
    let (list, state) = match start {
        StartMode::Held => (String::new(), "existing"),
        StartMode::Bootstrap => (entry(serial), "new"),
        StartMode::ExistingData => (entry(serial), "existing"),
        StartMode::Join(list) => (
            list.iter()
                .map(|serial| entry(*serial))
                .collect::<Vec<_>>()
                .join(","),
            "existing",
        ),
    };
    BTreeMap::from([
        (labels::INITIAL_CLUSTER.to_owned(), list),
        (labels::INITIAL_CLUSTER_STATE.to_owned(), state.to_owned()),
        (labels::DATA_SUB_PATH.to_owned(), mounted.to_owned()),
    ])
}

/// How a pod starts, from what is written on it. `serial_of` tells members by name.
pub fn read(pod: &Pod, serial: Serial, serial_of: impl Fn(&str) -> Option<Serial>) -> StartMode {
    let written = |key: &str| {
        pod.metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(key))
            .cloned()
    };
    if written(labels::DATA_SUB_PATH).as_deref() != Some(DATA_SUB_PATH) {
        return StartMode::Held;
    }
    if written(labels::INITIAL_CLUSTER_STATE).as_deref() == Some("new") {
        return StartMode::Bootstrap;
    }
    let list = written(labels::INITIAL_CLUSTER).unwrap_or_default();
    let names = list
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, _)| name);
    let list: BTreeSet<Serial> = names.filter_map(serial_of).collect();
    // An empty list is refused by etcd on an empty directory, as itself alone is.
    if list.is_empty() || list == BTreeSet::from([serial]) {
        StartMode::ExistingData
    } else {
        StartMode::Join(list)
    }
}
