//! Asking etcd. Every question goes to one named member over a connection of its own, is sent once, and has an end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Certificate, Client, ConnectOptions, Error, Identity as TlsIdentity,
    MemberAddOptions, TlsOptions,
};
use evenkeel_runtime::{Observed, UnixTime};
use futures::future::{join, join_all};
use tokio::time::{Instant, timeout_at};

use super::member_status::{LeaderInfo, RawMember, RawStatus, membership};
use super::{MemberIndex, leader_metrics, nudge};
use crate::certificates::KeyPair;
use crate::facts::{EtcdFacts, ListedMember, MemberHealth, Membership};
use crate::identity::MemberId;
use crate::names::Serial;

/// How long a question may take. A member that needs longer is not well.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// By how much a read ends before its question does: without a quorum it is never answered, and must not take along what the
/// member has said of itself.
const READ_MARGIN: Duration = Duration::from_millis(200);
/// How long a change of the membership may take: below the margin that a lease is given up before it runs out, since a
/// connection that breaks just then is made anew with the call waiting; and well below the time after which an intent is void.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// A key that nobody has: reading it is as good as reading any other.
const HEALTH_KEY: &str = "evenkeel.dev/health";

/// What it takes to be let in.
#[derive(Clone, Debug)]
pub struct TlsCredentials {
    /// Who signed the servers' certificates, as PEM.
    pub ca: String,
    /// The operator's certificate.
    pub key_pair: KeyPair,
}

impl PartialEq for TlsCredentials {
    fn eq(&self, other: &Self) -> bool {
        self.ca == other.ca && self.key_pair.certificate == other.key_pair.certificate
    }
}

/// Where somebody answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address, without the port.
    pub address: String,
    /// The name that its certificate must have.
    pub name: String,
}

/// A member that can be asked.
#[derive(Clone, Debug)]
pub struct MemberTarget {
    /// Who.
    pub serial: Serial,
    /// Where.
    pub endpoint: Endpoint,
    /// Whether it was told to found a cluster: its word on who the members are counts less.
    pub is_seed: bool,
}

/// What etcd says. Nothing in it changes by itself while all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdState {
    /// Who the members are.
    pub membership: Observed<Membership>,
    /// What each says of itself.
    pub health: BTreeMap<Serial, Observed<MemberHealth>>,
    /// The version each has.
    pub versions: BTreeMap<Serial, String>,
    /// Who leads.
    pub leader: Option<MemberId>,
    /// Whether a read through the client service was answered.
    pub client_read: Observed<()>,
    /// Members that somebody heard: the operator, or the leader.
    pub reachable: BTreeSet<Serial>,
    /// Members that neither of them hears, and since when.
    pub unreachable_since: BTreeMap<Serial, UnixTime>,
}

impl EtcdState {
    /// What was said when facts were gathered, as far as these tell.
    pub fn from_facts(facts: &EtcdFacts) -> Self {
        let leader = facts
            .details
            .iter()
            .find(|(_, about)| about.is_leader)
            .map(|(serial, _)| serial);
        let told = facts
            .membership
            .present()
            .map(|told| told.members.as_slice())
            .unwrap_or_default();
        let id = |serial: &Serial| {
            told.iter()
                .find(|one| one.serial == *serial)
                .map(|one| one.id)
        };
        let versions = facts
            .details
            .iter()
            .filter_map(|(serial, one)| Some((*serial, one.version.clone()?)));
        let spoke = facts
            .health
            .iter()
            .filter(|(_, health)| health.is_present());
        Self {
            membership: facts.membership.clone(),
            health: facts.health.clone(),
            versions: versions.collect(),
            leader: leader.and_then(id),
            client_read: facts.client_read,
            reachable: spoke.map(|(serial, _)| *serial).collect(),
            unreachable_since: facts.unreachable_since.clone(),
        }
    }
}

impl Endpoint {
    /// The address as a URL has it.
    pub fn host(&self) -> String {
        if self.address.contains(':') {
            format!("[{}]", self.address)
        } else {
            self.address.clone()
        }
    }
}

