//! What would be done, one thing after another: decisions, each carried out on the facts as if nothing else went wrong. It is the
//! very `decide` that runs the cluster, so that what is foretold is what happens, as long as the world does as [`course`] says.

mod simulate;

use std::collections::BTreeSet;

use evenkeel_runtime::{Action, Engine, Plan, UnixTime};

use crate::decide::{Etcd, next_deadline};
use crate::facts::{EtcdFacts, Membership, PodFacts, StartMode};
use crate::identity::Uid;
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::plan::{EtcdDisruption, EtcdPatch, IdentityChange};
use crate::status;
use simulate::SimulatedCluster;

/// After so many decisions nothing new is expected of more.
const MAX_PASSES: usize = 400;
/// Nobody plans further ahead.
const HORIZON: i64 = 100 * 24 * 3600;
/// How long a pod may take to start before it is taken for one that does not.
const STARTS_WITHIN: i64 = 60;
/// One that is not Ready since so long after it was created has been Ready before: it does not start, it fails.
const READY_WITHIN: i64 = 15;

/// What is foreseen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// What is done, in order.
    pub steps: Vec<PreviewStep>,
    /// How it ends, in a few words.
    pub ends: String,
    /// What is still waited for then.
    pub waits_for: Vec<String>,
    /// What was taken for granted.
    pub assumes: Vec<String>,
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewStep {
    /// After how many seconds at the earliest; those that starting and copying take are not counted.
    pub after: i64,
    /// What.
    pub does: String,
    /// Why.
    pub because: String,
    /// Whether it only writes something down, so that it is left out of short answers.
    pub is_note: bool,
}

/// Follows what is found to where nothing more is done. `remembered` is who the members were when etcd last told, in case it does
/// not tell now.
pub fn preview(
    observed: &ObservedCluster,
    facts: EtcdFacts,
    remembered: Option<Membership>,
) -> Preview {
    let (began, stuck) = (facts.now, stuck(&facts));
    let mut assumes = assumptions(observed, &facts, &stuck);
    let mut course = SimulatedCluster::new(
        facts,
        stuck.iter().map(|(uid, _)| *uid).collect(),
        remembered,
    );
    let mut steps = Vec::new();
    let mut plan = Etcd::decide(&course.facts);
    for _ in 0..MAX_PASSES {
        if !plan.is_noop() {
            steps.extend(describe_steps(observed, &course.facts, &plan, began));
            course.execute(&plan);
        } else if !course.advance() && !advance_clock(&mut course.facts, &plan, began) {
            break;
        }
        plan = Etcd::decide(&course.facts);
    }
    if !plan.is_noop() {
        assumes.push(format!("it is followed for {MAX_PASSES} decisions only"));
    }
    let (ends, waits_for) = status::at_rest(observed, &course.facts, &plan);
    Preview {
        steps,
        ends,
        waits_for,
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
    let told = status::each(observed, facts, plan)
        .into_iter()
        .zip(plan.actions());
    told.map(|((does, because), action)| PreviewStep {
        after,
        does,
        because,
        is_note: is_bookkeeping(&action),
    })
    .collect()
}

/// Whether an action only writes down what has happened.
pub fn is_bookkeeping(action: &Action<'_, Etcd>) -> bool {
    match action {
        Action::Patch(mark) => {
            matches!(
                mark,
                EtcdPatch::RecordJoinedVolume { .. }
                    | EtcdPatch::MarkJoined { .. }
                    | EtcdPatch::RecordVersion { .. }
                    | EtcdPatch::RecordTemplateHash { .. }
                    | EtcdPatch::RecordSpec
                    | EtcdPatch::RecordRemoval { .. }
            )
        }
        Action::Disruption(EtcdDisruption::UpdateIdentity { why, .. }) => {
            matches!(
                why,
                IdentityChange::SettleIntent
                    | IdentityChange::StartSeed
                    | IdentityChange::RecordCluster(_)
            )
        }
        Action::Create(_) | Action::Apply(_) | Action::Disruption(_) => false,
    }
}

/// Lets the time come at which something is due, if there is one.
fn advance_clock(facts: &mut EtcdFacts, plan: &Plan<Etcd>, began: UnixTime) -> bool {
    let due = next_deadline(facts, plan)
        .filter(|time| *time > facts.now && time.0.saturating_sub(began.0) < HORIZON);
    due.into_iter().for_each(|time| facts.now = time);
    due.is_some()
}

/// Pods that are not expected to come up by themselves.
fn stuck(facts: &EtcdFacts) -> Vec<(Uid, Serial)> {
    let pods = facts.pods.present().map(Vec::as_slice).unwrap_or_default();
    let serves = |serial: &Serial| {
        facts
            .health
            .get(serial)
            .and_then(|health| health.present())
            .is_some_and(|health| health.is_serving)
    };
    let is_stuck = |pod: &&PodFacts| {
        let late = |since: UnixTime| facts.now.0.saturating_sub(since.0) > STARTS_WITHIN;
        if pod.is_terminating {
            // One whose node is lost is sent away, and nobody sees it go.
            let unseen = facts.unreachable_since.contains_key(&pod.serial)
                || pod.unready_since.is_some_and(late);
            return pod.node.is_some() && !serves(&pod.serial) && unseen;
        }
        let starts = pod.start_mode != StartMode::Held && !pod.is_finished;
        let hindered = pod.crashing_since.is_some()
            || pod.unschedulable_since.is_some()
            || facts.unreachable_since.contains_key(&pod.serial)
            || late(pod.created_at)
            || pod
                .unready_since
                .is_some_and(|since| since.0.saturating_sub(pod.created_at.0) > READY_WITHIN);
        starts && !serves(&pod.serial) && hindered
    };
    pods.iter()
        .filter(is_stuck)
        .map(|pod| (pod.uid, pod.serial))
        .collect()
}

fn assumptions(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    stuck: &[(Uid, Serial)],
) -> Vec<String> {
    let mut assumes = vec![
        "nothing else fails or is changed meanwhile; new pods find a node, start and catch up"
            .to_owned(),
    ];
    if !stuck.is_empty() {
        let serials: BTreeSet<_> = stuck.iter().map(|(_, serial)| *serial).collect();
        let names: Vec<_> = serials
            .iter()
            .map(|serial| status::member_display_name(observed, *serial))
            .collect();
        let (verb, they) = if names.len() == 1 {
            ("does", "stays as it is")
        } else {
            ("do", "stay as they are")
        };
        assumes.push(format!(
            "{}, which {verb} not serve now, {they}",
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
