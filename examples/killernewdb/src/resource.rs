//! What users write, and what they are told.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a database should be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "killernewdb.example",
    version = "v1",
    kind = "KillerNewDb",
    plural = "killernewdbs",
    shortname = "kndb",
    namespaced,
    doc = "A killernewdb: its members are created, kept and replaced as its spec says.",
    status = "Status",
    printcolumn(name = "Members", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phrase"),
    scale(spec_replicas_path = ".spec.members", status_replicas_path = ".status.members"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')")
        .message("metadata.name is not a host name of at most 40 characters that begins with a letter: members' \
            names are made from it")
)]
pub struct KillerNewDbSpec {
    /// How many members there are, from 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    pub members: u8,
    /// How large each member's volume is, such as 1Gi. It cannot be changed.
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = Rule::new("isQuantity(self)").message("write an amount such as 1Gi"),
        validation = Rule::new("self == oldSelf").message("the size of volumes cannot be changed"),
    )]
    pub size: String,
    /// The image of the database.
    #[serde(default = "image")]
    #[schemars(length(max = 512))]
    pub image: String,
}

fn image() -> String {
    "killernewdb:0.1.0".to_owned()
}

/// What users are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// How many members there are.
    pub members: usize,
    /// How many of them answer.
    pub ready: String,
    /// How it is, in a few words.
    pub phrase: String,
    /// What is waited for.
    pub waiting_for: Option<String>,
}
