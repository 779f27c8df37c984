//! Facts about a member's pod.

use evenkeel_api::labels;
use evenkeel_kit::objects::annotation;
use evenkeel_kit::ownership::{is_terminating, ownership};
use evenkeel_kit::{Ownership, pods};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::Pod;

use super::version;
use crate::build::pod::CONTAINER;
use crate::build::{MemberRef, start_mode};
use crate::desired::DesiredCluster;
use crate::facts::PodFacts;
use crate::identity::Uid;
use crate::names::Serial;

/// Returns the facts about a pod, without its node. `serial_of` returns the serial of a member by its name.
pub(super) fn facts(
    desired: &DesiredCluster,
    uid: Uid,
    pod: &Pod,
    member: MemberRef,
    serial_of: impl Fn(&str) -> Option<Serial>,
    now: UnixTime,
) -> PodFacts {
    let cluster = desired.cluster_ref();
    let role = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::ROLE));
    // An unreadable hash differs from the desired one. A pod without a hash may be up to date.
    let template_hash = annotation(&pod.metadata, labels::POD_TEMPLATE_HASH)
        .map(|text| text.parse().unwrap_or(Uid(0)));
    PodFacts {
        serial: member.serial,
        epoch: member.epoch,
        uid,
        created_at: pods::created_at(pod, now),
        start_mode: start_mode::read(pod, member.serial, serial_of),
        joined_gate: has_joined(pod),
        is_ready: pods::is_ready(pod),
        unready_since: pods::unready_since(pod, now),
        node: None,
        on_cordoned_node: false,
        unschedulable_since: pods::unschedulable_since(pod, now),
        template_hash,
        scheduling_hash: pods::scheduling_hash(pod, CONTAINER),
        restart_request: annotation(&pod.metadata, labels::RESTARTED_AT).map(Uid::of_name),
        version: version(&pod.metadata),
        is_idle: pods::is_idle(pod, CONTAINER),
        crashing_since: pods::crashing_since(pod, CONTAINER, now),
        is_terminating: is_terminating(cluster, &pod.metadata),
        is_finished: pods::is_finished(pod),
        is_routed: role.is_some_and(|role| role == labels::ROLE_VOTER),
        is_owned: ownership(cluster, &pod.metadata) == Ownership::ThisResource,
    }
}

/// Returns true if the readiness gate of a pod is set: its member has joined, and starts on its own data only.
pub fn has_joined(pod: &Pod) -> bool {
    pods::is_condition_true(pod, labels::GATE_JOINED)
}
