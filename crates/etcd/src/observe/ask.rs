//! Asking etcd. Every question goes to one named member over a connection of its own, is sent once, and has an end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Certificate, Client, ConnectOptions, Error, Identity as TlsIdentity,
    MemberAddOptions, TlsOptions,
};
use evenkeel::{Seen, Time};
use futures::future::{join, join_all};
use tokio::time::{Instant, timeout_at};

use super::heard::{Heard, Leading, Listed, membership};
use super::{Register, peers, stir};
use crate::certificates::Pair;
use crate::facts::{Facts, Membership, Registered, Voice};
use crate::identity::MemberId;
use crate::names::Serial;

/// How long a question may take. A member that needs longer is not well.
const LIMIT: Duration = Duration::from_secs(2);
/// By how much a read ends before its question does: without a quorum it is never answered, and must not take along what the
/// member has said of itself.
const SOONER: Duration = Duration::from_millis(200);
/// How long a change of the membership may take: below the margin that a lease is given up before it runs out, since a
/// connection that breaks just then is made anew with the call waiting; and well below the time after which an intent is void.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// A key that nobody has: reading it is as good as reading any other.
const NOBODYS_KEY: &str = "evenkeel.dev/health";

/// What it takes to be let in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who signed the servers' certificates, as PEM.
    pub authority: String,
    /// The operator's certificate.
    pub pair: Pair,
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        self.authority == other.authority && self.pair.certificate == other.pair.certificate
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
pub struct Asked {
    /// Who.
    pub serial: Serial,
    /// Where.
    pub endpoint: Endpoint,
    /// Whether it was told to found a cluster: its word on who the members are counts less.
    pub founder: bool,
}

/// What etcd says. Nothing in it changes by itself while all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Who the members are.
    pub membership: Seen<Membership>,
    /// What each says of itself.
    pub voices: BTreeMap<Serial, Seen<Voice>>,
    /// The version each has.
    pub versions: BTreeMap<Serial, String>,
    /// Who leads.
    pub leader: Option<MemberId>,
    /// Whether a read through the client service was answered.
    pub served: Seen<()>,
    /// Members that somebody heard: the operator, or the leader.
    pub heard: BTreeSet<Serial>,
    /// Members that neither of them hears, and since when.
    pub silent: BTreeMap<Serial, Time>,
}

impl Answers {
    /// What was said when facts were gathered, as far as these tell.
    pub fn of(facts: &Facts) -> Self {
        let leader = facts.about.iter().find(|(_, about)| about.leads).map(|(serial, _)| serial);
        let told = facts.membership.present().map(|told| told.members.as_slice()).unwrap_or_default();
        let id = |serial: &Serial| told.iter().find(|one| one.serial == *serial).map(|one| one.id);
        let versions = facts.about.iter().filter_map(|(serial, one)| Some((*serial, one.version.clone()?)));
        let spoke = facts.voices.iter().filter(|(_, voice)| voice.is_present());
        Self {
            membership: facts.membership.clone(),
            voices: facts.voices.clone(),
            versions: versions.collect(),
            leader: leader.and_then(id),
            served: facts.served,
            heard: spoke.map(|(serial, _)| *serial).collect(),
            silent: facts.silent.clone(),
        }
    }
}

impl Endpoint {
    /// The address as a URL has it.
    pub fn host(&self) -> String {
        if self.address.contains(':') { format!("[{}]", self.address) } else { self.address.clone() }
    }
}

/// The connections to one cluster's members, kept open. With another certificate they are made anew.
#[derive(Default)]
pub struct Connections {
    kept: Mutex<(Option<Access>, HashMap<Endpoint, Client>)>,
    stirred: stir::Stirred,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    async fn to(&self, access: &Access, endpoint: &Endpoint) -> Result<Client, Error> {
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
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).1.insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// A connection that failed is not used again: addresses are given to others.
    fn drop(&self, endpoint: &Endpoint) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).1.remove(endpoint);
    }

    /// Connections to those that are no more are closed.
    fn keep_only(&self, endpoints: &[&Endpoint]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.retain(|endpoint, _| endpoints.contains(&endpoint));
    }
}

async fn connect(access: &Access, endpoint: &Endpoint) -> Result<Client, Error> {
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&access.authority))
        .identity(TlsIdentity::from_pem(&access.pair.certificate, &access.pair.key))
        .domain_name(&endpoint.name);
    let options = ConnectOptions::new()
        .with_tls(tls)
        .with_connect_timeout(LIMIT)
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5));
    Client::connect([format!("https://{}:2379", endpoint.host())], Some(options)).await
}

