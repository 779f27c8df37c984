//! The status of a Restore, and its events.

use evenkeel_api::{Restore, RestorePhase, RestoreStatus};
use evenkeel_runtime::{EventSpec, UnixTime};

use super::decide::{NotNeededReason, RestoreStep, RestoreWait, UndoObstacle};
use super::facts::{RestoreBackup, RestoreFacts, RestoreProgressFacts};
use crate::conditions::{self, NewCondition};

/// The type of the condition.
pub(super) const COMPLETE: &str = "Complete";

/// The condition and the message of a state.
struct Report {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Report {
    fn new(status: &'static str, reason: &'static str, message: String) -> Self {
        Self {
            status,
            reason,
            message,
        }
    }
}

/// Returns the status of a Restore; `None` to leave it unchanged.
pub(super) fn status(
    restore: &Restore,
    facts: &RestoreFacts,
    step: &RestoreStep,
) -> Option<RestoreStatus> {
    let old = restore.status.clone().unwrap_or_default();
    let generation = restore.metadata.generation;
    let texts = Texts { restore, facts };
    let mut new = RestoreStatus {
        observed_generation: generation,
        ..old.clone()
    };
    let report = match step {
        RestoreStep::Keep => return kept(restore),
        RestoreStep::Wait(wait) => {
            new.phase = RestorePhase::Pending;
            let (reason, message) = texts.wait(wait);
            // The engine knows more, if it has chosen this Restore.
            let own = facts.own_progress().map(|own| own.message.clone());
            let message = own.filter(|text| !text.is_empty()).unwrap_or(message);
            Report::new("False", reason, message)
        }
        RestoreStep::NotNeeded(reason) => {
            new.phase = RestorePhase::NotNeeded;
            Report::new("False", "NotNeeded", texts.not_needed(reason))
        }
        RestoreStep::Follow(own) => {
            new.phase = own.phase;
            new.undo_until = own.undo_until.map(conditions::time);
            if own.phase < RestorePhase::Complete {
                let now = || conditions::time(facts.now);
                new.started_at = Some(new.started_at.take().unwrap_or_else(now));
            }
            Report::new("False", own.phase.into(), texts.progress(own))
        }
        RestoreStep::Complete(own) => {
            record_complete(&mut new, facts, own);
            Report::new("True", "Complete", texts.progress(own))
        }
        RestoreStep::UndoRequested(own) => {
            record_complete(&mut new, facts, own);
            Report::new("True", "UndoRequested", texts.undo_requested())
        }
        RestoreStep::NoUndo(obstacle) => {
            let own = facts.own_progress();
            if let Some(own) = own {
                record_complete(&mut new, facts, own);
            }
            match obstacle {
                UndoObstacle::Expired => {}
                UndoObstacle::Superseded(_) | UndoObstacle::NotReported => new.undo_until = None,
            }
            let reason = if facts.is_undo_requested {
                "UndoNotPossible"
            } else {
                "Complete"
            };
            Report::new("True", reason, texts.no_undo(obstacle, &new))
        }
        RestoreStep::Lost => Report::new("Unknown", "ProgressLost", texts.lost()),
    };
    new.message.clone_from(&report.message);
    let condition = NewCondition {
        type_: COMPLETE,
        status: report.status,
        reason: report.reason.to_owned(),
        message: report.message,
    };
    new.conditions = conditions::set(&old.conditions, condition, generation, facts.now);
    Some(new)
}

/// Returns the unchanged status for the current generation; `None` if a newer operator has written it, or nothing was written.
fn kept(restore: &Restore) -> Option<RestoreStatus> {
    let mut status = restore.status.clone()?;
    if status.phase == RestorePhase::Unknown {
        return None;
    }
    status.observed_generation = restore.metadata.generation;
    for condition in &mut status.conditions {
        condition.observed_generation = restore.metadata.generation;
    }
    Some(status)
}

/// Writes to the status that the restore is complete.
fn record_complete(new: &mut RestoreStatus, facts: &RestoreFacts, own: &RestoreProgressFacts) {
    let id = facts.cluster.present().and_then(|it| it.id.clone());
    if let Some(id) = id.filter(|id| *id != facts.replaces) {
        new.cluster_id = id;
    }
    new.undo_until = own.undo_until.map(conditions::time);
    // A Restore that was created again after its end has seen neither its start nor its end.
    if new.phase != RestorePhase::Complete && new.started_at.is_some() {
        new.finished_at = Some(conditions::time(facts.now));
    }
    new.phase = RestorePhase::Complete;
}

/// The texts about one Restore.
struct Texts<'a> {
    restore: &'a Restore,
    facts: &'a RestoreFacts,
}

