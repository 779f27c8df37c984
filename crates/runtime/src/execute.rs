//! Carrying out a plan: one thing after the other, as far as it goes. What one object is refused does not hold up another;
//! what a step rests on does.

use std::time::Duration;

use kube::Resource;

use crate::controller::ControllerParts;
use crate::events::EventSpec;
use crate::reconciler::{Action, Error, Observation, Outcome, Reconciler};
use crate::{Engine, Plan};

/// How old what was seen may be when a step is taken: between looking and acting there are writes, and each may take long.
const MAX_OBSERVATION_AGE: Duration = Duration::from_secs(3);

/// How far a plan came.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// How many things were done.
    pub(crate) done: usize,
    /// What people are told of them.
    pub(crate) events: Vec<EventSpec>,
    /// What ended it.
    pub(crate) end: ExecutionEnd,
    /// Whether its step was left out because what it rests on was seen too long ago.
    pub(crate) is_late: bool,
}

/// How much of a plan is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanScope {
    /// All of it.
    Full,
    /// The step, and what it rests on: something beside was refused, and took so long that the step came too late.
    DisruptionOnly,
}

/// What ends the carrying out of a plan.
#[derive(Debug, Default)]
pub(crate) enum ExecutionEnd {
    /// Everything was done, but for what was refused beside it.
    #[default]
    Completed,
    /// Something is not as it was when it was decided.
    Conflict,
    /// The application declines the step for now.
    RetryLater(String),
    /// A part of it is done, and it is to be gone on with.
    InProgress(String),
    /// The step, or what it rests on, was refused, or failed.
    Failed(Error),
}

impl std::fmt::Display for ExecutionEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Completed => f.write_str("done"),
            Self::Conflict => {
                f.write_str("not all of it was done: something had changed meanwhile")
            }
            Self::InProgress(how_far) => write!(f, "it goes on: {how_far}"),
            Self::RetryLater(why) => write!(f, "it was declined for now: {why}"),
            Self::Failed(error) => write!(f, "not all of it was done: {error}"),
        }
    }
}

/// What was refused in one go beside steps: it is not asked for again before the next, and everything else goes on.
pub(crate) struct RejectedActions<E: Engine> {
    create: Vec<E::Create>,
    patch: Vec<E::Patch>,
    apply: Vec<E::Apply>,
    /// Why the first of them was, refusals before what merely failed.
    pub(crate) error: Option<Error>,
}

impl<E: Engine> RejectedActions<E> {
    pub(crate) fn new() -> Self {
        Self {
            create: Vec::new(),
            patch: Vec::new(),
            apply: Vec::new(),
            error: None,
        }
    }

    fn contains(&self, action: &Action<'_, E>) -> bool {
        match action {
            Action::Create(create) => self.create.contains(create),
            Action::Patch(mark) => self.patch.contains(mark),
            Action::Apply(apply) => self.apply.contains(apply),
            Action::Disruption(_) => false,
        }
    }

    fn record(&mut self, action: &Action<'_, E>, error: Error) {
        match action {
            Action::Create(create) => self.create.push((*create).clone()),
            Action::Patch(mark) => self.patch.push((*mark).clone()),
            Action::Apply(apply) => self.apply.push((*apply).clone()),
            Action::Disruption(_) => {}
        }
        // What passes by itself is not what people should know.
        if self
            .error
            .as_ref()
            .is_none_or(|first| !first.is_rejected() && error.is_rejected())
        {
            self.error = Some(error);
        }
    }
}

/// Carries out a plan that rests on what was seen at that uptime.
pub(crate) async fn execute_plan<O: Reconciler>(
    parts: &ControllerParts<O>,
    sight: &Observation<O>,
    (plan, seen): (&Plan<O::Engine>, Duration),
    (extent, refused): (PlanScope, &mut RejectedActions<O::Engine>),
) -> Execution {
    let (kind, key) = (
        O::Resource::kind(&()),
        crate::controller::key_of(parts.reconciler.resource(sight)),
    );
    let holds = || parts.leadership.is_leader();
    let mut carried = Execution::default();
    let mut waits = false;
    for action in plan.actions() {
        // A step asks once more right before it goes out: what comes before it within the step may take long, too.
        let is_step = matches!(action, Action::Disruption(_));
        let is_beside = !is_step && !O::is_prerequisite(&action);
        if is_beside && (extent == PlanScope::DisruptionOnly || refused.contains(&action)) {
            continue;
        }
        let is_late = || parts.clock.uptime().saturating_sub(seen) > MAX_OBSERVATION_AGE;
        if is_beside && is_late() && waits {
            // More of them may be refused as slowly, and the step has waited long enough.
            carried.is_late = true;
            break;
        }
        let may = || holds() && !(is_step && is_late());
        if !may() {
            carried.is_late = holds();
            carried.end = ExecutionEnd::Conflict;
            break;
        }
        let name = O::action_name(&action);
        match parts.reconciler.execute(sight, &action, &may).await {
            Ok(Outcome::Done) => {
                tracing::info!(resource = %key, action = name, "done");
                parts.metrics.acted(&kind, name);
                carried.done += 1;
                carried
                    .events
                    .extend(parts.reconciler.event_for(sight, &action));
            }
            Ok(Outcome::Conflict) => {
                tracing::debug!(resource = %key, action = name, "overtaken");
                carried.end = ExecutionEnd::Conflict;
                break;
            }
            Ok(Outcome::RetryLater(why)) => {
                carried.end = ExecutionEnd::RetryLater(why);
                break;
            }
            Ok(Outcome::InProgress(how_far)) => {
                carried.end = ExecutionEnd::InProgress(how_far);
                break;
            }
            Err(error) if is_beside => {
                tracing::warn!(resource = %key, action = name, %error, "refused");
                refused.record(&action, error);
                waits = plan.disruption.is_some();
            }
            Err(error) => {
                carried.end = ExecutionEnd::Failed(error);
                break;
            }
        }
    }
    carried
}
