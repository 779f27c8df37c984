//! Previews: the decisions that follow from the facts, each executed on simulated facts. The same `decide` runs the real
//! application: a preview is right as long as the application behaves as its [`Simulation`] assumes.

use evenkeel_runtime::{Engine, Plan, UnixTime};

/// The number of decisions after which a preview stops.
pub const MAX_PASSES: usize = 400;
/// The time that a preview looks ahead, in seconds.
const HORIZON: i64 = 100 * 24 * 3600;

/// The course of an application from the current facts.
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
    /// The earliest time in seconds from now. The time that starting and copying take is not included.
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

/// Simulated facts, and the way in which they change.
pub trait Simulation {
    /// The engine that decides.
    type Engine: Engine;

    /// Returns the facts.
    fn facts(&self) -> &<Self::Engine as Engine>::Facts;

    /// Returns the time in the facts.
    fn now(&self) -> UnixTime;

    /// Changes the time in the facts.
    fn set_now(&mut self, now: UnixTime);

    /// Executes all actions of a plan.
    fn execute(&mut self, plan: &Plan<Self::Engine>);

    /// Makes the next change that follows by itself, such as the start of a pod; returns false if there is none.
    fn advance(&mut self) -> bool;

    /// Returns the next time at which the clock alone changes the decision.
    fn next_deadline(&self, plan: &Plan<Self::Engine>) -> Option<UnixTime>;
}

/// Decides and simulates until no action is left, no change follows, and no deadline is near. Calls `on_plan` for each
/// plan with actions, before its execution, with the facts and the seconds since the beginning. Returns the last plan: one
/// with actions if the preview stops after [`MAX_PASSES`] decisions.
pub fn follow<S: Simulation>(
    simulation: &mut S,
    mut on_plan: impl FnMut(&<S::Engine as Engine>::Facts, &Plan<S::Engine>, i64),
) -> Plan<S::Engine> {
    let began = simulation.now();
    let mut plan = S::Engine::decide(simulation.facts());
    for _ in 0..MAX_PASSES {
        if !plan.is_noop() {
            let after = simulation.now().0.saturating_sub(began.0);
            on_plan(simulation.facts(), &plan, after);
            simulation.execute(&plan);
        } else if !simulation.advance() && !advance_clock(simulation, &plan, began) {
            break;
        }
        plan = S::Engine::decide(simulation.facts());
    }
    plan
}

/// Advances the clock to the next deadline; returns false if there is none within [`HORIZON`].
fn advance_clock<S: Simulation>(
    simulation: &mut S,
    plan: &Plan<S::Engine>,
    began: UnixTime,
) -> bool {
    match simulation.next_deadline(plan) {
        Some(time) if time > simulation.now() && time.0.saturating_sub(began.0) < HORIZON => {
            simulation.set_now(time);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// A kettle that is filled, boils by itself, and is emptied at a time of day.
    struct Kettle;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct KettleFacts {
        now: UnixTime,
        is_full: bool,
        boils: bool,
        empty_at: UnixTime,
        is_refilled: bool,
    }

    impl Engine for Kettle {
        type Facts = KettleFacts;
        type Create = ();
        type Apply = ();
        type Patch = ();
        type Disruption = String;
        type Wait = ();

        fn decide(facts: &KettleFacts) -> Plan<Self> {
            let disruption = match facts {
                KettleFacts { is_full: false, .. } if facts.is_refilled || !facts.boils => {
                    Some("fill")
                }
                KettleFacts {
                    is_full: true,
                    boils: true,
                    ..
                } if facts.now >= facts.empty_at => Some("empty"),
                _ => None,
            };
            Plan {
                disruption: disruption.map(ToOwned::to_owned),
                ..Plan::default()
            }
        }
    }

    impl Simulation for KettleFacts {
        type Engine = Kettle;

        fn facts(&self) -> &KettleFacts {
            self
        }

        fn now(&self) -> UnixTime {
            self.now
        }

        fn set_now(&mut self, now: UnixTime) {
            self.now = now;
        }

        fn execute(&mut self, plan: &Plan<Kettle>) {
            self.is_full = plan.disruption.as_deref() == Some("fill");
        }

        fn advance(&mut self) -> bool {
            self.is_full && !std::mem::replace(&mut self.boils, true)
        }

        fn next_deadline(&self, _plan: &Plan<Kettle>) -> Option<UnixTime> {
            Some(self.empty_at)
        }
    }

    fn kettle(empty_at: i64) -> KettleFacts {
        KettleFacts {
            now: UnixTime(100),
            is_full: false,
            boils: false,
            empty_at: UnixTime(empty_at),
            is_refilled: false,
        }
    }

    fn follow_steps(kettle: &mut KettleFacts) -> (Vec<(i64, String)>, Plan<Kettle>) {
        let mut steps = Vec::new();
        let last = follow(kettle, |_, plan, after| {
            steps.push((after, plan.disruption.clone().unwrap_or_default()));
        });
        (steps, last)
    }

    #[test]
    fn actions_changes_and_deadlines_follow_each_other_to_the_end() {
        let mut kettle = kettle(160);
        let (steps, last) = follow_steps(&mut kettle);
        assert_eq!(steps, [(0, "fill".to_owned()), (60, "empty".to_owned())]);
        assert!(last.is_noop());
        assert_eq!(kettle.now, UnixTime(160));
    }

    #[test]
    fn a_deadline_beyond_the_horizon_ends_the_preview() {
        let mut kettle = kettle(100 + HORIZON);
        assert_eq!(follow_steps(&mut kettle).0.len(), 1);
        assert_eq!(kettle.now, UnixTime(100));
    }

    #[test]
    fn a_course_without_an_end_stops_with_a_plan_that_has_actions() {
        let mut kettle = KettleFacts {
            is_refilled: true,
            ..kettle(0)
        };
        let (steps, last) = follow_steps(&mut kettle);
        assert!(!last.is_noop());
        assert!(steps.len() >= MAX_PASSES - 1, "{}", steps.len());
    }
}
