//! What users write: the resources of `evenkeel.dev/v1alpha1`, the rules they are held to, and the words in which
//! their state is told. No client and no runtime, so that a plugin, a test or another operator can depend on it
//! lightly.
//!
//! Each rule stands twice: as CEL in the schema, so that `kubectl apply` is refused on the spot, and in
//! [`EtcdClusterSpec::checked`], for what got past an older schema.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct, with its pub, into a function"
)]

pub mod common;
pub mod etcd;

pub use common::duration as retention;
pub use common::maintenance::{Day, Maintenance, MaintenanceWindow};
pub use common::resources::{Amounts, Resources, SettledResources};
pub use common::scheduling::{Across, Scheduling, Spread};
pub use common::storage::{OnDelete, SHRINKS, Storage, default_quota};
pub use common::{conditions, labels, quantity, windows};
pub use etcd::cluster::{
    ClientTls, DEFAULT_REPOSITORY, EtcdCluster, EtcdClusterSpec, EtcdOptions, Heal, Image, Service,
    ServiceType, Tls,
};
pub use etcd::status::{CertificateStatus, EtcdClusterStatus, MemberRole, MemberStatus};
pub use etcd::validation::{Checked, Refusal, checked_name};
pub use etcd::version::{NotAVersion, Version};
pub use etcd::{options, releases};

/// The group of every resource here.
pub const GROUP: &str = "evenkeel.dev";
/// The version of every resource here.
pub const VERSION: &str = "v1alpha1";
