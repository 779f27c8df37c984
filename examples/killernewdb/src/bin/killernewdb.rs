//! The made-up database: `killernewdb serve` is a member, `killernewdb ask` a client. A request is a line of JSON over TCP, and
//! so is the reply; what a member does with it is in `member.rs`. All that it has is one file, written anew with each write.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use killernewdb::member::{Around, List, Member, Reply, Request, State};

/// A member that takes longer than this does not answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// How large a request may be.
const MOST: u64 = 64 * 1024 * 1024;

/// A made-up database
#[derive(Debug, Parser)]
enum Command {
    /// Be a member
    Serve {
        /// Its name
        #[arg(long, env = "NAME")]
        name: String,
        /// Where its data is
        #[arg(long, env = "DATA")]
        data: PathBuf,
        /// Where members are found: {} stands for a member's name
        #[arg(long, env = "PEERS", default_value = "{}:7000")]
        peers: String,
        /// Where it listens
        #[arg(long, env = "LISTEN", default_value = "0.0.0.0:7000")]
        listen: String,
    },
    /// Ask for something: status, get KEY, put KEY VALUE
    Ask {
        /// Who is asked first
        #[arg(long, default_value = "127.0.0.1:7000")]
        at: String,
        /// Where members are found: {} stands for a member's name
        #[arg(long, env = "PEERS", default_value = "{}:7000")]
        peers: String,
        /// What is asked for
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let went = match Command::parse() {
        Command::Serve {
            name,
            data,
            peers,
            listen,
        } => serve(name, data, peers, &listen),
        Command::Ask { at, peers, words } => ask_as_client(at, &peers, &words),
    };
    match went {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// A member's disk and network.
struct Real {
    data: PathBuf,
    peers: String,
}

impl Real {
    fn file(&self) -> PathBuf {
        self.data.join("state.json")
    }

    /// What is on disk. Something that cannot be read is no reason to begin anew.
    fn load(&self) -> io::Result<Option<State>> {
        match fs::read(self.file()) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, state: &State) -> io::Result<()> {
        let new = self.data.join("state.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(&new, self.file())?;
        // The name is on disk only when the directory is.
        File::open(&self.data)?.sync_all()
    }
}

impl Around for Real {
    fn store(&mut self, state: &State) -> Result<(), String> {
        self.write(state)
            .map_err(|error| format!("cannot write: {error}"))
    }

    fn ask(&mut self, member: &str, request: &Request) -> Option<Reply> {
        ask(&self.peers.replace("{}", member), request, PATIENCE).ok()
    }
}

fn serve(name: String, data: PathBuf, peers: String, listen: &str) -> io::Result<()> {
    let real = Real { data, peers };
    let member = Member {
        name,
        state: real.load()?,
    };
    let listener = TcpListener::bind(listen)?;
    let member = Arc::new(Mutex::new((member, real)));
    for stream in listener.incoming() {
        let member = member.clone();
        std::thread::spawn(move || stream.and_then(|stream| answer(&stream, &member)));
    }
    Ok(())
}

fn answer(stream: &TcpStream, member: &Mutex<(Member, Real)>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, MOST)).read_line(&mut line)?;
    let request = serde_json::from_str(&line)?;
    let mut held = member.lock().unwrap_or_else(PoisonError::into_inner);
    let (member, real) = &mut *held;
    let reply = member.answer(request, real);
    drop(held);
    say(stream, &serde_json::to_string(&reply)?)
}

fn say(mut stream: &TcpStream, text: &str) -> io::Result<()> {
    stream.write_all(format!("{text}\n").as_bytes())
}

fn ask(address: &str, request: &Request, patience: Duration) -> io::Result<Reply> {
    let address = address
        .to_socket_addrs()?
        .next()
        .ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    say(&stream, &serde_json::to_string(request)?)?;
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
        _ => return Err(io::Error::other("ask for: status, get KEY, put KEY VALUE")),
    };
    loop {
        let said = match ask(&at, &request, 10 * PATIENCE)? {
            Reply::Elsewhere(primary) => {
                at = peers.replace("{}", &primary);
                continue;
            }
            Reply::Refused(why) => return Err(io::Error::other(why)),
            Reply::Empty => return Err(io::Error::other("this member has no data")),
            Reply::Done => "done".to_owned(),
            Reply::Value(None) => return Err(io::Error::other("there is no such key")),
            Reply::Value(Some(value)) => value,
            Reply::Status(List {
                version,
                settled,
                members,
                ..
            }) => {
                format!("list {version} (settled: {settled}): {}", members.join(" "))
            }
            Reply::State(_) => return Err(io::Error::other("not for clients")),
        };
        return writeln!(io::stdout(), "{said}");
    }
}
