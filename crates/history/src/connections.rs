//! The connections of one client. One that knows all members has a connection to each, as etcd's own clients do, takes them
//! in turns, and never waits for a member that is gone while others answer. The others have one, and make it again.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{GetOptions, KvClient};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::history::Kind;
use crate::target::{For, Tls, connect};
use crate::workload::Shared;

/// How long before a member that did not answer is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection, and where to.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) endpoint: String,
    pub(crate) client: KvClient,
}

/// All that one client has.
pub(crate) struct Connections {
    kind: Kind,
    turn: usize,
    open: Vec<Connection>,
    opening: JoinSet<(String, Option<KvClient>)>,
    awaited: BTreeSet<String>,
}

impl Connections {
    /// Of the nth client of its kind.
    pub(crate) fn of(kind: Kind, nth: usize) -> Self {
        Self {
            kind,
            turn: nth,
            open: Vec::new(),
            opening: JoinSet::new(),
            awaited: BTreeSet::new(),
        }
    }

    /// One to work with; nothing while there is none.
    pub(crate) async fn next(&mut self, shared: &Shared) -> Option<Connection> {
        if self.kind == Kind::Everywhere {
            self.any(shared).await
        } else {
            self.only(shared).await
        }
    }

    /// What was asked over it was not answered.
    pub(crate) fn broke(&mut self, endpoint: &str) {
        self.open.retain(|one| one.endpoint != endpoint);
        if self.kind == Kind::Service {
            self.turn += 1;
        }
    }

    /// To the one endpoint that this client keeps to.
    async fn only(&mut self, shared: &Shared) -> Option<Connection> {
        let endpoint = shared.endpoint(self.kind, self.turn)?;
        self.open.retain(|one| one.endpoint == endpoint);
        if self.open.is_empty() {
            let client = connect(&endpoint, shared.tls(), shared.config.timeout, For::Calls)
                .await
                .ok()?;
            self.open.push(Connection {
                endpoint,
                client: client.kv_client(),
            });
        }
        self.open.first().cloned()
    }

    /// To whichever member is next of those that answer.
    async fn any(&mut self, shared: &Shared) -> Option<Connection> {
        let members = shared.members();
        self.open.retain(|one| members.contains(&one.endpoint));
        for member in members {
            if self.open.iter().all(|one| one.endpoint != member)
                && self.awaited.insert(member.clone())
            {
                let (tls, limit) = (shared.tls().cloned(), shared.config.timeout);
                self.opening.spawn(open(member, tls, limit));
            }
        }
        while let Some(opened) = self.opening.try_join_next() {
            self.take(opened.ok());
        }
        if self.open.is_empty() {
            let opened = self.opening.join_next().await;
            self.take(opened.and_then(Result::ok));
        }
        self.turn += 1;
        self.open
            .get(self.turn.checked_rem(self.open.len())?)
            .cloned()
    }

    fn take(&mut self, opened: Option<(String, Option<KvClient>)>) {
        let Some((endpoint, client)) = opened else {
            return;
        };
        self.awaited.remove(&endpoint);
        self.open
            .extend(client.map(|client| Connection { endpoint, client }));
    }
}

/// A connection that stands, to a member that answers; none, after a moment, where there is none to be had.
async fn open(endpoint: String, tls: Option<Tls>, limit: Duration) -> (String, Option<KvClient>) {
    let stands = async {
        let mut client = connect(&endpoint, tls.as_ref(), limit, For::Calls)
            .await?
            .kv_client();
        // Connections are made with the first call. One that may be answered from any state asks nothing of the others.
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
        sleep(AGAIN).await;
    }
    (endpoint, client)
}