/// Asks all members, and one that serves who the members are. `register` tells who is who. What has no date yet is of `now`.
pub async fn ask(
    connections: &Connections,
    access: &Access,
    (members, service): (&[Asked], Option<&Endpoint>),
    register: &Register,
    now: Time,
) -> Answers {
    let wanted: Vec<_> = members.iter().map(|asked| &asked.endpoint).collect();
    if service.is_some() {
        connections.keep_only(&wanted);
    }
    let heard = join_all(members.iter().map(|asked| hear(connections, access, asked)));
    let served = async {
        match service {
            Some(service) => is_served(access, service).await,
            None => Seen::Unknown,
        }
    };
    let (heard, served) = join(heard, served).await;
    let leading = Leading::of(heard.iter().flatten());
    let leader = leading.map(|leading| MemberId(leading.leader));
    let mut answers = Answers { served, leader, ..Answers::default() };
    for (asked, heard) in members.iter().zip(&heard) {
        let voice = heard.as_ref().map(|heard| heard.voice(leading));
        answers.voices.insert(asked.serial, voice.map_or(Seen::Unknown, Seen::Present));
        if let Some(heard) = heard {
            answers.versions.insert(asked.serial, heard.version.clone());
        }
    }
    let mut tellers: Vec<_> = members
        .iter()
        .zip(&heard)
        .filter(|(_, heard)| heard.as_ref().is_some_and(Heard::is_teller))
        .collect();
    tellers.sort_by_key(|(asked, _)| asked.founder);
    for (asked, _) in tellers {
        if let Some(list) = list(connections, access, asked).await {
            answers.membership = Seen::Present(membership(asked.serial, &list, register, now));
            break;
        }
    }
    let of_leader = |heard: &Option<Heard>| {
        heard.as_ref().is_some_and(|heard| leading.is_some_and(|leading| leading.leader == heard.id))
    };
    let leader = members.iter().zip(&heard).find(|(_, heard)| of_leader(heard)).map(|(asked, _)| asked);
    listen(&mut answers, leader, now).await;
    if let Some(leader) = leader.filter(|_| service.is_some()) {
        stir_up(connections, access, (leader, members), &answers).await;
    }
    answers
}

/// Gives a member that may be waiting for it something new to hear of. Nothing rests on it.
async fn stir_up(
    connections: &Connections,
    access: &Access,
    (leader, members): (&Asked, &[Asked]),
    answers: &Answers,
) {
    let Some(mute) = stir::mute(answers, members) else { return };
    // One that has not even started waits for something else.
    if !peers::has_leader(&mute.endpoint).await || !connections.stirred.is_due(Instant::now().into_std()) {
        return;
    }
    let granted = within(LIMIT, async {
        connections.to(access, &leader.endpoint).await?.lease_grant(stir::LASTS, None).await
    });
    match granted.await {
        Ok(_) => tracing::info!(member = %mute.endpoint.name, "given something new to hear of"),
        Err(why) => tracing::debug!(member = %mute.endpoint.name, %why, "nothing new to hear of"),
    }
}

/// Notes who is heard, and who is not. The leader is asked only about those who did not answer.
async fn listen(answers: &mut Answers, leader: Option<&Asked>, now: Time) {
    let spoke = answers.voices.iter().filter(|(_, voice)| voice.is_present());
    answers.heard = spoke.map(|(serial, _)| *serial).collect();
    let Seen::Present(told) = &answers.membership else { return };
    let unheard: Vec<_> = told.members.iter().filter(|one| !answers.heard.contains(&one.serial)).collect();
    let (false, Some(leader)) = (unheard.is_empty(), leader) else { return };
    let Some(connected) = peers::of(&leader.endpoint).await else { return };
    let (connected, silent): (Vec<&Registered>, Vec<_>) =
        unheard.into_iter().partition(|one| connected.contains(&one.id));
    answers.heard.extend(connected.into_iter().map(|one| one.serial));
    answers.silent = silent.into_iter().map(|one| (one.serial, now)).collect();
}

