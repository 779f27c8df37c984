//! The `EtcdCluster` resource: its spec and status, its validation, and what is known about etcd's releases and flags.

pub mod cluster;
pub mod labels;
pub mod options;
pub mod releases;
pub mod status;
pub mod validation;
pub mod version;
pub mod warnings;
