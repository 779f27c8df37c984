//! What every story needs: the lab, a namespace of its own, `kubectl`, and patience with an end.
//!
//! Each story is a process, started by `cargo nextest`, and several run side by side, each in its own namespace
//! (`.config/nextest.toml` says how many). A story that hurts nodes or the control plane is in a module `alone` and begins with
//! [`Story::alone`]: nextest then runs no other beside it.
//!
//! A story of the operator runs it as a process of its own ([`operator`]) through a [`proxy`] that stops it at chosen
//! writes, and works on an [`etcd`] cluster the way users do, with [`watched`] clients. What the
//! measurements of `make bench` share beside that is in [`measured`].
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a story that cannot go on has failed, and panics are how tests fail"
)]

mod api;
pub mod etcd;
pub mod measured;
mod once;
pub mod operator;
pub mod proxy;
pub mod report;
pub mod rights;
mod scene;
pub mod watched;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_lab::Lab;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::up::{UpOptions, add_node, delete_node, up};
use serde_json::Value;

pub use evenkeel_lab::parts::images::BUSYBOX_IMAGE;
pub use once::once_per_run;

/// How long a story waits for something that should happen within seconds: generous, because two cores carry all of
/// Kubernetes and every other story, and a wait that succeeds early costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One story on the lab, in its own namespace, which goes with it.
pub struct Story {
    lab: Lab,
    namespace: String,
    /// Whether it hurts the lab, which is then made good when it fails.
    hurts: bool,
    /// Whether the namespace was there before, and stays.
    visits: bool,
}

/// The lab that the stories run on, named by the variable `LAB`.
pub fn lab() -> Lab {
    let name =
        std::env::var("LAB").expect("LAB names no lab: run the stories with `make test-e2e`");
    Lab::open(&name.parse().expect("LAB names a lab")).expect("the lab is up")
}

impl Story {
    /// A story that harms nobody else.
    pub fn begin(name: &str) -> Self {
        Self::new(name, false)
    }

    /// A story that hurts what others stand on, or that others would disturb. It must be in a module `alone`, by which nextest
    /// knows to run no other test beside it.
    pub fn alone(name: &str) -> Self {
        if let Ok(test) = std::env::var("NEXTEST_TEST_NAME") {
            assert!(
                test.split("::").any(|module| module == "alone"),
                "{test} must be in a module `alone`"
            );
        }
        Self::new(name, true)
    }

    /// In a namespace that is there, and stays.
    pub fn visit(namespace: &str) -> Self {
        Self {
            lab: lab(),
            namespace: namespace.to_owned(),
            hurts: false,
            visits: true,
        }
    }

