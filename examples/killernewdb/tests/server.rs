//! The real program over TCP and on disk: the same logic as the members in the explorer.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use evenkeel_lab::command::Cmd;
use killernewdb::client::request;
use killernewdb::member::{Reply, Request};
use tempfile::TempDir;

/// A running member. Its name is its port, so that the others can connect.
struct Running {
    name: String,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(name: &str, data: &Path) -> Self {
        let listen = format!("127.0.0.1:{name}");
        let command = Cmd::new(env!("CARGO_BIN_EXE_killernewdb"))
            .args([
                "serve",
                "--name",
                name,
                "--listen",
                &listen,
                "--peers",
                "127.0.0.1:{}",
                "--data",
            ])
            .arg(data);
        let child = command
            .spawn(|command| _ = command.stdin(Stdio::null()))
            .unwrap();
        Self {
            name: name.to_owned(),
            child,
        }
    }

    /// Sends a request, with retries until the member listens.
    async fn ask(&self, message: Request) -> Reply {
        let (began, address) = (Instant::now(), format!("127.0.0.1:{}", self.name));
        loop {
            match request(&address, &message, Duration::from_secs(5), &|| true).await {
                Ok(reply) => return reply,
                Err(error) => {
                    assert!(
                        began.elapsed() < Duration::from_secs(20),
                        "{} says {error}",
                        self.name
                    )
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns a free port.
fn port() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string()
}

fn put(key: &str) -> Request {
    Request::Put(key.to_owned(), "written".to_owned())
}

fn change(version: u64, members: &[&Running], lost: &[&str]) -> Request {
    let members = members.iter().map(|member| member.name.clone()).collect();
    Request::Change {
        version,
        members,
        lost: lost.iter().map(ToString::to_string).collect(),
    }
}

fn value() -> Reply {
    Reply::Value(Some("written".to_owned()))
}

#[tokio::test]
async fn members_over_tcp_and_on_disk_keep_acknowledged_writes() {
    let dirs = [(); 3].map(|()| TempDir::new().unwrap());
    let [a, b, c] = [0, 1, 2].map(|one: usize| Running::start(&port(), dirs[one].path()));
    assert_eq!(a.ask(Request::Status).await, Reply::Empty);
    assert_eq!(a.ask(Request::Bootstrap).await, Reply::Done);
    assert!(
        matches!(a.ask(put("early")).await, Reply::Rejected(_)),
        "the bootstrap list accepts no writes"
    );
    assert_eq!(a.ask(change(1, &[&a], &[])).await, Reply::Done);
    assert_eq!(a.ask(put("one")).await, Reply::Done);
    assert_eq!(a.ask(change(2, &[&a, &b], &[])).await, Reply::Done);
    assert_eq!(a.ask(change(3, &[&a, &b, &c], &[])).await, Reply::Done);
    assert!(
        matches!(a.ask(change(3, &[&a, &b], &[])).await, Reply::Rejected(_)),
        "the list has a later version"
    );
    assert_eq!(b.ask(put("two")).await, Reply::NotPrimary(a.name.clone()));

    // Two of three are a majority, one is not. A restarted member continues from its disk.
    let stopped = c.name.clone();
    drop(c);
    assert_eq!(a.ask(put("two")).await, Reply::Done);
    let other = b.name.clone();
    drop(b);
    assert!(matches!(a.ask(put("three")).await, Reply::Rejected(_)));
    let b = Running::start(&other, dirs[1].path());
    assert_eq!(b.ask(Request::Status).await, a.ask(Request::Status).await);
    assert_eq!(a.ask(Request::Get("two".to_owned())).await, value());

    // The data of the primary is lost. One member alone may miss an acknowledged write, two together do not.
    let lost = a.name.clone();
    drop(a);
    let alone = Request::Change {
        version: 4,
        members: vec![b.name.clone(), stopped.clone()],
        lost: vec![lost.clone()],
    };
    assert!(matches!(b.ask(alone).await, Reply::Rejected(_)));
    let c = Running::start(&stopped, dirs[2].path());
    assert!(matches!(c.ask(Request::Status).await, Reply::Status(_)));
    assert_eq!(b.ask(change(4, &[&b, &c], &[&lost])).await, Reply::Done);
    for key in ["one", "two"] {
        assert_eq!(b.ask(Request::Get(key.to_owned())).await, value());
    }
    assert_eq!(b.ask(put("four")).await, Reply::Done);
}
