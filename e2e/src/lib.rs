//! The harness of the stories: the lab, a namespace per story, `kubectl`, and waits with a limit.
//!
//! `cargo nextest` runs each story in a process of its own, several at the same time, each in its own namespace
//! (`.config/nextest.toml` sets how many). A story that harms nodes or the control plane is in a module `alone` and begins with
//! [`Story::alone`]: nextest then runs no other test at the same time.
//!
//! A story of the operator runs it as a process ([`operator`]) behind a [`proxy`] that stops it at chosen writes, and uses an
//! [`etcd`] cluster as users do, with a [`workload`] whose history is checked. Backups go to an S3 server ([`s3`]) of the story.
//! The measurements of `make bench` share [`measurement`].
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a story fails by panicking"
)]

mod api;
pub mod etcd;
pub mod measurement;
mod once;
pub mod operator;
pub mod permissions;
pub mod proxy;
pub mod report;
pub mod s3;
mod scene;
pub mod workload;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_lab::Lab;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::up::{UpOptions, add_node, delete_node, up};
use serde_json::Value;

pub use evenkeel_lab::parts::images::BUSYBOX_IMAGE;
pub use once::once_per_run;

/// The default limit for waits on events that normally take seconds. It is long because two cores run all of Kubernetes and
/// every other story; a wait that succeeds early costs nothing.
pub const WAIT_LIMIT: Duration = Duration::from_secs(90);

/// A story on the lab, in its own namespace, which is deleted at the end of the story.
pub struct Story {
    lab: Lab,
    namespace: String,
    /// Whether the story harms nodes. If it fails, they are restored.
    harms_lab: bool,
    /// Whether the namespace existed before and is kept.
    keeps_namespace: bool,
}

/// Opens the lab that the variable `LAB` names.
pub fn lab() -> Lab {
    let name = std::env::var("LAB").expect("LAB is not set: run the stories with `make test-e2e`");
    Lab::open(&name.parse().expect("LAB is the name of a lab")).expect("the lab is up")
}

impl Story {
    /// Begins a story that other stories can run beside.
    pub fn begin(name: &str) -> Self {
        Self::new(name, false)
    }

    /// Begins a story that harms nodes or the control plane, or that other stories would disturb. It must be in a module `alone`:
    /// nextest then runs no other test at the same time.
    pub fn alone(name: &str) -> Self {
        if let Ok(test) = std::env::var("NEXTEST_TEST_NAME") {
            assert!(
                test.split("::").any(|module| module == "alone"),
                "{test} must be in a module `alone`"
            );
        }
        Self::new(name, true)
    }

    /// Uses a namespace that exists, and keeps it.
    pub fn in_existing_namespace(namespace: &str) -> Self {
        Self {
            lab: lab(),
            namespace: namespace.to_owned(),
            harms_lab: false,
            keeps_namespace: true,
        }
    }

