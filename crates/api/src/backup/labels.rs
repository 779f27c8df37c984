//! Keys of labels and annotations on the objects of backups.

/// On pods: the kind of task that the agent executes in the pod.
pub const TASK: &str = "backup.evenkeel.dev/task";
/// On pods of a `Backup`, and on nothing else: the name of the `Backup`.
pub const BACKUP: &str = "backup.evenkeel.dev/backup";
/// On pods that check a `BackupStore`: the name of the `BackupStore`.
pub const STORE: &str = "backup.evenkeel.dev/store";
/// On `Backup` objects and pods that a `BackupSchedule` created: the name of the `BackupSchedule`.
pub const SCHEDULE: &str = "backup.evenkeel.dev/schedule";
/// On pods: the request of the agent, as JSON. It contains no secret.
pub const REQUEST: &str = "backup.evenkeel.dev/request";
/// On pods of a `Backup`: the number of the attempt.
pub const ATTEMPT: &str = "backup.evenkeel.dev/attempt";
/// On pods of a `Backup`: the member that the agent reads.
pub const MEMBER: &str = "backup.evenkeel.dev/member";
/// On pods that check a `BackupStore`: the hash of the spec, the credentials and the CA that the pod checks.
pub const INPUTS: &str = "backup.evenkeel.dev/inputs";
