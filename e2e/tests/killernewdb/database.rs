//! A database as its users see it: created, asked, and written to by a client that remembers what was acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_e2e::operator::{Manifests, Operator, Options, built_beside, load_image};
use evenkeel_e2e::{PATIENCE, Story};
use evenkeel_lab::Lab;
use serde_json::{Value, json};

/// What the database is called.
pub(crate) const NAME: &str = "shop";
/// The definition of its resource.
pub(crate) const DEFINITION: &str = "examples/killernewdb/deploy/crd.yaml";

/// The example's operator, for a story's namespace.
pub(crate) fn operator(story: &Story) -> Operator {
    images(story);
    let manifests = Some(Manifests {
        definitions: DEFINITION,
        rights: "examples/killernewdb/deploy/rbac.yaml",
    });
    let program = Some(built_beside("killernewdb-operator"));
    Operator::with(
        story,
        Options {
            program,
            manifests,
            ..Options::default()
        },
    )
}

/// Puts the database's image into the nodes, once.
pub(crate) fn images(story: &Story) {
    load_image(story, "killernewdb:0.1.0", &built_beside("killernewdb"));
}

/// A database in a story's namespace.
pub(crate) struct Database<'s> {
    story: &'s Story,
}

impl<'s> Database<'s> {
    /// The one that is there.
    pub(crate) fn named(story: &'s Story) -> Self {
        Self { story }
    }

    /// Creates it, and waits until it is healthy.
    pub(crate) fn create(story: &'s Story, members: u8) -> Self {
        let object = json!({ "apiVersion": "killernewdb.example/v1", "kind": "KillerNewDb",
            "metadata": { "name": NAME }, "spec": { "members": members, "size": "1Gi" } });
        story.apply(&object.to_string());
        let database = Self::named(story);
        database.until_healthy(members);
        database
    }

    /// Waits until it has so many members, all of which answer, and nothing more is to be done.
    pub(crate) fn until_healthy(&self, members: u8) {
        let ready = format!("{members}/{members}");
        self.story.within(
            2 * PATIENCE,
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

    /// The members, as the first that answers tells it; nobody where nobody answers.
    pub(crate) fn members(&self) -> Vec<String> {
        let reach = Reach::of(self.story);
        let told = reach
            .addresses()
            .into_iter()
            .filter_map(|(_, address)| request(&address, &json!("Status")));
        let lists = told.filter_map(|reply| Some(reply.get("Status")?.clone()));
        let latest = lists
            .max_by_key(|list| list["version"].as_u64())
            .unwrap_or_default();
        let names = latest["members"].as_array().into_iter().flatten();
        names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    }

    /// A client that writes all the time.
    pub(crate) fn client(&self) -> Client {
        let (reach, stop, count) = (
            Reach::of(self.story),
            Arc::<AtomicBool>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for key in 1_u32.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                if reach.ask(&json!({ "Put": [key.to_string(), "written"] })) == Some(json!("Done"))
                {
                    acknowledged.push(key);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            acknowledged
        });
        let client = Client {
            reach: Reach::of(self.story),
            stop,
            count,
            thread,
        };
        client.writes_some();
        client
    }
}

/// How a database is reached from this machine.
struct Reach {
    lab: Lab,
    namespace: String,
}

impl Reach {
    fn of(story: &Story) -> Self {
        Self {
            lab: story.lab().clone(),
            namespace: story.namespace().to_owned(),
        }
    }

    /// The members' pods with their addresses.
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

    /// Where the primary is: the member that takes reads.
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

    /// Asks the primary; nothing if it is not to be found, or says nothing.
    fn ask(&self, what: &Value) -> Option<Value> {
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

/// Asks one member.
fn request(address: &str, what: &Value) -> Option<Value> {
    let limit = Duration::from_secs(5);
    let stream = TcpStream::connect_timeout(&address.parse().ok()?, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    (&stream).write_all(format!("{what}\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// A client that writes all the time.
pub(crate) struct Client {
    reach: Reach,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<u32>>,
}

impl Client {
    /// Waits until some more writes were acknowledged.
    pub(crate) fn writes_some(&self) {
        let (before, began) = (
            self.count.load(Ordering::Relaxed),
            std::time::Instant::now(),
        );
        while self.count.load(Ordering::Relaxed) < before + 5 {
            assert!(began.elapsed() < PATIENCE, "nothing can be written");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it. All that was acknowledged must be there.
    pub(crate) fn finish(self) {
        self.writes_some();
        self.stop.store(true, Ordering::Relaxed);
        let acknowledged = self.thread.join().unwrap();
        let primary = self.reach.primary().expect("there is a primary");
        let is_there = |key: &u32| {
            request(&primary, &json!({ "Get": key.to_string() }))
                == Some(json!({ "Value": "written" }))
        };
        let lost: Vec<_> = acknowledged.iter().filter(|key| !is_there(key)).collect();
        println!(
            "{}: {} writes acknowledged",
            self.reach.namespace,
            acknowledged.len()
        );
        assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}");
    }
}