/// The connections to one cluster's members, kept open. With another certificate they are made anew.
#[derive(Default)]
pub struct Connections {
    kept: Mutex<(Option<TlsCredentials>, HashMap<Endpoint, Client>)>,
    nudge_timer: nudge::NudgeTimer,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    async fn to(&self, access: &TlsCredentials, endpoint: &Endpoint) -> Result<Client, Error> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.0.as_ref() != Some(access) {
                *kept = (Some(access.clone()), HashMap::new());
            }
            if let Some(client) = kept.1.get(endpoint) {
                return Ok(client.clone());
            }
        }
        let client = connect(access, endpoint).await?;
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// A connection that failed is not used again: addresses are given to others.
    fn drop(&self, endpoint: &Endpoint) {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .remove(endpoint);
    }

    /// Connections to those that are no more are closed.
    fn keep_only(&self, endpoints: &[&Endpoint]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.retain(|endpoint, _| endpoints.contains(&endpoint));
    }
}

async fn connect(access: &TlsCredentials, endpoint: &Endpoint) -> Result<Client, Error> {
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&access.ca))
        .identity(TlsIdentity::from_pem(
            &access.key_pair.certificate,
            &access.key_pair.key,
        ))
        .domain_name(&endpoint.name);
    let options = ConnectOptions::new()
        .with_tls(tls)
        .with_connect_timeout(REQUEST_TIMEOUT)
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5));
    Client::connect([format!("https://{}:2379", endpoint.host())], Some(options)).await
}

/// Asks all members, and one that serves who the members are. `register` tells who is who. What has no date yet is of `now`.
pub async fn query_cluster(
    connections: &Connections,
    access: &TlsCredentials,
    (members, service): (&[MemberTarget], Option<&Endpoint>),
    register: &MemberIndex,
    now: UnixTime,
) -> EtcdState {
    let desired: Vec<_> = members.iter().map(|asked| &asked.endpoint).collect();
    if service.is_some() {
        connections.keep_only(&desired);
    }
    let heard = join_all(
        members
            .iter()
            .map(|asked| query_member(connections, access, asked)),
    );
    let served = async {
        match service {
            Some(service) => read_as_client(access, service).await,
            None => Observed::Unknown,
        }
    };
    let (heard, served) = join(heard, served).await;
    let leading = LeaderInfo::of(heard.iter().flatten());
    let leader = leading.map(|leading| MemberId(leading.leader));
    let mut state = EtcdState {
        client_read: served,
        leader,
        ..EtcdState::default()
    };
    for (asked, heard) in members.iter().zip(&heard) {
        let health = heard.as_ref().map(|heard| heard.health(leading));
        state.health.insert(
            asked.serial,
            health.map_or(Observed::Unknown, Observed::Present),
        );
        if let Some(heard) = heard {
            state.versions.insert(asked.serial, heard.version.clone());
        }
    }
    let mut tellers: Vec<_> = members
        .iter()
        .zip(&heard)
        .filter(|(_, heard)| heard.as_ref().is_some_and(RawStatus::is_authoritative))
        .collect();
    tellers.sort_by_key(|(asked, _)| asked.is_seed);
    for (asked, _) in tellers {
        if let Some(list) = list_members(connections, access, asked).await {
            state.membership = Observed::Present(membership(asked.serial, &list, register, now));
            break;
        }
    }
    let of_leader = |heard: &Option<RawStatus>| {
        heard
            .as_ref()
            .is_some_and(|heard| leading.is_some_and(|leading| leading.leader == heard.id))
    };
    let leader = members
        .iter()
        .zip(&heard)
        .find(|(_, heard)| of_leader(heard))
        .map(|(asked, _)| asked);
    find_unreachable(&mut state, leader, now).await;
    if let Some(leader) = leader.filter(|_| service.is_some()) {
        nudge_stuck_member(connections, access, (leader, members), &state).await;
    }
    state
}

