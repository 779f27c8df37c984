//! `EtcdCluster`: one etcd cluster. What is left out of a manifest gets its default from the API server, and so is
//! written down.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::cel::{amount, at_least, duration, duration_or_nought, lasts_at_least};
use crate::common::maintenance::Maintenance;
use crate::common::resources::Resources;
use crate::common::scheduling::Scheduling;
use crate::common::schema::{as_users_meet_it, bounded_text};
use crate::common::storage::{Storage, no_shrinking};
use crate::etcd::options::cel as options_cel;
use crate::etcd::releases::cel::{
    exact, known_minor, late_enough, no_downgrade, no_skip, not_bad, not_retired, recent_enough,
    without_v,
};
use crate::etcd::status::EtcdClusterStatus;

/// Where etcd's images come from unless the user says otherwise: their authors.
pub const DEFAULT_REPOSITORY: &str = "gcr.io/etcd-development/etcd";

/// What an etcd cluster should be like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = as_users_meet_it)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    category = "evenkeel",
    category = "all",
    namespaced,
    doc = "An etcd cluster that Evenkeel runs: created, kept healthy and resized as its spec says.",
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Members", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phrase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    scale(
        spec_replicas_path = ".spec.members",
        status_replicas_path = ".status.members",
        label_selector_path = ".status.selector"
    ),
    validation = Rule::new("size(self.metadata.name) <= 40")
        .message("metadata.name is longer than 40 characters: the names of pods and certificates are made from it, \
            and must fit as well"),
    validation = Rule::new("!self.metadata.name.contains('.')")
        .message("metadata.name has a dot in it: host names are made from it, so it must be a single label; use a \
            hyphen"),
    validation = Rule::new("!self.metadata.name.matches('^[0-9]')")
        .message("metadata.name begins with a digit: the names of Services are made from it, and must begin with a \
            letter"),
    validation = not_bad(),
    validation = no_skip(),
    validation = late_enough(),
    validation = no_downgrade(),
    validation = no_shrinking(),
)]
#[x_kube(validation = options_cel::exist())]
#[x_kube(validation = Rule::new(QUOTA_WITHIN_SIZE)
    .message("spec.etcd.quota is more than spec.storage.size: the volume would be full before etcd stops taking \
        writes")
    .field_path(".etcd.quota"))]
pub struct EtcdClusterSpec {
    /// The exact version of etcd, such as 3.6.16. There is no default: one that moves with Evenkeel would be a hidden
    /// upgrade. A change restarts members one by one, the leader last; one minor at a time, and not back.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = without_v(),
        validation = exact(),
        validation = not_retired(),
        validation = known_minor(),
        validation = recent_enough(),
    )]
    pub version: String,
    /// How many members the cluster has, 1 to 7. Of 3 one may fail, of 5 two; an even number bears no more failures
    /// than one member fewer does.
    #[serde(default = "default_members")]
    #[x_kube(
        validation = Rule::new("self >= 1")
            .message("a cluster has at least one member: delete the resource or set paused, according to what you \
                want"),
        validation = Rule::new("self <= 7")
            .message("seven members are the most: every write waits for a majority, so more make it slower and \
                hardly safer. Use 7 or fewer"),
    )]
    pub members: i32,
    /// Leave the cluster alone: members go on serving, but nothing is healed, resized or changed until this is false
    /// again.
    #[serde(default)]
    pub paused: bool,
    /// Where etcd's image comes from. A change restarts members one by one.
    #[serde(default)]
    pub image: Image,
    /// Where members keep their data.
    #[serde(default)]
    pub storage: Storage,
    /// What each member may use of its node. A change restarts members one by one.
    #[serde(default)]
    pub resources: Resources,
    /// Where members may run. A change restarts members one by one; those whose volumes cannot be reached from there are
    /// replaced.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// How clients reach the cluster.
    #[serde(default)]
    pub service: Service,
    /// How connections are encrypted. They always are.
    #[serde(default)]
    pub tls: Tls,
    /// How etcd itself behaves. A change restarts members one by one.
    #[serde(default)]
    pub etcd: EtcdOptions,
    /// How failures are dealt with.
    #[serde(default)]
    pub heal: Heal,
    /// When changes that disturb members may happen. Without windows, at any time.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub maintenance: Maintenance,
}

const QUOTA_WITHIN_SIZE: &str = "!has(self.etcd.quota) || \
    !isQuantity(string(self.etcd.quota)) || !isQuantity(string(self.storage.size)) || \
    quantity(string(self.etcd.quota)).compareTo(quantity(string(self.storage.size))) <= 0";

fn default_members() -> i32 {
    3
}

