//! Calls to etcd. Each request is sent once, to one named member over a connection to that member,
//! and has a deadline.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Certificate, Client, ConnectOptions, Error, Identity as TlsIdentity,
    MemberAddOptions, StatusResponse, TlsOptions,
};
use futures::StreamExt;
use futures::future::join;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::build::service::CLIENT_PORT;
use crate::identity::MemberId;

pub use evenkeel_kit::tls_secrets::TlsCredentials;

/// The deadline of a request. A member that needs longer is not healthy.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time by which the deadline of a read precedes that of the status request that it
/// accompanies: without a quorum etcd never answers the read, and the read's timeout must not
/// discard the answered status.
const READ_MARGIN: Duration = Duration::from_millis(200);
/// The deadline of a membership change. It is shorter than the time by which the operator stops
/// writing before its lease expires, because the client reopens a broken connection while the call
/// waits. It is also shorter than the time after which an intent is void.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// A key that does not exist: reading it proves the same as reading an existing key.
const HEALTH_KEY: &str = "evenkeel.dev/health";
/// The error of a member that considers other members unreachable.
const UNHEALTHY_CLUSTER: &str = "etcdserver: unhealthy cluster";

/// The address of a member or of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The IP address, without the port.
    pub address: String,
    /// The name that the server's certificate must have.
    pub name: String,
}

impl Endpoint {
    /// Returns the address as it appears in a URL.
    pub fn host(&self) -> String {
        if self.address.contains(':') {
            format!("[{}]", self.address)
        } else {
            self.address.clone()
        }
    }
}

/// The open connections to one cluster's members.
#[derive(Default)]
pub(crate) struct Connections {
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    /// The credentials of all connections. With other credentials, every connection is opened again.
    credentials: Option<TlsCredentials>,
    clients: HashMap<Endpoint, Client>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    /// Returns the connection to a member; opens one if there is none.
    async fn to(&self, credentials: &TlsCredentials, endpoint: &Endpoint) -> Result<Client, Error> {
        {
            let mut pool = self.pool.lock();
            if pool.credentials.as_ref() != Some(credentials) {
                *pool = Pool {
                    credentials: Some(credentials.clone()),
                    clients: HashMap::new(),
                };
            }
            if let Some(client) = pool.clients.get(endpoint) {
                return Ok(client.clone());
            }
        }
        let client = connect(credentials, endpoint).await?;
        let mut pool = self.pool.lock();
        pool.clients.insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// Closes the connection to a member after a failure, because its address may belong to another pod by now.
    fn close(&self, endpoint: &Endpoint) {
        self.pool.lock().clients.remove(endpoint);
    }

    /// Closes the connections to all other endpoints.
    pub(crate) fn retain(&self, endpoints: &[&Endpoint]) {
        let mut pool = self.pool.lock();
        pool.clients
            .retain(|endpoint, _| endpoints.contains(&endpoint));
    }
}

async fn connect(credentials: &TlsCredentials, endpoint: &Endpoint) -> Result<Client, Error> {
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&credentials.ca))
        .identity(TlsIdentity::from_pem(
            &credentials.key_pair.certificate,
            &credentials.key_pair.key,
        ))
        .domain_name(&endpoint.name);
    let options = ConnectOptions::new()
        .with_tls(tls)
        .with_connect_timeout(REQUEST_TIMEOUT)
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5));
    let url = format!("https://{}:{CLIENT_PORT}", endpoint.host());
    Client::connect([url], Some(options)).await
}

/// The status of a member, and whether it answered a linearizable read at the same time.
pub(crate) struct StatusAndRead {
    pub(crate) status: StatusResponse,
    pub(crate) has_read: bool,
}

/// Requests a member's status and a linearizable read.
pub(crate) async fn status_and_read(
    connections: &Connections,
    credentials: &TlsCredentials,
    endpoint: &Endpoint,
) -> Option<StatusAndRead> {
    let read_deadline = Instant::now() + REQUEST_TIMEOUT - READ_MARGIN;
    let answer = with_timeout(REQUEST_TIMEOUT, async {
        let mut client = connections.to(credentials, endpoint).await?;
        let mut reader = client.clone();
        let read = timeout_at(read_deadline, reader.get(HEALTH_KEY, None));
        let (status, read) = join(client.status(), read).await;
        Ok(StatusAndRead {
            status: status?,
            has_read: matches!(read, Ok(Ok(_))),
        })
    })
    .await;
    if let Err(error) = &answer {
        connections.close(endpoint);
        tracing::trace!(member = %endpoint.name, %error, "member did not answer");
    }
    answer.ok()
}

