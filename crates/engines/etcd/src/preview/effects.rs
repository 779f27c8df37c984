//! The effects of a preview on the cluster and its clients, and the time that it takes.

use schemars::JsonSchema;
use serde::Serialize;

use super::step::{OutlineStep, StepKind};
use super::step_texts::{join_words, times};
use super::tolerance::Tolerance;
use crate::availability::count;

/// The time from the restart of a member to the restart of the next, in seconds: a third of an
/// upgrade of three members, 23.2 s (bench/results/roll.md).
pub const RESTART_SECONDS: i64 = 8;
/// The time in which a new member joins and becomes a voter, in seconds: 6.5 s from the loss of a
/// pod and its claim to full redundancy, with 118 MiB of data (bench/results/etcd.md).
pub const JOIN_SECONDS: i64 = 7;
/// The time in which a member whose pod is gone is healthy again, in seconds: 2.9 s
/// (bench/results/etcd.md).
const START_SECONDS: i64 = 3;
/// The time of a join during bootstrap, in seconds: three members are ready 6.7 s after the
/// creation of the resource (bench/results/etcd.md).
const BOOTSTRAP_JOIN_SECONDS: i64 = 2;
/// The time of a removal, in seconds (estimated).
const REMOVAL_SECONDS: i64 = 2;
/// The time in which every member takes a snapshot, in seconds (estimated).
const SNAPSHOT_SECONDS: i64 = 3;

/// The time in which a small backup is restored, in seconds (estimated).
const RESTORE_SECONDS: i64 = 10;

/// The effects of a preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effects {
    /// Whether a cluster is created.
    pub creates_cluster: bool,
    /// The number of restarts of members.
    pub restarts: usize,
    /// The number of members that are added.
    pub members_added: usize,
    /// The number of members that are removed.
    pub members_removed: usize,
    /// The number of members whose pods are created again.
    pub members_started: usize,
    /// The number of volumes that are resized.
    pub volumes_resized: usize,
    /// How often leadership is transferred.
    pub leader_transfers: usize,
    /// The effect on clients.
    pub clients: ClientImpact,
    /// The failures that the cluster tolerates before, during and after the steps.
    pub failure_tolerance: ToleranceChange,
    /// The expected time until the last step is done, in seconds; `None` if it is not known.
    pub expected_seconds: Option<i64>,
}

/// The effect on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ClientImpact {
    /// No step touches a member that serves clients.
    None,
    /// Clients of a member that stops connect to another.
    Reconnect,
    /// Clients cannot write while members restart, one after the other.
    Outage,
    /// Clients cannot write now, and can at the end.
    Restored,
    /// Clients cannot write now, and cannot at the end.
    StillDown,
    /// The cluster is new: clients are routed once bootstrap is finished.
    New,
}

/// The failures that a cluster tolerates. Each is `None` while bootstrap is not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToleranceChange {
    /// Before the first step.
    pub before: Option<Tolerance>,
    /// The lowest of all states, the first and the last included.
    pub lowest: Option<Tolerance>,
    /// After the last step.
    pub after: Option<Tolerance>,
}

/// What a preview has counted.
pub(super) struct Counts {
    pub(super) leader_transfers: usize,
    pub(super) outages: usize,
    pub(super) stopped: usize,
    pub(super) volumes_resized: usize,
    pub(super) tolerance: ToleranceChange,
    /// Whether the last state is idle without a wait.
    pub(super) ends_converged: bool,
}

