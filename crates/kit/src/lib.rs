//! Building blocks for engines that manage members with volumes: rules and plans, the effective
//! spec, previews, maintenance windows and the limit of replacements; identity and names,
//! ownership, PersistentVolumeClaims and volumes, pods, certificates, and memory per resource. This
//! crate contains no code for a particular application: an engine describes itself by an
//! [`EngineInfo`] and passes each of its clusters as a [`ClusterRef`].

pub mod certificates;
pub mod claims;
mod cluster;
pub mod effective_spec;
pub mod identity_object;
pub mod nodes;
pub mod objects;
pub mod ownership;
mod per_resource;
pub mod pods;
pub mod preview;
pub mod replacement;
pub mod rules;
pub mod spec_fields;
pub mod tls_secrets;
mod unreachable;
pub mod volume_events;
pub mod volumes;
pub mod windows;

mod identity;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::unwrap_used,
    reason = "a unit test fails by panicking, and this module is for unit tests only"
)]
pub mod testing;

pub use cluster::{ClusterRef, EngineInfo};
pub use identity::{Epoch, InvalidUid, Lineage, MemberRef, Serial, Uid, member_name};
pub use objects::BuildError;
pub use ownership::{OwnedBy, Ownership};
pub use per_resource::PerResource;
pub use unreachable::{FirstSeen, UnreachableTracker};
