//! What a restore does, before it is requested: the data that is given up, the backup, and what clients experience. Pure.

use evenkeel_api::{
    Backup, BackupPhase, EtcdCluster, Restore, RestorePhase, RestoreStatus, Version,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::super::create::is_of;
use super::super::list_text::ago;
use super::super::report::BackupReport;
use super::report::{RestorePlanReport, is_under_way, phase};
use crate::error::CliError;
use crate::report::ClusterReport;
use crate::terminal::{Terminal, format_elapsed};

/// The longest name of a Restore.
const MAX_NAME: usize = 63;
/// The number of digits of the cluster ID in the name of a Restore.
const ID_DIGITS: usize = 6;

/// The objects that a plan is made from.
pub(super) struct PlanInput<'a> {
    /// The cluster.
    pub(super) cluster: &'a EtcdCluster,
    /// The state of the cluster.
    pub(super) report: &'a ClusterReport,
    /// The revision of the cluster, if a member reports it.
    pub(super) revision: Option<u64>,
    /// The backup.
    pub(super) backup: &'a Backup,
    /// The Restores of the namespace.
    pub(super) restores: &'a [Restore],
    /// The name that the user chose.
    pub(super) name: Option<&'a str>,
    /// How long the old data is kept.
    pub(super) keep_old_data_for: &'a str,
}

impl PlanInput<'_> {
    /// Returns the plan, or an error if the restore could never begin.
    pub(super) fn plan(&self) -> Result<RestorePlanReport, CliError> {
        let cluster = self.cluster.name_any();
        let status = self.cluster.status.clone().unwrap_or_default();
        let replaces = status.cluster_id;
        if replaces.is_empty() {
            return Err(CliError::new(format!(
                "the bootstrap of EtcdCluster {cluster} is not finished. Nothing was changed"
            ))
            .help(format!(
                "`kubectl evenkeel status {cluster}` shows the progress"
            )));
        }
        self.require_volume(&cluster)?;
        self.require_usable_backup(&cluster)?;
        let name = self.name(&cluster, &replaces);
        self.require_turn(&cluster, &replaces, &name)?;
        let backup = BackupReport::new(self.backup);
        let of_backup = self.backup.status.clone().unwrap_or_default().cluster_id;
        let is_same_history = of_backup == replaces;
        let lost = self
            .revision
            .zip(revision_of(&backup.position))
            .filter(|_| is_same_history);
        Ok(RestorePlanReport {
            name,
            replaces,
            version: self.cluster.spec.version.clone(),
            revision: self.revision,
            backup_time: backup.time().map(|time| time.to_string()),
            backup: backup.name,
            backup_position: backup.position,
            backup_size: backup.size,
            backup_version: backup.engine_version,
            proven: backup.proven,
            is_same_history,
            lost_revisions: lost.map(|(now, then)| now.saturating_sub(then)),
            volume_size: self.cluster.spec.storage.size.0.clone(),
            keep_old_data_for: self.keep_old_data_for.to_owned(),
            notes: self.notes(&cluster, &backup.cluster),
            cluster,
        })
    }

    fn require_volume(&self, cluster: &str) -> Result<(), CliError> {
        if !self.cluster.spec.storage.ephemeral {
            return Ok(());
        }
        Err(CliError::new(format!(
            "EtcdCluster {cluster} has no volumes (spec.storage.ephemeral), so no backup can be restored into it. Nothing was \
             changed"
        ))
        .help("create a cluster with volumes and spec.bootstrap.from.backup"))
    }

    fn require_usable_backup(&self, cluster: &str) -> Result<(), CliError> {
        let backup = BackupReport::new(self.backup);
        let (name, status) = (&backup.name, self.backup.status.clone().unwrap_or_default());
        let another = format!("`kubectl evenkeel backups {cluster}` lists others");
        let problem = match status.phase {
            BackupPhase::Complete => None,
            BackupPhase::Failed => Some(format!("has failed: {}", backup.reason_text())),
            BackupPhase::Pending | BackupPhase::Running | BackupPhase::Unknown => {
                Some(format!("is not complete: its phase is {}", backup.phase))
            }
        };
        let damage = status
            .damaged
            .map(|damaged| format!("is damaged: {}", damaged.message.trim_end_matches('.')));
        if let Some(problem) = problem.or(damage) {
            return Err(
                CliError::new(format!("Backup {name} {problem}. Nothing was changed"))
                    .help(another),
            );
        }
        let minor = |version: &str| {
            let version: Option<Version> = version.parse().ok();
            version.map(|version| (version.major, version.minor))
        };
        let (of_backup, of_cluster) = (&backup.engine_version, &self.cluster.spec.version);
        match (minor(of_backup), minor(of_cluster)) {
            (Some(data), Some(version)) if data <= version => Ok(()),
            (Some(_), Some(_)) => Err(CliError::new(format!(
                "Backup {name} is of etcd {of_backup}, which etcd {of_cluster} of EtcdCluster {cluster} cannot read. Nothing was \
                 changed"
            ))
            .help(format!("upgrade the cluster first, or choose another backup: {another}"))),
            (None, _) | (_, None) => Err(CliError::new(format!(
                "the version of Backup {name} or of EtcdCluster {cluster} is unknown. Nothing was changed"
            ))
            .help(another)),
        }
    }

    /// Returns an error if another restore comes first: it gives the cluster another ID.
    fn require_turn(&self, cluster: &str, replaces: &str, name: &str) -> Result<(), CliError> {
        let status = self.cluster.status.as_ref();
        let progress = status.and_then(|status| status.restore.as_ref());
        let under_way = progress
            .filter(|it| is_under_way(it.phase) && it.name != name)
            .map(|it| it.name.clone());
        let mut restores = self.restores.iter();
        let waiting = restores.find(|restore| {
            is_of(&restore.spec.cluster, cluster)
                && restore.spec.replaces == replaces
                && phase(restore) == RestorePhase::Pending
                && restore.name_any() != name
        });
        let Some(other) = under_way.or(waiting.map(ResourceExt::name_any)) else {
            return Ok(());
        };
        Err(CliError::new(format!(
            "Restore {other} of EtcdCluster {cluster} comes first. Nothing was changed"
        ))
        .help(format!(
            "`kubectl evenkeel restores {cluster}` shows its state"
        )))
    }

    /// Returns the name of the Restore: from the cluster, the backup and the cluster ID that is given up. A Restore that has ended
    /// does not run again, so another one gets a number.
    fn name(&self, cluster: &str, replaces: &str) -> String {
        if let Some(name) = self.name {
            return name.to_owned();
        }
        let backup = self.backup.name_any();
        let prefix = format!("{cluster}-");
        let base = if backup.starts_with(&prefix) {
            backup
        } else {
            format!("{prefix}{backup}")
        };
        let id: String = replaces.chars().take(ID_DIGITS).collect();
        let has_ended = |name: &str| {
            let mut restores = self.restores.iter();
            restores.any(|it| it.name_any() == name && has_ended(it.status.as_ref()))
        };
        let numbered = |number: usize| match number {
            1 => fit(&base, &format!("-{id}")),
            number => fit(&base, &format!("-{id}-{number}")),
        };
        let mut names = (1..=self.restores.len() + 1).map(numbered);
        names
            .find(|name| !has_ended(name))
            .unwrap_or_else(|| numbered(1))
    }

    fn notes(&self, cluster: &str, of_backup: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if of_backup != cluster {
            notes.push(format!("the backup is of EtcdCluster {of_backup}."));
        }
        if self.cluster.spec.paused {
            notes.push(format!(
                "the cluster is paused. The restore begins when it is resumed: `kubectl evenkeel resume {cluster}`"
            ));
        }
        let operator = &self.report.operator;
        if operator.running == Some(false) {
            notes.push(format!("no operator carries it out: {}.", operator.message));
        }
        notes
    }
}