impl Effects {
    pub(super) fn new(steps: &[OutlineStep], counts: Counts) -> Self {
        let steps_of = |kind: StepKind| steps.iter().filter(|step| step.kind == kind).count();
        let Counts {
            leader_transfers,
            outages,
            stopped,
            volumes_resized,
            tolerance,
            ends_converged,
        } = counts;
        let restarts = steps_of(StepKind::RestartMember);
        let members_removed = steps_of(StepKind::RemoveMember);
        let can_write = |tolerance: Option<Tolerance>| tolerance.map(|it| it.can_write);
        let clients = match (can_write(tolerance.before), can_write(tolerance.after)) {
            (None, Some(true)) => ClientImpact::New,
            (None | Some(false), None | Some(false)) => ClientImpact::StillDown,
            (Some(false), Some(true)) => ClientImpact::Restored,
            (Some(true), _) if outages > 0 => ClientImpact::Outage,
            (Some(true), _) if stopped > 0 => ClientImpact::Reconnect,
            (Some(true), _) => ClientImpact::None,
        };
        Self {
            creates_cluster: steps_of(StepKind::StartSeed) > 0,
            restarts,
            members_added: steps_of(StepKind::AddMember),
            members_removed,
            members_started: steps_of(StepKind::StartMember),
            volumes_resized,
            leader_transfers,
            clients,
            failure_tolerance: tolerance,
            expected_seconds: ends_converged.then(|| expected_seconds(steps)),
        }
    }

    /// Describes the effects, one line each: members and time, clients, tolerance.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = vec![self.describe_members()];
        lines.extend(self.describe_clients());
        lines.extend(self.failure_tolerance.describe(self.restarts > 0));
        lines
    }

    fn describe_members(&self) -> String {
        let members = |number: usize| count(number, "member");
        let are = |number: usize| if number == 1 { "is" } else { "are" };
        let one_by_one = |number: usize| if number > 1 { " one by one" } else { "" };
        let replaced = self.members_added.min(self.members_removed);
        let added = self.members_added - replaced;
        let removed = self.members_removed - replaced;
        let mut effects = Vec::new();
        if self.volumes_resized > 0 {
            let volumes = count(self.volumes_resized, "volume");
            effects.push(format!("{volumes} {} resized", are(self.volumes_resized)));
        }
        if replaced > 0 {
            let (are, order) = (are(replaced), one_by_one(replaced));
            effects.push(format!("{} {are} replaced{order}", members(replaced)));
        }
        if self.creates_cluster {
            effects.push(format!("a cluster of {} is created", members(added + 1)));
        } else if added > 0 {
            let (are, order) = (are(added), one_by_one(added));
            effects.push(format!("{} {are} added{order}", members(added)));
        }
        if removed > 0 {
            let (are, order) = (are(removed), one_by_one(removed));
            effects.push(format!("{} {are} removed{order}", members(removed)));
        }
        match self.members_started {
            0 => {}
            1 => effects.push("1 member starts again".to_owned()),
            number => effects.push(format!("{number} members start again")),
        }
        match self.restarts {
            0 => {}
            1 => effects.push("1 member restarts".to_owned()),
            number => {
                let is_leader_last = self.leader_transfers > 0 && self.members_removed == 0;
                let order = if is_leader_last {
                    ", the leader last"
                } else {
                    ""
                };
                effects.push(format!("{number} members restart one by one{order}"));
            }
        }
        if effects.is_empty() {
            return "no member is restarted, added or removed".to_owned();
        }
        format!("{}; {}", join_words(&effects), self.describe_time())
    }

    /// Describes the expected time. The time in which a volume is resized depends on its driver.
    fn describe_time(&self) -> String {
        match self.expected_seconds {
            None => "duration unknown".to_owned(),
            Some(seconds) if self.volumes_resized > 0 => {
                format!("{} after the volumes are resized", about(seconds))
            }
            Some(seconds) => about(seconds),
        }
    }

    fn describe_clients(&self) -> Option<String> {
        let transfers = match self.leader_transfers {
            0 => String::new(),
            number => format!("; leadership moves {}", times(number)),
        };
        Some(match self.clients {
            ClientImpact::None => "clients: not affected".to_owned(),
            ClientImpact::Reconnect => {
                format!("clients: no outage expected; they reconnect to another member{transfers}")
            }
            ClientImpact::Outage if self.restarts == 1 => {
                let time = about(RESTART_SECONDS);
                format!("clients cannot write while the member restarts, for {time}")
            }
            ClientImpact::Outage => format!(
                "clients cannot write while a member restarts: {}, for {} each",
                times(self.restarts),
                about(RESTART_SECONDS)
            ),
            ClientImpact::Restored => "clients cannot write now, and can afterwards".to_owned(),
            ClientImpact::StillDown if self.failure_tolerance.before.is_none() => return None,
            ClientImpact::StillDown => "clients cannot write, now and afterwards".to_owned(),
            ClientImpact::New => "clients are served when the bootstrap is finished".to_owned(),
        })
    }
}

