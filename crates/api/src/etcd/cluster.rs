//! The `EtcdCluster` resource and its spec. The API server fills in the defaults of fields that a manifest leaves out, so
//! stored resources are complete.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup::MUST_BE_BACKUP_NAME;
use crate::backup::schedule::BackupPolicy;
use crate::common::cel;
use crate::common::maintenance::Maintenance;
use crate::common::resources::{Resources, default_resources};
use crate::common::scheduling::Scheduling;
use crate::common::schema::{bounded_string, for_users};
use crate::common::storage::{Storage, VOLUMES_NEVER_SHRINK};
use crate::etcd::options::cel as options_cel;
use crate::etcd::releases::cel::{
    exact_version, known_minor, min_patch, min_patch_for_upgrade, no_downgrade, no_known_defect,
    no_leading_v, no_skipped_minor, not_retired,
};
use crate::etcd::status::EtcdClusterStatus;
use crate::etcd::validation::{
    INVALID_AUTO_COMPACTION, MUST_BE_DIGEST, MUST_BE_HOST_NAMES, MUST_BE_IMAGE_NAME, NAME_TOO_LONG,
    NAME_WITH_DOT, NAME_WITHOUT_LETTER, QUOTA_ABOVE_SIZE, QUOTA_TOO_SMALL, REPLACE_AFTER_TOO_SHORT,
    REPOSITORY_WITH_DIGEST, REPOSITORY_WITH_TAG, RESTORE_NEEDS_VOLUME, TOO_FEW_MEMBERS,
    TOO_MANY_MEMBERS,
};

/// The default image repository: the one of etcd's authors.
pub const DEFAULT_REPOSITORY: &str = "gcr.io/etcd-development/etcd";

/// The desired state of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    category = "evenkeel",
    category = "all",
    namespaced,
    doc = "An etcd cluster that the Evenkeel operator creates, heals, scales and upgrades according to its spec.",
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    printcolumn(name = "Version", type_ = "string", json_path = ".status.versionSummary"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Members", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Tolerates", type_ = "string", json_path = ".status.failureTolerance.summary"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", priority = "1"),
    printcolumn(name = "DB Size", type_ = "string", json_path = ".status.dataSize", priority = "1"),
    printcolumn(name = "Quota", type_ = "string", json_path = ".status.quota", priority = "1"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".spec.version", priority = "1"),
    scale(
        spec_replicas_path = ".spec.members",
        status_replicas_path = ".status.members",
        label_selector_path = ".status.selector"
    ),
    validation = name_rule("size(self.metadata.name) <= 40", NAME_TOO_LONG),
    validation = name_rule("!self.metadata.name.contains('.')", NAME_WITH_DOT),
    validation = name_rule("!self.metadata.name.matches('^[0-9]')", NAME_WITHOUT_LETTER),
    validation = no_known_defect(),
    validation = no_skipped_minor(),
    validation = min_patch_for_upgrade(),
    validation = no_downgrade(),
    validation = no_shrinking(),
)]
#[x_kube(validation = options_cel::exist_in_version())]
#[x_kube(validation = Rule::new(QUOTA_WITHIN_SIZE)
    .message(QUOTA_ABOVE_SIZE)
    .field_path(".etcd.quota"))]
#[x_kube(validation = Rule::new("!has(self.bootstrap) || !has(self.bootstrap.from) || !self.storage.ephemeral")
    .message(RESTORE_NEEDS_VOLUME)
    .field_path(".bootstrap.from"))]
pub struct EtcdClusterSpec {
    /// The exact version of etcd, such as 3.6.16. There is no default, so that an upgrade of the operator does not
    /// upgrade etcd. A change restarts the members one by one, the leader last. Upgrades go one minor version at a time;
    /// downgrades to an earlier minor version are not supported.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = no_leading_v(),
        validation = exact_version(),
        validation = not_retired(),
        validation = known_minor(),
        validation = min_patch(),
    )]
    pub version: String,
    /// The number of members, 1 to 7. A cluster of 3 tolerates one failure, a cluster of 5 two. An even number tolerates
    /// no more failures than the next lower odd number.
    #[serde(default = "default_members")]
    #[x_kube(
        validation = Rule::new("self >= 1")
            .message(TOO_FEW_MEMBERS),
        validation = Rule::new("self <= 7")
            .message(TOO_MANY_MEMBERS),
    )]
    pub members: i32,
    /// If true, the operator changes nothing: members keep serving, but the operator neither recovers failed members nor
    /// applies edits until this is false again.
    #[serde(default)]
    pub paused: bool,
    /// The image of etcd. A change restarts the members one by one.
    #[serde(default)]
    pub image: Image,
    /// The volumes that members store their data on.
    #[serde(default)]
    pub storage: Storage,
    /// The CPU and memory of each member. A change restarts the members one by one.
    #[serde(default)]
    #[schemars(extend("default" = default_resources()))]
    pub resources: Resources,
    /// The nodes that members may run on. A change restarts the members one by one. Members whose volumes are not
    /// accessible from the new nodes are replaced.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// The Service that clients connect to.
    #[serde(default)]
    pub service: ClientService,
    /// The TLS certificates. Connections are always encrypted.
    #[serde(default)]
    pub tls: Tls,
    /// The settings of etcd itself. A change restarts the members one by one.
    #[serde(default)]
    pub etcd: EtcdOptions,
    /// When failed members are replaced.
    #[serde(default)]
    pub heal: Heal,
    /// When disruptive changes may begin. Without windows, at any time.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub maintenance: Maintenance,
    /// When the cluster is backed up, where to, and which backups are kept. The operator creates the BackupSchedule
    /// <cluster>-etcd from it. Default: no backups. If the field is removed, the BackupSchedule is deleted, and the backups
    /// are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupPolicy")]
    pub backup: Option<BackupPolicy>,
    /// How a new cluster begins. It is read only until the bootstrap is finished: afterwards it may stay or be removed
    /// without effect. A change before that starts the bootstrap again.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub bootstrap: Bootstrap,
}

