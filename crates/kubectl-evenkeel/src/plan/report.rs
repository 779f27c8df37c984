//! The output of `plan`: the edit, its effects, and the steps of the operator.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::preview::{Effects, EtcdPreview, StepKind};
use jiff::Timestamp;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::report::API_VERSION;

/// The field that decides when volumes of removed members are deleted.
const RETENTION_FIELD: &str = "spec.storage.keepRemovedFor:";

/// The preview of an edit: the output of `kubectl evenkeel plan -o json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanReport {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(super) api_version: &'static str,
    /// PlanReport.
    pub(super) kind: &'static str,
    /// The namespace of the cluster.
    pub(super) namespace: String,
    /// The name of the cluster.
    pub(super) name: String,
    /// Whether the cluster exists already.
    pub(super) exists: bool,
    /// The fields that change.
    pub(super) edits: Vec<String>,
    /// The field that the operator would reject, and what it does until the field is corrected.
    pub(super) rejection: Option<String>,
    /// The effects of the plan.
    pub(super) effects: PlanEffects,
    /// The steps in order.
    pub(super) steps: Vec<PlanStep>,
    /// The actions that the steps consist of, in order.
    pub(super) actions: Vec<PlanAction>,
    /// The volumes of removed members that the operator deletes.
    pub(super) volume_deletions: Vec<PlanVolumeDeletion>,
    /// The summary of the cluster at the end.
    pub(super) final_summary: String,
    /// The waits at the end.
    pub(super) waiting_for: Vec<String>,
    /// Notes about the result.
    pub(super) notes: Vec<String>,
    /// The assumptions of the plan.
    pub(super) assumptions: Vec<String>,
    /// The age of the last decision, with which etcd's state was recorded, in seconds. Null if none is recorded.
    pub(super) facts_age_seconds: Option<i64>,
    /// The time of the plan.
    #[serde(skip)]
    pub(super) now: Timestamp,
}

/// The effects of a plan.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanEffects {
    /// The effects in words.
    pub(super) summary: Vec<String>,
    #[serde(flatten)]
    pub(super) effects: Effects,
}

/// A predicted step.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanStep {
    /// The number of the step, from 1.
    pub(super) number: usize,
    /// The kind of the step.
    pub(super) kind: StepKind,
    /// The member that the step is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<String>,
    /// The step in words.
    pub(super) description: String,
    /// The reason. Absent if the description contains it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// The earliest time of the step in seconds from now, without the time that earlier steps take.
    pub(super) after_seconds: i64,
    /// The same as a time, if the step waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(super) time: Option<Timestamp>,
}

/// A predicted action.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanAction {
    /// The number of its step. Deletions of volumes belong to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<usize>,
    /// The machine name of the action.
    pub(super) name: &'static str,
    /// The action in the words of the decision log.
    pub(super) description: String,
    /// The reason.
    pub(super) reason: String,
    /// The earliest time of the action in seconds from now.
    pub(super) after_seconds: i64,
}

/// The predicted deletion of a volume.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanVolumeDeletion {
    /// The name of the PersistentVolumeClaim.
    pub(super) claim: String,
    /// The time of the deletion in seconds from now.
    pub(super) after_seconds: i64,
    /// The time of the deletion.
    #[schemars(with = "String")]
    pub(super) time: Timestamp,
    /// Whether the volume is deleted at this time because of the edit or of a step of the plan.
    pub(super) caused_by_plan: bool,
}

impl PlanReport {
    /// Creates a report from a preview. `include_bookkeeping` adds steps and actions that only record facts.
    pub(super) fn new(
        cluster: &EtcdCluster,
        preview: EtcdPreview,
        edits: Vec<String>,
        now: Timestamp,
        include_bookkeeping: bool,
    ) -> Self {
        let time = |after: i64| {
            let at = now.as_second().saturating_add(after);
            Timestamp::from_second(at).unwrap_or(now)
        };
        let EtcdPreview {
            course,
            steps,
            volumes,
            effects,
            notes,
        } = preview;
        let changes_retention = edits.iter().any(|edit| edit.starts_with(RETENTION_FIELD));
        let mut step_numbers = vec![None; course.steps.len()];
        let visible = steps
            .into_iter()
            .filter(|step| include_bookkeeping || step.kind != StepKind::Record);
        let steps: Vec<_> = visible
            .enumerate()
            .map(|(index, step)| {
                let number = index + 1;
                for action in step.actions {
                    step_numbers[action] = Some(number);
                }
                PlanStep {
                    number,
                    kind: step.kind,
                    member: step.member,
                    description: step.text,
                    reason: step.reason,
                    after_seconds: step.after,
                    time: (step.after > 0).then(|| time(step.after)),
                }
            })
            .collect();
        let actions = course.steps.into_iter().zip(step_numbers);
        let actions = actions.filter(|(action, _)| include_bookkeeping || !action.is_note);
        Self {
            api_version: API_VERSION,
            kind: "PlanReport",
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            exists: false,
            edits,
            rejection: None,
            effects: PlanEffects {
                summary: effects.describe(),
                effects,
            },
            steps,
            actions: actions
                .map(|(action, step)| PlanAction {
                    step,
                    name: action.action,
                    description: action.does,
                    reason: action.reason,
                    after_seconds: action.after,
                })
                .collect(),
            volume_deletions: volumes
                .into_iter()
                .map(|volume| PlanVolumeDeletion {
                    claim: volume.claim,
                    after_seconds: volume.after,
                    time: time(volume.after),
                    caused_by_plan: !volume.was_retained || changes_retention,
                })
                .collect(),
            final_summary: course.ends,
            waiting_for: course.waits_for,
            notes,
            assumptions: course.assumes,
            facts_age_seconds: None,
            now,
        }
    }
}