/// Gives a member that may be waiting for it something new to hear of. Nothing rests on it.
async fn nudge_stuck_member(
    connections: &Connections,
    access: &TlsCredentials,
    (leader, members): (&MemberTarget, &[MemberTarget]),
    state: &EtcdState,
) {
    let Some(mute) = nudge::unresponsive(state, members) else {
        return;
    };
    // One that has not even started waits for something else.
    if !leader_metrics::has_leader(&mute.endpoint).await
        || !connections.nudge_timer.is_due(Instant::now().into_std())
    {
        return;
    }
    let granted = with_timeout(REQUEST_TIMEOUT, async {
        connections
            .to(access, &leader.endpoint)
            .await?
            .lease_grant(nudge::LEASE_TTL_SECONDS, None)
            .await
    });
    match granted.await {
        Ok(_) => tracing::info!(member = %mute.endpoint.name, "given something new to hear of"),
        Err(why) => tracing::debug!(member = %mute.endpoint.name, %why, "nothing new to hear of"),
    }
}

/// Notes who is heard, and who is not. The leader is asked only about those who did not answer.
async fn find_unreachable(state: &mut EtcdState, leader: Option<&MemberTarget>, now: UnixTime) {
    let spoke = state
        .health
        .iter()
        .filter(|(_, health)| health.is_present());
    state.reachable = spoke.map(|(serial, _)| *serial).collect();
    let Observed::Present(told) = &state.membership else {
        return;
    };
    let unheard: Vec<_> = told
        .members
        .iter()
        .filter(|one| !state.reachable.contains(&one.serial))
        .collect();
    let (false, Some(leader)) = (unheard.is_empty(), leader) else {
        return;
    };
    let Some(connected) = leader_metrics::connected_peers(&leader.endpoint).await else {
        return;
    };
    let (connected, silent): (Vec<&ListedMember>, Vec<_>) = unheard
        .into_iter()
        .partition(|one| connected.contains(&one.id));
    state
        .reachable
        .extend(connected.into_iter().map(|one| one.serial));
    state.unreachable_since = silent.into_iter().map(|one| (one.serial, now)).collect();
}

async fn query_member(
    connections: &Connections,
    access: &TlsCredentials,
    asked: &MemberTarget,
) -> Option<RawStatus> {
    let until = Instant::now() + REQUEST_TIMEOUT - READ_MARGIN;
    let heard = with_timeout(REQUEST_TIMEOUT, async {
        let mut client = connections.to(access, &asked.endpoint).await?;
        let mut reader = client.clone();
        let (status, read) = join(
            client.status(),
            timeout_at(until, reader.get(HEALTH_KEY, None)),
        )
        .await;
        Ok(RawStatus::of(&status?, matches!(read, Ok(Ok(_)))))
    })
    .await;
    if let Err(why) = &heard {
        connections.drop(&asked.endpoint);
        tracing::trace!(member = %asked.endpoint.name, %why, "no answer");
    }
    heard.ok().flatten()
}

/// A read as clients make it who come now: over a connection of its own each time. One that was kept stays with its member
/// when the Service leads there no more, or nowhere. Tried twice, as clients do.
async fn read_as_client(access: &TlsCredentials, service: &Endpoint) -> Observed<()> {
    for _ in 0..2 {
        let read = with_timeout(REQUEST_TIMEOUT, async {
            connect(access, service).await?.get(HEALTH_KEY, None).await
        });
        if read.await.is_ok() {
            return Observed::Present(());
        }
    }
    Observed::Absent
}

/// etcd-client asks for the member's own list. It is as good as a linearizable one, because the same member has answered a
/// linearizable read just before: what it has applied since can only be newer.
async fn list_members(
    connections: &Connections,
    access: &TlsCredentials,
    asked: &MemberTarget,
) -> Option<Vec<RawMember>> {
    let list = with_timeout(REQUEST_TIMEOUT, async {
        let mut client = connections.to(access, &asked.endpoint).await?;
        client.get(HEALTH_KEY, None).await?;
        client.member_list().await
    });
    list.await
        .ok()
        .map(|list| list.members().iter().map(RawMember::of).collect())
}

/// A change of the membership, in etcd's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipRequest {
    /// Add a learner with this peer URL.
    Add(String),
    /// Give it a vote.
    Promote(MemberId),
    /// Remove it.
    Remove(MemberId),
}

