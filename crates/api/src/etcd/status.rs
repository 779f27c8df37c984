//! The status of an `EtcdCluster`. Every field is optional, since a new cluster has no status.
//!
//! Empty fields are not serialized. Write the whole status (server-side apply or replace): a merge patch would leave old
//! values in place. A field that another version of the operator has written, and that this version cannot decode, counts
//! as absent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup::restore::RestoreProgress;
use crate::backup::summary::ClusterBackupStatus;
use crate::common::lenient;
use crate::common::schema::for_users;

/// The observed state of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct EtcdClusterStatus {
    /// A one-line summary of the cluster's state.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub summary: String,
    /// The version that runs, and the desired one while they differ, such as 3.6.16 → 3.7.3.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub version_summary: String,
    /// The number of serving members and the desired number, such as 3/3.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub ready: String,
    /// The further failures that the cluster tolerates while clients can still write. Absent while unknown.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "FailureToleranceStatus")]
    pub failure_tolerance: Option<FailureToleranceStatus>,
    /// The number of members, whether or not they serve.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "crate::common::is_default"
    )]
    pub members: i32,
    /// The lowest version of etcd that a member was started with.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 32))]
    pub version: String,
    /// The size of the largest member's database, rounded up in coarse steps and at least 16Mi. Members export the exact
    /// size as a metric. The quota cannot be set to a lower value.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 32))]
    pub data_size: String,
    /// The size at which etcd stops accepting writes.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 32))]
    pub quota: String,
    /// The size of the largest volume. A volume that is being resized counts with its current capacity.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 32))]
    pub volume_size: String,
    /// The label selector of the members' pods.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
    /// The generation of the spec that this status describes.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready: clients can read and write. Progressing: the operator is changing the cluster. Degraded: a problem
    /// persists.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The cluster ID of etcd, in hexadecimal digits as etcdctl prints it. Set when the bootstrap is finished.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub cluster_id: String,
    /// The name of the leader.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "String::is_empty"
    )]
    pub leader: String,
    /// The alarms that etcd has raised, such as NOSPACE. etcd then rejects writes.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub alarms: Vec<String>,
    /// The last restore that replaces, or has replaced, the data of this cluster.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "RestoreProgress")]
    pub restore: Option<RestoreProgress>,
    /// The operation in progress. Absent if the operator neither changes nor recovers the cluster.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "OperationStatus")]
    pub operation: Option<OperationStatus>,
    /// The reasons why the operator waits before it continues.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub waiting_for: Vec<String>,
    /// The action that follows after the operator has waited.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "NextActionStatus")]
    pub next_action: Option<NextActionStatus>,
    /// The problems of the cluster, the worst first. The condition Degraded reports the first one.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub problems: Vec<ProblemStatus>,
    /// The members.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub member_list: Vec<MemberStatus>,
    /// The volumes of removed members, which are kept for spec.storage.keepRemovedFor.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["claim".to_owned()]))]
    pub retained_volumes: Vec<RetainedVolumeStatus>,
    /// The expiry times of the certificates. The operator renews all of them before they expire, except those of the CAs.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["secret".to_owned()]))]
    pub certificates: Vec<CertificateStatus>,
    /// The backups, if spec.backup is set.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "ClusterBackupStatus")]
    pub backup: Option<ClusterBackupStatus>,
}

/// The further failures that a cluster tolerates while clients can still write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureToleranceStatus {
    /// The tolerance in a few words, such as 1 node.
    pub summary: String,
    /// The number of members that may fail.
    pub members: i32,
    /// The number of nodes that may fail, whichever they are. Absent if the node of a member is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub nodes: Option<i32>,
    /// The number of zones that may fail, whichever they are. Absent if the zone of a member is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub zones: Option<i32>,
    /// The nodes whose loss alone would lose the quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub critical_nodes: Vec<String>,
    /// The zones whose loss alone would lose the quorum, if the members are in more than one zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub critical_zones: Vec<String>,
}

