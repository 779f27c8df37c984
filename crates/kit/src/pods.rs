//! Pods of members: facts from their status, pods that are held back until the engine lets them start, and the hash of the
//! inputs that a pod is built from.

use std::time::Duration;

use evenkeel_api::{labels, quantity};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::Uid;
use crate::objects::annotation;

/// The reason of a container that the kubelet restarts after a back-off.
const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
/// The number of restarts from which on a container counts as crashing: the first crash may be an accident.
const MIN_CRASHES: i32 = 2;

/// The sub-path of the data volume of a held pod. It cannot be mounted: the kubelet rejects an absolute sub-path before it
/// creates the container, and quotes this text in its message. Meanwhile it provisions and mounts volumes, pulls the image
/// and creates the sandbox, which a scheduling gate would hold back as well.
const HELD_SUB_PATH: &str = "/waiting until Evenkeel lets it start";
/// The sub-path of the data volume of a pod that may start.
const DATA_SUB_PATH: &str = "member";

/// Returns the value of the annotation [`labels::DATA_SUB_PATH`], from which the data volume's `subPathExpr` is expanded at
/// every start of the container.
pub fn data_sub_path(is_held: bool) -> &'static str {
    if is_held {
        HELD_SUB_PATH
    } else {
        DATA_SUB_PATH
    }
}

/// Returns true if a pod's container cannot start yet. A pod without the annotation, or with another value, is held, too.
pub fn is_held(pod: &Pod) -> bool {
    annotation(&pod.metadata, labels::DATA_SUB_PATH) != Some(DATA_SUB_PATH)
}

/// Returns true if a kubelet's message only says that a pod is held.
pub fn is_held_message(message: &str) -> bool {
    message.contains(HELD_SUB_PATH)
}

/// Returns the hash of the inputs that a pod is built from. The engine chooses the inputs: a change of the hash restarts
/// members.
pub fn template_hash(inputs: &Value) -> Uid {
    Uid::of_name(&inputs.to_string())
}

/// Replaces Kubernetes quantities in a JSON value by numbers in thousandths, so that two spellings of one quantity have the
/// same hash.
pub fn normalize_quantities(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, normalize_quantities(value)))
            .collect(),
        Value::String(text) => match quantity::millis(&Quantity(text.clone())) {
            Ok(millis) => json!(millis),
            Err(_) => json!(text),
        },
        other => other,
    }
}

/// Returns the node that a pod is scheduled to.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Returns the time when a pod was created; `now` if Kubernetes has not set it.
pub fn created_at(pod: &Pod, now: UnixTime) -> UnixTime {
    unix_time(pod.metadata.creation_timestamp.as_ref()).unwrap_or(now)
}

/// Returns true if a pod is in a terminal phase.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns true if a condition of a pod is `True`.
pub fn is_condition_true(pod: &Pod, type_: &str) -> bool {
    condition(pod, type_).is_some_and(|condition| condition.status == "True")
}

/// Returns true if the kubelet reports a pod as Ready.
pub fn is_ready(pod: &Pod) -> bool {
    is_condition_true(pod, "Ready")
}

/// Returns since when a pod has not been Ready; `None` if it is Ready. A pod that never was counts from its creation.
pub fn unready_since(pod: &Pod, now: UnixTime) -> Option<UnixTime> {
    match condition(pod, "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(transition_time(ready).unwrap_or(created_at(pod, now))),
        None => Some(created_at(pod, now)),
    }
}

/// How long a pod is Ready before its application must answer others than the kubelet.
const READY_GRACE: Duration = Duration::from_secs(10);

/// Returns true if a pod has been Ready for some seconds since its container started last. If it then stops answering, it is
/// not starting.
pub fn has_been_ready(pod: &Pod, container: &str, now: UnixTime) -> bool {
    let Some(ready) = condition(pod, "Ready") else {
        return false;
    };
    let started = container_status(pod, container)
        .and_then(|status| status.state.as_ref()?.running.as_ref()?.started_at.clone());
    let lost_later = match (transition_time(ready), started) {
        (Some(lost), Some(started)) => lost.0 > started.0.as_second(),
        _ => false,
    };
    let is_ready = ready.status == "True"
        && transition_time(ready).is_none_or(|since| now.since(since) >= READY_GRACE);
    is_ready || lost_later && ready.status != "True"
}

/// Returns when the scheduler found a node for a pod.
pub fn scheduled_at(pod: &Pod) -> Option<UnixTime> {
    let scheduled = condition(pod, "PodScheduled");
    transition_time(scheduled.filter(|condition| condition.status == "True")?)
}

/// How long a restarted pod may take to serve before that is a problem.
const RESTART_GRACE: Duration = Duration::from_secs(60);

/// The last restart of a pod. The operator and the plugin decide by it whether a pod that does not serve is a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRestart {
    /// When the pod was created.
    pub created_at: UnixTime,
    /// When the scheduler found a node for it. After a drain it has waited for that.
    pub scheduled_at: Option<UnixTime>,
    /// Since when it is terminating.
    pub terminating_since: Option<UnixTime>,
    /// Whether it [has been Ready](has_been_ready).
    pub has_been_ready: bool,
}

impl PodRestart {
    /// Returns the last restart of a pod.
    pub fn of(pod: &Pod, container: &str, now: UnixTime) -> Self {
        Self {
            created_at: created_at(pod, now),
            scheduled_at: scheduled_at(pod),
            terminating_since: terminating_since(pod),
            has_been_ready: has_been_ready(pod, container, now),
        }
    }

    /// Returns true while Kubernetes and the operator may still need the time to bring the pod back.
    pub fn is_in_progress(&self, now: UnixTime) -> bool {
        let started_at = self.scheduled_at.unwrap_or(self.created_at);
        let since = self
            .terminating_since
            .unwrap_or(self.created_at.max(started_at));
        let is_starting = self.terminating_since.is_some() || !self.has_been_ready;
        is_starting && now.since(since) < RESTART_GRACE
    }
}

