//! Backups of etcd: the choice of the member that a snapshot is read from. A snapshot reads the whole database of one member,
//! so a follower is read rather than the leader.

use std::path::PathBuf;

use evenkeel_api::{
    ClusterKind, EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, Version,
};
use evenkeel_api::{labels, quantity};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::{EtcdSnapshotTask, Task};
use evenkeel_backup::agent_pod::placement;
use evenkeel_backup::{
    BackupEngine, ClusterSource, DrillParts, DrillSource, RestoreState, SnapshotSource,
};
use evenkeel_kit::pods::{self, PodRestart};
use evenkeel_kit::{Uid, identity_object};
use evenkeel_runtime::{Error, ResourceKey, SharedClock, UnixTime, cache};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::backup_drill;
use crate::build::pod::CONTAINER;
use crate::build::service::CLIENT_PORT;
use crate::identity::Identity;
use crate::names::{ENGINE, ObjectNames, peer_host};

/// The annotation with which `kubectl apply` repeats the whole resource.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Backups of EtcdClusters.
pub struct EtcdBackups {
    client: Client,
    clock: SharedClock,
}

impl EtcdBackups {
    /// Returns the backups of clusters that `client` reads.
    pub fn new(client: Client, clock: SharedClock) -> Self {
        Self { client, clock }
    }

    async fn read(&self, key: &ResourceKey) -> Result<Option<ClusterSource>, Error> {
        let identity_name = ObjectNames(&key.name).identity();
        let (cluster, identity, pods) = tokio::try_join!(
            cache::read::<EtcdCluster>(&self.client, key, &key.name),
            cache::read::<ConfigMap>(&self.client, key, &identity_name),
            cache::list::<Pod>(&self.client, key, labels::CLUSTER),
        )?;
        let cluster = cluster.filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(cluster) = cluster else {
            return Ok(None);
        };
        let identity = identity.as_ref().map(identity_object::parse).transpose()?;
        Ok(Some(source(
            &cluster,
            identity.as_ref(),
            &pods,
            self.clock.now(),
        )))
    }
}

impl BackupEngine for EtcdBackups {
    fn kind(&self) -> ClusterKind {
        ClusterKind::EtcdCluster
    }

    fn name(&self) -> &'static str {
        ENGINE.engine
    }

    fn cluster<'a>(
        &'a self,
        key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<ClusterSource>, Error>> {
        self.read(key).boxed()
    }

    fn snapshot_task(&self, source: &SnapshotSource, name: &str, tls: PathBuf) -> Task {
        Task::SnapshotEtcd(EtcdSnapshotTask {
            endpoint: source.endpoint.clone(),
            tls,
            cluster: source.cluster.clone(),
            epoch: source.epoch,
            version: source.version.clone(),
            quota: source.quota,
            resource: source.resource.clone(),
            name: name.to_owned(),
        })
    }

    fn drill_parts<'a>(
        &'a self,
        key: &'a ResourceKey,
        source: DrillSource,
    ) -> BoxFuture<'a, Result<Option<DrillParts>, Error>> {
        backup_drill::read(&self.client, key, source).boxed()
    }

    fn restore_state<'a>(
        &'a self,
        key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<RestoreState>, Error>> {
        async move {
            let cluster = cache::read::<EtcdCluster>(&self.client, key, &key.name).await?;
            let cluster = cluster.filter(|it| it.metadata.deletion_timestamp.is_none());
            Ok(cluster.map(restore_state))
        }
        .boxed()
    }

    fn can_read(&self, version: &str, data_version: &str) -> bool {
        let minor = |version: &str| {
            let version: Version = version.parse().ok()?;
            Some((version.major, version.minor))
        };
        match (minor(version), minor(data_version)) {
            (Some(version), Some(data)) => data <= version,
            (None, _) | (_, None) => false,
        }
    }
}

