//! A dead member's calls, taken by somebody who says nothing: what is sent to it then is neither delivered nor refused, as when
//! a pod's address is gone and packets to it are lost.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// For how long calls are taken: longer than it takes a leader to send messages by other ways than the broken ones.
const LASTS: Duration = Duration::from_secs(4);

/// Takes the calls to an address for a while. Those with which members keep in touch are cut in the end, so that they are made
/// anew; the messages among them are kept.
pub(crate) fn take_calls(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let (until, mut calls) = (Instant::now() + LASTS, Vec::new());
    while Instant::now() < until {
        match listener.accept() {
            Ok((call, _)) => calls.push(call),
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
    let messages: Vec<_> = calls.into_iter().filter_map(message).collect();
    ensure!(!messages.is_empty(), "no message was sent to {address}");
    Ok(messages)
}

fn message(mut call: TcpStream) -> Option<TcpStream> {
    call.set_nonblocking(false).ok()?;
    call.set_read_timeout(Some(Duration::from_millis(100)))
        .ok()?;
    let mut verb = [0; 5];
    call.read_exact(&mut verb).ok()?;
    (&verb == b"POST ").then_some(call)
}

/// Breaks the calls, one by one: what waits behind the first is delivered before the last is broken.
pub(crate) fn give_up(messages: Vec<TcpStream>) {
    for message in messages {
        drop(message);
        sleep(Duration::from_secs(1));
    }
}
