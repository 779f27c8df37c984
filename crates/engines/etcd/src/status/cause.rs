//! The cause for which a member does not serve, and the advice that resolves it. The node comes first, then the volume,
//! then the pod, then etcd: a later one is often the effect of an earlier one.

use evenkeel_api::NodeProblem;
use evenkeel_api::conditions::Reason;
use evenkeel_runtime::UnixTime;

use crate::actions::ActionContext;
use crate::facts::{MemberDetails, NodeTrouble, PodProblemKind, StartMode};
use crate::view::{ClusterView, DataState, MemberView};

/// Why a member does not serve.
pub(crate) struct Cause {
    /// The reason of the condition.
    pub(crate) reason: Reason,
    /// The cause, as a clause without a period.
    pub(crate) text: String,
    /// The action that is required from a user, in sentences; empty if none is.
    pub(crate) advice: String,
}

impl Cause {
    fn new(reason: Reason, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
            advice: advice.into(),
        }
    }
}

/// Returns the cause for which a member does not serve.
pub(crate) fn of(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Cause {
    // Without a quorum no member is replaced, and a volume on a deleted node may come back with the node.
    if member.data == DataState::Lost && !view.membership_known {
        return Cause::new(
            Reason::MemberDown,
            "its volume is gone, or was on a node that was deleted",
            "Bring the node of the volume back under the same name.",
        );
    }
    if member.data == DataState::Lost {
        return Cause::new(
            Reason::MemberDown,
            "its data is lost, and a new member replaces it",
            "",
        );
    }
    let details = view.facts.details.get(&member.serial);
    let default = MemberDetails::default();
    let details = details.unwrap_or(&default);
    node(details, view.membership_known)
        .or_else(|| pod(context, member, details))
        .unwrap_or_else(|| etcd(context, member, details))
}

/// Returns the cause if the node does not report, is cordoned, or does not exist any more.
pub(crate) fn node(details: &MemberDetails, has_quorum: bool) -> Option<Cause> {
    let NodeTrouble { problem, since } = details.node_problem?;
    let name = details.node.as_ref().or(details.volume_node.as_ref())?;
    let since = since.map(|since| format!(" since {}", timestamp(since)));
    let since = since.unwrap_or_default();
    match problem {
        NodeProblem::NotReady => Some(Cause::new(
            Reason::NodeNotReady,
            format!("node {name} is NotReady{since}"),
            if has_quorum {
                format!(
                    "Bring node {name} back. If it is gone for good, delete it: `kubectl delete node {name}`."
                )
            } else {
                format!("Bring node {name} back.")
            },
        )),
        NodeProblem::Missing => Some(Cause::new(
            Reason::NodeNotReady,
            format!("node {name} does not exist any more"),
            if has_quorum {
                String::new()
            } else {
                format!("Bring node {name} back under the same name.")
            },
        )),
        // A pod that runs on a cordoned node is not affected.
        NodeProblem::Cordoned if details.node.is_some() => None,
        NodeProblem::Cordoned => Some(Cause::new(
            Reason::NodeCordoned,
            format!("its volume is on node {name}, which is cordoned"),
            format!("Uncordon the node when its maintenance is done: `kubectl uncordon {name}`."),
        )),
    }
}

/// Returns the cause that the pod reports.
fn pod(
    context: &ActionContext<'_>,
    member: &MemberView<'_>,
    details: &MemberDetails,
) -> Option<Cause> {
    let problem = details.pod_problem.as_ref()?;
    let name = context.member(member.serial);
    let cluster = &context.observed.desired.name;
    Some(match details.pod_problem_kind {
        PodProblemKind::StorageClassNotFound => Cause::new(
            Reason::StorageClassNotFound,
            problem,
            "Create the StorageClass or set a default one, or set spec.storage.class to an existing one.",
        ),
        PodProblemKind::VolumeNotProvisioned => Cause::new(
            Reason::VolumeNotProvisioned,
            problem,
            format!(
                "Resolve the error of the provisioner. `kubectl describe pvc {name}` shows all its events."
            ),
        ),
        PodProblemKind::Unschedulable => Cause::new(
            Reason::Unschedulable,
            format!("no node can run its pod: {problem}"),
            "Add or uncordon a node, free resources on one, or change spec.resources or spec.scheduling.",
        ),
        PodProblemKind::ImagePull => Cause::new(
            Reason::MemberDown,
            problem,
            "Make the image available to the nodes, or correct spec.version or spec.image.",
        ),
        PodProblemKind::VolumeFull => Cause::new(
            Reason::VolumeFull,
            problem,
            "Raise spec.storage.size. If the StorageClass cannot resize volumes, delete the pod and the \
             PersistentVolumeClaim of the member while the other members have a quorum.",
        ),
        PodProblemKind::Crashing => Cause::new(
            Reason::MemberDown,
            problem,
            format!("See its log: `kubectl evenkeel logs {cluster} --member {name} --previous`."),
        ),
        PodProblemKind::Other => Cause::new(
            Reason::MemberDown,
            problem,
            format!("See its pod: `kubectl describe pod {name}`."),
        ),
    })
}

/// Returns the cause if neither the node nor the pod reports a problem.
fn etcd(context: &ActionContext<'_>, member: &MemberView<'_>, details: &MemberDetails) -> Cause {
    let cluster = &context.observed.desired.name;
    let name = context.member(member.serial);
    let (text, advice) = match member.pod {
        None => ("its pod does not exist".to_owned(), String::new()),
        Some(pod) if pod.is_terminating => {
            let since = details.terminating_since;
            let since = since.map(|since| format!(" since {}", timestamp(since)));
            (
                format!("its pod is Terminating{}", since.unwrap_or_default()),
                format!(
                    "If the pod stays Terminating, check its node and its finalizers: `kubectl describe pod {name}`."
                ),
            )
        }
        Some(pod) if pod.is_finished => ("its pod has terminated".to_owned(), String::new()),
        Some(pod) if pod.start_mode == StartMode::Held => {
            ("etcd is not started yet".to_owned(), String::new())
        }
        Some(_) if member.health.is_none() => {
            let node = details.node.as_ref().map(|node| format!(" on node {node}"));
            (
                format!("etcd does not respond{}", node.unwrap_or_default()),
                format!(
                    "Check the node and the network of member {name}, and its log: `kubectl evenkeel logs {cluster}`."
                ),
            )
        }
        Some(_) => ("it has no leader".to_owned(), String::new()),
    };
    Cause::new(Reason::MemberDown, text, advice)
}

fn timestamp(time: UnixTime) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.0).unwrap_or_default()
}