/// Returns the state of a cluster whose data a restore replaces. The ID is in the status once the bootstrap is finished.
fn restore_state(cluster: EtcdCluster) -> RestoreState {
    let status = cluster.status.unwrap_or_default();
    RestoreState {
        cluster_id: Some(status.cluster_id).filter(|id| !id.is_empty()),
        version: cluster.spec.version,
        progress: status.restore,
        is_paused: cluster.spec.paused,
        is_ephemeral: cluster.spec.storage.ephemeral,
    }
}

/// Returns the members of a cluster that a snapshot can be read from: followers, then the leader, then members on cordoned
/// nodes, which are about to be stopped.
fn source(
    cluster: &EtcdCluster,
    identity: Option<&Identity>,
    pods: &[Pod],
    now: UnixTime,
) -> ClusterSource {
    let (image, scheduling) = (&cluster.spec.image, &cluster.spec.scheduling);
    let placement = placement(
        &image.pull_secrets,
        &scheduling.node_selector,
        &scheduling.tolerations,
    );
    let unreadable = |problem: &str| ClusterSource {
        lineage: identity.map(lineage),
        members: Vec::new(),
        problem: problem.to_owned(),
        placement: placement.clone(),
    };
    let uid = cluster.uid().and_then(|uid| uid.parse::<Uid>().ok());
    let Some(identity) = identity.filter(|it| it.bootstrapped && Some(it.resource_uid) == uid)
    else {
        return unreadable("Its bootstrap is not finished.");
    };
    let status = cluster.status.clone().unwrap_or_default();
    let quota = quantity::bytes(&Quantity(status.quota.clone()));
    let (Some(cluster_id), Ok(quota)) = (identity.cluster_id, quota) else {
        return unreadable("Its bootstrap is not finished.");
    };
    if has_lost_quorum(&status) {
        return unreadable(
            "Fewer voters than a quorum respond, so the newest data may be missing.",
        );
    }
    let mut readable: Vec<_> = status
        .member_list
        .iter()
        .filter(|member| is_readable(member, pods, now))
        .collect();
    // The order of names is kept among equals.
    readable.sort_by_key(|member| (member.node_status.is_some(), member.name == status.leader));
    if readable.is_empty() {
        return unreadable("No voter is healthy and has been running for some seconds.");
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let resource = resource_json(cluster);
    let of_member = |member: &MemberStatus| SnapshotSource {
        endpoint: format!(
            "https://{}:{CLIENT_PORT}",
            peer_host(&cluster.name_any(), &namespace, &member.name)
        ),
        tls_secret: ObjectNames(&cluster.name_any()).operator_tls(),
        cluster: ClusterInfo {
            namespace: namespace.clone(),
            name: cluster.name_any(),
            lineage: lineage(identity),
            cluster_id: format!("{:x}", cluster_id.0),
            member: member.name.clone(),
        },
        epoch: u32::from(identity.epoch.0),
        version: member.version.clone(),
        quota,
        resource: resource.clone(),
    };
    ClusterSource {
        lineage: Some(lineage(identity)),
        members: readable.into_iter().map(of_member).collect(),
        problem: String::new(),
        placement,
    }
}

/// Returns the lineage as stores have it.
fn lineage(identity: &Identity) -> String {
    format!("{:08x}", identity.lineage.0)
}

fn has_lost_quorum(status: &EtcdClusterStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|it| it.type_ == "Ready" && it.status != "True" && it.reason == "QuorumLost")
}

/// Returns true if a member is a healthy voter whose pod is neither being deleted nor starting.
fn is_readable(member: &MemberStatus, pods: &[Pod], now: UnixTime) -> bool {
    let is_healthy =
        member.role == MemberRole::Voter && member.healthy && !member.version.is_empty();
    let pod = pods.iter().find(|pod| pod.name_any() == member.name);
    let is_running = |pod: &Pod| {
        let restart = PodRestart::of(pod, CONTAINER, now);
        pods::is_ready(pod) && restart.has_been_ready && restart.terminating_since.is_none()
    };
    is_healthy && pod.is_some_and(is_running)
}

/// Returns the resource for the manifest: without its status, and without fields that repeat others.
fn resource_json(cluster: &EtcdCluster) -> Value {
    let mut value = json!(cluster);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove(LAST_APPLIED);
        }
    }
    value
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
