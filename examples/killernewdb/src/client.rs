//! A client of the database: one request per connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::member::{Reply, Request};

/// The port of members.
pub const PORT: u16 = 7000;

/// Sends a request to the member at an address. Checks `may_write` right before, on the open connection.
pub async fn request(
    address: &str,
    request: &Request,
    timeout: Duration,
    may_write: &(dyn Fn() -> bool + Sync),
) -> io::Result<Reply> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let line = format!("{}\n", serde_json::to_string(request)?);
        if !may_write() {
            return Err(io::Error::other("the request is no longer allowed"));
        }
        stream.write_all(line.as_bytes()).await?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).await?;
        Ok(serde_json::from_str(&reply)?)
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
