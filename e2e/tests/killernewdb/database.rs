//! A client of the database: creates it, queries it, and writes while it remembers the acknowledged writes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_e2e::operator::{Manifests, Operator, Options, binary, load_image};
use evenkeel_e2e::{Story, WAIT_LIMIT};
use evenkeel_lab::Lab;
use serde_json::{Value, json};

/// The name of the database.
pub(crate) const NAME: &str = "shop";
/// The CRD.
pub(crate) const CRD: &str = "examples/killernewdb/deploy/crd.yaml";

/// Starts the example's operator for a story's namespace.
pub(crate) fn operator(story: &Story) -> Operator {
    images(story);
    let manifests = Some(Manifests {
        crds: CRD,
        permissions: "examples/killernewdb/deploy/rbac.yaml",
    });
    let program = Some(binary("killernewdb-operator"));
    Operator::with(
        story,
        Options {
            program,
            manifests,
            ..Options::default()
        },
    )
}

/// Loads the database's image into the nodes, once per run.
pub(crate) fn images(story: &Story) {
    load_image(story, "killernewdb:0.1.0", &binary("killernewdb"));
}

/// A database in a story's namespace.
pub(crate) struct Database<'s> {
    story: &'s Story,
}

impl<'s> Database<'s> {
    /// Returns a handle for an existing database.
    pub(crate) fn named(story: &'s Story) -> Self {
        Self { story }
    }

    /// Creates the database, and waits until it is healthy.
    pub(crate) fn create(story: &'s Story, members: u8) -> Self {
        let object = json!({ "apiVersion": "killernewdb.example/v1", "kind": "KillerNewDb",
            "metadata": { "name": NAME }, "spec": { "members": members, "size": "1Gi" } });
        story.apply(&object.to_string());
        let database = Self::named(story);
        database.until_healthy(members);
        database
    }

    /// Waits until the database has this number of members, all of them answer, and nothing is left to do.
    pub(crate) fn until_healthy(&self, members: u8) {
        let ready = format!("{members}/{members}");
        self.story.within(
            2 * WAIT_LIMIT,
            &format!("{ready} members are healthy"),
            || {
                let object = self.story.read(
                    "/apis/killernewdb.example/v1",
                    &format!("killernewdbs/{NAME}"),
                );
                let status = object
                    .map(|object| object["status"].clone())
                    .unwrap_or_default();
                status["summary"] == "Healthy"
                    && status["ready"] == ready.as_str()
                    && status["members"] == members
            },
        );
    }

    /// Returns the members in the newest member list that a member reports; none if no member answers.
    pub(crate) fn members(&self) -> Vec<String> {
        let connection = Connection::of(self.story);
        let replies = connection
            .addresses()
            .into_iter()
            .filter_map(|(_, address)| request(&address, &json!("Status")));
        let lists = replies.filter_map(|reply| Some(reply.get("Status")?.clone()));
        let latest = lists
            .max_by_key(|list| list["version"].as_u64())
            .unwrap_or_default();
        let names = latest["members"].as_array().into_iter().flatten();
        names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    }

    /// Starts a client that writes continuously.
    pub(crate) fn client(&self) -> Client {
        let (connection, stop, count) = (
            Connection::of(self.story),
            Arc::<AtomicBool>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let (held, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for key in 1_u32.. {
                if held.load(Ordering::Relaxed) {
                    break;
                }
                if connection.request_primary(&json!({ "Put": [key.to_string(), "written"] }))
                    == Some(json!("Done"))
                {
                    acknowledged.push(key);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            acknowledged
        });
        let client = Client {
            connection: Connection::of(self.story),
            stop,
            count,
            thread,
        };
        client.wait_for_writes();
        client
    }
}

/// The access to a database from this machine.
struct Connection {
    lab: Lab,
    namespace: String,
}

impl Connection {
    fn of(story: &Story) -> Self {
        Self {
            lab: story.lab().clone(),
            namespace: story.namespace().to_owned(),
        }
    }

    /// Returns the members' pods with their addresses.
    fn addresses(&self) -> Vec<(String, String)> {
        let selector = "--selector=killernewdb.example/database";
        let fields = "-o=jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{\"\\n\"}{end}";
        let listed = self.lab.kubectl().args([
            "--namespace",
            &self.namespace,
            "get",
            "pods",
            selector,
            fields,
        ]);
        let listed = listed.run().unwrap_or_default();
        let pods = listed
            .lines()
            .filter_map(|line| line.trim().split_once(' '));
        pods.map(|(name, address)| (name.to_owned(), format!("{address}:7000")))
            .collect()
    }

    /// Returns the address of the primary: the member that answers reads.
    fn primary(&self) -> Option<String> {
        let reads = |address: &String| {
            request(address, &json!({ "Get": "1" }))
                .is_some_and(|reply| reply.get("Value").is_some())
        };
        self.addresses()
            .into_iter()
            .map(|(_, address)| address)
            .find(reads)
    }

    /// Sends a request to the primary; `None` if it is not found or does not answer.
    fn request_primary(&self, what: &Value) -> Option<Value> {
        let addresses = self.addresses();
        addresses.iter().find_map(|(_, address)| {
            let reply = request(address, what)?;
            let is_no_answer = reply == "Empty"
                || reply.get("Elsewhere").is_some()
                || reply.get("Refused").is_some();
            (!is_no_answer).then_some(reply)
        })
    }
}

/// Sends a request to one member.
fn request(address: &str, what: &Value) -> Option<Value> {
    let limit = Duration::from_secs(5);
    let stream = TcpStream::connect_timeout(&address.parse().ok()?, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    (&stream).write_all(format!("{what}\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// A client that writes continuously.
pub(crate) struct Client {
    connection: Connection,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<u32>>,
}

impl Client {
    /// Waits until more writes have been acknowledged.
    pub(crate) fn wait_for_writes(&self) {
        let (before, began) = (
            self.count.load(Ordering::Relaxed),
            std::time::Instant::now(),
        );
        while self.count.load(Ordering::Relaxed) < before + 5 {
            assert!(began.elapsed() < WAIT_LIMIT, "no write is acknowledged");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops the client and asserts that all acknowledged writes exist.
    pub(crate) fn finish(self) {
        self.wait_for_writes();
        self.stop.store(true, Ordering::Relaxed);
        let acknowledged = self.thread.join().unwrap();
        let primary = self.connection.primary().expect("a member is the primary");
        let is_there = |key: &u32| {
            request(&primary, &json!({ "Get": key.to_string() }))
                == Some(json!({ "Value": "written" }))
        };
        let lost: Vec<_> = acknowledged.iter().filter(|key| !is_there(key)).collect();
        println!(
            "{}: {} writes acknowledged",
            self.connection.namespace,
            acknowledged.len()
        );
        assert!(lost.is_empty(), "acknowledged writes are lost: {lost:?}");
    }
}
