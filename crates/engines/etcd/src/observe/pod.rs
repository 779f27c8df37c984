//! What Kubernetes says of a member's pod, as facts.

use evenkeel_api::labels;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use serde_json::json;

use super::{Ownership, is_terminating, ownership, version, written};
use crate::build::{self, MemberRef, start_mode};
use crate::desired::DesiredCluster;
use crate::identity::Uid;
use crate::names::Serial;

/// What a kubelet says of a container that it starts again after a while.
const BACKS_OFF: &str = "CrashLoopBackOff";

pub(super) fn fact(
    desired: &DesiredCluster,
    uid: Uid,
    pod: &Pod,
    member: MemberRef,
    named: impl Fn(&str) -> Option<Serial>,
    now: UnixTime,
) -> crate::facts::PodFacts {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let label = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::ROLE));
    crate::facts::PodFacts {
        serial: member.serial,
        epoch: member.epoch,
        uid,
        created_at: pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(now, |time| UnixTime(time.0.as_second())),
        start_mode: start_mode::read(pod, member.serial, named),
        joined_gate: has_joined(pod),
        is_ready: condition(pod, "Ready").is_some_and(|(holds, _)| holds),
        unready_since: unready(pod, now),
        node: None,
        unschedulable_since: unscheduled(pod).map(|since| {
            since
                .last_transition_time
                .as_ref()
                .map_or(now, |time| UnixTime(time.0.as_second()))
        }),
        // What cannot be read is something else than what is wanted; what was never written may be the same.
        template_hash: written(&pod.metadata, labels::POD_TEMPLATE_HASH)
            .map(|text| text.parse().unwrap_or(Uid(0))),
        scheduling_hash: placing(pod),
        restart_request: written(&pod.metadata, labels::RESTARTED_AT).map(Uid::of_name),
        version: version(&pod.metadata),
        is_idle: is_idle(pod),
        crashing_since: crashing(pod, now),
        is_terminating: is_terminating(desired, &pod.metadata),
        is_finished: matches!(phase, Some("Succeeded" | "Failed")),
        is_routed: label.is_some_and(|label| label == labels::ROLE_VOTER),
        is_owned: ownership(desired, &pod.metadata) == Ownership::ThisResource,
    }
}

/// Whether a pod's etcd has joined, or been told to start on what is its own.
pub fn has_joined(pod: &Pod) -> bool {
    condition(pod, labels::GATE_JOINED).is_some_and(|(holds, _)| holds)
}

/// Whether a condition of a pod holds, and since when it does or does not.
fn condition(pod: &Pod, type_: &str) -> Option<(bool, Option<UnixTime>)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == type_)?;
    let since = condition
        .last_transition_time
        .as_ref()
        .map(|time| UnixTime(time.0.as_second()));
    Some((condition.status == "True", since))
}

/// Since when a pod is not Ready: one that never was, since it was created.
fn unready(pod: &Pod, now: UnixTime) -> Option<UnixTime> {
    let created = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| UnixTime(time.0.as_second()));
    match condition(pod, "Ready") {
        Some((true, _)) => None,
        Some((false, since)) => Some(since.unwrap_or(created)),
        None => Some(created),
    }
}

/// Whether a pod's container does not run and will not in a moment: by the word of its kubelet it waits, and not only because it
/// has ended once; or no node has it.
fn is_idle(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_deref());
    let etcd = statuses
        .unwrap_or_default()
        .iter()
        .find(|one| one.name == build::pod::CONTAINER);
    let waits = |etcd: &ContainerStatus| {
        let waiting = etcd.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| {
            waiting.reason.as_deref() != Some(BACKS_OFF) || etcd.restart_count >= 2
        })
    };
    node(pod).is_none() || etcd.is_some_and(waits)
}

/// What stands for all by which Kubernetes chooses a node, as far as it is written on the pod.
fn placing(pod: &Pod) -> Uid {
    let Some(spec) = &pod.spec else { return Uid(0) };
    let etcd = spec
        .containers
        .iter()
        .find(|one| one.name == build::pod::CONTAINER);
    let by = json!([
        spec.node_selector,
        spec.tolerations,
        spec.priority_class_name,
        spec.topology_spread_constraints,
        etcd.and_then(|etcd| etcd.resources.as_ref()?.requests.as_ref()),
    ]);
    Uid::of_name(&by.to_string())
}

/// Since when a pod's container keeps ending, if it waits to be started again after it has.
fn crashing(pod: &Pod, now: UnixTime) -> Option<UnixTime> {
    let status = pod.status.as_ref()?;
    let container = status
        .container_statuses
        .as_ref()?
        .iter()
        .find(|one| one.name == build::pod::CONTAINER)?;
    let waits = container
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let backs_off = waits.is_some_and(|waits| waits.reason.as_deref() == Some(BACKS_OFF));
    if !backs_off || container.restart_count < 2 {
        return None;
    }
    let (ready, since) = condition(pod, "ContainersReady")?;
    (!ready).then(|| since.unwrap_or(now))
}

/// The node that a pod was given.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The condition by which Kubernetes says that it has found no node for a pod.
fn unscheduled(pod: &Pod) -> Option<&PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|one| {
            one.type_ == "PodScheduled"
                && one.status == "False"
                && one.reason.as_deref() == Some("Unschedulable")
        })
}

/// What holds a pod up, in Kubernetes' words.
pub(super) fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if let Some(unscheduled) = unscheduled(pod) {
        return unscheduled
            .message
            .clone()
            .or_else(|| Some("no node takes its pod".to_owned()));
    }
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|one| one.state.as_ref()?.waiting.clone())?;
    // The two come in turns, and each would be news.
    if matches!(
        waiting.reason.as_deref(),
        Some("ErrImagePull" | "ImagePullBackOff")
    ) {
        let image = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.containers.first()?.image.clone());
        return Some(format!(
            "the image {} cannot be pulled",
            image.unwrap_or_default()
        ));
    }
    let reason = waiting
        .reason
        .filter(|reason| reason != "ContainerCreating" && reason != "PodInitializing")?;
    if waiting
        .message
        .as_deref()
        .is_some_and(start_mode::is_held_message)
    {
        return None;
    }
    // A message of a back-off counts its seconds, and would change the status each time.
    if reason == BACKS_OFF {
        return Some(
            "etcd keeps ending soon after it is started (CrashLoopBackOff): see its log".to_owned(),
        );
    }
    Some(
        waiting
            .message
            .map(|message| format!("{reason}: {message}"))
            .unwrap_or(reason),
    )
}
