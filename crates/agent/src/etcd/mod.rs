//! Snapshots of etcd: reading one from a member, verifying it, and comparing a restored etcd with it.

pub mod bolt;
mod connect;
pub mod contents;
pub mod drill;
pub mod snapshot;
#[cfg(test)]
mod testing;
mod trailer;
pub mod verify;

/// The name of the engine in manifests and requests.
pub const ENGINE: &str = "etcd";