impl Texts<'_> {
    /// Returns the cluster as `EtcdCluster orders`.
    fn cluster(&self) -> String {
        let cluster = &self.restore.spec.cluster;
        format!("{} {}", cluster.kind, cluster.name)
    }

    fn backup(&self) -> &str {
        &self.restore.spec.from.backup
    }

    /// Returns the reason and the message of a wait.
    fn wait(&self, wait: &RestoreWait) -> (&'static str, String) {
        let cluster = self.cluster();
        match wait {
            RestoreWait::ClusterNotFound => (
                "ClusterNotFound",
                format!(
                    "{cluster} does not exist, so there is no data to replace. To create it with the data of Backup {}, set \
                     spec.bootstrap.from.backup of the new {}.",
                    self.backup(),
                    self.restore.spec.cluster.kind
                ),
            ),
            RestoreWait::BootstrapNotFinished => (
                "BootstrapNotFinished",
                format!(
                    "The bootstrap of {cluster} is not finished, so the cluster has no ID yet. The restore waits for it. See \
                     the status of the cluster."
                ),
            ),
            RestoreWait::AnotherRestore(other) => (
                "AnotherRestore",
                format!(
                    "Restore {other} of the same cluster runs first. It gives the cluster another ID, so this Restore is not \
                     needed once that one is complete."
                ),
            ),
            RestoreWait::EphemeralStorage => (
                "EphemeralStorage",
                format!(
                    "{cluster} has no volumes (spec.storage.ephemeral), so this Restore can never run. Delete it. To use the \
                     backup, create a cluster with volumes and spec.bootstrap.from.backup: {}.",
                    self.backup()
                ),
            ),
            RestoreWait::Backup(problem) => self.backup_problem(problem),
            RestoreWait::Paused => (
                "Paused",
                format!(
                    "spec.paused of {cluster} is set, so the operator changes nothing. The restore begins when spec.paused is \
                     false."
                ),
            ),
            RestoreWait::Start => (
                "Waiting",
                "The operator is about to begin. The cluster serves its current data.".to_owned(),
            ),
        }
    }

    fn backup_problem(&self, problem: &RestoreBackup) -> (&'static str, String) {
        let name = self.backup();
        let another = "Delete this Restore, and create one from another Backup.";
        match problem {
            RestoreBackup::Absent => (
                "BackupNotFound",
                format!(
                    "Backup {name} does not exist. The restore waits for it. Create it, or {}",
                    lower(another)
                ),
            ),
            RestoreBackup::Incomplete => (
                "BackupNotComplete",
                format!(
                    "Backup {name} is not complete. The restore waits for it. See its status: `kubectl describe ekb {name}`."
                ),
            ),
            RestoreBackup::Failed => (
                "BackupFailed",
                format!(
                    "Backup {name} has failed and contains no data. Nothing was changed. {another}"
                ),
            ),
            RestoreBackup::Damaged(damage) => (
                "BackupDamaged",
                format!(
                    "A drill found that Backup {name} is damaged: {damage} Nothing was changed. {another}"
                ),
            ),
            RestoreBackup::OtherKind(kind) => (
                "BackupOfOtherKind",
                format!(
                    "Backup {name} is of a cluster of kind {kind}, whose data {} cannot read. Nothing was changed. {another}",
                    self.cluster()
                ),
            ),
            RestoreBackup::UnreadableVersion(version) => (
                "BackupOfNewerVersion",
                format!(
                    "Backup {name} is of version {}, and spec.version of {} is {}, which cannot read it. Nothing was changed. \
                     Set spec.version to the minor version of the backup or a later one. Or {}",
                    if version.is_empty() {
                        "(unknown)"
                    } else {
                        version
                    },
                    self.cluster(),
                    self.facts
                        .cluster
                        .present()
                        .map_or("unknown", |it| &*it.version),
                    lower(another)
                ),
            ),
            // A usable backup is no obstacle.
            RestoreBackup::Usable => ("Waiting", String::new()),
        }
    }

    fn not_needed(&self, reason: &NotNeededReason) -> String {
        match reason {
            NotNeededReason::OtherId(id) => format!(
                "{} has the ID {id}, and spec.replaces is {}. Nothing was changed. To replace the current data, create another \
                 Restore with spec.replaces: \"{id}\".",
                self.cluster(),
                self.facts.replaces
            ),
            NotNeededReason::UndoneBeforeStart => {
                "spec.undo was set before the restore began. Nothing was changed. To restore the backup, create another \
                 Restore without spec.undo."
                    .to_owned()
            }
        }
    }

    /// Returns the text of the engine, or one for the phase.
    fn progress(&self, own: &RestoreProgressFacts) -> String {
        if !own.message.is_empty() {
            return own.message.clone();
        }
        let backup = self.backup();
        match own.phase {
            RestorePhase::Preparing => format!(
                "A new volume is filled with the data of Backup {backup}. The cluster serves its current data meanwhile."
            ),
            RestorePhase::Replacing => {
                "The members with the old data are stopped. Clients are not served until the restored ones have started."
                    .to_owned()
            }
            RestorePhase::Starting => {
                "The members with the restored data start. Clients are not served yet.".to_owned()
            }
            RestorePhase::Complete => self.complete(own.undo_until),
            RestorePhase::Undoing => {
                "The members with the restored data are stopped, and those with the old data start again.".to_owned()
            }
            RestorePhase::Undone => {
                "The cluster serves its old data again. To restore the backup again, create another Restore.".to_owned()
            }
            RestorePhase::Pending | RestorePhase::NotNeeded | RestorePhase::Unknown => String::new(),
        }
    }

    fn complete(&self, undo_until: Option<UnixTime>) -> String {
        let serves = format!("The cluster serves the data of Backup {}.", self.backup());
        match undo_until {
            Some(until) if self.facts.now < until => format!(
                "{serves} Its old data is kept until {}. To return to it, set spec.undo to true.",
                text(until)
            ),
            Some(until) => format!(
                "{serves} Its old data was kept until {}: the restore cannot be undone any more.",
                text(until)
            ),
            None => {
                format!("{serves} Its old data is not kept any more: the restore cannot be undone.")
            }
        }
    }

    fn undo_requested(&self) -> String {
        if self.facts.cluster.present().is_some_and(|it| it.is_paused) {
            return format!(
                "spec.undo is set. spec.paused of {} is set, too, so the operator changes nothing. The undo begins when \
                 spec.paused is false.",
                self.cluster()
            );
        }
        "spec.undo is set. The operator is about to return to the old data.".to_owned()
    }

    fn no_undo(&self, obstacle: &UndoObstacle, new: &RestoreStatus) -> String {
        let remedy = "To return to older data, create a Restore from a Backup of it.";
        match obstacle {
            UndoObstacle::Expired => {
                let until = new.undo_until.as_ref().map(conditions::unix);
                let kept = until.map_or_else(
                    || "the old data is not kept any more".to_owned(),
                    |until| format!("the old data was kept until {} only", text(until)),
                );
                format!(
                    "spec.undo is set, but {kept}. The cluster keeps the restored data. {remedy}"
                )
            }
            UndoObstacle::Superseded(other) => format!(
                "The restore was complete. Restore {other} has replaced the data since, so this one cannot be undone any more. \
                 {remedy}"
            ),
            UndoObstacle::NotReported => format!(
                "spec.undo is set, but {} does not report this restore any more, so it cannot be undone. The cluster keeps its \
                 current data. {remedy}",
                self.cluster()
            ),
        }
    }

    fn lost(&self) -> String {
        format!(
            "{} does not report this restore any more, so its end is unknown. Check the data and the status of the cluster, then \
             delete this Restore.",
            self.cluster()
        )
    }
}

