//! Execution of a plan in three phases: prerequisites, independent writes, disruption. A rejected write does not block
//! other objects, but a failed prerequisite blocks the disruption.

use std::time::Duration;

use kube::Resource;

use crate::Engine;
use crate::controller::{ControllerParts, key_of};
use crate::error::Error;
use crate::events::EventSpec;
use crate::pass::more_important;
use crate::plan::{Action, Plan};
use crate::reconciler::{Observation, Outcome, Reconciler};

/// The maximum age of the observation when the disruption starts: each write before it may take long.
const MAX_OBSERVATION_AGE: Duration = Duration::from_secs(3);

/// A plan and the inputs of its execution.
pub(crate) struct PlanExecution<'a, R: Reconciler> {
    /// The parts of the controller.
    pub(crate) parts: &'a ControllerParts<R>,
    /// The observation that the plan was decided on.
    pub(crate) observation: &'a Observation<R>,
    /// The uptime at the end of the observation.
    pub(crate) observed_at: Duration,
    /// The plan.
    pub(crate) plan: &'a Plan<R::Engine>,
    /// The part of the plan to execute.
    pub(crate) scope: PlanScope,
}

/// The result of an execution.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// The number of actions that were executed.
    pub(crate) done: usize,
    /// The events of these actions.
    pub(crate) events: Vec<EventSpec>,
    /// How the execution ended.
    pub(crate) end: ExecutionEnd,
    /// Whether the disruption was left out because the observation had become too old.
    pub(crate) is_late: bool,
    /// The most important error of independent actions.
    pub(crate) rejected: Option<Error>,
}

/// The part of a plan to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlanScope {
    /// The whole plan.
    #[default]
    Full,
    /// The disruption and its prerequisites: independent actions were rejected so slowly that the disruption came too
    /// late.
    DisruptionOnly,
}

/// How the execution of a plan ended.
#[derive(Debug, Default)]
pub(crate) enum ExecutionEnd {
    /// Every action was executed, except rejected independent ones.
    #[default]
    Completed,
    /// An object has changed since it was observed, or this process no longer leads.
    Conflict,
    /// The disruption was declined for now.
    RetryLater(String),
    /// A part of the disruption is done.
    InProgress(String),
    /// The disruption or a prerequisite failed.
    Failed(Error),
}

/// The independent actions that failed in one reconcile. Later passes of the same reconcile skip them.
pub(crate) struct RejectedActions<E: Engine> {
    create: Vec<E::Create>,
    patch: Vec<E::Patch>,
    apply: Vec<E::Apply>,
}

impl<E: Engine> Default for RejectedActions<E> {
    fn default() -> Self {
        Self {
            create: Vec::new(),
            patch: Vec::new(),
            apply: Vec::new(),
        }
    }
}

impl<E: Engine> RejectedActions<E> {
    fn contains(&self, action: &Action<'_, E>) -> bool {
        match action {
            Action::Create(create) => self.create.contains(create),
            Action::Patch(patch) => self.patch.contains(patch),
            Action::Apply(apply) => self.apply.contains(apply),
            Action::Disruption(_) => false,
        }
    }

    fn record(&mut self, action: &Action<'_, E>) {
        match action {
            Action::Create(create) => self.create.push((*create).clone()),
            Action::Patch(patch) => self.patch.push((*patch).clone()),
            Action::Apply(apply) => self.apply.push((*apply).clone()),
            Action::Disruption(_) => {}
        }
    }
}

impl Execution {
    fn is_completed(&self) -> bool {
        matches!(self.end, ExecutionEnd::Completed)
    }

    /// Ends the execution. A failure that was recorded before stays.
    fn end_with(&mut self, end: ExecutionEnd) {
        if self.is_completed() {
            self.end = end;
        }
    }
}

