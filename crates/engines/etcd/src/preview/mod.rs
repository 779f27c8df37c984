//! Previews: the decisions that follow from the facts, each executed on simulated facts.
//!
//! The same `decide` runs the cluster: a preview is right as long as the cluster behaves as
//! [`simulate`] and [`advance`] assume.

mod advance;
mod effects;
mod notes;
mod outline;
mod record;
mod schedule;
mod simulate;
mod step;
mod step_texts;
mod template_changes;
mod tolerance;

use std::collections::BTreeSet;

use evenkeel_api::NodeProblem;
use evenkeel_kit::preview::MAX_PASSES;
use evenkeel_runtime::UnixTime;

use crate::actions::member_display_name;
use crate::facts::{EtcdFacts, MemberDetails, Membership, PodFacts, PodProblemKind, StartMode};
use crate::names::Serial;
use crate::observe::ObservedCluster;
use record::Recorder;
use step_texts::join_words;

pub use effects::{ClientImpact, Effects, JOIN_SECONDS, RESTART_SECONDS, ToleranceChange};
pub use evenkeel_kit::preview::{Preview, PreviewStep};
pub use outline::VolumeDeletion;
pub use schedule::{AvailableNode, node_states};
pub use step::{OutlineStep, StepKind};
pub use tolerance::Tolerance;

/// How long a pod may take to start or to terminate before it counts as failing, in seconds.
const START_TIMEOUT: i64 = 60;
/// A pod that is not Ready since later than this after its creation, in seconds, has been Ready
/// before: it is failing, not starting.
const FIRST_READY_TIMEOUT: i64 = 15;

/// The course of a cluster, as actions and as steps, and its effects.
#[derive(Clone, Debug)]
pub struct EtcdPreview {
    /// The actions in order, and the final state.
    pub course: Preview,
    /// The steps that the actions belong to.
    pub steps: Vec<OutlineStep>,
    /// The claims of removed members that are deleted.
    pub volumes: Vec<VolumeDeletion>,
    /// The effects on the cluster and its clients.
    pub effects: Effects,
    /// Notes about the result.
    pub notes: Vec<String>,
}

/// What a preview knows besides the facts.
#[derive(Clone, Debug, Default)]
pub struct PreviewInput {
    /// The last known member list, in case etcd does not report it now.
    pub remembered: Option<Membership>,
    /// The nodes on which pods of the cluster can be scheduled; `None` if they are not known.
    pub nodes: Option<Vec<AvailableNode>>,
}

/// Decides and simulates until no action is left. `remembered` is the last known member list, in
/// case etcd does not report it now.
pub fn preview(
    observed: &ObservedCluster,
    facts: EtcdFacts,
    remembered: Option<Membership>,
) -> Preview {
    let input = PreviewInput {
        remembered,
        nodes: None,
    };
    preview_with_effects(observed, facts, input).course
}

/// Decides and simulates until no action is left, and describes the effects.
pub fn preview_with_effects(
    observed: &ObservedCluster,
    facts: EtcdFacts,
    input: PreviewInput,
) -> EtcdPreview {
    let mut failing = failing_pods(&facts);
    failing.extend(reported_pods(observed, &facts, &failing));
    let mut assumes = assumptions(observed, &facts, &failing);
    let failing_uids = failing.iter().map(|pod| pod.uid).collect();
    let mut preview = Recorder::new(observed, facts, failing_uids, input).run();
    if preview.is_truncated {
        assumes.push(format!(
            "the preview ends after {MAX_PASSES} decisions, and more actions follow"
        ));
    }
    let steps = &preview.preview.steps;
    if steps.iter().all(|step| step.kind == StepKind::Record) {
        assumes.retain(|assumption| assumption != NOTHING_ELSE);
    }
    preview.preview.course.assumes = assumes;
    preview.preview
}

/// Returns the pods that the preview does not expect to become Ready by themselves.
pub fn failing_pods(facts: &EtcdFacts) -> Vec<PodFacts> {
    let pods = facts.pods.present().into_iter().flatten();
    pods.filter(|pod| is_failing(facts, pod)).cloned().collect()
}

/// Returns the other pods whose members do not serve and have a problem according to the status. A pod that is newer than
/// the problem may resolve it.
fn reported_pods(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    failing: &[PodFacts],
) -> Vec<PodFacts> {
    let status = observed.resource.status.iter();
    let problems: Vec<_> = status.flat_map(|status| &status.problems).collect();
    let is_reported = |pod: &&PodFacts| {
        let name = member_display_name(observed, pod.serial);
        let mut problems = problems.iter();
        problems.any(|problem| {
            problem.member == name && pod.created_at.0 <= problem.since.0.as_second()
        })
    };
    let is_known = |pod: &PodFacts| failing.iter().any(|known| known.uid == pod.uid);
    let pods = facts.pods.present().into_iter().flatten();
    let down = pods.filter(|pod| !is_known(pod) && !serves_by_itself(facts, pod));
    down.filter(is_reported).cloned().collect()
}

