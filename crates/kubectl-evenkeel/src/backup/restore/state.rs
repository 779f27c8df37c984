//! The restore on the status screen: as long as it is under way, or can be undone. Pure.

use evenkeel_api::{EtcdCluster, RestorePhase};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::report::is_under_way;
use crate::effect::at;
use crate::terminal::{Severity, Terminal};

/// The last restore of a cluster, as the operator reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreStateReport {
    /// The name of the Restore.
    pub(crate) name: String,
    /// The phase, such as Preparing or Complete.
    pub(crate) phase: String,
    /// What happens now, what it waits for, and what to do.
    pub(crate) message: String,
    /// The ID of the cluster that is given up.
    pub(crate) replaces: String,
    /// Until when the restore can be undone. Null if it cannot be.
    pub(crate) undo_until: Option<String>,
    /// Whether the operator restores or undoes at the moment.
    pub(crate) is_under_way: bool,
}

impl RestoreStateReport {
    /// Reports about the last restore of a cluster; `None` if there was none.
    pub(crate) fn new(cluster: &EtcdCluster) -> Option<Self> {
        let progress = cluster.status.as_ref()?.restore.as_ref()?;
        Some(Self {
            name: progress.name.clone(),
            phase: progress.phase.to_string(),
            message: progress.message.clone(),
            replaces: progress.replaces.clone(),
            undo_until: progress.undo_until.as_ref().map(|it| it.0.to_string()),
            is_under_way: is_under_way(progress.phase),
        })
    }

    /// Renders the line of the status screen. Returns an empty text for a restore that is over.
    pub(crate) fn text(&self, now: Timestamp, terminal: Terminal) -> String {
        let name = &self.name;
        let is = |phase: RestorePhase| self.phase == phase.to_string();
        if self.is_under_way || (is(RestorePhase::Pending) && !self.message.is_empty()) {
            let text = match self.message.as_str() {
                "" => name.clone(),
                message => format!("{name}: {message}"),
            };
            return terminal.field_with_word("Restore", Severity::Warning, &self.phase, &text);
        }
        let until = self.undo_until.as_ref();
        let until = until.and_then(|until| until.parse::<Timestamp>().ok());
        match until.filter(|until| is(RestorePhase::Complete) && now < *until) {
            Some(until) => {
                let text = format!(
                    "{name}: can be undone until {}: `kubectl evenkeel restore undo {name}`",
                    at(until, now)
                );
                terminal.field_with_word("Restore", Severity::Good, &self.phase, &text)
            }
            None => String::new(),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
