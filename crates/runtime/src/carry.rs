//! Carrying out a plan: one thing after the other, as far as it goes. What one object is refused does not hold up another;
//! what a step rests on does.

use std::time::Duration;

use kube::Resource;

use crate::events::Notice;
use crate::operate::{Action, Error, Operate, Outcome, Sight};
use crate::run::Parts;
use crate::{Engine, Plan};

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
    /// The step, and what it rests on: something beside was refused, and took so long that the step came too late.
    Step,
}

/// What ends the carrying out of a plan.
#[derive(Debug, Default)]
pub(crate) enum End {
    /// Everything was done, but for what was refused beside it.
    #[default]
    Whole,
    /// Something is not as it was when it was decided.
    Overtaken,
    /// The application declines the step for now.
    Declined(String),
    /// A part of it is done, and it is to be gone on with.
    Ongoing(String),
    /// The step, or what it rests on, was refused, or failed.
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

/// What was refused in one go beside steps: it is not asked for again before the next, and everything else goes on.
pub(crate) struct Refused<E: Engine> {
    create: Vec<E::Create>,
    mark: Vec<E::Mark>,
    apply: Vec<E::Apply>,
    /// Why the first of them was, refusals before what merely failed.
    pub(crate) why: Option<Error>,
}

impl<E: Engine> Refused<E> {
    pub(crate) fn nothing() -> Self {
        Self { create: Vec::new(), mark: Vec::new(), apply: Vec::new(), why: None }
    }

    fn has(&self, action: &Action<'_, E>) -> bool {
        match action {
            Action::Create(create) => self.create.contains(create),
            Action::Mark(mark) => self.mark.contains(mark),
            Action::Apply(apply) => self.apply.contains(apply),
            Action::Step(_) => false,
        }
    }

    fn note(&mut self, action: &Action<'_, E>, error: Error) {
        match action {
            Action::Create(create) => self.create.push((*create).clone()),
            Action::Mark(mark) => self.mark.push((*mark).clone()),
            Action::Apply(apply) => self.apply.push((*apply).clone()),
            Action::Step(_) => {}
        }
        // What passes by itself is not what people should know.
        if self.why.as_ref().is_none_or(|first| !first.is_refusal() && error.is_refusal()) {
            self.why = Some(error);
        }
    }
}

/// Carries out a plan that rests on what was seen at that uptime.
pub(crate) async fn carry_out<O: Operate>(
    parts: &Parts<O>,
    sight: &Sight<O>,
    (plan, seen): (&Plan<O::Engine>, Duration),
    (extent, refused): (Extent, &mut Refused<O::Engine>),
) -> Carried {
    let (kind, key) = (O::Resource::kind(&()), crate::run::key(parts.operate.resource(sight)));
    let holds = || parts.leadership.holds();
    let mut carried = Carried::default();
    let mut waits = false;
    for action in plan.actions() {
        // A step asks once more right before it goes out: what comes before it within the step may take long, too.
        let is_step = matches!(action, Action::Step(_));
        let is_beside = !is_step && !O::rests_on(&action);
        if is_beside && (extent == Extent::Step || refused.has(&action)) {
            continue;
        }
        let is_late = || parts.clock.uptime().saturating_sub(seen) > FRESH;
        if is_beside && is_late() && waits {
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
            Err(error) if is_beside => {
                tracing::warn!(resource = %key, action = name, %error, "refused");
                refused.note(&action, error);
                waits = plan.step.is_some();
            }
            Err(error) => {
                carried.end = End::Refused(error);
                break;
            }
        }
    }
    carried
}