/// Asks a member that leads to hand the lead to another. Nothing rests on it: without, whoever is left elects one.
pub async fn move_leader(
    connections: &Connections,
    access: &TlsCredentials,
    leader: &Endpoint,
    transfer_to: MemberId,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<(), String> {
    let mut client = connections
        .to(access, leader)
        .await
        .map_err(|why| why.to_string())?;
    if !holds() {
        return Err("the lease is no longer held".to_owned());
    }
    with_timeout(CHANGE_TIMEOUT, client.move_leader(transfer_to.0))
        .await
        .map(|_| ())
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftPosition {
    /// How far its log goes.
    pub last_index: u64,
    /// How much of that it has applied.
    pub applied_index: u64,
}

/// Asks a member how far it is.
pub async fn raft_position(
    connections: &Connections,
    access: &TlsCredentials,
    member: &Endpoint,
) -> Result<RaftPosition, String> {
    let status = with_timeout(REQUEST_TIMEOUT, async {
        connections.to(access, member).await?.status().await
    })
    .await?;
    Ok(RaftPosition {
        last_index: status.raft_index(),
        applied_index: status.raft_applied_index(),
    })
}

/// Asks for the list of alarms, which goes through the log (`EtcdServer.Alarm` proposes whatever it is asked).
pub async fn list_alarms(
    connections: &Connections,
    access: &TlsCredentials,
    member: &Endpoint,
) -> Result<(), String> {
    let list = async {
        let mut client = connections.to(access, member).await?;
        client.alarm(AlarmAction::Get, AlarmType::None, None).await
    };
    with_timeout(REQUEST_TIMEOUT, list).await.map(|_| ())
}

/// What came of a change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipReply {
    /// etcd did it.
    Done,
    /// It was not sent: the lease was no longer held.
    NotSent,
    /// The one who was asked holds members for unreachable. It declined before anything was proposed, so that another may be
    /// asked.
    UnhealthyCluster(String),
    /// etcd declined, or did not answer; it may have been done all the same.
    Failed(String),
}

/// How a member says so.
const UNHEALTHY_CLUSTER: &str = "etcdserver: unhealthy cluster";

/// Asks a member for a change. The call goes out on a connection that has just answered, right after `holds` was asked, with
/// nothing awaited between and no retry: a call that was sent late is accepted by etcd (tried).
pub async fn change_membership(
    connections: &Connections,
    access: &TlsCredentials,
    member: &Endpoint,
    request: &MembershipRequest,
    holds: &(dyn Fn() -> bool + Sync),
) -> MembershipReply {
    let mut client = match connections.to(access, member).await {
        Ok(client) => client,
        Err(why) => return MembershipReply::Failed(why.to_string()),
    };
    if let Err(why) = with_timeout(REQUEST_TIMEOUT, client.get(HEALTH_KEY, None)).await {
        connections.drop(member);
        return MembershipReply::Failed(why);
    }
    if !holds() {
        return MembershipReply::NotSent;
    }
    let done = match request {
        MembershipRequest::Add(url) => {
            let learner = Some(MemberAddOptions::new().with_is_learner());
            with_timeout(CHANGE_TIMEOUT, client.member_add([url.as_str()], learner))
                .await
                .map(|_| ())
        }
        MembershipRequest::Promote(id) => with_timeout(CHANGE_TIMEOUT, client.member_promote(id.0))
            .await
            .map(|_| ()),
        MembershipRequest::Remove(id) => with_timeout(CHANGE_TIMEOUT, client.member_remove(id.0))
            .await
            .map(|_| ()),
    };
    match done {
        Ok(()) => MembershipReply::Done,
        Err(why) if why == UNHEALTHY_CLUSTER => MembershipReply::UnhealthyCluster(why),
        Err(why) => MembershipReply::Failed(why),
    }
}

async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::GRpcStatus(status))) => Err(status.message().to_owned()),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// One cluster's connections, shared between whoever asks.
pub type SharedConnections = Arc<Connections>;
