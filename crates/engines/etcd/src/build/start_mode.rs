//! How a pod's etcd finds its cluster: annotations that the container's arguments read at every start. They are arguments
//! and never `ETCD_*` variables: an empty variable makes etcd default to a *new* cluster of itself, while it rejects an
//! empty argument (tried).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::labels;
use evenkeel_kit::objects::annotation;
use evenkeel_kit::pods;
use k8s_openapi::api::core::v1::Pod;

use crate::desired::DesiredCluster;
use crate::facts::StartMode;
use crate::names::{Lineage, Serial, member_name, peer_url};

/// Returns the annotations for a start mode.
pub fn annotations(
    desired: &DesiredCluster,
    lineage: Lineage,
    serial: Serial,
    start_mode: &StartMode,
) -> BTreeMap<String, String> {
    let entry = |serial: Serial| {
        let name = member_name(&desired.name, lineage, serial);
        let url = peer_url(&desired.name, &desired.namespace, &name);
        format!("{name}={url}")
    };
    let (initial_cluster, state) = match start_mode {
        StartMode::Held => (String::new(), "existing"),
        StartMode::Bootstrap => (entry(serial), "new"),
        StartMode::ExistingData | StartMode::Restored => (entry(serial), "existing"),
        StartMode::Join(members) => {
            let entries: Vec<_> = members.iter().map(|serial| entry(*serial)).collect();
            (entries.join(","), "existing")
        }
    };
    let sub_path = pods::data_sub_path(*start_mode == StartMode::Held);
    let mut annotations = BTreeMap::from([
        (labels::INITIAL_CLUSTER.to_owned(), initial_cluster),
        (labels::INITIAL_CLUSTER_STATE.to_owned(), state.to_owned()),
        (labels::DATA_SUB_PATH.to_owned(), sub_path.to_owned()),
    ]);
    if *start_mode == StartMode::Restored {
        annotations.insert(labels::RESTORED.to_owned(), "true".to_owned());
    }
    annotations
}

/// Reads the start mode from a pod's annotations. `serial_of` returns the serial of a member by its name.
pub fn read(pod: &Pod, serial: Serial, serial_of: impl Fn(&str) -> Option<Serial>) -> StartMode {
    if pods::is_held(pod) {
        return StartMode::Held;
    }
    if annotation(&pod.metadata, labels::INITIAL_CLUSTER_STATE) == Some("new") {
        return StartMode::Bootstrap;
    }
    let initial_cluster = annotation(&pod.metadata, labels::INITIAL_CLUSTER).unwrap_or_default();
    let names = initial_cluster
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, _)| name);
    let members: BTreeSet<Serial> = names.filter_map(serial_of).collect();
    // On an empty directory, etcd rejects an empty list as it rejects a list of itself.
    if members.is_empty() || members == BTreeSet::from([serial]) {
        let was_restored = annotation(&pod.metadata, labels::RESTORED).is_some();
        if was_restored && !pods::is_condition_true(pod, labels::GATE_JOINED) {
            return StartMode::Restored;
        }
        StartMode::ExistingData
    } else {
        StartMode::Join(members)
    }
}
