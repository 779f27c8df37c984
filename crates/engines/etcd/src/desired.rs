//! The desired state of a cluster: a validated spec with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::options::Options;
use evenkeel_api::windows::Windows;
use evenkeel_api::{
    BackupPolicy, EffectiveResources, EtcdCluster, EtcdClusterSpec, OnDelete, Rejection,
    ServiceType, TopologyDomain, ValidatedSpec, Version, labels,
};
use evenkeel_kit::{ClusterRef, pods};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::Toleration;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::facts::{ClusterFacts, DisruptionWindow, StorageKind};
use crate::identity::{ClusterId, RestoreOrigin, Uid};
use crate::names::{ENGINE, ObjectNames};
use crate::versions;

/// The time for which bootstrap waits for members that cannot start. A member whose image takes longer to pull joins after
/// bootstrap is finished; until then the cluster has less redundancy.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(60);

/// The desired state of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredCluster {
    /// The name of the resource.
    pub name: String,
    /// The namespace of the resource.
    pub namespace: String,
    /// The uid of the resource.
    pub uid: Uid,
    /// The generation of the resource.
    pub generation: i64,
    /// The version of etcd.
    pub version: Version,
    /// The version that the members are upgraded to once a snapshot was forced.
    pub next: Option<Version>,
    /// The number of members.
    pub members: u8,
    /// Whether the operator is paused for this cluster.
    pub paused: bool,
    /// Whether the resource is being deleted.
    pub deleted: bool,
    /// The creation time of the resource.
    pub created: UnixTime,
    /// The cluster ID in the resource's status.
    pub known: Option<ClusterId>,
    /// The image, with tag or digest.
    pub image: String,
    /// The names of the image pull Secrets.
    pub pull_secrets: Vec<String>,
    /// The storage of the members.
    pub data: DesiredStorage,
    /// The size of each volume in bytes.
    pub size: u64,
    /// The resource requests and limits of the container.
    pub resources: Value,
    /// The node label that members are spread over.
    pub spread_across: &'static str,
    /// Whether a pod stays Pending rather than share a node or zone.
    pub spread_required: bool,
    /// The node selector of the pods.
    pub node_selector: BTreeMap<String, String>,
    /// The tolerations of the pods.
    pub tolerations: Vec<Toleration>,
    /// The priority class of the pods.
    pub priority_class: Option<String>,
    /// The type of the client Service.
    pub service_type: &'static str,
    /// The annotations of the client Service.
    pub service_annotations: BTreeMap<String, String>,
    /// Additional names in the server certificate.
    pub extra_names: Vec<String>,
    /// The quota of etcd's database in bytes.
    pub quota: u64,
    /// The retention of etcd's auto-compaction, as its flag takes it.
    pub compaction: Option<String>,
    /// Additional flags of etcd.
    pub options: Options,
    /// The time for which the PVC of a removed member is kept.
    pub keep_removed_for: Duration,
    /// The time after which an unreachable member is replaced.
    pub replace_after: Duration,
    /// The time after which an unreachable member on a cordoned node is replaced.
    pub replace_drained_after: Duration,
    /// The maintenance windows; `None` if those in the spec are invalid and none were accepted before.
    pub windows: Option<Windows>,
    /// The store, the times and the retention of backups, if the cluster is backed up.
    pub backup: Option<BackupPolicy>,
    /// The restore that a new cluster starts from.
    pub restore: Option<RestoreOrigin>,
    /// The hash of the user's inputs that pods are built from.
    pub inputs: Uid,
    /// The value of the restart annotation.
    pub restart: Option<String>,
    /// The spec as JSON text.
    pub spec: String,
}

/// The storage of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredStorage {
    /// One PVC for each member.
    Persistent {
        /// The size, as a Kubernetes quantity.
        size: String,
        /// The StorageClass; the default class if `None`.
        class: Option<String>,
        /// Whether the PVC is deleted with the resource once bootstrap is finished.
        owned: bool,
    },
    /// A volume that is deleted with the pod.
    Ephemeral {
        /// The size limit, as a Kubernetes quantity.
        limit: String,
    },
}

impl DesiredCluster {
    /// Returns the desired state of a resource, or the first field that is invalid.
    pub fn of(resource: &EtcdCluster) -> Result<Self, Rejection> {
        let name = resource.name_any();
        evenkeel_api::validate_name(&name)?;
        let spec = &resource.spec;
        let ValidatedSpec {
            version,
            members,
            size: bytes,
            quota,
            auto_compaction,
            options,
            resources,
            keep_removed_for,
            replace_after,
            replace_drained_after,
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
            known: status_cluster_id(resource),
            image: spec.image_reference(),
            pull_secrets: spec.image.pull_secrets.clone(),
            data,
            size: bytes,
            resources: container_resources(&resources),
            spread_across: match scheduling.spread.across {
                TopologyDomain::Node => "kubernetes.io/hostname",
                TopologyDomain::Zone => "topology.kubernetes.io/zone",
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
            compaction: auto_compaction.map(|retention| format!("{}s", retention.as_secs())),
            options,
            keep_removed_for,
            replace_after,
            replace_drained_after,
            windows: Some(windows),
            backup: spec.backup.clone(),
            restore: spec
                .bootstrap
                .from
                .as_ref()
                .map(|from| RestoreOrigin::bootstrap(&from.backup)),
            inputs: pod_template_hash(spec, &resources, quota, auto_compaction),
            restart: resource.annotations().get(labels::RESTARTED_AT).cloned(),
            spec: serde_json::to_string(spec).unwrap_or_default(),
            name,
        })
    }

