//! Texts of restores.

use super::wait::{ProblemText, RESTORE_GRACE};
use super::{ActionContext, sentence};
use crate::facts::{RestoreFailure, RestorePodFacts, RestorePodState, RestoreStep, SourceProblem};
use crate::identity::{RestoreOrigin, Uid};
use crate::names::Serial;

impl ActionContext<'_> {
    /// Returns the name of the pod that fills the volume of a seed.
    pub(crate) fn restore_pod(&self, serial: Serial) -> String {
        format!("{}-restore", self.member(serial))
    }

    /// Returns the name of a restore pod.
    pub(crate) fn restore_pod_name(&self, uid: Uid) -> String {
        let mut pods = self.facts.restore_pods.iter();
        match pods.find(|pod| pod.uid == uid) {
            Some(pod) => self.restore_pod(pod.serial),
            None => "(name unknown)".to_owned(),
        }
    }

    /// Returns the restore pod of the next seed, or of the current one.
    fn seed_restore_pod(&self) -> Option<&RestorePodFacts> {
        let identity = self.facts.identity.present()?;
        let next = identity.next_epoch.as_ref();
        let seed = next.map_or((identity.epoch, identity.seed), |next| {
            (next.epoch, next.seed)
        });
        let mut pods = self.facts.restore_pods.iter();
        pods.find(|pod| (pod.epoch, pod.serial) == seed)
    }
}

/// Returns the name of the Backup that the cluster begins with.
pub(super) fn backup_name(context: &ActionContext<'_>) -> String {
    let origin = context.facts.restore_origin();
    origin
        .map(|origin| origin.backup.clone())
        .unwrap_or_default()
}

/// Returns true if a Restore asks for the restore of a cluster that serves.
fn is_in_place(context: &ActionContext<'_>) -> bool {
    let origin = context.facts.restore_origin();
    origin.is_some_and(RestoreOrigin::is_in_place)
}