fn has_ended(status: Option<&RestoreStatus>) -> bool {
    let Some(status) = status else {
        return false;
    };
    match status.phase {
        RestorePhase::Complete | RestorePhase::Undone | RestorePhase::NotNeeded => true,
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing
        | RestorePhase::Unknown => false,
    }
}

/// Returns a name with a suffix, of which the beginning is shortened.
fn fit(base: &str, suffix: &str) -> String {
    let base: String = base.chars().take(MAX_NAME - suffix.len()).collect();
    format!("{}{suffix}", base.trim_end_matches('-'))
}

/// Returns the revision of a position such as `revision 4711`.
fn revision_of(position: &str) -> Option<u64> {
    position.split_whitespace().last()?.parse().ok()
}

/// Describes a plan.
pub(super) fn text(plan: &RestorePlanReport, now: Timestamp, terminal: Terminal) -> String {
    let RestorePlanReport { cluster, name, .. } = plan;
    let mut text = terminal.paragraphs(&format!(
        "{cluster}: the restore replaces all data of the cluster. Nothing was changed yet.\n"
    ));
    let age = plan.backup_time.as_ref().map(|time| ago(time, now));
    let revision = plan.revision.map(|revision| format!("revision {revision}"));
    let current = [
        Some(format!("cluster ID {}", plan.replaces)),
        Some(format!("etcd {}", plan.version)),
        revision,
    ];
    let backup = [
        Some(plan.backup_position.clone()),
        age.clone().map(|age| format!("taken {age}")),
        Some(plan.backup_size.clone()),
        Some(format!("etcd {}", plan.backup_version)),
    ];
    let proven = match &plan.proven {
        Some(proven) => format!(
            "restored by a drill {}, took {}",
            ago(&proven.at, now),
            format_elapsed(proven.restore_seconds)
        ),
        None => "never: no drill has restored this backup".to_owned(),
    };
    let fields = [
        ("Gives up", join(current)),
        ("Backup", format!("{}: {}", plan.backup, join(backup))),
        ("Proven", proven),
        ("Lost", lost(plan, age)),
        (
            "Clients",
            "are served until the new data is ready, then not until the new members have started. Revisions continue 1,000,000,000 \
             above that of the backup, and older ones count as compacted: watches end with an error, and clients list again. \
             Leases begin anew"
                .to_owned(),
        ),
        (
            "Needs",
            format!(
                "a new volume of {} for each member, besides the old ones",
                plan.volume_size
            ),
        ),
        (
            "Old data",
            format!("kept for {}, then deleted", plan.keep_old_data_for),
        ),
        (
            "Undo",
            format!("`kubectl evenkeel restore undo {name}`, as long as the old data is kept"),
        ),
    ];
    for (label, value) in fields {
        text.push_str(&terminal.field(label, &value));
    }
    for note in &plan.notes {
        text.push_str(&terminal.field("Note", note));
    }
    text.push_str(&terminal.field("Next", "the same command with --yes restores the backup"));
    text
}

/// Describes the data that is lost.
fn lost(plan: &RestorePlanReport, age: Option<String>) -> String {
    let since = age.map_or_else(
        || "all writes since the backup".to_owned(),
        |age| format!("all writes since the backup, which was taken {age}"),
    );
    match plan.lost_revisions {
        _ if !plan.is_same_history => {
            "all current data: the backup is of another history of data, not of the current one"
                .to_owned()
        }
        Some(0) => "nothing: there was no write since the backup".to_owned(),
        Some(1) => format!("1 revision: {since}"),
        Some(revisions) => format!("{revisions} revisions: {since}"),
        None => since,
    }
}

fn join(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
