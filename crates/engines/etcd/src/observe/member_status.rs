//! Evaluation of members' answers: the leader, the health of each member, and the member list. Pure; the queries are in
//! [`super::etcd`].

use std::collections::BTreeSet;

use evenkeel_runtime::UnixTime;

use crate::availability::Alarm;
use crate::facts::{ListedMember, MemberHealth, Membership, UnknownMember};
use crate::identity::{ClusterId, MemberId};
use crate::names::Serial;
use crate::observe::MemberIndex;

/// The status of a member as etcd reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawStatus {
    pub(super) cluster: u64,
    pub(super) id: u64,
    /// The ID of the leader that the member knows; 0 for none.
    pub(super) leader: u64,
    pub(super) term: u64,
    /// The index of the last raft log entry.
    pub(super) index: u64,
    pub(super) learner: bool,
    pub(super) version: String,
    /// The size of the database in bytes.
    pub(super) size: u64,
    /// Whether the member answered a linearizable read.
    pub(super) reads: bool,
    /// The alarms of the cluster that the member knows. Requesting the list instead would pass through the raft log.
    pub(super) alarms: BTreeSet<Alarm>,
}

impl RawStatus {
    /// Converts a response of etcd; `None` if it has no header.
    pub(super) fn of(status: &etcd_client::StatusResponse, reads: bool) -> Option<Self> {
        let header = status.header()?;
        let errors = status.errors().iter();
        let alarms = errors.filter_map(|error| Alarm::from_status_error(error));
        Some(Self {
            cluster: header.cluster_id(),
            id: header.member_id(),
            leader: status.leader(),
            term: status.raft_term(),
            index: status.raft_index(),
            learner: status.is_learner(),
            version: status.version().to_owned(),
            size: u64::try_from(status.db_size()).unwrap_or_default(),
            reads,
            alarms: alarms.collect(),
        })
    }

    /// Returns true for a voter that has just answered a linearizable read: its own member list is at least as recent as
    /// that read.
    pub(super) fn is_authoritative(&self) -> bool {
        self.reads && !self.learner
    }

    /// Returns the health of the member, given the leader.
    pub(super) fn health(&self, leader: Option<LeaderInfo>) -> MemberHealth {
        // A partitioned learner keeps reporting its last leader: leader and term must be the current ones.
        let is_following =
            leader.is_some_and(|leader| (self.leader, self.term) == (leader.leader, leader.term));
        let is_near = leader.is_some_and(|leader| {
            // etcd's own criterion: nine tenths of the leader's log.
            self.index.saturating_mul(10) >= leader.index.saturating_mul(9)
                && leader.index.saturating_sub(self.index) <= MAX_LAG
        });
        MemberHealth {
            cluster_id: ClusterId(self.cluster),
            member_id: MemberId(self.id),
            is_serving: self.reads || (self.learner && is_following),
            is_caught_up: !self.learner || is_near,
            is_leader: leader.is_some_and(|leader| leader.leader == self.id),
            version: self.version.parse().ok(),
            db_size: round_up(self.size),
        }
    }
}

/// The smallest size that is reported.
const MIN_REPORTED_SIZE: u64 = 16 << 20;

/// Rounds a size up to one of eight steps between a power of two and the next, so that small growth does not change the
/// status.
fn round_up(size: u64) -> u64 {
    let size = size.max(MIN_REPORTED_SIZE);
    size.next_multiple_of(1 << (size.ilog2() - 3))
}

/// The largest number of entries that a learner may lag behind to be promoted: as many as a leader keeps for slow followers.
/// A voter that lags further contributes nothing to a quorum until it has caught up.
const MAX_LAG: u64 = 5_000;

/// The leader according to voters that answer linearizable reads, which a quorum confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderInfo {
    pub(super) leader: u64,
    pub(super) term: u64,
    /// The index of the last raft log entry.
    pub(super) index: u64,
}

impl LeaderInfo {
    /// Returns the leader with the highest term.
    pub(super) fn of<'s>(statuses: impl Iterator<Item = &'s RawStatus>) -> Option<Self> {
        statuses
            .filter(|status| status.is_authoritative() && status.leader != 0)
            .map(|status| Self {
                term: status.term,
                index: status.index,
                leader: status.leader,
            })
            .max_by_key(|leader| (leader.term, leader.index))
    }
}

/// An entry of etcd's member list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawMember {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    /// Whether the member has published its client URLs.
    pub(super) has_client_urls: bool,
    pub(super) learner: bool,
}

impl RawMember {
    /// Converts an entry of etcd's response.
    pub(super) fn of(member: &etcd_client::Member) -> Self {
        Self {
            id: member.id(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            has_client_urls: !member.client_urls().is_empty(),
            learner: member.is_learner(),
        }
    }
}

/// Returns the membership according to `list`. A member is one of ours by its peer URL, or by its name if its URLs were
/// changed: only its own process can have published the name. All others are unknown members, first seen `now`.
pub(super) fn membership(
    reported_by: Serial,
    list: &[RawMember],
    index: &MemberIndex,
    now: UnixTime,
) -> Membership {
    let serial_of = |member: &RawMember| {
        let mut urls = member.peer_urls.iter();
        urls.find_map(|url| index.by_peer_url(url))
            .or_else(|| index.by_name(&member.name))
    };
    let mut membership = Membership {
        reported_by,
        members: Vec::new(),
        unknown: Vec::new(),
    };
    for member in list {
        let (id, is_learner) = (MemberId(member.id), member.learner);
        // A member that never ran has only a peer URL.
        let has_started = !member.name.is_empty() && member.has_client_urls;
        match serial_of(member) {
            Some(serial) => membership.members.push(ListedMember {
                serial,
                id,
                is_learner,
                has_started,
            }),
            None => membership.unknown.push(UnknownMember {
                id,
                is_learner,
                has_started,
                first_seen: now,
            }),
        }
    }
    membership.members.sort();
    membership.unknown.sort();
    membership
}

#[cfg(test)]
#[path = "member_status_tests.rs"]
mod tests;
