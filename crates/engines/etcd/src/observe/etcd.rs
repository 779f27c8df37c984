//! Querying etcd: the status of every member, the authoritative member list, and the unreachable
//! members. No function here writes.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_runtime::{Observed, UnixTime};
use futures::future::{join, join_all};

use super::member_status::{LeaderInfo, RawMember, RawStatus, membership};
use super::{MemberIndex, leader_metrics, stuck};
use crate::availability::Alarm;
use crate::client::{self, Connections};
use crate::facts::{EtcdFacts, ListedMember, MemberHealth, Membership, StuckMember};
use crate::identity::MemberId;
use crate::names::Serial;

pub use crate::client::{Endpoint, TlsCredentials};

/// A member that can be queried.
#[derive(Clone, Debug)]
pub struct MemberTarget {
    /// The serial of the member.
    pub serial: Serial,
    /// The address of the member.
    pub endpoint: Endpoint,
    /// Whether the member starts as a new cluster. Its member list is used only if no other member has one.
    pub is_seed: bool,
}

/// The state of an etcd cluster as its members report it. No field changes while the cluster is
/// healthy and idle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdState {
    /// The member list.
    pub membership: Observed<Membership>,
    /// The health of each queried member.
    pub health: BTreeMap<Serial, Observed<MemberHealth>>,
    /// The version of each member that answered.
    pub versions: BTreeMap<Serial, String>,
    /// The leader.
    pub leader: Option<MemberId>,
    /// Whether a read through the client Service was answered.
    pub client_read: Observed<()>,
    /// The alarms that a member reported.
    pub alarms: BTreeSet<Alarm>,
    /// The members that answered the operator, or have a connection to the leader.
    pub reachable: BTreeSet<Serial>,
    /// The members that neither answered nor have a connection to the leader, with the time since when.
    pub unreachable_since: BTreeMap<Serial, UnixTime>,
    /// A member that may wait for the next raft log entry, see [`stuck`].
    pub stuck: Option<StuckMember>,
}

impl EtcdState {
    /// Returns the part of the state that facts contain.
    pub fn from_facts(facts: &EtcdFacts) -> Self {
        let leader = facts
            .details
            .iter()
            .find(|(_, details)| details.is_leader)
            .map(|(serial, _)| *serial);
        let membership = facts.membership.present();
        let id_of = |serial: Serial| {
            let mut members = membership?.members.iter();
            members
                .find(|member| member.serial == serial)
                .map(|member| member.id)
        };
        let versions = facts
            .details
            .iter()
            .filter_map(|(serial, details)| Some((*serial, details.version.clone()?)));
        Self {
            membership: facts.membership.clone(),
            health: facts.health.clone(),
            versions: versions.collect(),
            leader: leader.and_then(id_of),
            client_read: facts.client_read,
            alarms: facts.alarms.clone(),
            reachable: answering(&facts.health),
            unreachable_since: facts.unreachable_since.clone(),
            stuck: facts.stuck,
        }
    }
}

/// Returns the members that answered.
fn answering(health: &BTreeMap<Serial, Observed<MemberHealth>>) -> BTreeSet<Serial> {
    let answered = health.iter().filter(|(_, health)| health.is_present());
    answered.map(|(serial, _)| *serial).collect()
}

/// A query of all members of a cluster.
pub(crate) struct ClusterQuery<'a> {
    pub(crate) connections: &'a Connections,
    pub(crate) credentials: &'a TlsCredentials,
    /// The members to query.
    pub(crate) members: &'a [MemberTarget],
    /// The client Service. Only a probe of a bootstrapped cluster sets it: a read through a Service whose last connection
    /// died takes seconds, and so does the search for a stuck member.
    pub(crate) service: Option<&'a Endpoint>,
    /// The members that the operator added.
    pub(crate) index: &'a MemberIndex,
    /// The time of the query.
    pub(crate) now: UnixTime,
}

/// A queried member and its answer.
struct MemberAnswer<'a> {
    target: &'a MemberTarget,
    status: Option<RawStatus>,
}

/// Queries all members, and an authoritative one for the member list.
pub(crate) async fn query_cluster(query: &ClusterQuery<'_>) -> EtcdState {
    if query.service.is_some() {
        let endpoints: Vec<_> = query
            .members
            .iter()
            .map(|member| &member.endpoint)
            .collect();
        query.connections.retain(&endpoints);
    }
    let (answers, client_read) = join(query_members(query), read_as_client(query)).await;
    let leader = LeaderInfo::of(answers.iter().filter_map(|answer| answer.status.as_ref()));
    let mut state = evaluate(&answers, leader);
    state.client_read = client_read;
    state.membership = authoritative_membership(query, &answers).await;
    let leader = leader_endpoint(&answers, leader);
    find_unreachable(&mut state, leader, query.now).await;
    if query.service.is_some() && leader.is_some() {
        state.stuck = find_stuck(&state, query).await;
    }
    state
}

