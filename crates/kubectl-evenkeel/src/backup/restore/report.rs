//! The reports about restores, which `restore` and `restores` print as text, JSON or YAML. Their fields are part of the plugin's
//! interface. Times are in UTC and in the format of RFC 3339.

use evenkeel_api::{Restore, RestorePhase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::report::{ProvenReport, find_condition};
use crate::report::API_VERSION;

/// The output of `kubectl evenkeel restore -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreResult {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// RestoreResult.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// What the restore does. Null for an undo, and with --yes.
    pub(crate) plan: Option<RestorePlanReport>,
    /// The Restore. Null as long as it was not created.
    pub(crate) restore: Option<RestoreReport>,
}

/// The output of `kubectl evenkeel restores -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreReportList {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// RestoreReportList.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// The restores, the newest first.
    pub(crate) items: Vec<RestoreReport>,
}

/// What a restore does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestorePlanReport {
    /// The name that the Restore gets.
    pub(crate) name: String,
    /// The name of the cluster.
    pub(crate) cluster: String,
    /// The ID of the cluster that is given up.
    pub(crate) replaces: String,
    /// The version of etcd in the spec of the cluster.
    pub(crate) version: String,
    /// The revision of the cluster. Null if unknown.
    pub(crate) revision: Option<u64>,
    /// The name of the Backup.
    pub(crate) backup: String,
    /// The position of the backup, such as revision 4711.
    pub(crate) backup_position: String,
    /// The size of the data, such as 25Mi.
    pub(crate) backup_size: String,
    /// The version of etcd that the data is from.
    pub(crate) backup_version: String,
    /// When the backup was complete. Null if unknown.
    pub(crate) backup_time: Option<String>,
    /// The last drill that restored the backup. Null if none did.
    pub(crate) proven: Option<ProvenReport>,
    /// Whether the backup is of the current history of the cluster: its revisions can be compared.
    pub(crate) is_same_history: bool,
    /// The number of revisions since the backup, which are lost. Null if unknown.
    pub(crate) lost_revisions: Option<u64>,
    /// The size of the volume of a member.
    pub(crate) volume_size: String,
    /// How long the old data is kept, such as 72h.
    pub(crate) keep_old_data_for: String,
    /// Facts that delay the restore or that need attention.
    pub(crate) notes: Vec<String>,
}

/// A restore, as a Restore object describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreReport {
    /// The namespace of the Restore.
    pub(crate) namespace: String,
    /// The name of the Restore.
    pub(crate) name: String,
    /// The name of the cluster.
    pub(crate) cluster: String,
    /// The name of the Backup.
    pub(crate) backup: String,
    /// Pending, Preparing, Replacing, Starting, Complete, Undoing, Undone, NotNeeded, or Unknown for a phase of a newer operator.
    pub(crate) phase: String,
    /// The reason of the condition Complete.
    pub(crate) reason: String,
    /// What happens now, what it waits for, and what to do.
    pub(crate) message: String,
    /// The ID of the cluster that is given up.
    pub(crate) replaces: String,
    /// The ID of the cluster with the restored data.
    pub(crate) cluster_id: String,
    /// Whether spec.undo is set.
    pub(crate) is_undo_requested: bool,
    /// When the Restore was created.
    pub(crate) created_at: Option<String>,
    /// When the operator began.
    pub(crate) started_at: Option<String>,
    /// When clients were served from the restored data.
    pub(crate) finished_at: Option<String>,
    /// Until when the restore can be undone.
    pub(crate) undo_until: Option<String>,
}

impl RestoreResult {
    /// Reports about a plan.
    pub(crate) fn of_plan(plan: &RestorePlanReport) -> Self {
        Self {
            plan: Some(plan.clone()),
            ..Self::new(None)
        }
    }

    /// Reports about a Restore.
    pub(super) fn new(restore: Option<RestoreReport>) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "RestoreResult",
            time: Timestamp::now().to_string(),
            plan: None,
            restore,
        }
    }
}

impl RestoreReport {
    /// Reports about a Restore.
    pub(crate) fn new(restore: &Restore) -> Self {
        let status = restore.status.clone().unwrap_or_default();
        let complete = find_condition(&status.conditions, "Complete");
        let text_of = |time: &Time| time.0.to_string();
        Self {
            namespace: restore.namespace().unwrap_or_default(),
            name: restore.name_any(),
            cluster: restore.spec.cluster.name.clone(),
            backup: restore.spec.from.backup.clone(),
            phase: status.phase.to_string(),
            reason: complete.map(|it| it.reason.clone()).unwrap_or_default(),
            message: status.message,
            replaces: restore.spec.replaces.clone(),
            cluster_id: status.cluster_id,
            is_undo_requested: restore.spec.undo,
            created_at: restore.creation_timestamp().as_ref().map(text_of),
            started_at: status.started_at.as_ref().map(text_of),
            finished_at: status.finished_at.as_ref().map(text_of),
            undo_until: status.undo_until.as_ref().map(text_of),
        }
    }
}

/// Returns the phase of a Restore.
pub(super) fn phase(restore: &Restore) -> RestorePhase {
    let status = restore.status.as_ref();
    status.map(|status| status.phase).unwrap_or_default()
}

/// Returns true for the phases in which the operator changes the cluster.
pub(super) fn is_under_way(phase: RestorePhase) -> bool {
    match phase {
        RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing => true,
        RestorePhase::Pending
        | RestorePhase::Complete
        | RestorePhase::Undone
        | RestorePhase::NotNeeded
        | RestorePhase::Unknown => false,
    }
}
