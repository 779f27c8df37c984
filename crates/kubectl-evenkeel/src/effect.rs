//! What a request of the user causes, and when: the operator may not be running, wait for a maintenance window or be busy with
//! another change. Pure; the verbs print the lines.

use evenkeel_api::EtcdCluster;
use evenkeel_api::conditions::{ConditionType, Reason};
use evenkeel_api::windows::WindowState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::error::CliError;
use crate::operator_status::OperatorStatus;

/// The state of a cluster at the time of a request.
pub(crate) struct Situation<'c> {
    /// The cluster before the request.
    pub(crate) cluster: &'c EtcdCluster,
    /// Whether an operator is running.
    pub(crate) operator: &'c OperatorStatus,
    /// The progress of the last restart, if it is not finished.
    pub(crate) restart: Option<RestartProgress>,
    /// The time of the request.
    pub(crate) now: Timestamp,
}

/// The progress of a restart that the user requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestartProgress {
    /// The number of members that were restarted.
    pub(crate) completed: usize,
    /// The number of members with a pod.
    pub(crate) total: usize,
}

/// Returns an error if the cluster is being deleted: the request would have no effect.
pub(crate) fn require_not_deleted(cluster: &EtcdCluster) -> Result<(), CliError> {
    if cluster.metadata.deletion_timestamp.is_none() {
        return Ok(());
    }
    Err(CliError::new(format!(
        "EtcdCluster {} is being deleted. Nothing was changed",
        cluster.name_any()
    )))
}

impl Situation<'_> {
    /// Describes the effect of a restart.
    pub(crate) fn restart(&self) -> String {
        let name = self.cluster.name_any();
        let effect = match self.cluster.spec.members {
            1 => "its only member. Clients cannot write during the restart",
            2 => {
                "both members, one after the other, the leader last. Clients cannot write during each restart"
            }
            _ => "the members one by one, the leader last",
        };
        let mut text = format!(
            "{name}: restart requested. The operator restarts {effect}. `kubectl evenkeel status {name}` shows the progress.\n"
        );
        let waits = self.restart_waits();
        if !waits.is_empty() {
            text.push_str("The restart waits until:\n");
            add_lines(&mut text, "  - ", &waits);
        }
        add_lines(&mut text, "Note: ", &self.restart_notes());
        text
    }

    /// Describes the effect of a pause.
    pub(crate) fn pause(&self) -> String {
        let name = self.cluster.name_any();
        let mut text = format!(
            "{name}: paused. The operator neither heals nor changes the cluster; its members keep running.\n"
        );
        let mut notes = Vec::new();
        let missing = self.operator.missing_text();
        notes.extend(missing.map(|missing| format!("{missing}.")));
        match self.operation() {
            Some(operation) if operation.restarts_members => notes.push(format!(
                "{} is under way and stops. A member that is being restarted stays down until the cluster is resumed.",
                operation.name
            )),
            Some(operation) => notes.push(format!("{} is under way and stops.", operation.name)),
            None => {}
        }
        let unhealthy = self.unhealthy_members();
        if !unhealthy.is_empty() {
            notes.push(format!(
                "not healthy: {}. The operator does not recover members until the cluster is resumed.",
                unhealthy.join(", ")
            ));
        }
        add_lines(&mut text, "Note: ", &notes);
        text
    }

    /// Describes the effect of the end of a pause.
    pub(crate) fn resume(&self) -> String {
        let name = self.cluster.name_any();
        let mut text = match self.operator.missing_text() {
            Some(missing) => format!(
                "{name}: resumed, but {missing}. The cluster is managed again when an operator starts.\n"
            ),
            None => format!("{name}: resumed. The operator manages the cluster again.\n"),
        };
        let mut notes = self.unknown_operator();
        if let Some(opens) = self.window_opens() {
            notes.push(format!(
                "changes that restart members wait for the maintenance window, which opens at {}.",
                at(opens, self.now)
            ));
        }
        add_lines(&mut text, "Note: ", &notes);
        text
    }

    /// Returns what must happen before the operator restarts the first member. Each completes "waits until".
    fn restart_waits(&self) -> Vec<String> {
        let name = self.cluster.name_any();
        let mut waits = Vec::new();
        if let OperatorStatus::NotRunning { namespace, lease } = self.operator {
            waits.push(match namespace {
                Some(namespace) => format!(
                    "an operator runs: {lease}. Check it: `kubectl -n {namespace} get deployments,pods`"
                ),
                None => format!("an operator watches this namespace: {lease}"),
            });
        }
        if self.cluster.spec.paused {
            waits.push(format!(
                "the cluster is resumed: `kubectl evenkeel resume {name}`"
            ));
        }
        // Without an operator, the conditions may be outdated.
        if !self.operator.is_not_running() {
            let ready = condition(self.cluster, ConditionType::Ready);
            let unhealthy = self.unhealthy_members();
            match ready {
                Some(ready) if ready.reason == Reason::Bootstrapping.as_str() => {
                    waits.push("the bootstrap is finished".to_owned());
                }
                Some(ready) if ready.reason == Reason::QuorumLost.as_str() => {
                    waits.push(format!("the quorum is restored. {}", ready.message));
                }
                _ if !unhealthy.is_empty() => {
                    waits.push(format!(
                        "all members are healthy, not yet: {}",
                        unhealthy.join(", ")
                    ));
                }
                _ => {}
            }
        }
        if let Some(opens) = self.window_opens() {
            waits.push(format!(
                "the maintenance window opens at {}",
                at(opens, self.now)
            ));
        }
        waits
    }

    fn restart_notes(&self) -> Vec<String> {
        let mut notes = self.unknown_operator();
        if let Err(rejection) = self.cluster.spec.maintenance.validate() {
            notes.push(format!(
                "{rejection}. The maintenance windows that were accepted last apply."
            ));
        }
        let again = "Members that were restarted already are restarted again.";
        match (self.restart, self.operation()) {
            (Some(RestartProgress { completed: 0, .. }), _) => notes.push(
                "an earlier restart has not begun yet. Both requests lead to one restart.".to_owned(),
            ),
            (Some(RestartProgress { completed, total }), _) => notes.push(format!(
                "a restart is under way already: {completed} of {total} members were restarted. {again}"
            )),
            (None, Some(operation)) if operation.restarts_members => {
                notes.push(format!("{} is under way. {again}", operation.name));
            }
            (None, Some(operation)) => notes.push(format!(
                "{} is under way. The operator finishes it first.",
                operation.name
            )),
            (None, None) => {}
        }
        notes
    }

    fn unknown_operator(&self) -> Vec<String> {
        match self.operator {
            OperatorStatus::Unknown(reason) => vec![format!(
                "it is unknown whether an operator is running: {reason}."
            )],
            OperatorStatus::Running(_) | OperatorStatus::NotRunning { .. } => Vec::new(),
        }
    }

    /// Returns when the next maintenance window opens, unless members may be restarted now.
    fn window_opens(&self) -> Option<Timestamp> {
        let windows = self.cluster.spec.maintenance.validate().ok()?;
        match windows.state(self.now) {
            WindowState::Open { .. } => None,
            WindowState::Closed { until } => Some(until),
        }
    }

    fn unhealthy_members(&self) -> Vec<&str> {
        let status = self.cluster.status.as_ref();
        status
            .into_iter()
            .flat_map(|status| &status.member_list)
            .filter(|member| !member.healthy)
            .map(|member| member.name.as_str())
            .collect()
    }

    fn operation(&self) -> Option<Operation> {
        // Without an operator, nothing is under way.
        (!self.operator.is_not_running())
            .then(|| operation(self.cluster))
            .flatten()
    }
}

