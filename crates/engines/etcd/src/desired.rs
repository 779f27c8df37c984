//! What the user wants, checked and with every default filled in: nothing here is left open.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::options::Options;
use evenkeel_api::windows::{WindowState as State, Windows};
use evenkeel_api::{
    EffectiveResources as SettledResources, EtcdCluster, EtcdClusterSpec, OnDelete, Rejection,
    ServiceType, TopologyDomain as Across, ValidatedSpec as Checked, Version, labels, quantity,
};
use evenkeel_runtime::UnixTime;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::facts::{ClusterFacts, DisruptionWindow, StorageKind};
use crate::identity::{ClusterId, Uid};
use crate::names::ObjectNames;
use crate::versions;

/// How long members that cannot start hold up the end of the bootstrap. An image that takes longer to be pulled comes
/// after the seal, which costs nothing but a moment of less redundancy.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredCluster {
    /// The resource's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: Uid,
    /// The generation of its spec.
    pub generation: i64,
    /// The version of etcd.
    pub version: Version,
    /// The version that is to follow when the members' logs are renewed.
    pub next: Option<Version>,
    /// How many members.
    pub members: u8,
    /// Whether nothing is to be changed.
    pub paused: bool,
    /// Whether the resource is being deleted.
    pub deleted: bool,
    /// When it was created.
    pub created: UnixTime,
    /// The etcd cluster that its status names.
    pub known: Option<ClusterId>,
    /// The image, with tag or digest.
    pub image: String,
    /// The secrets to pull it with.
    pub pull_secrets: Vec<String>,
    /// Where data is.
    pub data: DesiredStorage,
    /// How large the volumes are, in bytes.
    pub size: u64,
    /// What a container is given.
    pub resources: Value,
    /// The label of nodes that members are spread over.
    pub spread_across: &'static str,
    /// Whether a member rather waits than share.
    pub spread_required: bool,
    /// Which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Which taints are put up with.
    pub tolerations: Vec<Toleration>,
    /// How important.
    pub priority_class: Option<String>,
    /// The type of the client service.
    pub service_type: &'static str,
    /// Its annotations.
    pub service_annotations: BTreeMap<String, String>,
    /// Further names in the servers' certificates.
    pub extra_names: Vec<String>,
    /// How large etcd may let its data grow, in bytes.
    pub quota: u64,
    /// For how long etcd keeps past values, as its flag takes it.
    pub compaction: Option<String>,
    /// Further flags of etcd.
    pub options: Options,
    /// For how long the claim of a member that was removed is kept.
    pub keep_removed_for: Duration,
    /// How long a member that may come back is waited for before it is replaced.
    pub replace_after: Duration,
    /// When changes that disturb members may happen.
    pub windows: Windows,
    /// What stands for all that pods are built from and that users have a say in.
    pub inputs: Uid,
    /// The last restart that was asked for, in whatever words.
    pub restart: Option<String>,
    /// The spec that says so, as text.
    pub spec: String,
}

/// Where a cluster's data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredStorage {
    /// On a claim for each member.
    Persistent {
        /// How large, as Kubernetes takes it.
        size: String,
        /// Of which class; the default one if not said.
        class: Option<String>,
        /// Whether it goes with the resource.
        owned: bool,
    },
    /// In the pods.
    Ephemeral {
        /// At most so much.
        limit: String,
    },
}

