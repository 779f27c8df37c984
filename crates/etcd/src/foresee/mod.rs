//! What would be done, one thing after another: decisions, each carried out on the facts as if nothing else went wrong. It is the
//! very `decide` that runs the cluster, so that what is foretold is what happens, as long as the world does as [`course`] says.

mod course;

use std::collections::BTreeSet;

use evenkeel::{Action, Engine, Plan, Time};

use crate::decide::{Etcd, due};
use crate::facts::{Facts, Membership, Pod, Start};
use crate::identity::Uid;
use crate::names::Serial;
use crate::observe::Found;
use crate::plan::{Mark, Step, Turn};
use crate::tell;
use course::Course;

/// After so many decisions nothing new is expected of more.
const MOST: usize = 400;
/// Nobody plans further ahead.
const HORIZON: i64 = 100 * 24 * 3600;
/// How long a pod may take to start before it is taken for one that does not.
const STARTS_WITHIN: i64 = 60;
/// One that is not Ready since so long after it was created has been Ready before: it does not start, it fails.
const READY_WITHIN: i64 = 15;

/// What is foreseen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// What is done, in order.
    pub steps: Vec<Foretold>,
    /// How it ends, in a few words.
    pub ends: String,
    /// What is still waited for then.
    pub waits_for: Vec<String>,
    /// What was taken for granted.
    pub assumes: Vec<String>,
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foretold {
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
pub fn foresee(found: &Found, facts: Facts, remembered: Option<Membership>) -> Foreseen {
    let (began, stuck) = (facts.now, stuck(&facts));
    let mut assumes = assumptions(found, &facts, &stuck);
    let mut course = Course::new(facts, stuck.iter().map(|(uid, _)| *uid).collect(), remembered);
    let mut steps = Vec::new();
    let mut plan = Etcd::decide(&course.facts);
    for _ in 0..MOST {
        if !plan.is_quiet() {
            steps.extend(told(found, &course.facts, &plan, began));
            course.carry_out(&plan);
        } else if !course.goes_on() && !skips_to(&mut course.facts, &plan, began) {
            break;
        }
        plan = Etcd::decide(&course.facts);
    }
    if !plan.is_quiet() {
        assumes.push(format!("it is followed for {MOST} decisions only"));
    }
    let (ends, waits_for) = tell::at_rest(found, &course.facts, &plan);
    Foreseen { steps, ends, waits_for, assumes }
}

fn told(found: &Found, facts: &Facts, plan: &Plan<Etcd>, began: Time) -> Vec<Foretold> {
    let after = facts.now.0.saturating_sub(began.0);
    let told = tell::each(found, facts, plan).into_iter().zip(plan.actions());
    told.map(|((does, because), action)| Foretold { after, does, because, is_note: is_note(&action) })
        .collect()
}

/// Whether an action only writes down what has happened.
pub fn is_note(action: &Action<'_, Etcd>) -> bool {
    match action {
        Action::Mark(mark) => {
            matches!(
                mark,
                Mark::JoinedOn { .. }
                    | Mark::Turn { .. }
                    | Mark::Version { .. }
                    | Mark::Inputs { .. }
                    | Mark::Accept
                    | Mark::Removed { .. }
            )
        }
        Action::Step(Step::Identity { why, .. }) => {
            matches!(why, Turn::Settle | Turn::SeedStarts | Turn::Formed(_))
        }
        Action::Create(_) | Action::Apply(_) | Action::Step(_) => false,
    }
}

/// Lets the time come at which something is due, if there is one.
fn skips_to(facts: &mut Facts, plan: &Plan<Etcd>, began: Time) -> bool {
    let due = due(facts, plan).filter(|time| *time > facts.now && time.0.saturating_sub(began.0) < HORIZON);
    due.into_iter().for_each(|time| facts.now = time);
    due.is_some()
}

/// Pods that are not expected to come up by themselves.
fn stuck(facts: &Facts) -> Vec<(Uid, Serial)> {
    let pods = facts.pods.present().map(Vec::as_slice).unwrap_or_default();
    let serves = |serial: &Serial| {
        facts.voices.get(serial).and_then(|voice| voice.present()).is_some_and(|voice| voice.serves)
    };
    let is_stuck = |pod: &&Pod| {
        let late = |since: Time| facts.now.0.saturating_sub(since.0) > STARTS_WITHIN;
        if pod.deleting {
            // One whose node is lost is sent away, and nobody sees it go.
            let unseen = facts.silent.contains_key(&pod.serial) || pod.unready.is_some_and(late);
            return pod.node.is_some() && !serves(&pod.serial) && unseen;
        }
        let starts = pod.start != Start::Held && !pod.finished;
        let hindered = pod.crashing.is_some()
            || pod.refused.is_some()
            || facts.silent.contains_key(&pod.serial)
            || late(pod.created)
            || pod.unready.is_some_and(|since| since.0.saturating_sub(pod.created.0) > READY_WITHIN);
        starts && !serves(&pod.serial) && hindered
    };
    pods.iter().filter(is_stuck).map(|pod| (pod.uid, pod.serial)).collect()
}

fn assumptions(found: &Found, facts: &Facts, stuck: &[(Uid, Serial)]) -> Vec<String> {
    let mut assumes = vec![
        "nothing else fails or is changed meanwhile; new pods find a node, start and catch up".to_owned(),
    ];
    if !stuck.is_empty() {
        let serials: BTreeSet<_> = stuck.iter().map(|(_, serial)| *serial).collect();
        let names: Vec<_> = serials.iter().map(|serial| tell::named(found, *serial)).collect();
        let (verb, they) =
            if names.len() == 1 { ("does", "stays as it is") } else { ("do", "stay as they are") };
        assumes.push(format!("{}, which {verb} not serve now, {they}", names.join(" and ")));
    }
    if !facts.identity.is_present() && facts.written.is_empty() {
        assumes.push("members get their names when the cluster is created".to_owned());
    }
    assumes
}

#[cfg(test)]
#[path = "foresee_tests.rs"]
mod tests;