/// Returns whether the member of a pod serves, or is stuck: then it serves once the operator has nudged it.
fn serves_by_itself(facts: &EtcdFacts, pod: &PodFacts) -> bool {
    let health = facts.health.get(&pod.serial);
    let is_serving = health
        .and_then(|health| health.present())
        .is_some_and(|health| health.is_serving);
    is_serving || facts.stuck.is_some_and(|stuck| stuck.serial == pod.serial)
}

fn is_failing(facts: &EtcdFacts, pod: &PodFacts) -> bool {
    if serves_by_itself(facts, pod) {
        return false;
    }
    let details = facts.details.get(&pod.serial);
    let node_problem = details.and_then(|details| details.node_problem);
    let is_node_down = node_problem.is_some_and(|node| node.problem != NodeProblem::Cordoned);
    if is_node_down && pod.node.is_some() {
        return true;
    }
    let is_overdue = |since: UnixTime| facts.now.0.saturating_sub(since.0) > START_TIMEOUT;
    if pod.is_terminating {
        // The pod of a lost node stays Terminating. One that is being restarted is unreachable, too,
        // but not for long.
        let since = [
            details.and_then(|details| details.terminating_since),
            facts.unreachable_since.get(&pod.serial).copied(),
            pod.unready_since,
        ];
        return pod.node.is_some() && since.into_iter().flatten().any(is_overdue);
    }
    if pod.is_finished {
        return false;
    }
    if details.is_some_and(has_lasting_problem) {
        return true;
    }
    if pod.start_mode == StartMode::Held {
        return false;
    }
    // Without the gate a pod is never Ready. Its volume may take its time.
    let was_ready = pod.joined_gate
        && pod
            .unready_since
            .is_some_and(|since| since.0.saturating_sub(pod.created_at.0) > FIRST_READY_TIMEOUT);
    pod.crashing_since.is_some()
        || pod.unschedulable_since.is_some()
        || is_overdue(pod.created_at)
        || was_ready
}

/// Returns whether a pod has a problem that does not end by itself. The scheduler may find no node for a moment.
fn has_lasting_problem(details: &MemberDetails) -> bool {
    let can_end = match details.pod_problem_kind {
        PodProblemKind::Unschedulable => true,
        PodProblemKind::StorageClassNotFound
        | PodProblemKind::VolumeNotProvisioned
        | PodProblemKind::ImagePull
        | PodProblemKind::VolumeFull
        | PodProblemKind::Crashing
        | PodProblemKind::Other => false,
    };
    details.pod_problem.is_some() && !can_end
}

/// The assumption of every preview with actions.
const NOTHING_ELSE: &str =
    "no other failure or change occurs; new pods are scheduled, start and catch up";

fn assumptions(observed: &ObservedCluster, facts: &EtcdFacts, failing: &[PodFacts]) -> Vec<String> {
    let mut assumes = vec![NOTHING_ELSE.to_owned()];
    let failing: BTreeSet<_> = failing.iter().map(|pod| pod.serial).collect();
    assumes.extend(member_assumption(
        observed,
        &failing,
        ["stays", "stay"],
        "unhealthy",
    ));
    let restarting = restarting_members(facts);
    let restarting = restarting.difference(&failing).copied().collect();
    let becomes = ["becomes", "become"];
    assumes.extend(member_assumption(
        observed,
        &restarting,
        becomes,
        "healthy again",
    ));
    if !facts.identity.is_present() && facts.lineages.is_empty() {
        assumes.push(
            "the operator generates the names of members when it creates the cluster".to_owned(),
        );
    }
    assumes
}

fn member_assumption(
    observed: &ObservedCluster,
    members: &BTreeSet<Serial>,
    [singular, plural]: [&str; 2],
    state: &str,
) -> Option<String> {
    let names = members.iter();
    let names: Vec<_> = names
        .map(|serial| member_display_name(observed, *serial))
        .collect();
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("member {name} {singular} {state}")),
        names => Some(format!("members {} {plural} {state}", join_words(names))),
    }
}

/// Returns the members that have started before and do not serve now.
fn restarting_members(facts: &EtcdFacts) -> BTreeSet<Serial> {
    let listed = facts.membership.present();
    let listed = listed.into_iter().flat_map(|list| &list.members);
    let is_serving = |serial: Serial| {
        let health = facts.health.get(&serial);
        let health = health.and_then(|health| health.present());
        let mut pods = facts.pods.present().into_iter().flatten();
        let has_pod = pods.any(|pod| pod.serial == serial && !pod.is_terminating);
        has_pod && health.is_some_and(|health| health.is_serving)
    };
    listed
        .filter(|listed| listed.has_started && !is_serving(listed.serial))
        .map(|listed| listed.serial)
        .collect()
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "outline_tests.rs"]
mod outline_tests;

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod rollout_tests;