    fn new(name: &str, harms_lab: bool) -> Self {
        scene::install_panic_hook();
        let nanos = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |now| now.subsec_nanos());
        let namespace = format!("{name}-{:04x}", nanos % 0x1_0000);
        let story = Self {
            lab: lab(),
            namespace,
            harms_lab,
            keeps_namespace: false,
        };
        let labels = json_labels(&["enforce", "warn"]);
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": story.namespace, "labels": labels}});
        story.apply(&object.to_string());
        // Pods are rejected until the new namespace has its service account.
        story.eventually("the namespace has the service account `default`", || {
            story
                .try_kubectl(&["get", "serviceaccount", "default"])
                .is_ok()
        });
        story
    }

    /// The lab that the story runs on.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The namespace of the story.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The file that a failed story writes: objects, decision logs, events, and the logs of its operator and pods.
    pub fn scene_file(&self) -> std::path::PathBuf {
        scene::file_of(&self.namespace)
    }

    /// Runs `kubectl` in the story's namespace; it must succeed. Repeats reads while the API server cannot answer. If a story stops
    /// the API server, it uses [`Story::try_kubectl`].
    pub fn kubectl(&self, args: &[&str]) -> String {
        let (began, limit) = (Instant::now(), self.lab.patience().times(WAIT_LIMIT));
        let is_read = matches!(args.first(), Some(&("get" | "logs")));
        loop {
            match self.try_kubectl(args) {
                Ok(output) => return output,
                Err(output) if is_read && is_transient(&output) && began.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(output) => panic!("{output}"),
            }
        }
    }

    /// Runs `kubectl` in the story's namespace; returns its output, or its error.
    pub fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.command(args)
            .run()
            .map_err(|error| format!("{error:#}"))
    }

    /// Returns a `kubectl` command for the story's namespace, without running it.
    pub fn command(&self, args: &[&str]) -> Cmd {
        self.lab
            .kubectl()
            .args(["--namespace", &self.namespace])
            .args(args)
    }

    /// Applies objects; the API server must accept them.
    pub fn apply(&self, objects: &str) {
        let applied = self.command(&["apply", "-f", "-"]).input(objects).run();
        applied.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Returns objects as `kubectl get ... -o json` prints them.
    pub fn get(&self, args: &[&str]) -> Value {
        let mut all = vec!["get", "-o", "json"];
        all.extend(args);
        serde_json::from_str(&self.kubectl(&all)).expect("kubectl prints JSON")
    }

    /// Reads from the API server without `kubectl`, for polling: `rest` is a plural with a name or a query in the story's
    /// namespace. `None` if the object does not exist.
    pub fn read(&self, group: &str, rest: &str) -> Option<Value> {
        let path = format!("{group}/namespaces/{}/{rest}", self.namespace);
        api::get(&self.lab, &path).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends a write to the API server without `kubectl`, whose start takes 0.1 s, for measurements: `POST`, `DELETE`, or `PATCH`
    /// with a merge patch. It must succeed.
    pub fn send(&self, verb: &str, group: &str, rest: &str, body: Option<&Value>) -> Value {
        self.try_send(verb, group, rest, body)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Story::send`]; returns the API server's error.
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

    /// Returns one field of an object, by `kubectl`'s jsonpath; empty if it is absent.
    pub fn field(&self, object: &[&str], path: &str) -> String {
        let output = format!("-o=jsonpath={{{path}}}");
        let mut all = vec!["get"];
        all.extend(object);
        all.push(&output);
        self.kubectl(&all)
    }

    /// Evicts a pod, as `kubectl drain` does; returns the API server's answer, or its error.
    pub fn evict(&self, pod: &str) -> Result<String, String> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.namespace);
        let eviction = serde_json::json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace}});
        let command = self
            .command(&["create", "--raw", &path, "--filename=-"])
            .input(eviction.to_string());
        command.run().map_err(|error| format!("{error:#}"))
    }

    /// Runs a shell script in a pod; returns its output, or its error.
    pub fn shell(&self, pod: &str, script: &str) -> Result<String, String> {
        self.try_kubectl(&["exec", pod, "--", "sh", "-c", script])
    }

    /// Waits until a condition holds; panics after the default limit.
    pub fn eventually(&self, what: &str, holds: impl FnMut() -> bool) {
        self.within(WAIT_LIMIT, what, holds);
    }

    /// Waits until a condition holds; panics after `limit` times the patience of the lab (`lab up --patience`).
    pub fn within(&self, limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
        let limit = self.lab.patience().times(limit);
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > limit {
                panic!("not within {} s: {what}", limit.as_secs());
            }
            // Long waits poll at longer intervals: most polls start a process.
            let pause = (began.elapsed() / 20)
                .clamp(Duration::from_millis(200), Duration::from_millis(500));
            std::thread::sleep(self.lab.patience().times(pause).min(Duration::from_secs(5)));
        }
    }

    /// Returns the objects to look at first, for the output of a failed story; the scene file has the rest.
    fn failure_summary(&self) -> String {
        let kubectl_output = |args: &[&str]| self.try_kubectl(args).unwrap_or_else(|error| error);
        let events = kubectl_output(&["get", "events", "--sort-by=.lastTimestamp"]);
        let events: Vec<_> = events.lines().rev().take(15).collect();
        // Empty if the CRD is not installed.
        let statuses = r#"-o=jsonpath={range .items[*]}{.metadata.name}{": "}{.status}{"\n"}{end}"#;
        let statuses = self
            .try_kubectl(&["get", "etcdclusters", statuses])
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
            kubectl_output(&["get", "nodes"]),
            kubectl_output(&["get", "pods,pvc", "-o", "wide"]),
            events
                .into_iter()
                .rev()
                .map(scene::shorten)
                .collect::<Vec<_>>()
                .join("\n"),
            statuses
                .lines()
                .map(scene::shorten)
                .collect::<Vec<_>>()
                .join("\n"),
            logs.lines()
                .map(scene::shorten)
                .collect::<Vec<_>>()
                .join("\n"),
        )
    }

    /// Restores the number of nodes and their health, so that a story that fails half-way does not make others fail.
    fn restore_nodes(&self) -> Result<(), Box<dyn std::error::Error>> {
        let name = self.lab.name();
        // Reopened: the story's own copy is from its begin, and would restore a node that was deleted since.
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

/// Whether an error of `kubectl` means that the API server could not answer temporarily.
fn is_transient(output: &str) -> bool {
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
    words.iter().any(|word| output.contains(word))
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let file = self.scene_file();
            scene::write(self, &file);
            eprintln!(
                "--- state of {}\n{}",
                self.namespace,
                self.failure_summary()
            );
            if self.harms_lab
                && let Err(error) = self.restore_nodes()
            {
                eprintln!(
                    "--- failed to restore the nodes after {}: {error:?}",
                    self.namespace
                );
            }
            // The reason is repeated at the end of the output, where readers look first.
            eprintln!(
                "--- {} failed; its scene is in {}\n{}",
                self.namespace,
                file.display(),
                scene::reason()
            );
        }
        if std::env::var_os("KEEP").is_none() && !self.keeps_namespace {
            // Best effort: the lab is deleted after the stories.
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

/// A container's security context that meets the restricted Pod Security Standard.
pub const RESTRICTED: &str = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, \
     runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}";

/// Fetches a page over HTTP/1.0 from this machine; `None` if there is no answer within two seconds.
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

/// Whether a TCP connection to this address is accepted.
pub fn accepts_connections(address: &str) -> bool {
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
