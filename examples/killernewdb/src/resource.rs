//! The custom resource.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "killernewdb.example",
    version = "v1",
    kind = "KillerNewDb",
    plural = "killernewdbs",
    shortname = "kndb",
    namespaced,
    doc = "A killernewdb: its members are created, kept and replaced as its spec says.",
    status = "KillerNewDbStatus",
    printcolumn(name = "Members", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    scale(spec_replicas_path = ".spec.members", status_replicas_path = ".status.members"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')")
        .message("metadata.name is not a host name of at most 40 characters that begins with a letter: members' \
            names are made from it")
)]
pub struct KillerNewDbSpec {
    /// The number of members, from 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    pub members: u8,
    /// The size of the volume of each member, such as 1Gi. It cannot be changed.
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = Rule::new("isQuantity(self)").message("write an amount such as 1Gi"),
        validation = Rule::new("self == oldSelf").message("the size of volumes cannot be changed"),
    )]
    pub size: String,
    /// The image of the database.
    #[serde(default = "default_image")]
    #[schemars(length(max = 512))]
    pub image: String,
}

fn default_image() -> String {
    "killernewdb:0.1.0".to_owned()
}

/// The observed state of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KillerNewDbStatus {
    /// The number of members.
    pub members: usize,
    /// The number of reachable members and of desired members, such as 2/3.
    pub ready: String,
    /// A summary in a few words.
    pub summary: String,
    /// The current wait.
    pub waiting_for: Option<String>,
}