impl ToleranceChange {
    fn describe(&self, has_restarts: bool) -> Option<String> {
        let after = self.after?;
        let before = match self.before {
            None => return Some(format!("tolerates {} at the end", after.describe())),
            Some(before) if before != after => return Some(before.describe_change(after)),
            Some(before) => before,
        };
        let mut text = format!("tolerates {} before and after", before.describe());
        let lowest = self.lowest.unwrap_or(before);
        if lowest.members < before.members {
            let meanwhile = if has_restarts {
                "while a member restarts"
            } else {
                "meanwhile"
            };
            text.push_str(&format!("; {} {meanwhile}", lowest.members));
        }
        Some(text)
    }
}

impl Tolerance {
    fn describe(self) -> String {
        if self.members == 0 && self.nodes.unwrap_or(0) == 0 {
            return "no failure".to_owned();
        }
        let members = count(self.members, "member failure");
        match self.nodes {
            Some(nodes) => format!("{members} and {}", count(nodes, "node failure")),
            None => members,
        }
    }

    fn describe_change(self, after: Self) -> String {
        let change = |before: usize, after: usize, noun: &str| {
            if before == after {
                count(before, noun)
            } else {
                format!("{before} → {after} {noun}s")
            }
        };
        let members = change(self.members, after.members, "member failure");
        match self.nodes.zip(after.nodes) {
            Some((before, after)) => {
                format!(
                    "tolerates {members} and {}",
                    change(before, after, "node failure")
                )
            }
            None => format!("tolerates {members}"),
        }
    }
}

/// Returns the expected time of all steps: each takes its time, and none begins before its own.
fn expected_seconds(steps: &[OutlineStep]) -> i64 {
    steps.iter().fold(0, |time, step| {
        time.max(step.after) + expected_seconds_of(step)
    })
}

fn expected_seconds_of(step: &OutlineStep) -> i64 {
    match step.kind {
        StepKind::RestartMember => RESTART_SECONDS,
        StepKind::AddMember if step.is_bootstrap => BOOTSTRAP_JOIN_SECONDS,
        StepKind::AddMember => JOIN_SECONDS,
        StepKind::StartSeed | StepKind::StartMember => START_SECONDS,
        StepKind::RemoveMember | StepKind::RemoveUnknownMember => REMOVAL_SECONDS,
        StepKind::ForceSnapshot => SNAPSHOT_SECONDS,
        StepKind::RestoreBackup => RESTORE_SECONDS,
        StepKind::CreateObjects
        | StepKind::UpdateObjects
        | StepKind::SetBudget
        | StepKind::SetOwners
        | StepKind::ResizeVolumes
        | StepKind::RouteClients
        | StepKind::DeleteObjects
        | StepKind::NudgeMember
        | StepKind::FinishBootstrap
        | StepKind::RestartBootstrap
        | StepKind::UpdateIdentity => 1,
        StepKind::Record => 0,
    }
}

/// Formats an expected time, rounded up.
fn about(seconds: i64) -> String {
    let round_up = |unit: i64| (seconds + unit - 1) / unit;
    match seconds {
        ..=10 => format!("about {}s", seconds.max(1)),
        11..=120 => format!("about {}s", round_up(5) * 5),
        121..=7200 => format!("about {}m", round_up(60)),
        7201..=172_800 => format!("about {}h", round_up(3600)),
        _ => format!("about {}d", round_up(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_times_are_rounded_up() {
        let texts = [0, 8, 24, 26, 121, 3601, 40_000, 200_000].map(about);
        let expected = [
            "about 1s",
            "about 8s",
            "about 25s",
            "about 30s",
            "about 3m",
            "about 61m",
            "about 12h",
            "about 3d",
        ];
        assert_eq!(texts, expected);
    }
}
