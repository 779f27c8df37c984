//! Facts about restore pods, and the record of a restore on a PVC.

use evenkeel_api::labels;
use evenkeel_archive::tasks;
use evenkeel_backup::restore::{FETCH, INSTALL, RESTORE};
use evenkeel_kit::objects::annotation;
use evenkeel_kit::ownership::is_terminating;
use evenkeel_kit::{MemberRef, claims, pods};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod,
};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::ObservedCluster;
use crate::build::restore_pod;
use crate::facts::{RestoreFailure, RestorePodFacts, RestorePodState, RestoreStep, RestoredVolume};
use crate::identity::Uid;

/// The reason of a container that the kernel killed because it used too much memory.
const OUT_OF_MEMORY: &str = "OOMKilled";

impl ObservedCluster {
    pub(super) fn restore_pod_facts(&self) -> Vec<RestorePodFacts> {
        let lineage = self.identity.as_ref().map(|(_, identity)| identity.lineage);
        let pods = self.restore_pods.iter().filter_map(|(uid, pod)| {
            let member = restore_pod::member_of(&pod.metadata)?;
            if lineage.is_some_and(|lineage| lineage != member.lineage) {
                return None;
            }
            Some(self.facts_of(*uid, pod, member))
        });
        pods.collect()
    }

    fn facts_of(&self, uid: Uid, pod: &Pod, member: MemberRef) -> RestorePodFacts {
        // An unreadable uid matches no claim and no restore: the pod is deleted.
        let uid_of = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(Uid(0));
        let restore = pod.labels().get(labels::RESTORE).map(String::as_str);
        RestorePodFacts {
            serial: member.serial,
            epoch: member.epoch,
            uid,
            claim: uid_of(annotation(&pod.metadata, labels::RESTORE_CLAIM)),
            restore: uid_of(restore),
            created_at: pods::created_at(pod, self.now),
            state: state(pod, self.now),
            template_hash: annotation(&pod.metadata, labels::POD_TEMPLATE_HASH)
                .map(|text| text.parse().unwrap_or(Uid(0))),
            is_idle: statuses(pod).all(|status| started(status).is_none()),
            is_terminating: is_terminating(self.desired.cluster_ref(), &pod.metadata),
            problem: problem(pod),
        }
    }
}

/// Returns the time when an object was created; `now` if Kubernetes has not set it.
pub(super) fn created_at(metadata: &ObjectMeta, now: UnixTime) -> UnixTime {
    let created = metadata.creation_timestamp.as_ref();
    created.map_or(now, |at| UnixTime(at.0.as_second()))
}

/// Returns the value of the annotation that records which restore has filled the volume of a PVC.
pub(crate) fn restored_volume(restore: Uid, claim: Uid, volume: &str) -> String {
    format!("{restore}/{claim}/{volume}")
}

/// Returns the restore that has filled the volume of a PVC, as [`restored_volume`] recorded it; `None` if none was recorded. A
/// malformed annotation returns uids that match no restore, no PVC and no volume.
pub(super) fn read_restored(claim: &PersistentVolumeClaim) -> Option<RestoredVolume> {
    let text = annotation(&claim.metadata, labels::RESTORED_VOLUME)?;
    Some(parse_restored(text).unwrap_or(RestoredVolume {
        restore: Uid(0),
        claim: Uid(0),
        volume: Uid(0),
    }))
}

fn parse_restored(text: &str) -> Option<RestoredVolume> {
    let mut parts = text.splitn(3, '/');
    Some(RestoredVolume {
        restore: parts.next()?.parse().ok()?,
        claim: parts.next()?.parse().ok()?,
        volume: Uid::of_name(parts.next()?),
    })
}

/// Returns the name of the volume that a PVC is bound to, if it is the expected one.
pub(crate) fn bound_volume(claim: &PersistentVolumeClaim, volume: Uid) -> Option<&str> {
    claims::volume_name(claim).filter(|name| Uid::of_name(name) == volume)
}