/// Returns a sentence for the middle of another one.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Returns a time for people.
fn text(time: UnixTime) -> String {
    conditions::time(time).0.to_string()
}

/// Returns the events about a change of the state, by comparing the status with the one before.
pub(super) fn events(old: &RestoreStatus, new: &RestoreStatus) -> Vec<EventSpec> {
    let reason = |status: &RestoreStatus| {
        let condition = conditions::find(&status.conditions, COMPLETE);
        condition.map(|it| it.reason.clone()).unwrap_or_default()
    };
    let (was, is) = (reason(old), reason(new));
    if was == is {
        return Vec::new();
    }
    let note = &*new.message;
    let event = match new.phase {
        RestorePhase::Pending if is == "Waiting" || is == "AnotherRestore" => return Vec::new(),
        RestorePhase::Pending => EventSpec::warning(&is, "Restore", note),
        // The first phase that is seen begins the restore.
        RestorePhase::Preparing | RestorePhase::Replacing | RestorePhase::Starting
            if is == "ProgressLost" =>
        {
            EventSpec::warning(&is, "Restore", note)
        }
        RestorePhase::Preparing | RestorePhase::Replacing | RestorePhase::Starting => {
            if old.started_at.is_some() {
                return Vec::new();
            }
            EventSpec::normal("RestoreStarted", "Restore", note)
        }
        RestorePhase::Complete if is == "UndoNotPossible" => EventSpec::warning(&is, "Undo", note),
        RestorePhase::Complete if old.phase == RestorePhase::Complete => return Vec::new(),
        RestorePhase::Complete => EventSpec::normal("RestoreComplete", "Restore", note),
        RestorePhase::Undoing if is == "ProgressLost" => EventSpec::warning(&is, "Undo", note),
        RestorePhase::Undoing => EventSpec::normal("UndoStarted", "Undo", note),
        RestorePhase::Undone => EventSpec::normal("RestoreUndone", "Undo", note),
        RestorePhase::NotNeeded => EventSpec::normal("RestoreNotNeeded", "Restore", note),
        RestorePhase::Unknown => return Vec::new(),
    };
    vec![event]
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
