//! Accepts the connections to a dead member and never answers, so that messages to it are neither delivered nor
//! rejected, as when a pod's address is gone and packets to it are lost.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long connections are accepted: longer than a leader needs to switch to other streams than the broken ones.
const HOLD_TIME: Duration = Duration::from_secs(4);

/// Accepts the connections to an address for a while. Streams between members are closed at the end, so that members
/// reconnect; connections with messages are returned open.
pub(crate) fn accept_connections(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let (until, mut connections) = (Instant::now() + HOLD_TIME, Vec::new());
    while Instant::now() < until {
        match listener.accept() {
            Ok((connection, _)) => connections.push(connection),
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
    let messages: Vec<_> = connections.into_iter().filter_map(message).collect();
    ensure!(!messages.is_empty(), "no message was sent to {address}");
    Ok(messages)
}

fn message(mut connection: TcpStream) -> Option<TcpStream> {
    connection.set_nonblocking(false).ok()?;
    connection
        .set_read_timeout(Some(Duration::from_millis(100)))
        .ok()?;
    let mut verb = [0; 5];
    connection.read_exact(&mut verb).ok()?;
    (&verb == b"POST ").then_some(connection)
}

/// Closes the connections one by one, so that messages queued behind the first are delivered before the last is
/// closed.
pub(crate) fn close_connections(messages: Vec<TcpStream>) {
    for message in messages {
        drop(message);
        sleep(Duration::from_secs(1));
    }
}