/// The operation in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStatus {
    /// The type of the operation.
    pub r#type: OperationType,
    /// The current step, in words that follow "the operator is".
    pub message: String,
    /// The reason for the current step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The number of members for which the operation is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub completed: Option<i32>,
    /// The number of members that the operation affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub total: Option<i32>,
    /// The time at which the operation began.
    pub start_time: Time,
}

/// The type of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationType {
    /// The cluster is created.
    Bootstrap,
    /// The data of the cluster is replaced by that of a backup, or by the data before a restore.
    Restore,
    /// Members are restarted one by one with another version.
    Upgrade,
    /// Members are restarted one by one because a user asked for it.
    Restart,
    /// Members are restarted or replaced one by one with a changed spec.
    Update,
    /// Members are added or removed.
    Scale,
    /// A member is replaced by a new one.
    Replace,
    /// A member that does not serve is recovered.
    Recover,
    /// Objects of the cluster, such as Services and Secrets, are updated.
    Reconcile,
    /// The resource is being deleted.
    Delete,
}

/// An action that follows after a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextActionStatus {
    /// The action.
    pub message: String,
    /// The time of the action, if the wait has a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub time: Option<Time>,
}

/// A problem of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemStatus {
    /// The reason, as in the conditions.
    pub reason: String,
    /// The fact and its consequence.
    pub message: String,
    /// The action that is required from a user. Empty if none is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
    /// The name of the member that the problem is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub member: String,
    /// The time since when the operator has reported the problem.
    pub since: Time,
}

/// The volume of a removed member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetainedVolumeStatus {
    /// The name of the PersistentVolumeClaim.
    pub claim: String,
    /// The size of the volume.
    pub size: String,
    /// The time at which the operator deletes the PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub delete_time: Option<Time>,
}

/// The expiry time of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The name of the Secret that holds the certificate.
    pub secret: String,
    /// The time at which the certificate expires.
    pub expires: Time,
}

/// The observed state of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The name of the member and of its pod.
    pub name: String,
    /// The member ID of etcd, in hexadecimal digits as etcdctl prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The role in the cluster: Voter, Learner, Joining or Leaving.
    pub role: MemberRole,
    /// Whether the member serves.
    #[serde(default)]
    pub healthy: bool,
    /// The version of etcd that the member runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The node that the member runs on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The zone of the node, from its label topology.kubernetes.io/zone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The problem of the node, if any: NotReady, Cordoned or Missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NodeProblem")]
    pub node_status: Option<NodeProblem>,
    /// The time since when the pod is not Ready and neither the operator nor the leader reaches the member. The operator
    /// replaces it spec.heal.replaceAfter later, unless a wait in the status prevents that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub unreachable_since: Option<Time>,
    /// The problem of the member, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The problem of a member's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeProblem {
    /// The node does not report to Kubernetes, or reports that it is not ready.
    NotReady,
    /// The node is cordoned, as by `kubectl drain`: no pod is scheduled to it.
    Cordoned,
    /// The node does not exist any more.
    Missing,
}

/// The role of a member in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// A voting member.
    Voter,
    /// A member without a vote that copies the data and is promoted when it has caught up.
    Learner,
    /// A member that etcd does not list yet.
    Joining,
    /// A member that is being removed.
    Leaving,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_status_is_valid_and_serializes_to_nothing() {
        let status: EtcdClusterStatus = serde_json::from_str("{}").unwrap();
        assert_eq!(status, EtcdClusterStatus::default());
        assert_eq!(serde_json::to_string(&status).unwrap(), "{}");
    }

    #[test]
    fn a_field_of_another_version_counts_as_absent() {
        let stored = serde_json::json!({ "clusterId": "5", "failureTolerance": 1, "phrase": "Healthy",
            "problems": [{ "reason": 7 }], "members": 3 });
        let status: EtcdClusterStatus = serde_json::from_value(stored).unwrap();
        let expected = EtcdClusterStatus {
            cluster_id: "5".to_owned(),
            members: 3,
            ..EtcdClusterStatus::default()
        };
        assert_eq!(status, expected);
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(
            written,
            serde_json::json!({ "clusterId": "5", "members": 3 })
        );
    }
}