impl DesiredCluster {
    /// What a resource wants, or which field of it cannot be accepted.
    pub fn of(resource: &EtcdCluster) -> Result<Self, Rejection> {
        let name = resource.name_any();
        evenkeel_api::validate_name(&name)?;
        let spec = &resource.spec;
        let Checked {
            version,
            members,
            size: bytes,
            quota,
            auto_compaction,
            options,
            resources,
            keep_removed_for,
            replace_after,
            windows,
        } = spec.validate()?;
        let size = spec.storage.size.0.clone();
        let data = if spec.storage.ephemeral {
            DesiredStorage::Ephemeral { limit: size }
        } else {
            let owned = spec.storage.on_delete == OnDelete::Delete;
            DesiredStorage::Persistent {
                size,
                class: spec.storage.class.clone(),
                owned,
            }
        };
        let scheduling = &spec.scheduling;
        Ok(Self {
            namespace: resource.namespace().unwrap_or_default(),
            uid: uid(resource),
            generation: resource.metadata.generation.unwrap_or_default(),
            version,
            next: None,
            members,
            paused: spec.paused,
            deleted: resource.metadata.deletion_timestamp.is_some(),
            created: resource
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(UnixTime(0), |at| UnixTime(at.0.as_second())),
            known: known(resource),
            image: spec.image_reference(),
            pull_secrets: spec.image.pull_secrets.clone(),
            data,
            size: bytes,
            resources: json!({
                "requests": { "cpu": resources.cpu_request, "memory": resources.memory_request },
                "limits": { "memory": resources.memory_limit },
            }),
            spread_across: match scheduling.spread.across {
                Across::Node => "kubernetes.io/hostname",
                Across::Zone => "topology.kubernetes.io/zone",
            },
            spread_required: scheduling.spread.require,
            node_selector: scheduling.node_selector.clone(),
            tolerations: scheduling.tolerations.clone(),
            priority_class: scheduling.priority_class.clone(),
            service_type: match spec.service.kind {
                ServiceType::ClusterIP => "ClusterIP",
                ServiceType::NodePort => "NodePort",
                ServiceType::LoadBalancer => "LoadBalancer",
            },
            service_annotations: spec.service.annotations.clone(),
            extra_names: spec.tls.client.extra_names.clone(),
            quota,
            compaction: auto_compaction.map(|kept| format!("{}s", kept.as_secs())),
            options,
            keep_removed_for,
            replace_after,
            windows,
            inputs: pod_template_hash(spec, &resources, quota, auto_compaction),
            restart: resource.annotations().get(labels::RESTARTED_AT).cloned(),
            spec: serde_json::to_string(spec).unwrap_or_default(),
            name,
        })
    }

    /// The names of its objects.
    pub fn names(&self) -> ObjectNames<'_> {
        ObjectNames(&self.name)
    }

    /// Whether identity and claims go with the resource.
    pub fn owns_data(&self) -> bool {
        match self.data {
            DesiredStorage::Persistent { owned, .. } => owned,
            DesiredStorage::Ephemeral { .. } => true,
        }
    }

    /// The same as facts, for deciding at this time.
    pub fn facts(&self, now: UnixTime) -> ClusterFacts {
        ClusterFacts {
            resource_uid: self.uid,
            members: self.members,
            storage: match self.data {
                DesiredStorage::Persistent { .. } => StorageKind::Persistent,
                DesiredStorage::Ephemeral { .. } => StorageKind::Ephemeral,
            },
            is_deleted: self.deleted,
            created_at: self.created,
            is_paused: self.paused,
            status_cluster_id: self.known,
            max_learners: versions::minor(self.version).map_or(1, |minor| minor.max_learners),
            bootstrap_timeout: BOOTSTRAP_TIMEOUT,
            replace_after: self.replace_after,
            keep_removed_for: self.keep_removed_for,
            owns_data: self.owns_data(),
            disruption: self.disrupt(now),
            version: self.version,
            next_version: self.next,
            pod_template_hash: self.inputs,
            restart_request: self.restart.as_deref().map(Uid::of_name),
            volume_size: self.size,
        }
    }

    fn disrupt(&self, now: UnixTime) -> DisruptionWindow {
        let now = Timestamp::from_second(now.0).unwrap_or_default();
        match self.windows.state(now) {
            State::Open { .. } => DisruptionWindow::Allowed,
            State::Closed { until } => DisruptionWindow::NotBefore(UnixTime(until.as_second())),
        }
    }
}

