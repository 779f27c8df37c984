//! The made-up database: `killernewdb serve` runs a member, `killernewdb ask` is a client. A request and its reply are one
//! line of JSON over TCP each. The state of a member is one file, rewritten at each write.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use killernewdb::member::{DbMember, DbState, Environment, MemberList, Reply, Request};

/// The timeout of a request to another member.
const PEER_TIMEOUT: Duration = Duration::from_millis(800);
/// The maximum size of a request in bytes.
const MAX_REQUEST_BYTES: u64 = 64 * 1024 * 1024;

/// A made-up database
#[derive(Debug, Parser)]
enum Command {
    /// Run a member
    Serve {
        /// The name of the member
        #[arg(long, env = "NAME")]
        name: String,
        /// The directory of the data
        #[arg(long, env = "DATA")]
        data: PathBuf,
        /// The address of members; {} stands for the name of a member
        #[arg(long, env = "PEERS", default_value = "{}:7000")]
        peers: String,
        /// The address to listen on
        #[arg(long, env = "LISTEN", default_value = "0.0.0.0:7000")]
        listen: String,
    },
    /// Send a request: status, get KEY, put KEY VALUE
    Ask {
        /// The address of the first member
        #[arg(long, default_value = "127.0.0.1:7000")]
        at: String,
        /// The address of members; {} stands for the name of a member
        #[arg(long, env = "PEERS", default_value = "{}:7000")]
        peers: String,
        /// The request
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Serve {
            name,
            data,
            peers,
            listen,
        } => serve(name, data, peers, &listen),
        Command::Ask { at, peers, words } => ask_as_client(at, &peers, &words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The disk and the network of a member.
struct DiskAndNetwork {
    data: PathBuf,
    peers: String,
}

impl DiskAndNetwork {
    fn file(&self) -> PathBuf {
        self.data.join("state.json")
    }

    /// Reads the state. An unreadable state is an error, not an empty one.
    fn load(&self) -> io::Result<Option<DbState>> {
        match fs::read(self.file()) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, state: &DbState) -> io::Result<()> {
        let new = self.data.join("state.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(&new, self.file())?;
        // The rename is durable once the directory is synced.
        File::open(&self.data)?.sync_all()
    }
}

impl Environment for DiskAndNetwork {
    fn store(&mut self, state: &DbState) -> Result<(), String> {
        self.write(state)
            .map_err(|error| format!("cannot write: {error}"))
    }

    fn request(&mut self, member: &str, request: &Request) -> Option<Reply> {
        send(&self.peers.replace("{}", member), request, PEER_TIMEOUT).ok()
    }
}

fn serve(name: String, data: PathBuf, peers: String, listen: &str) -> io::Result<()> {
    let environment = DiskAndNetwork { data, peers };
    let member = DbMember {
        name,
        state: environment.load()?,
    };
    let listener = TcpListener::bind(listen)?;
    let member = Arc::new(Mutex::new((member, environment)));
    for stream in listener.incoming() {
        let member = member.clone();
        std::thread::spawn(move || stream.and_then(|stream| answer(&stream, &member)));
    }
    Ok(())
}

fn answer(stream: &TcpStream, member: &Mutex<(DbMember, DiskAndNetwork)>) -> io::Result<()> {
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, MAX_REQUEST_BYTES)).read_line(&mut line)?;
    let request = serde_json::from_str(&line)?;
    let mut held = member.lock().unwrap_or_else(PoisonError::into_inner);
    let (member, environment) = &mut *held;
    let reply = member.answer(request, environment);
    drop(held);
    write_line(stream, &serde_json::to_string(&reply)?)
}

fn write_line(mut stream: &TcpStream, text: &str) -> io::Result<()> {
    stream.write_all(format!("{text}\n").as_bytes())
}

fn send(address: &str, request: &Request, timeout: Duration) -> io::Result<Reply> {
    let address = address
        .to_socket_addrs()?
        .next()
        .ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    write_line(&stream, &serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn ask_as_client(mut at: String, peers: &str, words: &[String]) -> io::Result<()> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let request = match words.as_slice() {
        ["status"] => Request::Status,
        ["get", key] => Request::Get((*key).to_owned()),
        ["put", key, value] => Request::Put((*key).to_owned(), (*value).to_owned()),
        _ => return Err(io::Error::other("usage: status, get KEY, put KEY VALUE")),
    };
    loop {
        let output = match send(&at, &request, 10 * PEER_TIMEOUT)? {
            Reply::NotPrimary(primary) => {
                at = peers.replace("{}", &primary);
                continue;
            }
            Reply::Rejected(why) => return Err(io::Error::other(why)),
            Reply::Empty => return Err(io::Error::other("this member has no data")),
            Reply::Done => "done".to_owned(),
            Reply::Value(None) => return Err(io::Error::other("the key does not exist")),
            Reply::Value(Some(value)) => value,
            Reply::Status(MemberList {
                version,
                settled,
                members,
                ..
            }) => {
                format!("list {version} (settled: {settled}): {}", members.join(" "))
            }
            Reply::State(_) => return Err(io::Error::other("unexpected reply")),
        };
        return writeln!(io::stdout(), "{output}");
    }
}