async fn hear(connections: &Connections, access: &Access, asked: &Asked) -> Option<Heard> {
    let until = Instant::now() + LIMIT - SOONER;
    let heard = within(LIMIT, async {
        let mut client = connections.to(access, &asked.endpoint).await?;
        let mut reader = client.clone();
        let (status, read) = join(client.status(), timeout_at(until, reader.get(NOBODYS_KEY, None))).await;
        Ok(Heard::of(&status?, matches!(read, Ok(Ok(_)))))
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
async fn is_served(access: &Access, service: &Endpoint) -> Seen<()> {
    for _ in 0..2 {
        let read = within(LIMIT, async { connect(access, service).await?.get(NOBODYS_KEY, None).await });
        if read.await.is_ok() {
            return Seen::Present(());
        }
    }
    Seen::Absent
}

/// etcd-client asks for the member's own list. It is as good as a linearizable one, because the same member has answered a
/// linearizable read just before: what it has applied since can only be newer.
async fn list(connections: &Connections, access: &Access, asked: &Asked) -> Option<Vec<Listed>> {
    let list = within(LIMIT, async {
        let mut client = connections.to(access, &asked.endpoint).await?;
        client.get(NOBODYS_KEY, None).await?;
        client.member_list().await
    });
    list.await.ok().map(|list| list.members().iter().map(Listed::of).collect())
}

/// A change of the membership, in etcd's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Add a learner with this peer URL.
    Add(String),
    /// Give it a vote.
    Promote(MemberId),
    /// Remove it.
    Remove(MemberId),
}

/// Asks a member that leads to hand the lead to another. Nothing rests on it: without, whoever is left elects one.
pub async fn hand_over(
    connections: &Connections,
    access: &Access,
    leader: &Endpoint,
    heir: MemberId,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<(), String> {
    let mut client = connections.to(access, leader).await.map_err(|why| why.to_string())?;
    if !holds() {
        return Err("the lease is no longer held".to_owned());
    }
    within(CALL_LIMIT, client.move_leader(heir.0)).await.map(|_| ())
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// How far its log goes.
    pub written: u64,
    /// How much of that it has applied.
    pub applied: u64,
}

/// Asks a member how far it is.
pub async fn position(
    connections: &Connections,
    access: &Access,
    member: &Endpoint,
) -> Result<Position, String> {
    let status = within(LIMIT, async { connections.to(access, member).await?.status().await }).await?;
    Ok(Position { written: status.raft_index(), applied: status.raft_applied_index() })
}

/// Asks for the list of alarms, which goes through the log (`EtcdServer.Alarm` proposes whatever it is asked).
pub async fn alarms(connections: &Connections, access: &Access, member: &Endpoint) -> Result<(), String> {
    let list = async {
        let mut client = connections.to(access, member).await?;
        client.alarm(AlarmAction::Get, AlarmType::None, None).await
    };
    within(LIMIT, list).await.map(|_| ())
}

/// What came of a change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// etcd did it.
    Done,
    /// It was not sent: the lease was no longer held.
    Withheld,
    /// The one who was asked holds members for unreachable. It declined before anything was proposed, so that another may be
    /// asked.
    Doubted(String),
    /// etcd declined, or did not answer; it may have been done all the same.
    Not(String),
}

/// How a member says so.
const DOUBTS: &str = "etcdserver: unhealthy cluster";

/// Asks a member for a change. The call goes out on a connection that has just answered, right after `holds` was asked, with
/// nothing awaited between and no retry: a call that was sent late is accepted by etcd (tried).
pub async fn change(
    connections: &Connections,
    access: &Access,
    member: &Endpoint,
    request: &Request,
    holds: &(dyn Fn() -> bool + Sync),
) -> Reply {
    let mut client = match connections.to(access, member).await {
        Ok(client) => client,
        Err(why) => return Reply::Not(why.to_string()),
    };
    if let Err(why) = within(LIMIT, client.get(NOBODYS_KEY, None)).await {
        connections.drop(member);
        return Reply::Not(why);
    }
    if !holds() {
        return Reply::Withheld;
    }
    let done = match request {
        Request::Add(url) => {
            let learner = Some(MemberAddOptions::new().with_is_learner());
            within(CALL_LIMIT, client.member_add([url.as_str()], learner)).await.map(|_| ())
        }
        Request::Promote(id) => within(CALL_LIMIT, client.member_promote(id.0)).await.map(|_| ()),
        Request::Remove(id) => within(CALL_LIMIT, client.member_remove(id.0)).await.map(|_| ()),
    };
    match done {
        Ok(()) => Reply::Done,
        Err(why) if why == DOUBTS => Reply::Doubted(why),
        Err(why) => Reply::Not(why),
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::GRpcStatus(status))) => Err(status.message().to_owned()),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// One cluster's connections, shared between whoever asks.
pub type SharedConnections = Arc<Connections>;