/// Queries the status of all members at the same time.
async fn query_members<'q>(query: &ClusterQuery<'q>) -> Vec<MemberAnswer<'q>> {
    let queries = query.members.iter().map(|target| async move {
        let answer =
            client::status_and_read(query.connections, query.credentials, &target.endpoint).await;
        MemberAnswer {
            target,
            status: answer.and_then(|answer| RawStatus::of(&answer.status, answer.has_read)),
        }
    });
    join_all(queries).await
}

async fn read_as_client(query: &ClusterQuery<'_>) -> Observed<()> {
    match query.service {
        Some(service) if client::can_read_as_client(query.credentials, service).await => {
            Observed::Present(())
        }
        Some(_) => Observed::Absent,
        None => Observed::Unknown,
    }
}

/// Returns leader, health and versions according to the answers.
fn evaluate(answers: &[MemberAnswer<'_>], leader: Option<LeaderInfo>) -> EtcdState {
    let mut state = EtcdState {
        leader: leader.map(|leader| MemberId(leader.leader)),
        ..EtcdState::default()
    };
    for MemberAnswer { target, status } in answers {
        let alarms = status.iter().flat_map(|status| &status.alarms);
        state.alarms.extend(alarms);
        let health = status.as_ref().map(|status| status.health(leader));
        let health = health.map_or(Observed::Unknown, Observed::Present);
        state.health.insert(target.serial, health);
        let version = status.as_ref().map(|status| status.version.clone());
        let version = version.map(|version| (target.serial, version));
        state.versions.extend(version);
    }
    state
}

/// Returns the member list of a voter that has just answered a linearizable read. A seed comes last.
async fn authoritative_membership(
    query: &ClusterQuery<'_>,
    answers: &[MemberAnswer<'_>],
) -> Observed<Membership> {
    let mut candidates: Vec<_> = answers
        .iter()
        .filter(|answer| {
            let status = answer.status.as_ref();
            status.is_some_and(RawStatus::is_authoritative)
        })
        .map(|answer| answer.target)
        .collect();
    candidates.sort_by_key(|target| target.is_seed);
    for target in candidates {
        let list =
            client::list_members(query.connections, query.credentials, &target.endpoint).await;
        if let Some(list) = list {
            let list: Vec<_> = list.iter().map(RawMember::of).collect();
            let reported = membership(target.serial, &list, query.index, query.now);
            return Observed::Present(reported);
        }
    }
    Observed::Unknown
}

fn leader_endpoint<'a>(
    answers: &[MemberAnswer<'a>],
    leader: Option<LeaderInfo>,
) -> Option<&'a Endpoint> {
    let leader = leader?.leader;
    let is_leader = |answer: &&MemberAnswer<'_>| {
        let status = answer.status.as_ref();
        status.is_some_and(|status| status.id == leader)
    };
    let answer = answers.iter().find(is_leader)?;
    Some(&answer.target.endpoint)
}

/// Records which members are reachable. The leader's metrics are read only if a listed member did not answer.
async fn find_unreachable(state: &mut EtcdState, leader: Option<&Endpoint>, now: UnixTime) {
    state.reachable = answering(&state.health);
    let (Observed::Present(membership), Some(leader)) = (&state.membership, leader) else {
        return;
    };
    let not_answering: Vec<_> = membership
        .members
        .iter()
        .filter(|member| !state.reachable.contains(&member.serial))
        .collect();
    if not_answering.is_empty() {
        return;
    }
    let Some(connected) = leader_metrics::connected_peers(leader).await else {
        return;
    };
    let (connected, unreachable): (Vec<&ListedMember>, Vec<_>) = not_answering
        .into_iter()
        .partition(|member| connected.contains(&member.id));
    state
        .reachable
        .extend(connected.into_iter().map(|member| member.serial));
    state.unreachable_since = unreachable
        .into_iter()
        .map(|member| (member.serial, now))
        .collect();
}

/// Returns a listed member that does not answer although it runs and has a leader.
async fn find_stuck(state: &EtcdState, query: &ClusterQuery<'_>) -> Option<StuckMember> {
    let queries = stuck::candidates(state, query.members).map(|candidate| async move {
        // A member that has not started waits for something else.
        let has_leader = leader_metrics::has_leader(&candidate.endpoint).await;
        has_leader.then_some(candidate.serial)
    });
    let serial = join_all(queries).await.into_iter().flatten().next()?;
    Some(StuckMember {
        serial,
        since: query.now,
    })
}