/// Returns since when the scheduler has found no node for a pod; `None` if it has one or has not tried yet.
pub fn unschedulable_since(pod: &Pod, now: UnixTime) -> Option<UnixTime> {
    unschedulable(pod).map(|condition| transition_time(condition).unwrap_or(now))
}

/// Returns true if a pod's container does not run and will not run in a moment: no node has the pod, or the kubelet reports
/// the container as waiting. A container in its first back-off does not count.
pub fn is_idle(pod: &Pod, container: &str) -> bool {
    let is_waiting = |status: &ContainerStatus| {
        waiting_reason(status)
            .is_some_and(|reason| reason != Some(CRASH_LOOP_BACK_OFF) || has_crashed_often(status))
    };
    node(pod).is_none() || container_status(pod, container).is_some_and(is_waiting)
}

/// Returns since when a pod's container has been crashing; `None` if it runs, waits for something else, or crashed once.
pub fn crashing_since(pod: &Pod, container: &str, now: UnixTime) -> Option<UnixTime> {
    let status = container_status(pod, container)?;
    if waiting_reason(status) != Some(Some(CRASH_LOOP_BACK_OFF)) || !has_crashed_often(status) {
        return None;
    }
    let ready = condition(pod, "ContainersReady")?;
    (ready.status != "True").then(|| transition_time(ready).unwrap_or(now))
}

/// Returns true if an image of a pod cannot be pulled.
pub fn is_image_missing(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let mut reasons = statuses.into_iter().flatten().filter_map(waiting_reason);
    reasons.any(|reason| {
        matches!(
            reason,
            Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName")
        )
    })
}

/// Returns true if the kubelet restarts a pod's container after a back-off.
pub fn is_crash_looping(pod: &Pod, container: &str) -> bool {
    container_status(pod, container)
        .is_some_and(|status| waiting_reason(status) == Some(Some(CRASH_LOOP_BACK_OFF)))
}

/// Returns the message with which a pod's container ended last: the end of its log, if the container's
/// `terminationMessagePolicy` is `FallbackToLogsOnError`.
pub fn termination_message<'p>(pod: &'p Pod, container: &str) -> Option<&'p str> {
    let status = container_status(pod, container)?;
    let states = [status.state.as_ref(), status.last_state.as_ref()];
    states
        .into_iter()
        .flatten()
        .find_map(|state| state.terminated.as_ref()?.message.as_deref())
}

/// Returns since when a pod is terminating.
pub fn terminating_since(pod: &Pod) -> Option<UnixTime> {
    // The deletion timestamp includes the grace period.
    let deadline = unix_time(pod.metadata.deletion_timestamp.as_ref())?;
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .unwrap_or_default();
    Some(UnixTime(deadline.0 - grace))
}

/// Returns the hash of the fields by which the scheduler chooses a node.
pub fn scheduling_hash(pod: &Pod, container: &str) -> Uid {
    let Some(spec) = &pod.spec else { return Uid(0) };
    let container = spec
        .containers
        .iter()
        .find(|candidate| candidate.name == container);
    let fields = json!([
        spec.node_selector,
        spec.tolerations,
        spec.priority_class_name,
        spec.topology_spread_constraints,
        container.and_then(|container| container.resources.as_ref()?.requests.as_ref()),
    ]);
    Uid::of_name(&fields.to_string())
}

/// Returns the reason why a pod does not start, for the status; `None` if there is none. `application` is the name of the
/// program in the pod. The text does not change while the reason stays: counters and alternating reasons are left out.
pub fn problem(pod: &Pod, application: &str) -> Option<String> {
    if let Some(unschedulable) = unschedulable(pod) {
        let message = unschedulable.message.clone();
        return Some(message.unwrap_or_else(|| "no node can run its pod".to_owned()));
    }
    let statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    let waiting = statuses
        .filter_map(|status| status.state.as_ref()?.waiting.clone())
        .next()?;
    let reason = waiting.reason?;
    match reason.as_str() {
        "ContainerCreating" | "PodInitializing" => None,
        // The two reasons alternate; each change would be an event.
        "ErrImagePull" | "ImagePullBackOff" => {
            let image = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.containers.first()?.image.clone());
            let image = image.unwrap_or_default();
            Some(format!("the image {image} cannot be pulled"))
        }
        _ if waiting.message.as_deref().is_some_and(is_held_message) => None,
        // The message counts seconds.
        CRASH_LOOP_BACK_OFF => Some(format!(
            "{application} keeps crashing (CrashLoopBackOff). See its log"
        )),
        _ => Some(match waiting.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason,
        }),
    }
}

fn unix_time(time: Option<&Time>) -> Option<UnixTime> {
    time.map(|time| UnixTime(time.0.as_second()))
}

fn condition<'p>(pod: &'p Pod, type_: &str) -> Option<&'p PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|condition| condition.type_ == type_)
}

fn transition_time(condition: &PodCondition) -> Option<UnixTime> {
    unix_time(condition.last_transition_time.as_ref())
}

fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "PodScheduled").filter(|condition| {
        condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

fn container_status<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStatus> {
    let mut statuses = pod.status.as_ref()?.container_statuses.as_ref()?.iter();
    statuses.find(|status| status.name == container)
}

/// Returns the reason of a waiting container; `None` if the container is not waiting.
fn waiting_reason(status: &ContainerStatus) -> Option<Option<&str>> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    Some(waiting.reason.as_deref())
}

fn has_crashed_often(status: &ContainerStatus) -> bool {
    status.restart_count >= MIN_CRASHES
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