    /// Returns the names of the cluster's objects.
    pub fn names(&self) -> ObjectNames<'_> {
        ObjectNames(&self.name)
    }

    /// Returns the cluster as the kit takes it.
    pub fn cluster_ref(&self) -> ClusterRef<'_> {
        ClusterRef {
            engine: &ENGINE,
            name: &self.name,
            namespace: &self.namespace,
            uid: self.uid,
        }
    }

    /// Returns true if the identity object and the PVCs are deleted with the resource, even once bootstrap is finished.
    pub fn owns_data(&self) -> bool {
        match self.data {
            DesiredStorage::Persistent { owned, .. } => owned,
            DesiredStorage::Ephemeral { .. } => true,
        }
    }

    /// Returns the facts about the desired state at `now`.
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
            replace_drained_after: self.replace_drained_after,
            keep_removed_for: self.keep_removed_for,
            owns_data: self.owns_data(),
            disruption: match &self.windows {
                Some(windows) => DisruptionWindow::at(windows, now),
                None => DisruptionWindow::NotBeforeValid,
            },
            version: self.version,
            next_version: self.next,
            pod_template_hash: self.inputs,
            restart_request: self.restart.as_deref().map(Uid::of_name),
            volume_size: self.size,
            restore: self.restore.clone(),
        }
    }
}

/// Returns the resource requests and limits of the container.
fn container_resources(resources: &EffectiveResources) -> Value {
    let EffectiveResources {
        cpu_request,
        cpu_limit,
        memory_request,
        memory_limit,
    } = resources;
    let mut limits = json!({ "memory": memory_limit });
    if let Some(cpu_limit) = cpu_limit {
        limits["cpu"] = json!(cpu_limit);
    }
    json!({ "requests": { "cpu": cpu_request, "memory": memory_request }, "limits": limits })
}

/// Returns the hash of the user's inputs that pods are built from. A change of the hash restarts members. The number of
/// members is not an input, and neither is the way in which this build of the operator writes a pod. A new field must
/// therefore be omitted from the hashed text where it has its default, and a changed default must not change the text:
/// otherwise an upgrade of the operator would restart every cluster.
fn pod_template_hash(
    spec: &EtcdClusterSpec,
    resources: &EffectiveResources,
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
    let EffectiveResources {
        cpu_request,
        cpu_limit,
        memory_request,
        memory_limit,
    } = resources;
    let mut resources =
        json!({ "cpu": cpu_request, "memory": memory_request, "limit": memory_limit });
    if let Some(cpu_limit) = cpu_limit {
        resources["cpuLimit"] = json!(cpu_limit);
    }
    let mut inputs = json!({
        "version": version,
        "image": image,
        "resources": pods::normalize_quantities(resources),
        "scheduling": scheduling,
        "etcd": etcd,
    });
    // The effective quota: it depends on the size of the volume.
    inputs["etcd"]["quota"] = json!(quota);
    if let (Some(text), Some(retention)) = (inputs["etcd"].get_mut("autoCompaction"), compaction) {
        *text = json!(retention.as_secs());
    }
    if storage.ephemeral {
        inputs["limit"] = pods::normalize_quantities(json!(storage.size));
    }
    pods::template_hash(&inputs)
}

/// Returns the uid of a resource.
pub(crate) fn uid(resource: &EtcdCluster) -> Uid {
    ClusterRef::of(&ENGINE, resource).uid
}

fn status_cluster_id(resource: &EtcdCluster) -> Option<ClusterId> {
    let id = &resource.status.as_ref()?.cluster_id;
    u64::from_str_radix(id, 16).ok().map(ClusterId)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::resource;

    /// Running pods carry these hashes: another hash for the same spec would restart every cluster.
    #[test]
    fn the_template_hash_of_a_spec_never_changes() {
        let hash = |spec: Value| {
            DesiredCluster::of(&resource(spec))
                .unwrap()
                .inputs
                .to_string()
        };
        assert_eq!(hash(json!({})), "e4972efd-a6d1-32c2-d3de-a306837b2cde");
        let ephemeral = json!({ "storage": { "size": "2Gi", "ephemeral": true } });
        assert_eq!(hash(ephemeral), "916dcc95-ff1b-6dd6-182f-2f6e90b6806c");
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
        assert_eq!(hash(full), "2b755afa-816e-0a77-fcb3-97442923b670");
        let cpu = |text: &str| json!({ "resources": { "requests": { "cpu": text } }, "etcd": { "autoCompaction": "60m" } });
        let same = json!({ "resources": { "requests": { "cpu": "1" } }, "etcd": { "autoCompaction": "1h" } });
        assert_eq!(
            hash(cpu("1000m")),
            hash(same),
            "two spellings of one quantity"
        );
        assert_ne!(hash(cpu("1001m")), hash(cpu("1")));
        let cpu_limit = |text: &str| json!({ "resources": { "limits": { "cpu": text } } });
        assert_ne!(hash(cpu_limit("2")), hash(json!({})));
        assert_eq!(hash(cpu_limit("2")), hash(cpu_limit("2000m")));
        // The API server writes the defaults into the object.
        let defaulted = json!({ "resources": { "requests": { "cpu": "100m", "memory": "256Mi" },
            "limits": { "memory": "2Gi" } } });
        assert_eq!(hash(defaulted), hash(json!({})));
        // Fields that do not concern pods do not count.
        assert_eq!(
            hash(json!({ "members": 5, "paused": true })),
            hash(json!({}))
        );
    }
}