/// Returns the field that names the backup.
fn source_field(context: &ActionContext<'_>) -> &'static str {
    if is_in_place(context) {
        "spec.from of a new Restore"
    } else {
        "spec.bootstrap.from.backup"
    }
}

/// Describes the event that makes a backup usable, after "waiting for".
pub(super) fn describe_source(context: &ActionContext<'_>, problem: &SourceProblem) -> String {
    let backup = backup_name(context);
    match problem {
        SourceProblem::Unreadable => {
            format!("Backup {backup} and its BackupStore to become readable")
        }
        SourceProblem::BackupMissing => format!("Backup {backup} to be created"),
        SourceProblem::BackupIncomplete => format!("Backup {backup} to become complete"),
        SourceProblem::BackupFailed => {
            let field = source_field(context);
            format!("another backup in {field}: Backup {backup} has failed")
        }
        SourceProblem::BackupDamaged => {
            let field = source_field(context);
            format!("another backup in {field}: Backup {backup} is damaged")
        }
        SourceProblem::NewerVersion(version) => {
            let field = source_field(context);
            format!(
                "another backup in {field}, or a later spec.version: Backup {backup} is of etcd {version}"
            )
        }
        SourceProblem::StoreMissing(store) => format!("BackupStore {store} to be created"),
        SourceProblem::StoreNotReady(store) => format!("BackupStore {store} to become ready"),
        SourceProblem::NoAgentImage => "the operator to be started with --agent-image".to_owned(),
        SourceProblem::EphemeralStorage => "the Restore to be deleted".to_owned(),
    }
}

/// Describes the problem of a backup.
pub(super) fn source_problem(context: &ActionContext<'_>, problem: &SourceProblem) -> ProblemText {
    let backup = backup_name(context);
    let field = source_field(context);
    let consequence = if is_in_place(context) {
        "The cluster keeps its data."
    } else {
        "The cluster is not created before it can be restored."
    };
    let (fact, remedy) = match problem {
        SourceProblem::Unreadable => (
            format!("The operator cannot read Backup {backup} or its BackupStore."),
            "Check the Kubernetes API, and the permissions and the log of the operator.".to_owned(),
        ),
        SourceProblem::BackupMissing => (
            format!("Backup {backup} does not exist."),
            format!("Create it, or correct {field}."),
        ),
        SourceProblem::BackupIncomplete => (
            format!("Backup {backup} is not complete."),
            format!("See its status: `kubectl describe ekb {backup}`."),
        ),
        SourceProblem::BackupFailed => (
            format!("Backup {backup} has failed and contains no data."),
            format!("Name a complete backup in {field}."),
        ),
        SourceProblem::BackupDamaged => (
            format!("A drill has found that Backup {backup} is damaged."),
            format!("Name another complete backup in {field}."),
        ),
        SourceProblem::NewerVersion(version) => (
            format!(
                "Backup {backup} is of etcd {version}, and spec.version is {}. An earlier minor version cannot read it.",
                context.facts.cluster.version
            ),
            format!(
                "Set spec.version to the minor version of the backup or a later one, or name another backup in {field}."
            ),
        ),
        SourceProblem::StoreMissing(store) => (
            format!("BackupStore {store}, which Backup {backup} is stored in, does not exist."),
            format!("Create BackupStore {store}."),
        ),
        SourceProblem::StoreNotReady(store) => (
            format!("BackupStore {store}, which Backup {backup} is stored in, is not ready."),
            format!("See its status: `kubectl describe ekstore {store}`."),
        ),
        SourceProblem::NoAgentImage => (
            "The operator was started without --agent-image, so it cannot restore backups."
                .to_owned(),
            "Set the value agent.image of the Helm chart, or the flag.".to_owned(),
        ),
        SourceProblem::EphemeralStorage => (
            format!(
                "Backup {backup} cannot be restored into this cluster: its members have no volumes (spec.storage.ephemeral)."
            ),
            "Delete the Restore, and create another cluster with volumes from the backup."
                .to_owned(),
        ),
    };
    ProblemText::new(format!("{fact} {consequence}"), remedy)
}

/// Describes the end of a running restore, with its step and the problem of its pod.
pub(super) fn describe_restore(context: &ActionContext<'_>, serial: Serial) -> String {
    let backup = backup_name(context);
    let member = context.member(serial);
    let pod = context.seed_restore_pod();
    if let Some(problem) = pod.and_then(|pod| pod.problem.as_ref()) {
        return format!(
            "Pod {} to start the restore of Backup {backup}: {problem}",
            context.restore_pod(serial)
        );
    }
    let step = match pod.map(|pod| &pod.state) {
        Some(RestorePodState::Running(RestoreStep::Fetch)) => "downloading and verifying it",
        Some(RestorePodState::Running(RestoreStep::Restore)) => "writing the data directory",
        Some(RestorePodState::Running(RestoreStep::Install)) => "moving the data into place",
        _ => "starting",
    };
    format!("Backup {backup} to be restored onto the volume of first member {member} ({step})")
}

fn failure<'f>(context: &'f ActionContext<'_>) -> Option<&'f RestoreFailure> {
    match &context.seed_restore_pod()?.state {
        RestorePodState::Failed(failure) => Some(failure),
        RestorePodState::Held | RestorePodState::Running(_) | RestorePodState::Succeeded => None,
    }
}

/// Returns the message of the last failure, with a colon before it.
pub(super) fn failure_suffix(context: &ActionContext<'_>) -> String {
    match failure(context) {
        Some(failure) => format!(": {}", failure.message.trim_end_matches('.')),
        None => String::new(),
    }
}

/// Returns true if the failure needs a user, or has lasted for a while.
pub(super) fn is_persistent_failure(context: &ActionContext<'_>) -> bool {
    let created_at = context.facts.cluster.created_at;
    failure(context).is_some_and(|failure| {
        !failure.is_transient || failure.at.since(created_at) >= RESTORE_GRACE
    })
}

/// Describes a failed restore.
pub(super) fn failure_problem(context: &ActionContext<'_>) -> ProblemText {
    let backup = backup_name(context);
    let message = failure(context).map(|failure| failure.message.clone());
    let advice = format!(
        "The operator tries again. If the backup cannot be restored, name another one in {}.",
        source_field(context)
    );
    ProblemText::new(
        format!(
            "The restore of Backup {backup} has failed: {}",
            sentence(message.as_deref().unwrap_or("its pod gives no reason"))
        ),
        advice,
    )
}
