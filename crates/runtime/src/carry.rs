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
    /// Something was refused, or failed. The first such thing, if several were.
    Refused(Error),
}

/// Carries out a plan that rests on what was seen at that uptime.
pub(crate) async fn carry_out<O: Operate>(
    parts: &Parts<O>,
    sight: &Sight<O>,
    (plan, seen): (&Plan<O::Engine>, Duration),
) -> Carried {
    let (kind, key) = (O::Resource::kind(&()), crate::run::key(parts.operate.resource(sight)));
    let holds = || parts.leadership.holds();
    let mut carried = Carried::default();
    let mut refused = None;
    for action in plan.actions() {
        // A step asks once more right before it goes out: what comes before it within the step may take long, too.
        let is_step = matches!(action, Action::Step(_));
        let may = || holds() && !(is_step && parts.clock.uptime().saturating_sub(seen) > FRESH);
        if !may() {
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