impl<R: Reconciler> PlanExecution<'_, R> {
    /// Executes the plan.
    pub(crate) async fn run(&self, rejected: &mut RejectedActions<R::Engine>) -> Execution {
        let mut execution = Execution::default();
        self.execute_prerequisites(&mut execution).await;
        self.execute_independent(&mut execution, rejected).await;
        self.execute_disruption(&mut execution).await;
        execution
    }

    /// Executes the prerequisites of the disruption. The first that fails ends this phase.
    async fn execute_prerequisites(&self, execution: &mut Execution) {
        for action in self
            .plan
            .writes()
            .filter(|action| R::is_prerequisite(action))
        {
            match self.execute(&action, execution, &|| self.is_leader()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return execution.end_with(ExecutionEnd::Failed(error)),
            }
        }
    }

    /// Executes the writes that no other action of the plan depends on, even after a failed
    /// prerequisite: repairs must not wait for the disruption.
    async fn execute_independent(
        &self,
        execution: &mut Execution,
        rejected: &mut RejectedActions<R::Engine>,
    ) {
        let may_start = matches!(
            execution.end,
            ExecutionEnd::Completed | ExecutionEnd::Failed(_)
        );
        if self.scope == PlanScope::DisruptionOnly || !may_start {
            return;
        }
        let has_disruption = self.plan.disruption.is_some() && execution.is_completed();
        let independent = self
            .plan
            .writes()
            .filter(|action| !R::is_prerequisite(action));
        for action in independent {
            if rejected.contains(&action) {
                continue;
            }
            // More writes may be rejected as slowly, and the disruption has waited long enough.
            if has_disruption && execution.rejected.is_some() && self.is_late() {
                execution.is_late = true;
                return;
            }
            match self.execute(&action, execution, &|| self.is_leader()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let (resource, action_name) = (self.key(), R::action_name(&action));
                    tracing::warn!(%resource, action = action_name, %error, "action failed");
                    rejected.record(&action);
                    execution.rejected = more_important(execution.rejected.take(), Some(&error));
                }
            }
        }
    }

    /// Executes the disruption, if everything before it was executed and the observation is fresh.
    async fn execute_disruption(&self, execution: &mut Execution) {
        let Some(disruption) = &self.plan.disruption else {
            return;
        };
        if !execution.is_completed() || execution.is_late {
            return;
        }
        if self.is_leader() && self.is_late() {
            execution.is_late = true;
            return execution.end_with(ExecutionEnd::Conflict);
        }
        // The engine checks once more right before the call that cannot have preconditions.
        let may_write = || self.is_leader() && !self.is_late();
        let action = Action::Disruption(disruption);
        if let Err(error) = self.execute(&action, execution, &may_write).await {
            execution.end_with(ExecutionEnd::Failed(error));
        }
    }

    /// Executes one action. Returns true if the execution may go on.
    async fn execute(
        &self,
        action: &Action<'_, R::Engine>,
        execution: &mut Execution,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, Error> {
        if !self.is_leader() {
            execution.end_with(ExecutionEnd::Conflict);
            return Ok(false);
        }
        let (resource, name) = (self.key(), R::action_name(action));
        let reconciler = &self.parts.reconciler;
        let end = match reconciler
            .execute(self.observation, action, may_write)
            .await?
        {
            Outcome::Done => {
                tracing::info!(%resource, action = name, "action executed");
                self.parts.metrics.acted(&R::Resource::kind(&()), name);
                execution.done += 1;
                let event = reconciler.event_for(self.observation, action);
                execution.events.extend(event);
                return Ok(true);
            }
            Outcome::Conflict => {
                tracing::debug!(%resource, action = name, "conflict, observing again");
                ExecutionEnd::Conflict
            }
            Outcome::RetryLater(reason) => {
                tracing::info!(%resource, action = name, reason, "action declined, retrying");
                ExecutionEnd::RetryLater(reason)
            }
            Outcome::InProgress(progress) => {
                tracing::info!(%resource, action = name, progress, "action in progress, requeueing");
                ExecutionEnd::InProgress(progress)
            }
        };
        execution.end_with(end);
        Ok(false)
    }

    fn key(&self) -> crate::ResourceKey {
        key_of(self.parts.reconciler.resource(self.observation))
    }

    fn is_leader(&self) -> bool {
        self.parts.leadership.is_leader()
    }

    fn is_late(&self) -> bool {
        let age = self.parts.clock.uptime().saturating_sub(self.observed_at);
        age > MAX_OBSERVATION_AGE
    }
}
