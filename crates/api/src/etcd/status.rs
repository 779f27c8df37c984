//! What is to be seen of a cluster. Everything may be missing: a cluster that nobody has looked at yet has no status.
//!
//! What is empty is not written, so write a status whole (server-side apply or replace): a merge would leave the old
//! value.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::schema::as_users_meet_it;

/// What is to be seen of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = as_users_meet_it)]
pub struct EtcdClusterStatus {
    /// How the cluster is, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phrase: String,
    /// How many members serve, of how many that are wanted, such as 3/3.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// How many more members may fail before clients can no longer write; not there while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub survives: Option<i32>,
    /// How many members there are, whether or not they serve.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub members: i32,
    /// The lowest version of etcd that members were started with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub version: String,
    /// How large the data of the largest member is, rounded up; a quota cannot be lowered below that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub data_size: String,
    /// How large the largest volume of a member is. One that is being made larger counts when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub volume_size: String,
    /// The labels by which members' pods are found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready: clients can read and write. Progressing: something is being changed. Degraded: something is amiss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// What etcd calls this cluster, in hexadecimal digits as etcdctl writes them. It is there once clients have been let in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The name of the member that leads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// What is being done now, as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doing: String,
    /// Why that is done, as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// What is done next, once what is waited for has come; as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// What is waited for before anything further is done, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub waiting_for: Vec<String>,
    /// The members, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub member_list: Vec<MemberStatus>,
    /// Until when the certificates are good. All but those of the authorities are renewed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["secret".to_owned()]))]
    pub certificates: Vec<CertificateStatus>,
}

/// Until when a certificate is good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The Secret that holds it.
    pub secret: String,
    /// Until when it is good.
    pub expires: Time,
}

/// What is to be seen of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name, which is also its pod's.
    pub name: String,
    /// What etcd calls it, in hexadecimal digits as etcdctl writes them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its part in the cluster: Voter, Learner, Joining or Leaving.
    pub role: MemberRole,
    /// Whether it serves.
    #[serde(default)]
    pub healthy: bool,
    /// The version of etcd it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The node it runs on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// What is to be said of it, if anything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A member's part in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// It has a vote, and serves clients.
    Voter,
    /// It copies the data, and will get a vote once it has caught up.
    Learner,
    /// It is on its way, and etcd does not count on it yet.
    Joining,
    /// It is being removed.
    Leaving,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_nothing_in_it_is_valid_and_takes_no_room() {
        let status: EtcdClusterStatus = serde_json::from_str("{}").unwrap();
        assert_eq!(status, EtcdClusterStatus::default());
        assert_eq!(serde_json::to_string(&status).unwrap(), "{}");
    }
}
