//! The connections of one client. A client of all members connects to each of them, as etcd's own client does, uses
//! them in turn, and does not wait for an unreachable member while others respond. The other clients have one
//! connection and reopen it.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{GetOptions, KvClient};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::history::ClientKind;
use crate::target::{ClientTls, ConnectionPurpose, connect};
use crate::workload::WorkloadState;

/// The delay before a member that did not respond is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A connection and its endpoint.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) endpoint: String,
    pub(crate) client: KvClient,
}

/// The connections of one client.
pub(crate) struct Connections {
    kind: ClientKind,
    turn: usize,
    open: Vec<Connection>,
    connect_tasks: JoinSet<(String, Option<KvClient>)>,
    connecting: BTreeSet<String>,
}

impl Connections {
    /// Creates the connections of the nth client of its kind.
    pub(crate) fn of(kind: ClientKind, nth: usize) -> Self {
        Self {
            kind,
            turn: nth,
            open: Vec::new(),
            connect_tasks: JoinSet::new(),
            connecting: BTreeSet::new(),
        }
    }

    /// Returns a connection; `None` while there is none.
    pub(crate) async fn next(&mut self, shared: &WorkloadState) -> Option<Connection> {
        if self.kind == ClientKind::AllMembers {
            self.next_open(shared).await
        } else {
            self.single(shared).await
        }
    }

    /// Closes the connection to an endpoint that did not respond.
    pub(crate) fn close(&mut self, endpoint: &str) {
        self.open.retain(|one| one.endpoint != endpoint);
        if self.kind == ClientKind::Service {
            self.turn += 1;
        }
    }

    /// Returns the connection to the client's only endpoint.
    async fn single(&mut self, shared: &WorkloadState) -> Option<Connection> {
        let endpoint = shared.endpoint(self.kind, self.turn)?;
        self.open.retain(|one| one.endpoint == endpoint);
        if self.open.is_empty() {
            let client = connect(
                &endpoint,
                shared.tls(),
                shared.config.timeout,
                ConnectionPurpose::Calls,
            )
            .await
            .ok()?;
            self.open.push(Connection {
                endpoint,
                client: client.kv_client(),
            });
        }
        self.open.first().cloned()
    }

    /// Returns the connection to the next member that responds.
    async fn next_open(&mut self, shared: &WorkloadState) -> Option<Connection> {
        let members = shared.members();
        self.open.retain(|one| members.contains(&one.endpoint));
        for member in members {
            if self.open.iter().all(|one| one.endpoint != member)
                && self.connecting.insert(member.clone())
            {
                let (tls, limit) = (shared.tls().cloned(), shared.config.timeout);
                self.connect_tasks
                    .spawn(connect_and_probe(member, tls, limit));
            }
        }
        while let Some(opened) = self.connect_tasks.try_join_next() {
            self.finish_opening(opened.ok());
        }
        if self.open.is_empty() {
            let opened = self.connect_tasks.join_next().await;
            self.finish_opening(opened.and_then(Result::ok));
        }
        self.turn += 1;
        self.open
            .get(self.turn.checked_rem(self.open.len())?)
            .cloned()
    }

    fn finish_opening(&mut self, opened: Option<(String, Option<KvClient>)>) {
        let Some((endpoint, client)) = opened else {
            return;
        };
        self.connecting.remove(&endpoint);
        self.open
            .extend(client.map(|client| Connection { endpoint, client }));
    }
}

/// Connects to a member and checks that it responds; returns `None` after a delay if it does not.
async fn connect_and_probe(
    endpoint: String,
    tls: Option<ClientTls>,
    limit: Duration,
) -> (String, Option<KvClient>) {
    let stands = async {
        let mut client = connect(&endpoint, tls.as_ref(), limit, ConnectionPurpose::Calls)
            .await?
            .kv_client();
        // The first call opens the connection. A serializable read needs no other member.
        client
            .get(
                "\0",
                Some(GetOptions::new().with_serializable().with_limit(1)),
            )
            .await?;
        Ok::<_, etcd_client::Error>(client)
    };
    let client = timeout(limit, stands).await.ok().and_then(Result::ok);
    if client.is_none() {
        sleep(RETRY_DELAY).await;
    }
    (endpoint, client)
}