    fn new(name: &str, hurts: bool) -> Self {
        scene::remember();
        let nanos = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |now| now.subsec_nanos());
        let namespace = format!("{name}-{:04x}", nanos % 0x1_0000);
        let story = Self {
            lab: lab(),
            namespace,
            hurts,
            visits: false,
        };
        let labels = json_labels(&["enforce", "warn"]);
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": story.namespace, "labels": labels}});
        story.apply(&object.to_string());
        // Pods are refused until the controllers have given the new namespace its service account.
        story.eventually("the namespace has its service account", || {
            story
                .try_kubectl(&["get", "serviceaccount", "default"])
                .is_ok()
        });
        story
    }

    /// The lab it runs on, with its faults.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The file that it leaves if it fails: objects, decision logs, events, and the logs of its operator and pods.
    pub fn scene_file(&self) -> std::path::PathBuf {
        scene::file_of(&self.namespace)
    }

    /// Runs `kubectl` in the story's namespace, which must succeed. What only reads is tried again while the API server
    /// cannot answer; where that is gone on purpose, use [`Story::try_kubectl`].
    pub fn kubectl(&self, args: &[&str]) -> String {
        let (began, limit) = (Instant::now(), self.lab.patience().times(PATIENCE));
        let reads = matches!(args.first(), Some(&("get" | "logs")));
        loop {
            match self.try_kubectl(args) {
                Ok(said) => return said,
                Err(said) if reads && is_passing(&said) && began.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(said) => panic!("{said}"),
            }
        }
    }

    /// Runs `kubectl` in the story's namespace; says what it printed, or what it complained about.
    pub fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.command(args)
            .run()
            .map_err(|error| format!("{error:#}"))
    }

    /// `kubectl` in the story's namespace, to be run by the caller.
    pub fn command(&self, args: &[&str]) -> Cmd {
        self.lab
            .kubectl()
            .args(["--namespace", &self.namespace])
            .args(args)
    }

    /// Applies objects, which must be accepted.
    pub fn apply(&self, objects: &str) {
        let applied = self.command(&["apply", "-f", "-"]).input(objects).run();
        applied.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Objects as `kubectl get ... -o json` shows them.
    pub fn get(&self, args: &[&str]) -> Value {
        let mut all = vec!["get", "-o", "json"];
        all.extend(args);
        serde_json::from_str(&self.kubectl(&all)).expect("kubectl prints JSON")
    }

    /// What the API server has in the story's namespace: `rest` is a plural and a name, or a plural and a query. Nothing where
    /// it has nothing. For what is looked at again and again.
    pub fn read(&self, group: &str, rest: &str) -> Option<Value> {
        let path = format!("{group}/namespaces/{}/{rest}", self.namespace);
        api::get(&self.lab, &path).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Has the API server do something in the story's namespace, which must succeed: `POST`, `DELETE`, or `PATCH` with a merge
    /// patch. For what is measured: `kubectl` takes a tenth of a second to start.
    pub fn send(&self, verb: &str, group: &str, rest: &str, body: Option<&Value>) -> Value {
        self.try_send(verb, group, rest, body)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same; says what the API server has against it.
    pub fn try_send(
        &self,
        verb: &str,
        group: &str,
        rest: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let path = format!("{group}/namespaces/{}/{rest}", self.namespace);
        let answer =
            api::send(&self.lab, verb, &path, body).map_err(|error| format!("{verb} {error}"))?;
        answer.ok_or_else(|| format!("{verb} {path}: there is no such object"))
    }

    /// One field of an object, by `kubectl`'s jsonpath; empty where there is none.
    pub fn field(&self, object: &[&str], path: &str) -> String {
        let output = format!("-o=jsonpath={{{path}}}");
        let mut all = vec!["get"];
        all.extend(object);
        all.push(&output);
        self.kubectl(&all)
    }

    /// Evicts a pod, as `kubectl drain` does; says what is said, or why it is refused.
    pub fn evict(&self, pod: &str) -> Result<String, String> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.namespace);
        let eviction = serde_json::json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace}});
        let command = self
            .command(&["create", "--raw", &path, "--filename=-"])
            .input(eviction.to_string());
        command.run().map_err(|error| format!("{error:#}"))
    }

    /// Runs a shell command in a pod; says what it printed, or what it complained about.
    pub fn shell(&self, pod: &str, script: &str) -> Result<String, String> {
        self.try_kubectl(&["exec", pod, "--", "sh", "-c", script])
    }

    /// Waits until it is so; fails the story when it does not come to be.
    pub fn eventually(&self, what: &str, so: impl FnMut() -> bool) {
        self.within(PATIENCE, what, so);
    }

    /// Waits until it is so, for as long as stated, times the patience of the lab (`lab up --patience`).
    pub fn within(&self, limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
        let limit = self.lab.patience().times(limit);
        let began = Instant::now();
        while !so() {
            if began.elapsed() > limit {
                panic!("waited {} s in vain until {what}", limit.as_secs());
            }
            // What takes long is looked at more seldom: most looks start a program.
            let pause = (began.elapsed() / 20)
                .clamp(Duration::from_millis(200), Duration::from_millis(500));
            std::thread::sleep(self.lab.patience().times(pause).min(Duration::from_secs(5)));
        }
    }

    /// What a person would look at first, for the output; the file of the scene has the rest.
    fn glance(&self) -> String {
        let look = |args: &[&str]| self.try_kubectl(args).unwrap_or_else(|error| error);
        let events = look(&["get", "events", "--sort-by=.lastTimestamp"]);
        let events: Vec<_> = events.lines().rev().take(15).collect();
        // Nothing, where the resource is not even known.
        let told = r#"-o=jsonpath={range .items[*]}{.metadata.name}{": "}{.status}{"\n"}{end}"#;
        let told = self
            .try_kubectl(&["get", "etcdclusters", told])
            .unwrap_or_default();
        let logs = [
            "logs",
            "--selector=etcd.evenkeel.dev/cluster",
            "--tail=6",
            "--prefix",
            "--max-log-requests=30",
        ];
        let logs = self.try_kubectl(&logs).unwrap_or_default();
        format!(
            "{}\n{}\n{}\n{}\n{}",
            look(&["get", "nodes"]),
            look(&["get", "pods,pvc", "-o", "wide"]),
            events
                .into_iter()
                .rev()
                .map(scene::shortened)
                .collect::<Vec<_>>()
                .join("\n"),
            told.lines()
                .map(scene::shortened)
                .collect::<Vec<_>>()
                .join("\n"),
            logs.lines()
                .map(scene::shortened)
                .collect::<Vec<_>>()
                .join("\n"),
        )
    }

    /// Gives the lab as many nodes as it had, all of them well: one story that fails half-way is not to take the others
    /// along.
    fn make_good(&self) -> Result<(), Box<dyn std::error::Error>> {
        let name = self.lab.name();
        // As it is now: ours is from the beginning, and a node that was deleted since would come to life again.
        let now = Lab::open(name)?;
        up(&UpOptions {
            name,
            nodes: now.last_node(),
            links: None,
            overcommit: None,
            patience: None,
        })?;
        let (had, has) = (self.lab.nodes().len(), now.nodes().len());
        for added in now.nodes().iter().skip(had) {
            delete_node(name, &added.name)?;
        }
        for _ in has..had {
            add_node(name)?;
        }
        Ok(())
    }
}