/// How a new cluster begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The data that the cluster begins with. Without it, the cluster begins empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootstrapSource")]
    pub from: Option<BootstrapSource>,
}

/// The data that a new cluster begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapSource {
    /// The name of a Backup in the same namespace. Its data must be of the same or an earlier minor version of etcd. The
    /// operator waits until the Backup exists and is complete.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message(MUST_BE_BACKUP_NAME))]
    pub backup: String,
}

/// Requires a property of the name. The message names the field, since the rule belongs to the whole resource.
fn name_rule(rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(&*format!("metadata.name {message}"))
}

/// Rejects a smaller volume size. A size that was requested and not reached yet may be reverted, and any size may be
/// changed before the cluster exists.
fn no_shrinking() -> Rule {
    const NEW: &str = "self.spec.storage.size";
    const OLD: &str = "oldSelf.spec.storage.size";
    const PROVISIONED: &str = "oldSelf.status.volumeSize";
    Rule::new(format!(
        "self.spec.storage.ephemeral || !isQuantity(string({NEW})) || !isQuantity(string({OLD})) || \
         quantity(string({NEW})).compareTo(quantity(string({OLD}))) >= 0 || \
         !has(oldSelf.status) || !has(oldSelf.status.clusterId) || has({PROVISIONED}) && isQuantity({PROVISIONED}) && \
         quantity(string({NEW})).compareTo(quantity({PROVISIONED})) >= 0"
    ))
    .message(VOLUMES_NEVER_SHRINK)
    .field_path(".spec.storage.size")
}

const QUOTA_WITHIN_SIZE: &str = "!has(self.etcd.quota) || \
    !isQuantity(string(self.etcd.quota)) || !isQuantity(string(self.storage.size)) || \
    quantity(string(self.etcd.quota)).compareTo(quantity(string(self.storage.size))) <= 0";

fn default_members() -> i32 {
    3
}

/// The image of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image name without tag and digest, such as mirror.example/etcd. The tag is derived from spec.version: v3.6.16
    /// for 3.6.16.
    #[serde(default = "default_repository")]
    #[schemars(length(max = 255))]
    #[x_kube(
        validation = Rule::new("!self.contains('@')")
            .message(REPOSITORY_WITH_DIGEST),
        validation = Rule::new("self.contains('@') || !self.matches(':[^/]*$')")
            .message(REPOSITORY_WITH_TAG),
        validation = Rule::new("self.contains('@') || self.matches(':[^/]*$') || \
            self.matches('^[a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]+)?(/[a-z0-9._-]+)*$')")
            .message(MUST_BE_IMAGE_NAME),
    )]
    pub repository: String,
    /// The digest of the image: sha256: and 64 hexadecimal digits. The digest decides which image runs, so it must
    /// belong to the version in spec.version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message(MUST_BE_DIGEST))]
    pub digest: Option<String>,
    /// The names of image pull Secrets in the same namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub pull_secrets: Vec<String>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            repository: default_repository(),
            digest: None,
            pull_secrets: Vec::new(),
        }
    }
}

fn default_repository() -> String {
    DEFAULT_REPOSITORY.to_owned()
}

/// The Service that clients connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientService {
    /// The type of the client Service: ClusterIP is reachable within the Kubernetes cluster, NodePort through every node,
    /// LoadBalancer through an external load balancer. Clients that connect by other host names need
    /// spec.tls.client.extraNames.
    #[serde(default, rename = "type")]
    pub kind: ServiceType,
    /// Annotations of the client Service, for example for the load balancer of a cloud provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = bounded_string(8192)))]
    pub annotations: BTreeMap<String, String>,
}

/// The type of the client Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Reachable within the Kubernetes cluster.
    #[default]
    ClusterIP,
    /// Reachable through a port of every node.
    NodePort,
    /// Reachable through an external load balancer.
    LoadBalancer,
}

/// The TLS certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Certificates for client connections. The operator manages those for connections between members without settings.
    #[serde(default)]
    pub client: ClientTls,
}