/// The delays after which a read through a Service is attempted.
const CLIENT_READ_DELAYS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_millis(900),
    Duration::from_millis(1600),
];
/// The deadline of all attempts. It outlasts an election and the time in which a Service still routes to a member that has
/// just stopped: a client that retries is served, and Ready must not change.
const CLIENT_READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns true if a read through a Service is answered. Each attempt opens its own connection, as a new client does: an
/// open one stays with its member when the Service no longer routes there. An attempt that hangs does not delay the next.
pub(crate) async fn can_read_as_client(credentials: &TlsCredentials, service: &Endpoint) -> bool {
    let attempts = CLIENT_READ_DELAYS.map(|delay| async move {
        tokio::time::sleep(delay).await;
        let mut client = connect(credentials, service).await?;
        client.get(HEALTH_KEY, None).await
    });
    let attempts: FuturesUnordered<_> = attempts.into_iter().collect();
    let any = attempts.any(|read| std::future::ready(read.is_ok()));
    let any = tokio::time::timeout(CLIENT_READ_TIMEOUT, any).await;
    any.unwrap_or_default()
}

/// Returns a member's list of members. etcd-client requests the member's own list, not a linearizable one. It is as good,
/// because the same member has just answered a linearizable read: its list is at least as recent.
pub(crate) async fn list_members(
    connections: &Connections,
    credentials: &TlsCredentials,
    endpoint: &Endpoint,
) -> Option<Vec<etcd_client::Member>> {
    let list = with_timeout(REQUEST_TIMEOUT, async {
        let mut client = connections.to(credentials, endpoint).await?;
        client.get(HEALTH_KEY, None).await?;
        client.member_list().await
    });
    list.await.ok().map(|list| list.members().to_vec())
}

/// Makes the leader transfer leadership to another member.
pub(crate) async fn move_leader(
    connections: &Connections,
    credentials: &TlsCredentials,
    leader: &Endpoint,
    transfer_to: MemberId,
    holds_lease: &(dyn Fn() -> bool + Sync),
) -> Result<(), String> {
    let client = connections.to(credentials, leader).await;
    let mut client = client.map_err(|error| error.to_string())?;
    if !holds_lease() {
        return Err("the operator's lease is no longer held".to_owned());
    }
    with_timeout(CHANGE_TIMEOUT, client.move_leader(transfer_to.0))
        .await
        .map(|_| ())
}

/// The position of a member in the raft log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RaftPosition {
    /// The index of the last entry.
    pub(crate) last_index: u64,
    /// The index of the last applied entry.
    pub(crate) applied_index: u64,
}

/// Returns a member's position in the raft log.
pub(crate) async fn raft_position(
    connections: &Connections,
    credentials: &TlsCredentials,
    member: &Endpoint,
) -> Result<RaftPosition, String> {
    let status = with_timeout(REQUEST_TIMEOUT, async {
        connections.to(credentials, member).await?.status().await
    })
    .await?;
    Ok(RaftPosition {
        last_index: status.raft_index(),
        applied_index: status.raft_applied_index(),
    })
}

/// Lists the alarms. The request passes through the raft log and changes no data
/// (`EtcdServer.Alarm` proposes every request).
pub(crate) async fn list_alarms(
    connections: &Connections,
    credentials: &TlsCredentials,
    member: &Endpoint,
) -> Result<(), String> {
    let list = async {
        let mut client = connections.to(credentials, member).await?;
        client.alarm(AlarmAction::Get, AlarmType::None, None).await
    };
    with_timeout(REQUEST_TIMEOUT, list).await.map(|_| ())
}

/// A request to change the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipRequest {
    /// Adds a learner with this peer URL.
    Add(String),
    /// Makes a learner a voter.
    Promote(MemberId),
    /// Removes a member.
    Remove(MemberId),
}

/// The result of a request to change the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipReply {
    /// etcd changed the membership.
    Done,
    /// The request was not sent, because the lease was no longer held.
    NotSent,
    /// The member considers other members unreachable. It rejected the request before it proposed anything, so another
    /// member may be asked.
    UnhealthyCluster(String),
    /// etcd rejected the request or did not answer. The change may have happened nevertheless.
    Failed(String),
}

/// Sends a membership change to a member. The call uses a connection that has just answered,
/// directly after `holds_lease` was checked, without an await in between and without retries: etcd
/// accepts a call that arrives late (tried).
pub(crate) async fn change_membership(
    connections: &Connections,
    credentials: &TlsCredentials,
    member: &Endpoint,
    request: &MembershipRequest,
    holds_lease: &(dyn Fn() -> bool + Sync),
) -> MembershipReply {
    let mut client = match connections.to(credentials, member).await {
        Ok(client) => client,
        Err(error) => return MembershipReply::Failed(error.to_string()),
    };
    if let Err(error) = with_timeout(REQUEST_TIMEOUT, client.get(HEALTH_KEY, None)).await {
        connections.close(member);
        return MembershipReply::Failed(error);
    }
    if !holds_lease() {
        return MembershipReply::NotSent;
    }
    let result = match request {
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
    match result {
        Ok(()) => MembershipReply::Done,
        Err(error) if error == UNHEALTHY_CLUSTER => MembershipReply::UnhealthyCluster(error),
        Err(error) => MembershipReply::Failed(error),
    }
}

async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::GRpcStatus(status))) => Err(status.message().to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", timeout.as_secs())),
    }
}
