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

mod checked;
mod cluster;
pub mod conditions;
mod keys;
pub mod labels;
mod maintenance;
pub mod options;
pub mod quantity;
pub mod releases;
mod resources;
pub mod retention;
mod rules;
mod scheduling;
mod schema;
mod status;
mod storage;
mod version;
pub mod windows;

pub use checked::{Checked, Refusal, checked_name};
pub use cluster::{
    ClientTls, DEFAULT_REPOSITORY, EtcdCluster, EtcdClusterSpec, EtcdOptions, Heal, Image, Service,
    ServiceType, Tls,
};
pub use maintenance::{Day, Maintenance, MaintenanceWindow};
pub use resources::{Amounts, Resources, SettledResources};
pub use scheduling::{Across, Scheduling, Spread};
pub use status::{CertificateStatus, EtcdClusterStatus, MemberRole, MemberStatus};
pub use storage::{OnDelete, SHRINKS, Storage, default_quota};
pub use version::{NotAVersion, Version};

/// The group of every resource here.
pub const GROUP: &str = "evenkeel.dev";
/// The version of every resource here.
pub const VERSION: &str = "v1alpha1";

/// Which of a struct's fields are worth writing down: whatever differs from what is assumed anyway.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
