//! Previews: the decisions that follow from the facts, each executed on simulated facts.
//!
//! The same `decide` runs the cluster: a preview is right as long as the cluster behaves as
//! [`simulate`] assumes.

mod simulate;

use std::collections::BTreeSet;

use evenkeel_runtime::{Engine, Plan, UnixTime};

use crate::actions::member_display_name;
use crate::decide::{Etcd, next_deadline};
use crate::facts::{EtcdFacts, Membership, PodFacts, StartMode};
use crate::identity::Uid;
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::status;
use simulate::SimulatedCluster;

/// The number of decisions after which a preview stops.
const MAX_PASSES: usize = 400;
/// The time that a preview looks ahead, in seconds.
const HORIZON: i64 = 100 * 24 * 3600;
/// How long a pod may take to start before it counts as stuck, in seconds.
const START_TIMEOUT: i64 = 60;
/// A pod that is not Ready since later than this after its creation, in seconds, has been Ready
/// before: it is failing, not starting.
const FIRST_READY_TIMEOUT: i64 = 15;

/// The course of a cluster from the current facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The actions in order.
    pub steps: Vec<PreviewStep>,
    /// The final state in a few words.
    pub ends: String,
    /// The waits that remain in the final state.
    pub waits_for: Vec<String>,
    /// The assumptions of the preview.
    pub assumes: Vec<String>,
}

/// One action of a preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewStep {
    /// The earliest time in seconds from now. The time that starting and copying take is not
    /// included.
    pub after: i64,
    /// The machine name of the action.
    pub action: &'static str,
    /// The description of the action.
    pub does: String,
    /// The reason for the action.
    pub reason: String,
    /// Whether the action only records a fact, so that short output leaves it out.
    pub is_note: bool,
}

/// Decides and simulates until no action is left. `remembered` is the last known member list, in
/// case etcd does not report it now.
pub fn preview(
    observed: &ObservedCluster,
    facts: EtcdFacts,
    remembered: Option<Membership>,
) -> Preview {
    let began = facts.now;
    let stuck = stuck_pods(&facts);
    let mut assumes = assumptions(observed, &facts, &stuck);
    let stuck_uids = stuck.iter().map(|pod| pod.uid).collect();
    let mut cluster = SimulatedCluster::new(facts, stuck_uids, remembered);
    let mut steps = Vec::new();
    let mut plan = Etcd::decide(&cluster.facts);
    for _ in 0..MAX_PASSES {
        if !plan.is_noop() {
            steps.extend(describe_steps(observed, &cluster.facts, &plan, began));
            cluster.execute(&plan);
        } else if !cluster.advance() && !advance_clock(&mut cluster.facts, &plan, began) {
            break;
        }
        plan = Etcd::decide(&cluster.facts);
    }
    if !plan.is_noop() {
        assumes.push(format!("it is followed for {MAX_PASSES} decisions only"));
    }
    let idle = status::describe_idle(observed, &cluster.facts, &plan);
    Preview {
        steps,
        ends: idle.summary,
        waits_for: idle.waits,
        assumes,
    }
}

fn describe_steps(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
    began: UnixTime,
) -> Vec<PreviewStep> {
    let after = facts.now.0.saturating_sub(began.0);
    let actions = status::describe_actions(observed, facts, plan);
    let steps = actions.into_iter().map(|action| PreviewStep {
        after,
        action: action.name,
        does: action.description,
        reason: action.reason,
        is_note: action.is_bookkeeping,
    });
    steps.collect()
}

/// Advances the clock to the next deadline; returns false if there is none within [`HORIZON`].
fn advance_clock(facts: &mut EtcdFacts, plan: &Plan<Etcd>, began: UnixTime) -> bool {
    match next_deadline(facts, plan) {
        Some(time) if time > facts.now && time.0.saturating_sub(began.0) < HORIZON => {
            facts.now = time;
            true
        }
        _ => false,
    }
}

/// A pod that is not expected to become Ready by itself.
struct StuckPod {
    uid: Uid,
    serial: Serial,
}

fn stuck_pods(facts: &EtcdFacts) -> Vec<StuckPod> {
    let pods = facts.pods.present().into_iter().flatten();
    pods.filter(|pod| is_stuck(facts, pod))
        .map(|pod| StuckPod {
            uid: pod.uid,
            serial: pod.serial,
        })
        .collect()
}

fn is_stuck(facts: &EtcdFacts, pod: &PodFacts) -> bool {
    let health = facts.health.get(&pod.serial);
    let is_serving = health
        .and_then(|health| health.present())
        .is_some_and(|health| health.is_serving);
    // A stuck member serves once the operator has nudged it.
    if is_serving || facts.stuck == Some(pod.serial) {
        return false;
    }
    let is_overdue = |since: UnixTime| facts.now.0.saturating_sub(since.0) > START_TIMEOUT;
    let is_unreachable = facts.unreachable_since.contains_key(&pod.serial);
    if pod.is_terminating {
        // The pod of a lost node stays Terminating.
        let is_overdue = pod.unready_since.is_some_and(is_overdue);
        return pod.node.is_some() && (is_unreachable || is_overdue);
    }
    if pod.start_mode == StartMode::Held || pod.is_finished {
        return false;
    }
    let was_ready = pod
        .unready_since
        .is_some_and(|since| since.0.saturating_sub(pod.created_at.0) > FIRST_READY_TIMEOUT);
    pod.crashing_since.is_some()
        || pod.unschedulable_since.is_some()
        || is_unreachable
        || is_overdue(pod.created_at)
        || was_ready
}

fn assumptions(observed: &ObservedCluster, facts: &EtcdFacts, stuck: &[StuckPod]) -> Vec<String> {
    let mut assumes = vec![
        "nothing else fails or is changed meanwhile; new pods find a node, start and catch up"
            .to_owned(),
    ];
    if !stuck.is_empty() {
        let serials: BTreeSet<_> = stuck.iter().map(|pod| pod.serial).collect();
        let names: Vec<_> = serials
            .iter()
            .map(|serial| member_display_name(observed, *serial))
            .collect();
        let (verb, state) = if names.len() == 1 {
            ("does", "stays as it is")
        } else {
            ("do", "stay as they are")
        };
        assumes.push(format!(
            "{}, which {verb} not serve now, {state}",
            names.join(" and ")
        ));
    }
    if !facts.identity.is_present() && facts.lineages.is_empty() {
        assumes.push("members get their names when the cluster is created".to_owned());
    }
    assumes
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;
