//! Carrying out a plan: one thing after the other, as far as it goes. What one object is refused does not hold up another;
//! what a step rests on does.

use std::time::Duration;

use kube::Resource;

use crate::Plan;
use crate::events::Notice;
use crate::operate::{Action, Error, Operate, Outcome, Sight};
use crate::run::Parts;

/// How old what was seen may be when a step is taken: between looking and acting there are writes, and each may take long.
const FRESH: Duration = Duration::from_secs(3);

/// How far a plan came.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// How many things were done.
    pub(crate) done: usize,
    /// What people are told of them.
    pub(crate) notices: Vec<Notice>,
    /// What ended it.
    pub(crate) end: End,
    /// Whether its step was left out because what it rests on was seen too long ago.
    pub(crate) late: bool,
}

/// How much of a plan is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// The step, and what it rests on: the rest was refused, and took so long that the step came too late.
    Step,
}

/// What ends the carrying out of a plan.
#[derive(Debug, Default)]
pub(crate) enum End {
    /// Everything was done.
    #[default]
    Whole,
    /// Something is not as it was when it was decided.
    Overtaken,
    /// The application declines the step for now.
    Declined(String),
    /// A part of it is done, and it is to be gone on with.
    Ongoing(String),
    /// Something was refused, or failed. The first such thing, if several were.
    Refused(Error),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("done"),
            Self::Overtaken => f.write_str("not all of it was done: something had changed meanwhile"),
            Self::Ongoing(how_far) => write!(f, "it goes on: {how_far}"),
            Self::Declined(why) => write!(f, "it was declined for now: {why}"),
            Self::Refused(error) => write!(f, "not all of it was done: {error}"),
        }
    }
}

/// Carries out a plan that rests on what was seen at that uptime.
pub(crate) async fn carry_out<O: Operate>(
    parts: &Parts<O>,
    sight: &Sight<O>,
    (plan, seen): (&Plan<O::Engine>, Duration),
    extent: Extent,
) -> Carried {
    let (kind, key) = (O::Resource::kind(&()), crate::run::key(parts.operate.resource(sight)));
    let holds = || parts.leadership.holds();
    let mut carried = Carried::default();
    let mut refused = None;
    for action in plan.actions() {
        // A step asks once more right before it goes out: what comes before it within the step may take long, too.
        let is_step = matches!(action, Action::Step(_));
        let is_beside = !is_step && !O::rests_on(&action);
        if extent == Extent::Step && is_beside {
            continue;
        }
        let is_late = || parts.clock.uptime().saturating_sub(seen) > FRESH;
        if is_beside && is_late() && refused.is_some() && plan.step.is_some() {
            // More of them may be refused as slowly, and the step has waited long enough.
            carried.late = true;
            break;
        }
        let may = || holds() && !(is_step && is_late());
        if !may() {
            carried.late = holds();
            carried.end = End::Overtaken;
            break;
        }
        let name = O::name(&action);
        match parts.operate.act(sight, &action, &may).await {
            Ok(Outcome::Done) => {
                tracing::info!(resource = %key, action = name, "done");
                parts.metrics.acted(&kind, name);
                carried.done += 1;
                carried.notices.extend(parts.operate.notice(sight, &action));
            }
            Ok(Outcome::Overtaken) => {
                tracing::debug!(resource = %key, action = name, "overtaken");
                carried.end = End::Overtaken;
                break;
            }
            Ok(Outcome::Declined(why)) => {
                carried.end = End::Declined(why);
                break;
            }
            Ok(Outcome::Ongoing(how_far)) => {
                carried.end = End::Ongoing(how_far);
                break;
            }
            Err(error) => {
                refused.get_or_insert(error);
                if O::rests_on(&action) {
                    break;
                }
            }
        }
    }
    if let Some(error) = refused {
        carried.end = End::Refused(error);
    }
    carried
}