/// Returns the lines that `move-leader` prints after a transfer.
pub(crate) fn after_transfer(cluster: &EtcdCluster) -> Vec<String> {
    operation(cluster)
        .map(|operation| {
            format!(
                "Note: {} is under way. The operator may transfer leadership again.",
                operation.name
            )
        })
        .into_iter()
        .collect()
}

/// A change that the operator is making.
struct Operation {
    /// The name with its article.
    name: &'static str,
    /// Whether members are restarted one by one.
    restarts_members: bool,
}

/// Returns the change that the operator is making, according to the condition Progressing.
fn operation(cluster: &EtcdCluster) -> Option<Operation> {
    let progressing = condition(cluster, ConditionType::Progressing)?;
    if progressing.status != "True" {
        return None;
    }
    let is = |reason: Reason| progressing.reason == reason.as_str();
    let (name, restarts_members) = if is(Reason::Upgrading) {
        ("an upgrade", true)
    } else if is(Reason::Updating) {
        ("a rollout", true)
    } else if is(Reason::Scaling) {
        ("scaling", false)
    } else if is(Reason::Recovering) {
        ("the recovery of a member", false)
    } else {
        return None;
    };
    Some(Operation {
        name,
        restarts_members,
    })
}

fn condition(cluster: &EtcdCluster, condition: ConditionType) -> Option<&Condition> {
    let conditions = &cluster.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|one| one.type_ == <&str>::from(condition))
}

fn add_lines(text: &mut String, prefix: &str, lines: &[String]) {
    for line in lines {
        text.push_str(&format!("{prefix}{line}\n"));
    }
}

/// Formats a time in the future: absolute, and how long from now.
pub(crate) fn at(time: Timestamp, now: Timestamp) -> String {
    format!(
        "{} (in {})",
        time.strftime("%Y-%m-%d %H:%M UTC"),
        remaining(time.as_second() - now.as_second())
    )
}

/// Formats a number of seconds in its two largest units.
pub(crate) fn remaining(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        86_400.. => format!("{days}d{hours}h"),
        3600.. => format!("{hours}h{minutes:02}m"),
        60.. => format!("{minutes}m{:02}s", seconds % 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
