//! A client of the database, as other programs use it: one request over one connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::member::{Reply, Request};

/// Members listen here.
pub const PORT: u16 = 7000;

/// Asks the member at an address, unless it is not to be asked any more once it listens.
pub async fn ask(
    address: &str,
    request: &Request,
    patience: Duration,
    holds: &(dyn Fn() -> bool + Sync),
) -> io::Result<Reply> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let line = format!("{}\n", serde_json::to_string(request)?);
        if !holds() {
            return Err(io::Error::other("it is not to be asked any more"));
        }
        stream.write_all(line.as_bytes()).await?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).await?;
        Ok(serde_json::from_str(&reply)?)
    };
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
