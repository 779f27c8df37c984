//! The `BackupStore` resource: a bucket or a volume that backups are written to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::name_rule;
use crate::common::schema::{bounded_string, for_users};

/// The message for a store with no place or with two.
pub(crate) const ONE_PLACE: &str = "exactly one of s3 and volume must be set";
/// The message for a credentials source with none or two.
pub(crate) const ONE_CREDENTIAL: &str = "exactly one of secret and webIdentity must be set";
/// The message for an invalid prefix.
pub(crate) const INVALID_PREFIX: &str = "must be a path such as prod/eu1: letters, digits, dots, dashes and underscores between slashes, \
     no slash at its begin or end, and no segment that begins with a dot";
/// The message for an invalid endpoint.
pub(crate) const INVALID_ENDPOINT: &str = "must be a URL such as https://s3.example:9000, without a path. http:// requires allowHTTP: true";

const PATH: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$";

/// The desired state of a backup store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "BackupStore",
    plural = "backupstores",
    shortname = "ekstore",
    category = "evenkeel",
    namespaced,
    doc = "A bucket or a volume that backups of clusters in the same namespace are written to.",
    status = "BackupStoreStatus",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Location", type_ = "string", json_path = ".status.location"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = name_rule("size(self.metadata.name) <= 40", "must have at most 40 characters: pods are named after it"),
    validation = name_rule("!self.metadata.name.contains('.')", "must not contain a dot: pods are named after it"),
)]
#[x_kube(validation = Rule::new("has(self.s3) != has(self.volume)").message(ONE_PLACE))]
pub struct BackupStoreSpec {
    /// A bucket of Amazon S3 or of a compatible server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "S3Store")]
    pub s3: Option<S3Store>,
    /// A PersistentVolumeClaim in the same namespace. Its volume should be on other storage than the data of the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VolumeStore")]
    pub volume: Option<VolumeStore>,
    /// The nodes and pull Secrets of pods that serve no cluster: those that check the store, list it, or import a backup. Pods
    /// that back up, restore or drill a cluster, or delete its backups, have those of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StorePods")]
    pub pods: Option<StorePods>,
}

/// The nodes and pull Secrets of pods that serve no cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorePods {
    /// The names of image pull Secrets in the same namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub pull_secrets: Vec<String>,
    /// Labels that a node must have for the pods to be scheduled on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = bounded_string(63)))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
}

/// A bucket of Amazon S3 or of a compatible server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.endpoint) || self.endpoint.startsWith('https://') || \
    has(self.allowHTTP) && self.allowHTTP")
    .message("must begin with https://. If the traffic may be read by others, set allowHTTP: true")
    .field_path(".endpoint"))]
pub struct S3Store {
    /// The name of the bucket. The bucket must exist.
    #[schemars(length(min = 3, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')")
        .message("must be a bucket name: lower-case letters, digits, dots and dashes"))]
    pub bucket: String,
    /// A path inside of the bucket. Default: the root of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new(format!("self.matches('{PATH}')")).message(INVALID_PREFIX))]
    pub prefix: Option<String>,
    /// The region of the bucket.
    #[serde(default = "default_region")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9-]+$')").message("must be a region such as eu-central-1"))]
    pub region: String,
    /// The URL of the server, such as https://s3.example:9000. Default: Amazon S3 in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 8, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$') || \
        self.matches('^https?://\\\\[[0-9A-Fa-f:]+\\\\](:[0-9]{1,5})?/?$')")
        .message(INVALID_ENDPOINT))]
    pub endpoint: Option<String>,
    /// If true, the bucket is a part of the path (https://s3.example/bucket) and not of the host name. Most servers other
    /// than Amazon S3 require it.
    #[serde(default)]
    pub path_style: bool,
    /// The credentials. They are never taken from the node or from a metadata service of a cloud.
    pub credentials: S3Credentials,
    /// The CA that signed the certificate of the server. Default: the CAs of the operator's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CaReference")]
    pub ca: Option<CaReference>,
    /// The encryption of objects by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "S3Encryption")]
    pub encryption: Option<S3Encryption>,
    /// If true, the endpoint may begin with http://, and the data is transferred unencrypted.
    #[serde(default, rename = "allowHTTP")]
    pub allow_http: bool,
    /// If true, the host name of the endpoint may resolve to a private address, as of a server in the same Kubernetes
    /// cluster. Loopback and link-local addresses are never allowed.
    #[serde(default)]
    pub allow_private_addresses: bool,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

/// The credentials of an S3 store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secret) != has(self.webIdentity)").message(ONE_CREDENTIAL))]
pub struct S3Credentials {
    /// The name of a Secret in the same namespace, with the keys accessKeyID, secretAccessKey and optionally sessionToken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// A role that the pods assume with the token of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WebIdentity")]
    pub web_identity: Option<WebIdentity>,
}

/// A role that pods assume with the token of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebIdentity {
    /// The ARN of the role.
    #[serde(rename = "roleARN")]
    #[schemars(length(min = 20, max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^arn:[a-z-]+:iam::[0-9]{12}:role/.+$')")
        .message("must be an ARN such as arn:aws:iam::123456789012:role/backup"))]
    pub role_arn: String,
    /// The name of the ServiceAccount of the pods, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service_account: String,
    /// The URL of the security token service. Default: the one of Amazon in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 8, max = 512))]
    #[x_kube(validation = Rule::new("self.startsWith('https://')").message("must begin with https://"))]
    pub endpoint: Option<String>,
}

/// A ConfigMap with a CA certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaReference {
    /// The name of the ConfigMap in the same namespace. Its key ca.crt has one or more certificates in PEM.
    #[schemars(length(min = 1, max = 253))]
    pub config_map: String,
}

/// The encryption of objects by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Encryption {
    /// The ID or ARN of a key of the key management service (SSE-KMS). Default: the server's own key (SSE-S3).
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 2048))]
    pub kms_key_id: Option<String>,
}

/// A PersistentVolumeClaim that backups are written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStore {
    /// The name of the PersistentVolumeClaim in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub claim: String,
    /// A path on the volume. Default: the root of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new(format!("self.matches('{PATH}')")).message(INVALID_PREFIX))]
    pub path: Option<String>,
}

/// The observed state of a backup store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct BackupStoreStatus {
    /// The place as a URL, such as s3://prod-backups/eu1.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// Whether the store creates an object only if it does not exist. Without it, the operator lists before it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub conditional_writes: Option<bool>,
    /// When the store was checked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub checked_at: Option<Time>,
    /// The hash of the spec, the credentials and the CA that were checked last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checked_inputs: String,
    /// The identifier of the last listing that a user asked for and that has ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub listed_request: String,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready: a test object was written, read and deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}
