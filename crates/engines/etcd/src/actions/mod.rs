//! The actions of a plan, described in one place: machine name, description, reason, event and
//! class of each.
//!
//! A new action needs its variant in `plan.rs`, its entries in the file of its part here, its write
//! in `execute` and its effect in `preview::simulate`.

mod apply;
mod context;
mod create;
mod disruption;
mod patch;
mod restore;
mod wait;

use evenkeel_runtime::{Action, EventSpec};

pub use context::ActionContext;
pub(crate) use context::{format_duration, member_display_name, sentence};
pub(crate) use wait::responding_voters;

use crate::decide::Etcd;
use crate::observe::ObservedCluster;

/// The `action` field of the events of actions.
const EVENT_ACTION: &str = "Reconcile";

/// Everything about an action apart from its write.
pub trait EtcdAction {
    /// Returns the machine name, for logs, metrics and tests.
    fn name(&self) -> &'static str;

    /// Describes the action, for people: a gerund phrase with kind and name of the object.
    fn describe(&self, context: &ActionContext<'_>) -> String;

    /// Returns the fact that the action is based on, as a clause that follows "because".
    fn reason(&self, context: &ActionContext<'_>) -> String;

    /// Returns the event to publish once the action is done. Bookkeeping has none.
    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec>;

    /// Returns true if the disruption of the same plan depends on this action.
    fn is_prerequisite(&self) -> bool;

    /// Returns true if the action only records a fact. Short previews leave it out.
    fn is_bookkeeping(&self) -> bool;
}

/// Returns the action of any part of a plan.
pub fn etcd_action<'p>(action: &Action<'p, Etcd>) -> &'p dyn EtcdAction {
    match *action {
        Action::Create(create) => create,
        Action::Patch(patch) => patch,
        Action::Apply(apply) => apply,
        Action::Disruption(disruption) => disruption,
    }
}

fn normal(reason: &str, note: impl Into<String>) -> Option<EventSpec> {
    Some(EventSpec::normal(reason, EVENT_ACTION, note.into()))
}

fn warning(reason: &str, note: impl Into<String>) -> Option<EventSpec> {
    Some(EventSpec::warning(reason, EVENT_ACTION, note.into()))
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
