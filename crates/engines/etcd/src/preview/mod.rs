//! Previews: the decisions that follow from the facts, each executed on simulated facts.
//!
//! The same `decide` runs the cluster: a preview is right as long as the cluster behaves as
//! [`simulate`] assumes.

mod simulate;

use std::collections::BTreeSet;

use evenkeel_kit::preview::{MAX_PASSES, Simulation, follow};
use evenkeel_runtime::{Plan, UnixTime};

use crate::actions::member_display_name;
use crate::decide::{Etcd, next_deadline};
use crate::facts::{EtcdFacts, Membership, PodFacts, StartMode};
use crate::observe::ObservedCluster;
use crate::status;
use simulate::SimulatedCluster;

pub use evenkeel_kit::preview::{Preview, PreviewStep};

/// How long a pod may take to start before it counts as failing, in seconds.
const START_TIMEOUT: i64 = 60;
/// A pod that is not Ready since later than this after its creation, in seconds, has been Ready
/// before: it is failing, not starting.
const FIRST_READY_TIMEOUT: i64 = 15;

/// Decides and simulates until no action is left. `remembered` is the last known member list, in
/// case etcd does not report it now.
pub fn preview(
    observed: &ObservedCluster,
    facts: EtcdFacts,
    remembered: Option<Membership>,
) -> Preview {
    let failing = failing_pods(&facts);
    let mut assumes = assumptions(observed, &facts, &failing);
    let failing_uids = failing.iter().map(|pod| pod.uid).collect();
    let mut cluster = SimulatedCluster::new(facts, failing_uids, remembered);
    let mut steps = Vec::new();
    let plan = follow(&mut cluster, |facts, plan, after| {
        steps.extend(describe_steps(observed, facts, plan, after));
    });
    if !plan.is_noop() {
        assumes.push(format!(
            "the preview ends after {MAX_PASSES} decisions, and more actions follow"
        ));
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
    after: i64,
) -> Vec<PreviewStep> {
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

impl Simulation for SimulatedCluster {
    type Engine = Etcd;

    fn facts(&self) -> &EtcdFacts {
        &self.facts
    }

    fn now(&self) -> UnixTime {
        self.facts.now
    }

    fn set_now(&mut self, now: UnixTime) {
        self.facts.now = now;
    }

    fn execute(&mut self, plan: &Plan<Etcd>) {
        self.execute(plan);
    }

    fn advance(&mut self) -> bool {
        self.advance()
    }

    fn next_deadline(&self, plan: &Plan<Etcd>) -> Option<UnixTime> {
        next_deadline(&self.facts, plan)
    }
}

/// Returns the pods that the preview does not expect to become Ready by themselves.
pub fn failing_pods(facts: &EtcdFacts) -> Vec<PodFacts> {
    let pods = facts.pods.present().into_iter().flatten();
    pods.filter(|pod| is_failing(facts, pod)).cloned().collect()
}

fn is_failing(facts: &EtcdFacts, pod: &PodFacts) -> bool {
    let health = facts.health.get(&pod.serial);
    let is_serving = health
        .and_then(|health| health.present())
        .is_some_and(|health| health.is_serving);
    // A stuck member serves once the operator has nudged it.
    let is_stuck = facts.stuck.is_some_and(|stuck| stuck.serial == pod.serial);
    if is_serving || is_stuck {
        return false;
    }
    let is_overdue = |since: UnixTime| facts.now.0.saturating_sub(since.0) > START_TIMEOUT;
    if pod.is_terminating {
        // The pod of a lost node stays Terminating.
        let is_unreachable = facts.unreachable_since.contains_key(&pod.serial);
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
        || is_overdue(pod.created_at)
        || was_ready
}

fn assumptions(observed: &ObservedCluster, facts: &EtcdFacts, failing: &[PodFacts]) -> Vec<String> {
    let mut assumes = vec![
        "no other failure or change occurs; new pods are scheduled, start and catch up".to_owned(),
    ];
    if !failing.is_empty() {
        let serials: BTreeSet<_> = failing.iter().map(|pod| pod.serial).collect();
        let names: Vec<_> = serials
            .iter()
            .map(|serial| member_display_name(observed, *serial))
            .collect();
        let (noun, verb) = if names.len() == 1 {
            ("member", "stays")
        } else {
            ("members", "stay")
        };
        assumes.push(format!("{noun} {} {verb} unhealthy", names.join(" and ")));
    }
    if !facts.identity.is_present() && facts.lineages.is_empty() {
        assumes.push(
            "the operator generates the names of members when it creates the cluster".to_owned(),
        );
    }
    assumes
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;
