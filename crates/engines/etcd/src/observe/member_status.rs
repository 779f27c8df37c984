//! What members said when they were asked, weighed: who leads, who serves, who the members are. Pure; asking is in
//! [`super::ask`].

use evenkeel_runtime::UnixTime;

use crate::facts::{ListedMember, MemberHealth, Membership, UnknownMember};
use crate::identity::{ClusterId, MemberId};
use crate::names::Serial;
use crate::observe::MemberIndex;

/// What a member said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawStatus {
    pub(super) cluster: u64,
    pub(super) id: u64,
    /// Whom it follows, as far as it knows; 0 for nobody.
    pub(super) leader: u64,
    pub(super) term: u64,
    /// How far its log goes.
    pub(super) index: u64,
    pub(super) learner: bool,
    pub(super) version: String,
    /// How large its data is, in bytes.
    pub(super) size: u64,
    /// Whether it has answered a linearizable read.
    pub(super) reads: bool,
}

impl RawStatus {
    /// From an answer of etcd; nothing if it does not say whose it is.
    pub(super) fn of(status: &etcd_client::StatusResponse, reads: bool) -> Option<Self> {
        let header = status.header()?;
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
        })
    }

    /// Whoever has just answered a linearizable read as a voter: its own list is then at least as new as that read.
    pub(super) fn is_authoritative(&self) -> bool {
        self.reads && !self.learner
    }

    /// What it says of itself, judged by who leads.
    pub(super) fn health(&self, leading: Option<LeaderInfo>) -> MemberHealth {
        // What a learner said to have followed once, it goes on saying when it is cut off.
        let follows = leading
            .is_some_and(|leading| (self.leader, self.term) == (leading.leader, leading.term));
        let near = leading.is_some_and(|leading| {
            // As etcd itself counts: nine tenths of the leader's log.
            self.index.saturating_mul(10) >= leading.index.saturating_mul(9)
                && leading.index.saturating_sub(self.index) <= MAX_LAG
        });
        MemberHealth {
            cluster_id: ClusterId(self.cluster),
            member_id: MemberId(self.id),
            is_serving: self.reads || (self.learner && follows),
            is_caught_up: !self.learner || near,
            is_leader: leading.is_some_and(|leading| leading.leader == self.id),
            version: self.version.parse().ok(),
            db_size: rounded(self.size),
        }
    }
}

/// Less than this is not told apart.
const LEAST_SIZE: u64 = 16 << 20;

/// A size rounded up to one of eight steps between a power of two and the next: what grows a little looks the same.
fn rounded(size: u64) -> u64 {
    let size = size.max(LEAST_SIZE);
    size.next_multiple_of(1 << (size.ilog2() - 3))
}

/// How far behind a learner may be that gets a vote: as many entries as a leader keeps for those that are slow. With a vote and
/// further behind it would be of no use for a majority until it has caught up.
const MAX_LAG: u64 = 5_000;

/// Who leads, by the word of voters that answer reads: a majority stands behind those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderInfo {
    pub(super) leader: u64,
    pub(super) term: u64,
    /// How far the log goes.
    pub(super) index: u64,
}

impl LeaderInfo {
    pub(super) fn of<'h>(heard: impl Iterator<Item = &'h RawStatus>) -> Option<Self> {
        let told = heard.filter(|heard| heard.is_authoritative() && heard.leader != 0);
        let told = told.map(|heard| Self {
            term: heard.term,
            index: heard.index,
            leader: heard.leader,
        });
        told.max_by_key(|leading| (leading.term, leading.index))
    }
}

/// A member as etcd lists it, in its own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawMember {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    /// Whether it says where clients reach it.
    pub(super) has_client_urls: bool,
    pub(super) learner: bool,
}

impl RawMember {
    /// From an answer of etcd.
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

/// Who the members are; `register` knows ours by peer URL, and the others are strangers, seen `now`. One whose URLs somebody
/// has changed is still ours by its name, which only its own process can have given it.
pub(super) fn membership(
    told_by: Serial,
    list: &[RawMember],
    register: &MemberIndex,
    now: UnixTime,
) -> Membership {
    let serial_of = |member: &RawMember| {
        let by_url = member
            .peer_urls
            .iter()
            .find_map(|url| register.by_peer_url(url));
        by_url.or_else(|| register.by_name(&member.name))
    };
    let (mut members, mut unknown_members) = (Vec::new(), Vec::new());
    for member in list {
        let (id, learner) = (MemberId(member.id), member.learner);
        // Of one that never ran there is a peer URL and no more.
        let started = !member.name.is_empty() && member.has_client_urls;
        match serial_of(member) {
            Some(serial) => members.push(ListedMember {
                serial,
                id,
                is_learner: learner,
                has_started: started,
            }),
            None => unknown_members.push(UnknownMember {
                id,
                is_learner: learner,
                has_started: started,
                first_seen: now,
            }),
        }
    }
    members.sort();
    unknown_members.sort();
    Membership {
        reported_by: told_by,
        members,
        unknown: unknown_members,
    }
}

#[cfg(test)]
#[path = "member_status_tests.rs"]
mod tests;
