//! A proxy before etcd that limits the rate of answers, so that a test can act in the middle of a snapshot.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// A proxy. Its threads end with the process of the test.
pub(crate) struct Proxy {
    answered: Arc<AtomicU64>,
}

impl Proxy {
    /// Forwards connections. All answers together have this rate, in bytes per second.
    pub(crate) fn start(from: SocketAddr, to: SocketAddr, rate: u64) -> Self {
        let listener = TcpListener::bind(from).unwrap();
        let answered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&answered);
        spawn(move || {
            for client in listener.incoming() {
                let (client, Ok(server)) = (client.unwrap(), TcpStream::connect(to)) else {
                    continue;
                };
                let requests = (client.try_clone().unwrap(), server.try_clone().unwrap());
                spawn(move || forward(requests.0, requests.1, |_| {}));
                let counter = Arc::clone(&counter);
                spawn(move || {
                    forward(server, client, |bytes| {
                        counter.fetch_add(bytes, Ordering::Relaxed);
                        sleep(Duration::from_micros(bytes * 1_000_000 / rate));
                    });
                });
            }
        });
        Self { answered }
    }

    /// Waits until this many bytes were answered.
    pub(crate) fn wait_for(&self, bytes: u64) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.answered.load(Ordering::Relaxed) < bytes {
            assert!(Instant::now() < until, "the snapshot does not begin");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Forwards bytes until one side closes, then closes the other.
fn forward(mut from: TcpStream, mut to: TcpStream, each: impl Fn(u64)) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        each(length as u64);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