/// Where etcd's image comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image without tag and digest, such as mirror.example/etcd. The tag comes from the version: v3.6.16 for
    /// 3.6.16.
    #[serde(default = "default_repository")]
    #[schemars(length(max = 255))]
    #[x_kube(
        validation = Rule::new("!self.contains('@')")
            .message("put the digest into spec.image.digest, and only what stands before the @ here"),
        validation = Rule::new("self.contains('@') || !self.matches(':[^/]*$')")
            .message("leave the tag out: it comes from spec.version"),
        validation = Rule::new("self.contains('@') || self.matches(':[^/]*$') || \
            self.matches('^[a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]+)?(/[a-z0-9._-]+)*$')")
            .message("write an image's name, such as gcr.io/etcd-development/etcd, without https://"),
    )]
    pub repository: String,
    /// The digest that the image must have, sha256: and 64 hexadecimal digits. It then decides which image is run, so
    /// it must be one of the same version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("write sha256: and 64 hexadecimal digits, in lower case"))]
    pub digest: Option<String>,
    /// Names of Secrets in the same namespace with which the image is pulled.
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

/// How clients reach the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// From where: ClusterIP from within the Kubernetes cluster, NodePort through every node, LoadBalancer through a
    /// load balancer of the cloud. For names outside of the cluster add spec.tls.client.extraNames.
    #[serde(default, rename = "type")]
    pub kind: ServiceType,
    /// Annotations of the Service, by which clouds configure their load balancers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = bounded_text(8192)))]
    pub annotations: BTreeMap<String, String>,
}

/// From where clients reach the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// From within the Kubernetes cluster.
    #[default]
    ClusterIP,
    /// Through a port of every node.
    NodePort,
    /// Through a load balancer of the cloud.
    LoadBalancer,
}

/// How connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Connections of clients. Those between members are the operator's own business.
    #[serde(default)]
    pub client: ClientTls,
}

/// How clients' connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// Further host names by which clients reach the cluster, for the servers' certificates: those of the Service are
    /// in them anyway. The first label may be a star.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(
        validation = Rule::new(format!("self.all(name, name.matches('{HOST}'))"))
            .message("write host names in lower case, such as etcd.corp.example or *.corp.example: no addresses, \
                ports or URLs"),
        merge_strategy = ListMerge::Set,
    )]
    pub extra_names: Vec<String>,
}

/// The last label begins with a letter: no address does.
const HOST: &str =
    "^([*][.])?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$";

/// How etcd itself behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdOptions {
    /// How large etcd lets its data grow before it takes no more writes. Without it, three quarters of the volume, at
    /// most 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(
        validation = amount(),
        validation = at_least("16Mi", "at least 16Mi: less is likely a slip. In amounts m means thousandths, \
            so for mebibytes write Mi"),
    )]
    pub quota: Option<Quantity>,
    /// For how long past values of keys can be read and watched: 1h, 30m, 1h30m. What is older is removed as time
    /// goes by. "0" (a string) switches that off; clients must then compact, or etcd fills up.
    #[serde(default = "default_auto_compaction")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = duration_or_nought("to switch it off"))]
    pub auto_compaction: String,
    /// Further flags of etcd by what the newest etcd calls them, without dashes: heartbeat-interval: "200". Only those
    /// that docs/tasks/options.md lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend("maxProperties" = 32, "additionalProperties" = bounded_text(32)),
        transform = options_cel::ruled
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

/// How failures are dealt with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heal {
    /// How long a member whose data may still be there is waited for: one that crashes at every start, or that nobody
    /// can reach, neither Kubernetes nor Evenkeel nor the other members. Then it is replaced. At least 30s.
    #[serde(default = "default_replace_after")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = duration(),
        validation = lasts_at_least("30s", "at least 30s: a pod that moves, or a node that restarts, takes that long"),
    )]
    pub replace_after: String,
}

impl Default for Heal {
    fn default() -> Self {
        Self {
            replace_after: default_replace_after(),
        }
    }
}

fn default_replace_after() -> String {
    "5m".to_owned()
}

impl EtcdClusterSpec {
    /// A spec with this version and everything else as when it is left out.
    pub fn of_version(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            members: default_members(),
            paused: false,
            image: Image::default(),
            storage: Storage::default(),
            resources: Resources::default(),
            scheduling: Scheduling::default(),
            service: Service::default(),
            tls: Tls::default(),
            etcd: EtcdOptions::default(),
            heal: Heal::default(),
            maintenance: Maintenance::default(),
        }
    }

    /// The image that members run. The tag stays beside a digest, for people to read.
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
    fn the_smallest_manifest_is_all_defaults() {
        let spec: EtcdClusterSpec = serde_json::from_str(r#"{"version":"3.6.16"}"#).unwrap();
        assert_eq!(spec, EtcdClusterSpec::of_version("3.6.16"));
        assert_eq!(spec.members, 3);
        assert_eq!(spec.etcd.auto_compaction, "1h");
    }

    #[test]
    fn the_tag_comes_from_the_version_and_stays_beside_a_digest() {
        let mut spec = EtcdClusterSpec::of_version("3.6.16");
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
    fn a_whole_number_is_an_amount_without_quotes() {
        let spec: EtcdClusterSpec = serde_json::from_str(
            r#"{"version":"3.6.16","resources":{"requests":{"cpu":2}},"storage":{"size":10737418240}}"#,
        )
        .unwrap();
        assert_eq!(spec.storage.size.0, "10737418240");
    }
}
