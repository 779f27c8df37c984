//! The decisions about one BackupSchedule. Times are computed from the schedule and from stored times only, so that a restart
//! of the operator changes nothing. A clock that jumps makes at most one backup due, and deletes nothing.

mod drills;
mod retention;
mod runs;

use evenkeel_api::Rejection;
use evenkeel_runtime::{Engine, Plan, Requeue, UnixTime};

use super::facts::ScheduleFacts;
use super::plan::{NoAction, ScheduleCreate, SchedulePatch, ScheduleWait};
use super::policy::ValidPolicy;

pub use drills::Drills;
pub use retention::Deletions;
pub use runs::Runs;

/// How long a pod may wait for a node, an image or a volume. Its own deadline begins only when it has a node.
pub const MAX_PENDING_SECONDS: i64 = 900;
/// The interval at which a missing cluster is read again. Clusters are not watched.
const CLUSTER_RETRY_SECONDS: i64 = 30;

/// The decisions about BackupSchedules.
#[derive(Clone, Copy, Debug)]
pub struct Schedules;

impl Engine for Schedules {
    type Facts = ScheduleFacts;
    type Create = ScheduleCreate;
    type Apply = NoAction;
    type Patch = SchedulePatch;
    type Disruption = NoAction;
    type Wait = ScheduleWait;

    fn decide(facts: &ScheduleFacts) -> Plan<Self> {
        Outlook::new(facts).plan()
    }
}

/// The evaluated facts: what is due, what is recorded, and what is next. Plan and status are made from it.
#[derive(Clone, Debug)]
pub struct Outlook<'f> {
    /// The facts.
    pub facts: &'f ScheduleFacts,
    /// The validated policy.
    pub policy: Result<ValidPolicy, Rejection>,
    /// The backups.
    pub runs: Runs,
    /// The drills.
    pub drills: Drills,
    /// The deletions.
    pub deletions: Deletions,
}

impl<'f> Outlook<'f> {
    /// Evaluates facts.
    pub fn new(facts: &'f ScheduleFacts) -> Self {
        let policy = ValidPolicy::new(&facts.policy);
        let valid = policy.as_ref().ok();
        let runs = runs::evaluate(facts, valid);
        let drills = drills::evaluate(facts, valid, &runs);
        let deletions = retention::evaluate(facts, valid, &runs, &drills);
        Self {
            facts,
            policy,
            runs,
            drills,
            deletions,
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> Plan<Schedules> {
        let Self {
            facts,
            policy,
            runs,
            drills,
            deletions,
        } = self;
        let mut waits = Vec::new();
        if policy.is_err() {
            waits.push(ScheduleWait::InvalidSchedule);
        } else if facts.policy.suspend {
            waits.push(ScheduleWait::Suspended);
        }
        for wait in runs
            .waits
            .iter()
            .chain(&drills.waits)
            .chain(&deletions.waits)
        {
            if !waits.contains(wait) {
                waits.push(wait.clone());
            }
        }
        let creates = [&runs.create, &drills.create, &deletions.create];
        let patches = drills.patch.iter().chain(&deletions.patches);
        let wakes = [&runs.wakes, &drills.wakes, &deletions.wakes];
        Plan {
            create: creates.into_iter().flatten().cloned().collect(),
            patch: patches.cloned().collect(),
            waits,
            requeue: earliest(facts.now, wakes.into_iter().flatten().copied()),
            ..Plan::default()
        }
    }
}

fn earliest(now: UnixTime, wakes: impl Iterator<Item = UnixTime>) -> Requeue {
    wakes
        .filter(|time| *time > now)
        .map(Requeue::At)
        .fold(Requeue::OnChange, Requeue::or)
}

fn plus(time: UnixTime, seconds: i64) -> UnixTime {
    UnixTime(time.0.saturating_add(seconds))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "simulation_tests.rs"]
mod simulation;
