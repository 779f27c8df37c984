//! Keys of labels and annotations on the objects of backups.

/// On pods: the kind of task that the agent executes in the pod.
pub const TASK: &str = "backup.evenkeel.dev/task";
/// On pods of a `Backup`, and on nothing else: the name of the `Backup`.
pub const BACKUP: &str = "backup.evenkeel.dev/backup";
/// On pods that check a `BackupStore`: the name of the `BackupStore`.
pub const STORE: &str = "backup.evenkeel.dev/store";
/// On `Backup` objects and pods that a `BackupSchedule` created: the name of the `BackupSchedule`.
pub const SCHEDULE: &str = "backup.evenkeel.dev/schedule";
/// On a `BackupStore`: the identifier of a request to list the backups in the store. On the pod that lists them: the same.
pub const LIST_REQUEST: &str = "backup.evenkeel.dev/list-request";
/// On pods: the request of the agent, as JSON. It contains no secret.
pub const REQUEST: &str = "backup.evenkeel.dev/request";
/// On pods of a `Backup`: the number of the attempt.
pub const ATTEMPT: &str = "backup.evenkeel.dev/attempt";
/// On pods of a `Backup`: the member that the agent reads.
pub const MEMBER: &str = "backup.evenkeel.dev/member";
/// On pods that check a `BackupStore`: the hash of the spec, the credentials and the CA that the pod checks.
pub const INPUTS: &str = "backup.evenkeel.dev/inputs";
/// On `Backup` objects of a `BackupSchedule`: the number of the run for the same due time, from 1.
pub const RUN: &str = "backup.evenkeel.dev/run";
/// On pods of a drill: the request of the container that compares the data, as JSON.
pub const DRILL_REQUEST: &str = "backup.evenkeel.dev/drill-request";
/// On pods of a drill: the name of the `Backup` that is restored.
pub const DRILL_OF: &str = "backup.evenkeel.dev/drill-of";
/// On pods of a drill: the uid of the `Backup` that is restored.
pub const DRILL_OF_UID: &str = "backup.evenkeel.dev/drill-of-uid";
/// On pods of a drill: when the drill was due, in seconds since 1970.
pub const DUE: &str = "backup.evenkeel.dev/due";
/// On pods of a drill: the version of the application that restores the backup.
pub const VERSION: &str = "backup.evenkeel.dev/version";
