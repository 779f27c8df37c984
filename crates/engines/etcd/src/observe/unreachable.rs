//! Since when members have been unreachable or unknown. etcd reports both without a time, so the operator keeps the times in
//! memory.

use std::collections::BTreeSet;

use evenkeel_kit::{FirstSeen, UnreachableTracker};
use evenkeel_runtime::Observed;

use super::etcd::EtcdState;
use crate::identity::MemberId;
use crate::names::Serial;

/// The times of one cluster's members.
#[derive(Debug, Default)]
pub(crate) struct MemberTimes {
    unreachable: UnreachableTracker<Serial>,
    /// The members that were on cordoned nodes at the last observation.
    cordoned: BTreeSet<Serial>,
    unknown: FirstSeen<MemberId>,
}

impl MemberTimes {
    /// Records an observation, and replaces its times by the times since when each condition has lasted. `cordoned` are the
    /// members on cordoned nodes. Once a node is uncordoned, its member gets the whole time again in which to come back.
    pub(crate) fn record(&mut self, state: &mut EtcdState, cordoned: BTreeSet<Serial>) {
        for uncordoned in self.cordoned.difference(&cordoned) {
            self.unreachable.forget(*uncordoned);
        }
        self.cordoned = cordoned;
        if let Observed::Present(membership) = &mut state.membership {
            let unknown = membership.unknown.iter_mut();
            self.unknown
                .record(unknown.map(|member| (member.id, &mut member.first_seen)));
        }
        self.unreachable
            .record(&state.reachable, &mut state.unreachable_since);
    }
}

#[cfg(test)]
#[path = "unreachable_tests.rs"]
mod tests;
