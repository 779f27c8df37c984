//! The resources of `evenkeel.dev/v1alpha1`: types, validation, conditions and labels. The crate has no client and no
//! async runtime, so a plugin, a test or another operator can depend on it cheaply.
//!
//! Each rule exists twice: as CEL in the schema, so that the API server rejects a bad manifest at `kubectl apply`, and
//! in [`EtcdClusterSpec::validate`], for specs that an older schema admitted.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct, with its pub, into a function"
)]

pub mod backup;
pub mod common;
pub mod etcd;

pub use backup::resource::{
    Backup, BackupPhase, BackupSpec, BackupStatus, DamagedStatus, FailedAttempt, ProvenStatus,
};
pub use backup::restore::{
    Restore, RestorePhase, RestoreProgress, RestoreSource, RestoreSpec, RestoreStatus,
};
pub use backup::schedule::{
    BackupPolicy, BackupResultStatus, BackupSchedule, BackupScheduleSpec, BackupScheduleStatus,
    DrillResult, DrillResultStatus, DrillStatus, IfMissed, KeepPolicy,
};
pub use backup::store::{
    BackupStore, BackupStoreSpec, BackupStoreStatus, CaReference, S3Credentials, S3Encryption,
    S3Store, StorePods, VolumeStore, WebIdentity,
};
pub use backup::summary::ClusterBackupStatus;
pub use backup::{ClusterKind, ClusterReference};
pub use common::maintenance::{Day, Maintenance, MaintenanceWindow};
pub use common::rejection::{Rejection, RejectionEffect};
pub use common::resources::{EffectiveResources, ResourceLimits, ResourceRequests, Resources};
pub use common::scheduling::{Scheduling, Spread, TopologyDomain};
pub use common::storage::{OnDelete, Storage, VOLUMES_NEVER_SHRINK};
pub use common::{conditions, duration, quantity, windows};
pub use etcd::cluster::{
    ClientService, ClientTls, DEFAULT_REPOSITORY, EtcdCluster, EtcdClusterSpec, EtcdOptions, Heal,
    Image, ServiceType, Tls,
};
pub use etcd::status::{
    CertificateStatus, EtcdClusterStatus, FailureToleranceStatus, MemberRole, MemberStatus,
    NextActionStatus, NodeProblem, OperationStatus, OperationType, ProblemStatus,
    RetainedVolumeStatus,
};
pub use etcd::validation::{ValidatedSpec, default_quota, validate_name};
pub use etcd::version::{InvalidVersion, Version};
pub use etcd::warnings::{AdmissionValidation, admission_validations};
pub use etcd::{labels, options, releases};

/// The API group of every resource in this crate.
pub const GROUP: &str = "evenkeel.dev";
/// The API version of every resource in this crate.
pub const VERSION: &str = "v1alpha1";