fn state(pod: &Pod, now: UnixTime) -> RestorePodState {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    match phase {
        Some("Succeeded") => RestorePodState::Succeeded,
        Some("Failed") => RestorePodState::Failed(failure(pod, now)),
        _ if pods::is_held(pod) => RestorePodState::Held,
        _ => RestorePodState::Running(running_step(pod)),
    }
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let main = status.and_then(|status| status.container_statuses.as_ref());
    init.into_iter().flatten().chain(main.into_iter().flatten())
}

fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// Returns a container that runs or has run.
fn started(status: &ContainerStatus) -> Option<&ContainerStatus> {
    let state = status.state.as_ref()?;
    (state.running.is_some() || state.terminated.is_some()).then_some(status)
}

fn step_of(container: &str) -> Option<RestoreStep> {
    match container {
        FETCH => Some(RestoreStep::Fetch),
        RESTORE => Some(RestoreStep::Restore),
        INSTALL => Some(RestoreStep::Install),
        _ => None,
    }
}

/// Returns the step after the last one that has succeeded.
fn running_step(pod: &Pod) -> RestoreStep {
    let is_done = |name: &str| {
        statuses(pod).any(|status| {
            status.name == name && terminated(status).is_some_and(|ended| ended.exit_code == 0)
        })
    };
    if is_done(RESTORE) {
        RestoreStep::Install
    } else if is_done(FETCH) {
        RestoreStep::Restore
    } else {
        RestoreStep::Fetch
    }
}

fn failure(pod: &Pod, now: UnixTime) -> RestoreFailure {
    let failed = statuses(pod).find_map(|status| {
        let ended = terminated(status).filter(|ended| ended.exit_code != 0)?;
        Some((step_of(&status.name)?, ended))
    });
    let Some((step, ended)) = failed else {
        // The kubelet has ended the pod, for example because its node is shut down.
        let status = pod.status.as_ref();
        let message = status.and_then(|status| status.message.clone().or(status.reason.clone()));
        return RestoreFailure {
            at: ended_at(pod).unwrap_or_else(|| pods::created_at(pod, now)),
            step: RestoreStep::Fetch,
            is_transient: true,
            message: message.unwrap_or_else(|| "the pod was ended".to_owned()),
        };
    };
    let message = ended.message.as_deref().unwrap_or_default().trim();
    let outcome = serde_json::from_str::<tasks::Outcome>(message).ok();
    let (is_transient, message) = match outcome {
        Some(tasks::Outcome::Failed(failure)) => (failure.reason.is_transient(), failure.message),
        _ if ended.reason.as_deref() == Some(OUT_OF_MEMORY) => (
            false,
            "the restore needs more memory. Raise spec.resources.limits.memory".to_owned(),
        ),
        _ => (step != RestoreStep::Restore, last_line(message, ended)),
    };
    RestoreFailure {
        at: ended.finished_at.as_ref().map_or_else(
            || pods::created_at(pod, now),
            |at| UnixTime(at.0.as_second()),
        ),
        step,
        is_transient,
        message,
    }
}

/// Returns the last line of a container's log, or its exit code.
fn last_line(log: &str, ended: &ContainerStateTerminated) -> String {
    match log.lines().last().filter(|line| !line.is_empty()) {
        Some(line) => line.to_owned(),
        None => format!("exit code {}", ended.exit_code),
    }
}

fn ended_at(pod: &Pod) -> Option<UnixTime> {
    let ended = statuses(pod).filter_map(|status| terminated(status)?.finished_at.as_ref());
    ended.map(|at| UnixTime(at.0.as_second())).max()
}

/// Returns the reason why a restore pod does not start.
fn problem(pod: &Pod) -> Option<String> {
    if pods::node(pod).is_none() {
        return pods::problem(pod, INSTALL);
    }
    let waiting = statuses(pod).find_map(|status| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let is_normal = matches!(reason, "ContainerCreating" | "PodInitializing");
        let is_held = waiting
            .message
            .as_deref()
            .is_some_and(pods::is_held_message);
        (!is_normal && !is_held).then_some((reason, status, waiting))
    });
    let (reason, status, waiting) = waiting?;
    Some(match (reason, &waiting.message) {
        ("ErrImagePull" | "ImagePullBackOff", _) => {
            format!("the image {} cannot be pulled", status.image)
        }
        (_, Some(message)) => format!("{reason}: {message}"),
        (_, None) => reason.to_owned(),
    })
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