/// What stands for all that pods are built from and that users have a say in. Whatever stands here restarts members when it
/// changes, and nothing else does: not how many there are, nor how this build of the operator would write a pod. So a field that
/// is new must be left out of the text where it says nothing, and a default that becomes another must not show here, or every cluster
/// would be restarted with the operator.
fn pod_template_hash(
    spec: &EtcdClusterSpec,
    resources: &SettledResources,
    quota: u64,
    compaction: Option<Duration>,
) -> Uid {
    let EtcdClusterSpec {
        version,
        image,
        storage,
        scheduling,
        etcd,
        ..
    } = spec;
    let SettledResources {
        cpu_request,
        memory_request,
        memory_limit,
    } = resources;
    let mut inputs = json!({
        "version": version,
        "image": image,
        "resources": normalize_quantities(json!({ "cpu": cpu_request, "memory": memory_request, "limit": memory_limit })),
        "scheduling": scheduling,
        "etcd": etcd,
    });
    // As it comes out: it follows the volume's size.
    inputs["etcd"]["quota"] = json!(quota);
    if let (Some(text), Some(kept)) = (inputs["etcd"].get_mut("autoCompaction"), compaction) {
        *text = json!(kept.as_secs());
    }
    if storage.ephemeral {
        inputs["limit"] = normalize_quantities(json!(storage.size));
    }
    Uid::of_name(&inputs.to_string())
}

/// Amounts as numbers, in thousandths: another way to write the same is no change.
fn normalize_quantities(value: Value) -> Value {
    match value {
        Value::Object(all) => all
            .into_iter()
            .map(|(key, value)| (key, normalize_quantities(value)))
            .collect(),
        Value::String(text) => match quantity::millis(&Quantity(text.clone())) {
            Ok(amount) => json!(amount),
            Err(_) => json!(text),
        },
        other => other,
    }
}

/// The uid of a resource.
pub(crate) fn uid(resource: &EtcdCluster) -> Uid {
    // Kubernetes' uids are UUIDs; should one ever not be, it still tells one resource from another.
    let text = resource.uid().unwrap_or_default();
    text.parse().unwrap_or_else(|_| Uid::of_name(&text))
}

fn known(resource: &EtcdCluster) -> Option<ClusterId> {
    let id = &resource.status.as_ref()?.cluster_id;
    u64::from_str_radix(id, 16).ok().map(ClusterId)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::resource;

    /// What stands here is written on pods that run: another number for the same spec would restart every cluster there is.
    #[test]
    fn what_pods_are_built_from_stands_for_the_same_with_every_operator() {
        let inputs = |spec: Value| {
            DesiredCluster::of(&resource(spec))
                .unwrap()
                .inputs
                .to_string()
        };
        assert_eq!(inputs(json!({})), "e4972efd-a6d1-32c2-d3de-a306837b2cde");
        let ephemeral = json!({ "storage": { "size": "2Gi", "ephemeral": true } });
        assert_eq!(inputs(ephemeral), "916dcc95-ff1b-6dd6-182f-2f6e90b6806c");
        let full = json!({
            "version": "3.5.35",
            "image": { "repository": "mirror.example/etcd", "pullSecrets": ["a"] },
            "storage": { "size": "10Gi", "class": "fast" },
            "resources": { "requests": { "cpu": "1", "memory": "2Gi" }, "limits": { "memory": "3Gi" } },
            "scheduling": {
                "spread": { "across": "Zone", "require": true },
                "nodeSelector": { "disk": "ssd" },
                "tolerations": [{ "key": "etcd", "operator": "Exists" }],
                "priorityClass": "high",
            },
            "etcd": { "quota": "4Gi", "autoCompaction": "8h", "options": { "snapshot-count": "5000" } },
        });
        assert_eq!(inputs(full), "2b755afa-816e-0a77-fcb3-97442923b670");
        let cpu = |text: &str| json!({ "resources": { "requests": { "cpu": text } }, "etcd": { "autoCompaction": "60m" } });
        let same = json!({ "resources": { "requests": { "cpu": "1" } }, "etcd": { "autoCompaction": "1h" } });
        assert_eq!(
            inputs(cpu("1000m")),
            inputs(same),
            "the same in other words"
        );
        assert_ne!(inputs(cpu("1001m")), inputs(cpu("1")));
        // What is for others than pods does not count.
        assert_eq!(
            inputs(json!({ "members": 5, "paused": true })),
            inputs(json!({}))
        );
    }
}
