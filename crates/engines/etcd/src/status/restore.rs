//! The progress of an in-place restore, as the status shows it. The controller of Restores repeats it in their status.

use evenkeel_api::{RestorePhase, RestoreProgress};
use evenkeel_runtime::{Plan, UnixTime};

use super::to_time;
use crate::actions::{ActionContext, sentence};
use crate::decide::Etcd;
use crate::identity::{ClusterId, NextEpoch, ReplacedEpoch, RestoreOrigin};
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Returns the progress of the last in-place restore; `last` if the facts do not show it.
pub(super) fn progress(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    last: Option<&RestoreProgress>,
) -> Option<RestoreProgress> {
    let Some(view) = context.view else {
        return last.cloned();
    };
    let identity = view.identity;
    if let Some(next) = &identity.next_epoch {
        return Some(preparing(context, plan, next, identity.cluster_id));
    }
    let request = context.observed.restore_request.as_ref();
    let request = request.filter(|request| identity.bootstrapped && !request.undo);
    if let Some(request) = request {
        let message = waits(context, plan).unwrap_or_else(|| "The restore begins next.".to_owned());
        let phase = RestorePhase::Pending;
        return Some(of(&request.origin, phase, message, Some(request.replaces)));
    }
    let Some(replaced) = &identity.replaced else {
        return last.cloned();
    };
    Some(if replaced.is_undone(identity.epoch) {
        undone(view, &replaced.replaced_by, last)
    } else if identity.bootstrapped {
        complete(context, view, replaced)
    } else {
        starting(context, plan, view, replaced)
    })
}

/// Returns true while clients are not served because a restore, or its undo, replaces the data.
pub(super) fn is_replacing(context: &ActionContext<'_>) -> bool {
    let Some(view) = context.view else {
        return false;
    };
    let identity = view.identity;
    let origin = identity.restore.as_ref();
    if !identity.bootstrapped {
        return origin.is_some_and(RestoreOrigin::is_in_place);
    }
    let Some(replaced) = &identity.replaced else {
        return false;
    };
    let last = context.observed.resource.status.as_ref();
    let last = last.and_then(|status| status.restore.as_ref());
    replaced.is_undone(identity.epoch)
        && !is_undone(view)
        && last.is_some_and(|last| last.phase != RestorePhase::Undone)
}

/// Returns true while the volume of a restore is filled. The cluster serves meanwhile.
pub(super) fn is_preparing(context: &ActionContext<'_>) -> bool {
    let identity = context.view.map(|view| view.identity);
    identity.is_some_and(|identity| identity.next_epoch.is_some())
}

/// Returns true if the members of the replaced cluster serve again.
fn is_undone(view: &ClusterView<'_>) -> bool {
    view.old_pods.is_empty() && view.membership_known
}

fn of(
    origin: &RestoreOrigin,
    phase: RestorePhase,
    message: String,
    replaces: Option<ClusterId>,
) -> RestoreProgress {
    RestoreProgress {
        name: origin.in_place.clone().unwrap_or_default(),
        phase,
        message,
        replaces: replaces.map_or_else(String::new, |id| format!("{:x}", id.0)),
        undo_until: None,
    }
}

fn preparing(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    next: &NextEpoch,
    cluster_id: Option<ClusterId>,
) -> RestoreProgress {
    let message = waits(context, plan).unwrap_or_else(|| {
        format!(
            "A volume is filled with the data of Backup {}.",
            next.restore.backup
        )
    });
    let message = format!("{message} The cluster keeps its old data meanwhile.");
    of(&next.restore, RestorePhase::Preparing, message, cluster_id)
}

fn starting(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    view: &ClusterView<'_>,
    replaced: &ReplacedEpoch,
) -> RestoreProgress {
    let (phase, message) = if view.old_pods.is_empty() {
        let message = waits(context, plan).unwrap_or_else(|| {
            let voters = view.voters().count();
            let members = view.facts.cluster.members;
            format!("{voters} of {members} members with the restored data vote.")
        });
        (RestorePhase::Starting, message)
    } else {
        let left = view.old_pods.len();
        let message = format!("The members of the replaced cluster are stopped: {left} left.");
        (RestorePhase::Replacing, message)
    };
    RestoreProgress {
        undo_until: kept_until(view, replaced).map(to_time),
        ..of(&replaced.replaced_by, phase, message, replaced.cluster_id)
    }
}

fn complete(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    replaced: &ReplacedEpoch,
) -> RestoreProgress {
    let origin = &replaced.replaced_by;
    let until = kept_until(view, replaced);
    let request = context.observed.restore_request.as_ref();
    let is_undo = request.is_some_and(|request| request.undo && request.origin.id == origin.id);
    let (phase, message) = match (until, is_undo) {
        (Some(_), true) => (
            RestorePhase::Undoing,
            "The members with the restored data are stopped next.".to_owned(),
        ),
        (None, true) => (
            RestorePhase::Complete,
            "The restore cannot be undone: the volumes of the replaced cluster are no longer kept."
                .to_owned(),
        ),
        (_, false) => (
            RestorePhase::Complete,
            format!(
                "Clients are served from the data of Backup {}.",
                origin.backup
            ),
        ),
    };
    RestoreProgress {
        undo_until: until.map(to_time),
        ..of(origin, phase, message, replaced.cluster_id)
    }
}

/// The end of an undo stays, whatever happens to the cluster afterwards.
fn undone(
    view: &ClusterView<'_>,
    origin: &RestoreOrigin,
    last: Option<&RestoreProgress>,
) -> RestoreProgress {
    let was_undone = last.is_some_and(|last| {
        Some(&last.name) == origin.in_place.as_ref() && last.phase == RestorePhase::Undone
    });
    let (phase, message) = if was_undone || is_undone(view) {
        (
            RestorePhase::Undone,
            "Clients are served from the data before the restore.",
        )
    } else {
        (
            RestorePhase::Undoing,
            "The members with the restored data are stopped, and those with the old data start.",
        )
    };
    of(origin, phase, message.to_owned(), view.identity.cluster_id)
}

/// Returns until when the volumes of the replaced cluster are kept; `None` if none is kept.
fn kept_until(view: &ClusterView<'_>, replaced: &ReplacedEpoch) -> Option<UnixTime> {
    let claims = view.replaced_claims.iter();
    let kept = claims.filter(|claim| claim.epoch == replaced.epoch && !claim.is_terminating);
    kept.filter_map(|claim| claim.replaced_until)
        .filter(|until| *until > view.facts.now)
        .max()
}

/// Describes what the restore waits for, with the remedy of a problem.
fn waits(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Option<String> {
    let is_restore = |wait: &&EtcdWait| {
        matches!(
            wait,
            EtcdWait::RestoreSource(_)
                | EtcdWait::Restore(_)
                | EtcdWait::RestoreRetry(..)
                | EtcdWait::RestorePodDeletion(_)
        )
    };
    let wait = plan.waits.iter().find(is_restore)?;
    Some(match wait {
        EtcdWait::RestoreSource(_) | EtcdWait::RestoreRetry(..) => {
            let problem = wait.problem(context);
            format!("{} {}", problem.message, problem.advice)
        }
        _ => sentence(&format!("Waiting for {}", wait.describe(context))),
    })
}
