//! The link between the clients of an S3 server and the server: a TCP proxy on this machine that slows, stalls and cuts
//! connections.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How many bytes are read at once; a slow link delays each such piece.
const PIECE: usize = 8 * 1024;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// All bytes pass.
    Open,
    /// All connections together pass this many bytes per second, counted in both directions.
    Slow(u64),
    /// Connections stay open, and new ones are accepted, but no byte passes.
    Stalled,
    /// All connections are closed, and new ones are closed at once.
    Down,
}

/// The number of bytes that have passed a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Bytes to the server.
    pub sent: u64,
    /// Bytes from the server.
    pub received: u64,
}

/// A link. On drop it closes every connection.
pub struct Link {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Increased when all connections are closed.
    epoch: watch::Sender<u64>,
    /// Increased when the state changes, to wake stalled connections.
    change: watch::Sender<u64>,
}

struct Inner {
    server: Option<SocketAddr>,
    state: LinkState,
    plan: Option<Plan>,
    traffic: LinkTraffic,
    /// When a slow link is free for the next piece.
    free_at: Instant,
}

/// A change that happens after a number of bytes.
#[derive(Clone, Copy)]
struct Plan {
    bytes_left: u64,
    then: PlannedChange,
}

#[derive(Clone, Copy)]
enum PlannedChange {
    /// Closes all connections once; new ones pass.
    Cut,
    Become(LinkState),
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    FromServer,
}

/// What happens to a piece.
enum Decision {
    Pass(Duration),
    Wait,
    Close,
}

impl Link {
    /// Starts a link on an address of this machine. It closes connections until it [has a server](Link::lead_to).
    pub(super) fn start(address: Ipv4Addr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("s3-link")
            .enable_all()
            .build()
            .expect("the runtime starts");
        let listener = runtime
            .block_on(TcpListener::bind((address, 0)))
            .unwrap_or_else(|error| panic!("this machine cannot listen on {address}: {error}"));
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                server: None,
                state: LinkState::Open,
                plan: None,
                traffic: LinkTraffic::default(),
                free_at: Instant::now(),
            }),
            epoch: watch::Sender::new(0),
            change: watch::Sender::new(0),
        });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address: SocketAddrV4::new(address, port),
            shared,
            runtime: Some(runtime),
        }
    }

    /// Sets the address of the server.
    pub(super) fn lead_to(&self, server: SocketAddr) {
        self.shared.lock().server = Some(server);
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Sets the state, and discards a planned change.
    pub fn set(&self, state: LinkState) {
        let mut inner = self.shared.lock();
        inner.plan = None;
        self.shared.become_state(&mut inner, state);
    }

    /// Changes the state after this many more bytes, counted in both directions and over all connections.
    pub fn set_after(&self, bytes: u64, state: LinkState) {
        self.shared.lock().plan = Some(Plan {
            bytes_left: bytes,
            then: PlannedChange::Become(state),
        });
    }

    /// Closes all connections; new ones pass.
    pub fn cut(&self) {
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Closes all connections after this many more bytes, counted in both directions and over all connections; new ones
    /// pass.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.lock().plan = Some(Plan {
            bytes_left: bytes,
            then: PlannedChange::Cut,
        });
    }

    /// Whether a planned change has not happened yet.
    pub fn is_planned(&self) -> bool {
        self.shared.lock().plan.is_some()
    }

    /// The bytes that have passed since the start.
    pub fn traffic(&self) -> LinkTraffic {
        self.shared.lock().traffic
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_state(&self, inner: &mut Inner, state: LinkState) {
        inner.state = state;
        inner.free_at = Instant::now();
        self.change.send_modify(|change| *change += 1);
        if state == LinkState::Down {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Decides about a piece, counts it if it passes, and executes a planned change that is due.
    fn decide(&self, direction: Direction, bytes: u64) -> Decision {
        let mut inner = self.lock();
        match inner.state {
            LinkState::Stalled => return Decision::Wait,
            LinkState::Down => return Decision::Close,
            LinkState::Open | LinkState::Slow(_) => {}
        }
        if let Some(plan) = &mut inner.plan {
            if let Some(left) = plan.bytes_left.checked_sub(bytes) {
                plan.bytes_left = left;
            } else {
                let then = plan.then;
                inner.plan = None;
                match then {
                    PlannedChange::Cut => {
                        self.epoch.send_modify(|epoch| *epoch += 1);
                        return Decision::Close;
                    }
                    PlannedChange::Become(state) => self.become_state(&mut inner, state),
                }
            }
        }
        let delay = match inner.state {
            // The planned change has happened just now.
            LinkState::Stalled => return Decision::Wait,
            LinkState::Down => return Decision::Close,
            LinkState::Open => Duration::ZERO,
            LinkState::Slow(rate) => {
                let now = Instant::now();
                let time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                inner.free_at = inner.free_at.max(now) + time;
                inner.free_at - now
            }
        };
        match direction {
            Direction::ToServer => inner.traffic.sent += bytes,
            Direction::FromServer => inner.traffic.received += bytes,
        }
        Decision::Pass(delay)
    }
}

/// Accepts connections until the link is dropped.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let mut epoch = shared.epoch.subscribe();
        let (state, server) = {
            let inner = shared.lock();
            (inner.state, inner.server)
        };
        let Some(server) = server.filter(|_| state != LinkState::Down) else {
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::select! {
                () = connect(client, server, shared) => {}
                // Fails only if the link is dropped.
                _ = epoch.changed() => {}
            }
        });
    }
}

/// Copies bytes in both directions until one side closes its connection.
async fn connect(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    // Without it small answers wait for acknowledgements. An error is ignored: the connection works without it.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let sent = copy(&shared, Direction::ToServer, from_client, to_server);
    let received = copy(&shared, Direction::FromServer, from_server, to_client);
    // A client that has sent everything still waits for the answer. An error in one direction ends both.
    let _ = tokio::try_join!(sent, received);
}

/// Copies bytes in one direction until its end.
async fn copy(
    shared: &Shared,
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> Result<(), Closed> {
    let mut piece = vec![0; PIECE];
    loop {
        let size = from.read(&mut piece).await?;
        if size == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        let mut change = shared.change.subscribe();
        loop {
            match shared.decide(direction, size as u64) {
                Decision::Close => return Err(Closed),
                Decision::Wait => change.changed().await?,
                Decision::Pass(delay) => {
                    tokio::time::sleep(delay).await;
                    break;
                }
            }
        }
        to.write_all(piece.get(..size).unwrap_or_default()).await?;
    }
}

/// The connection is closed.
struct Closed;

impl From<std::io::Error> for Closed {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl From<watch::error::RecvError> for Closed {
    fn from(_: watch::error::RecvError) -> Self {
        Self
    }
}