/// Certificates for client connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// Additional host names in the server certificates, besides those of the client Service. The first label may be *.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(
        validation = Rule::new(format!("self.all(name, name.matches('{HOST_NAME}'))"))
            .message(MUST_BE_HOST_NAMES),
        merge_strategy = ListMerge::Set,
    )]
    pub extra_names: Vec<String>,
}

/// The last label begins with a letter, so that an IPv4 address is not a host name.
const HOST_NAME: &str =
    "^([*][.])?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$";

/// The settings of etcd itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdOptions {
    /// The size of the database at which etcd rejects further writes. Default: three quarters of spec.storage.size, at
    /// most 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(
        validation = cel::quantity(),
        validation = cel::quantity_at_least("16Mi", QUOTA_TOO_SMALL),
    )]
    pub quota: Option<Quantity>,
    /// How long old revisions of keys can be read and watched, such as 1h, 30m or 1h30m; older ones are compacted. "0" (a
    /// string) disables automatic compaction; clients must then compact, or the database fills up.
    #[serde(default = "default_auto_compaction")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = cel::duration_or_zero(INVALID_AUTO_COMPACTION))]
    pub auto_compaction: String,
    /// Additional flags of etcd, named as in the newest supported etcd and without dashes, such as
    /// heartbeat-interval: "200". Only the flags that docs/configuration/options.md lists are allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend("maxProperties" = 32, "additionalProperties" = bounded_string(32)),
        transform = options_cel::add_rules
    )]
    pub options: BTreeMap<String, String>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            quota: None,
            auto_compaction: default_auto_compaction(),
            options: BTreeMap::new(),
        }
    }
}

fn default_auto_compaction() -> String {
    "1h".to_owned()
}

/// When failed members are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heal {
    /// How long a member may be unreachable or crash-looping before the operator replaces it. Minimum 30s.
    #[serde(default = "default_replace_after")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = cel::duration(),
        validation = cel::duration_at_least("30s", REPLACE_AFTER_TOO_SHORT),
    )]
    pub replace_after: String,
    /// How long a member may be unreachable while its node is cordoned, as by kubectl drain, before the operator
    /// replaces it: a cordoned node is expected to come back. The node is the one of its pod or of its local volume.
    /// Minimum 30s. If it is shorter than replaceAfter, replaceAfter applies.
    #[serde(default = "default_replace_drained_after")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = cel::duration(),
        validation = cel::duration_at_least("30s", REPLACE_AFTER_TOO_SHORT),
    )]
    pub replace_drained_after: String,
}

impl Default for Heal {
    fn default() -> Self {
        Self {
            replace_after: default_replace_after(),
            replace_drained_after: default_replace_drained_after(),
        }
    }
}

fn default_replace_after() -> String {
    "5m".to_owned()
}

fn default_replace_drained_after() -> String {
    "1h".to_owned()
}

impl EtcdClusterSpec {
    /// Creates a spec with this version and the defaults of all other fields.
    pub fn with_version(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            members: default_members(),
            paused: false,
            image: Image::default(),
            storage: Storage::default(),
            resources: Resources::default(),
            scheduling: Scheduling::default(),
            service: ClientService::default(),
            tls: Tls::default(),
            etcd: EtcdOptions::default(),
            heal: Heal::default(),
            maintenance: Maintenance::default(),
            backup: None,
            bootstrap: Bootstrap::default(),
        }
    }

    /// Returns the image that members run. A digest is appended to the tag, so that the version stays readable.
    pub fn image_reference(&self) -> String {
        let Image {
            repository,
            digest,
            pull_secrets: _,
        } = &self.image;
        match digest {
            Some(digest) => format!("{repository}:v{}@{digest}", self.version),
            None => format!("{repository}:v{}", self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimal_manifest_gets_all_defaults() {
        let spec: EtcdClusterSpec = serde_json::from_str(r#"{"version":"3.6.16"}"#).unwrap();
        assert_eq!(spec, EtcdClusterSpec::with_version("3.6.16"));
        assert_eq!(spec.members, 3);
        assert_eq!(spec.etcd.auto_compaction, "1h");
    }

    #[test]
    fn the_tag_comes_from_the_version_and_precedes_the_digest() {
        let mut spec = EtcdClusterSpec::with_version("3.6.16");
        assert_eq!(
            spec.image_reference(),
            "gcr.io/etcd-development/etcd:v3.6.16"
        );
        spec.image.repository = "mirror.example:5000/etcd".to_owned();
        spec.image.digest = Some("sha256:12".to_owned());
        assert_eq!(
            spec.image_reference(),
            "mirror.example:5000/etcd:v3.6.16@sha256:12"
        );
    }

    #[test]
    fn an_integer_is_a_quantity() {
        let spec: EtcdClusterSpec = serde_json::from_str(
            r#"{"version":"3.6.16","resources":{"requests":{"cpu":2}},"storage":{"size":10737418240}}"#,
        )
        .unwrap();
        assert_eq!(spec.storage.size.0, "10737418240");
    }
}
