//! The steps of a replay script and the state that is compared. Scripts run on the explorer's model and on real etcd
//! processes; the observable state after each step must be the same on both.

use std::collections::BTreeMap;

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum ReplayStep {
    /// Starts a container with these flags on the member's data directory.
    Start(Serial, StartMode),
    /// Kills a process.
    Kill(Serial),
    /// Empties the directory of a stopped member.
    Wipe(Serial),
    /// Copies the directory of a stopped member.
    Copy(Serial),
    /// Replaces the directory by the copy.
    Restore(Serial),
    /// Fills the empty directory of a member with the data of a backup, as a restore pod does.
    RestoreBackup(Serial),
    /// Sends a membership change to etcd.
    Change(MembershipChange),
    /// Sends a membership change to a leader right after its only other voter has died.
    ChangeAsMemberDies(Serial, MembershipChange),
    /// Sends a membership change while a member is frozen and the leader has not detected it.
    ChangeAsMemberFreezes(Serial, MembershipChange),
    /// Restarts the only voter, which then has no record of its learner's progress, and starts the learner's
    /// container.
    StartUnderNewLeader(Serial, StartMode),
}

/// The expected result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Any result.
    Anything,
    /// The member serves.
    Serves,
    /// The member does not answer: it exited, or waits for a quorum.
    Unreachable,
    /// The change was made.
    Done,
    /// The change was not made.
    Rejected,
}

/// The observable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedState {
    /// Whether the requested change was made.
    pub done: Option<bool>,
    /// The member list, if a quorum confirms it.
    pub members: Option<BTreeMap<Serial, ListedEntry>>,
    /// The replies of the members that answer.
    pub replies: BTreeMap<Serial, MemberReply>,
}

/// A listed member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedEntry {
    /// The member ID.
    pub id: u64,
    /// Whether it is a learner.
    pub learner: bool,
    /// Whether it has a name, that is, has started.
    pub started: bool,
}

/// The reply of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberReply {
    /// The cluster ID that it reports.
    pub cluster: u64,
    /// The member ID that it reports.
    pub id: u64,
    /// Whether it answers a linearizable read; for a learner, whether it knows a leader.
    pub serves: bool,
}

impl ReplayStep {
    /// Returns true if the state shows the expected result of this step.
    pub(crate) fn is_shown_by(&self, expected: Expected, state: &ObservedState) -> bool {
        let serves = |serial: &Serial| state.replies.get(serial).map(|reply| reply.serves);
        match (self, expected) {
            (_, Expected::Anything) => true,
            (Self::Start(serial, _) | Self::StartUnderNewLeader(serial, _), Expected::Serves) => {
                serves(serial) == Some(true)
            }
            (Self::Start(serial, _), Expected::Unreachable) => serves(serial).is_none(),
            (_, Expected::Done) => state.done == Some(true),
            (_, Expected::Rejected) => state.done == Some(false),
            _ => false,
        }
    }
}

/// Numbers IDs in the order of their first use, so that the IDs of the model and of etcd can be compared.
#[derive(Debug, Default)]
pub(crate) struct IdNumbering {
    clusters: Vec<u64>,
    members: Vec<u64>,
}

impl IdNumbering {
    /// Returns the state with numbered IDs.
    pub(crate) fn number(&mut self, mut state: ObservedState) -> ObservedState {
        for entry in state.members.iter_mut().flat_map(BTreeMap::values_mut) {
            entry.id = number_of(&mut self.members, entry.id);
        }
        for reply in state.replies.values_mut() {
            reply.cluster = number_of(&mut self.clusters, reply.cluster);
            reply.id = number_of(&mut self.members, reply.id);
        }
        state
    }
}

fn number_of(seen: &mut Vec<u64>, id: u64) -> u64 {
    let at = seen.iter().position(|one| *one == id).unwrap_or_else(|| {
        seen.push(id);
        seen.len() - 1
    });
    u64::try_from(at).unwrap_or(u64::MAX)
}