/// Whether a complaint of `kubectl` is about an API server that could not answer just now.
fn is_passing(said: &str) -> bool {
    let words = [
        "connection refused",
        "connection reset by peer",
        "TLS handshake timeout",
        "etcdserver: request timed out",
        "i/o timeout",
        "EOF",
        "TooManyRequests",
        "too many requests",
    ];
    words.iter().any(|word| said.contains(word))
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let file = self.scene_file();
            scene::write(self, &file);
            eprintln!("--- the scene in {}\n{}", self.namespace, self.glance());
            if self.hurts
                && let Err(error) = self.make_good()
            {
                eprintln!(
                    "--- the lab is not as it was before {}: {error:?}",
                    self.namespace
                );
            }
            // The reason once more, at the end of the output, where it is found.
            eprintln!(
                "--- {} failed; its scene is in {}\n{}",
                self.namespace,
                file.display(),
                scene::reason()
            );
        }
        if std::env::var_os("KEEP").is_none() && !self.visits {
            // Best effort: the lab itself goes after the stories.
            let _ = self.try_kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
        }
    }
}

fn json_labels(modes: &[&str]) -> Value {
    let labels = modes.iter().map(|mode| {
        (
            format!("pod-security.kubernetes.io/{mode}"),
            Value::from("restricted"),
        )
    });
    Value::Object(labels.collect())
}

/// A container's security context that passes the restricted profile.
pub const RESTRICTED: &str = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, \
     runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}";

/// Gets a page over plain HTTP/1.0, straight from this machine; `None` where nobody answers in time.
pub fn http_get(address: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let address = address.parse().ok()?;
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.trim().to_owned())
}

/// Whether somebody accepts connections there.
pub fn accepts(address: &str) -> bool {
    let Ok(address) = address.parse() else {
        return false;
    };
    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// The directory of the checkout.
pub fn checkout() -> &'static std::path::Path {
    static ROOT: OnceLock<std::path::PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}
