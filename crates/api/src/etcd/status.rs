//! The status of an `EtcdCluster`. Every field is optional, since a new cluster has no status.
//!
//! Empty fields are not serialized. Write the whole status (server-side apply or replace): a merge patch would leave old
//! values in place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::schema::for_users;

/// The observed state of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct EtcdClusterStatus {
    /// A one-line summary of the cluster's state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The number of serving members and the desired number, such as 3/3.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// The number of further member failures that the cluster tolerates while clients can still write. Absent while
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub failure_tolerance: Option<i32>,
    /// The number of members, whether or not they serve.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub members: i32,
    /// The lowest version of etcd that a member was started with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub version: String,
    /// The size of the largest member's database, rounded up. The quota cannot be set to a lower value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub data_size: String,
    /// The size of the largest volume. A volume that is being resized counts with its current capacity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub volume_size: String,
    /// The label selector of the members' pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready: clients can read and write. Progressing: the operator is changing the cluster. Degraded: a problem
    /// persists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The cluster ID of etcd, in hexadecimal digits as etcdctl prints it. Set when the bootstrap is finished.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The name of the leader.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// The action in progress.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_action: String,
    /// The reason for the action in progress.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action_reason: String,
    /// The action that follows after the operator has waited.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_action: String,
    /// The reasons why the operator waits before it continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub waiting_for: Vec<String>,
    /// The members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub member_list: Vec<MemberStatus>,
    /// The expiry times of the certificates. The operator renews all of them before they expire, except those of the CAs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["secret".to_owned()]))]
    pub certificates: Vec<CertificateStatus>,
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
    /// The time since when the pod is not Ready and neither the operator nor the leader reaches the member. The operator
    /// replaces it spec.heal.replaceAfter later, unless a wait in the status prevents that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub unreachable_since: Option<Time>,
    /// The problem of the member, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
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
}
