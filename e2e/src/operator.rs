//! The operator as a process of a story on this machine: it has the permissions of its manifests, talks to the API server
//! through a [`Proxy`], and can be killed, frozen and restarted.
//!
//! This machine reaches the pods and Services of the lab, so the operator works as it does in a pod.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::images;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::once::once_per_run;
use crate::proxy::Proxy;
use crate::scene::{self, format_log_line, shorten};
use crate::{Story, WAIT_LIMIT, checkout};

/// The service account of the operator's manifests, whose token the operator uses.
pub const ACCOUNT: &str = "evenkeel";

/// The limit for an orderly exit.
const STOP_LIMIT: Duration = WAIT_LIMIT;

/// How long the operator may be frozen and still hold its lease: it relies on the lease for 12 s, and may have renewed it 5 s ago.
const MAX_FREEZE: Duration = Duration::from_secs(5);

/// How many lines of the operator's log a failed story prints; the scene file has all of them.
const LOG_TAIL_LINES: usize = 40;

/// Differences from the default way to run the operator.
#[derive(Default)]
pub struct Options {
    /// The name of the process in outputs, `operator` if empty. Two replicas need two names.
    pub name: String,
    /// The program. `None` means the variable `EVENKEEL_OPERATOR`, or the binary that was built with the stories.
    pub program: Option<PathBuf>,
    /// Arguments after the default ones.
    pub args: Vec<String>,
    /// Variables in addition to the default ones, or to override them.
    pub env: Vec<(String, String)>,
    /// The proxy; `None` starts a new one.
    pub proxy: Option<Arc<Proxy>>,
    /// The manifests; `None` means those of the etcd operator.
    pub manifests: Option<Manifests>,
    /// The image of the agent, as [`crate::s3::agent_image`] returns it; `None` leaves out the flag `--agent-image`.
    pub agent_image: Option<String>,
}

/// The manifests of an operator, relative to the checkout.
#[derive(Clone, Copy, Debug)]
pub struct Manifests {
    /// The directory of its CRDs.
    pub crds: &'static str,
    /// The file of its permissions.
    pub permissions: &'static str,
}

/// The manifests of the etcd operator.
const ETCD: Manifests = Manifests {
    crds: "deploy/crds",
    permissions: "deploy/operator/rbac.yaml",
};

/// A running operator, killed on drop. It is restarted after it loses its lease, as a kubelet would do: on two busy cores a lease
/// can expire, and only the stories that freeze the operator are about that.
pub struct Operator {
    name: String,
    proxy: Arc<Proxy>,
    dir: TempDir,
    process: Arc<Mutex<OperatorProcess>>,
    /// Whether this is the etcd operator, whose permissions are recorded.
    is_etcd_operator: bool,
    /// The scene file, which gets the log if the story fails.
    scene: PathBuf,
}

/// The command line and the running process.
struct OperatorProcess {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
    child: Child,
    /// Whether the process is restarted when it loses its lease.
    restart_on_lease_loss: bool,
}

/// The interval of the check for a lost lease.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The last message of an operator that lost its lease.
const LEASE_LOST: &str = "lost the lease to another replica";

impl OperatorProcess {
    fn start_process(&mut self) {
        self.child = run(&self.program, &self.args, &self.env, &self.log);
        self.restart_on_lease_loss = true;
    }

    fn has_lost_lease(&mut self) -> bool {
        let has_exited = self.restart_on_lease_loss && matches!(self.child.try_wait(), Ok(Some(_)));
        let read_log =
            || std::fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned());
        has_exited
            && read_log().is_ok_and(|log| {
                log.lines()
                    .rev()
                    .take(5)
                    .any(|line| line.contains(LEASE_LOST))
            })
    }
}

/// Restarts the process whenever it has lost its lease, until it is dropped.
fn restart_when_lease_is_lost(name: String, process: Weak<Mutex<OperatorProcess>>) {
    std::thread::spawn(move || {
        while let Some(process) = process.upgrade() {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            if process.has_lost_lease() {
                println!("{name} lost its lease and is restarted");
                process.start_process();
            }
            drop(process);
            std::thread::sleep(LEASE_CHECK_INTERVAL);
        }
    });
}

impl Operator {
    /// Starts the operator for a story's namespace.
    pub fn start(story: &Story) -> Self {
        Self::with(story, Options::default())
    }

    /// Starts the operator for a story's namespace with other options.
    pub fn with(story: &Story, options: Options) -> Self {
        let Options {
            name,
            program,
            args: extra_args,
            env: extra_env,
            proxy,
            manifests,
            agent_image,
        } = options;
        let name = if name.is_empty() {
            "operator".to_owned()
        } else {
            name
        };
        let program = program.unwrap_or_else(operator_binary);
        assert!(
            program.exists(),
            "{} does not exist: build it first, as hack/test does",
            program.display()
        );
        let proxy = proxy.unwrap_or_else(|| Arc::new(Proxy::start(story.lab())));
        let is_etcd_operator = manifests.is_none();
        let manifests = manifests.unwrap_or(ETCD);
        install_crds(story, manifests.crds);
        grant_from(story, &checkout().join(manifests.permissions));
        let token = token(story);
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-")
            .tempdir()
            .expect("a temporary directory");
        let kubeconfig = dir.path().join("kubeconfig");
        let config = kubeconfig_for(&proxy.url(), &token, story.namespace());
        std::fs::write(&kubeconfig, config.to_string()).expect("the kubeconfig is writable");
        let default_args = [
            "--namespaces",
            story.namespace(),
            "--lease-namespace",
            story.namespace(),
        ];
        let mut args: Vec<String> = default_args
            .into_iter()
            .chain(["--listen", "127.0.0.1:0"])
            .map(str::to_owned)
            .collect();
        args.extend(
            agent_image
                .into_iter()
                .flat_map(|image| ["--agent-image".to_owned(), image]),
        );
        args.extend(extra_args);
        let mut env = vec![
            (
                "KUBECONFIG".to_owned(),
                kubeconfig.to_string_lossy().into_owned(),
            ),
            ("EVENKEEL_LOG".to_owned(), "info,evenkeel=debug".to_owned()),
        ];
        env.extend(extra_env);
        let log = log_file(&dir);
        let child = run(&program, &args, &env, &log);
        let process = Arc::new(Mutex::new(OperatorProcess {
            program,
            args,
            env,
            log,
            child,
            restart_on_lease_loss: true,
        }));
        restart_when_lease_is_lost(
            format!("{}/{name}", story.namespace()),
            Arc::downgrade(&process),
        );
        Self {
            name,
            proxy,
            dir,
            process,
            is_etcd_operator,
            scene: scene::file_of(story.namespace()),
        }
    }

    fn process(&self) -> MutexGuard<'_, OperatorProcess> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proxy between the operator and the API server.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The same proxy, for a second operator.
    pub fn shared_proxy(&self) -> Arc<Proxy> {
        Arc::clone(&self.proxy)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    /// Returns the log of all starts so far.
    pub fn log(&self) -> String {
        std::fs::read(log_file(&self.dir)).map_or_else(
            |_| String::new(),
            |log| String::from_utf8_lossy(&log).into(),
        )
    }

    /// Whether the log contains a text.
    pub fn log_has(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    /// Whether the process exists, running or frozen.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process().child.try_wait(), Ok(None))
    }

    /// Kills the process; its connections are closed.
    pub fn kill(&mut self) {
        let mut process = self.process();
        process.restart_on_lease_loss = false;
        // Both fail only if the process has exited before.
        let _ = process.child.kill();
        let _ = process.child.wait();
    }

    /// Sends SIGTERM, as Kubernetes does, and expects exit code 0 within the limit.
    pub fn stop(&mut self) {
        assert!(self.is_running(), "{} exited by itself", self.name);
        self.process().restart_on_lease_loss = false;
        self.signal(Signal::SIGTERM);
        let status = self.wait_exit(STOP_LIMIT);
        let status = status.unwrap_or_else(|| {
            panic!(
                "{} did not exit within {} s",
                self.name,
                STOP_LIMIT.as_secs()
            )
        });
        assert!(status.success(), "{} exited with {status}", self.name);
    }

    /// Waits until the process has exited by itself; `None` on timeout.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            let status = self
                .process()
                .child
                .try_wait()
                .expect("a child process can be waited for");
            match status {
                None if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
                status => return status,
            }
        }
    }

    /// Freezes the process; its connections stay open. Returns when the process has stopped.
    pub fn freeze(&self) {
        self.process().restart_on_lease_loss = false;
        self.signal(Signal::SIGSTOP);
        let began = Instant::now();
        while self
            .proc_status("State")
            .is_none_or(|state| !state.starts_with('T'))
        {
            assert!(began.elapsed() < STOP_LIMIT, "{} did not freeze", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets a frozen process continue.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Runs a function while the process is frozen. If that took so long that the lease may have expired, the process is restarted:
    /// otherwise it would see that it is no longer the leader, and exit.
    pub fn while_frozen<T>(&mut self, action: impl FnOnce() -> T) -> T {
        self.freeze();
        let began = Instant::now();
        let result = action();
        if began.elapsed() < MAX_FREEZE {
            self.thaw();
            self.process().restart_on_lease_loss = true;
        } else {
            self.restart();
        }
        result
    }

    /// Kills the process if it runs, and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        self.process().start_process();
    }

    /// Returns the resident memory in bytes.
    pub fn rss(&self) -> u64 {
        let kib = self
            .proc_status("VmRSS")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a running process has memory") * 1024
    }

    /// Returns the processor time of all threads.
    pub fn cpu(&self) -> Duration {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // After the program name, which may contain anything, the 12th word is the user time and the 13th the system time.
        let words = stat
            .rsplit_once(')')
            .map_or("", |(_, words)| words)
            .split_whitespace();
        let ticks: Vec<u64> = words
            .skip(11)
            .take(2)
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(ticks.len(), 2, "/proc has the processor times: {stat}");
        // The kernel reports them in hundredths of a second, whatever its own tick rate is.
        Duration::from_millis(ticks.iter().sum::<u64>() * 10)
    }

    /// Returns a field of /proc/PID/status.
    fn proc_status(&self, field: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process ID fits into i32");
        signal::kill(Pid::from_raw(pid), signal).expect("a signal can be sent to a child process");
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
        if self.is_etcd_operator {
            crate::permissions::record(
                &self.proxy.requests(),
                &format!("{}-{}", self.name, self.pid()),
            );
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().map(format_log_line).collect();
            scene::append(
                &self.scene,
                &format!("log of {}", self.name),
                &lines.join("\n"),
            );
            scene::append(
                &self.scene,
                &format!("the last writes of {}", self.name),
                &self.proxy.recent_writes(),
            );
            let tail = lines
                .get(lines.len().saturating_sub(LOG_TAIL_LINES)..)
                .unwrap_or_default();
            let tail: Vec<_> = tail.iter().map(|line| shorten(line)).collect();
            eprintln!("--- end of the log of {}\n{}", self.name, tail.join("\n"));
        }
    }
}

fn log_file(dir: &TempDir) -> PathBuf {
    dir.path().join("log")
}

/// Makes an image of a program of this machine and loads it into every node, once per run.
pub fn load_image(story: &Story, name: &str, program: &Path) {
    load_images(story, name, &[program]);
}

/// Makes an image of the operator and the agent, as users install it, and loads it into every node, once per run.
pub fn load_operator_image(story: &Story, name: &str) {
    load_images(
        story,
        name,
        &[&operator_binary(), &binary("evenkeel-agent")],
    );
}

fn load_images(story: &Story, name: &str, programs: &[&Path]) {
    once_per_run(&format!("load {name} into {}", story.lab().name()), || {
        let loaded = images::load_programs(story.lab(), name, programs);
        loaded.unwrap_or_else(|error| panic!("{error:#}"));
    });
}

/// Returns the path of the operator's binary.
pub fn operator_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("EVENKEEL_OPERATOR") {
        return named.into();
    }
    binary("evenkeel-operator")
}

/// Returns the path of a binary that was built with the stories.
pub fn binary(name: &str) -> PathBuf {
    // A test binary is <target>/debug/deps/<name>-<hash>.
    let story = std::env::current_exe().expect("the test binary has a path");
    let operator_binary = story
        .parent()
        .and_then(Path::parent)
        .map(|dir| dir.join(name));
    operator_binary.expect("the test binary is in cargo's target directory")
}

/// Returns a kubeconfig with one user and one server.
pub fn kubeconfig_for(server: &str, token: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "story", "cluster": {"server": server}}],
        "users": [{"name": "story", "user": {"token": token}}],
        "contexts": [{"name": "story", "context": {"cluster": "story", "user": "story", "namespace": namespace}}],
        "current-context": "story",
    })
}

/// Returns a token of the operator's service account, valid for two hours. Needs [`grant`] first.
pub fn token(story: &Story) -> String {
    story
        .kubectl(&["create", "token", ACCOUNT, "--duration=2h"])
        .trim()
        .to_owned()
}

/// Installs the CRDs of the etcd operator on the lab, once per run.
pub fn install(story: &Story) {
    install_crds(story, ETCD.crds);
}

/// Installs the CRDs in a directory on the lab, once per run.
pub fn install_crds(story: &Story, crds: &'static str) {
    once_per_run(&format!("define {crds} in {}", story.lab().name()), || {
        let manifests = checkout().join(crds).to_string_lossy().into_owned();
        let manifests = ["--filename", &manifests];
        let run = |args: &[&str]| {
            story
                .command(args)
                .args(manifests)
                .run()
                .unwrap_or_else(|error| panic!("{error:#}"))
        };
        run(&["apply", "--server-side", "--force-conflicts"]);
        run(&["wait", "--for=condition=Established", "--timeout=90s"]);
    });
}

/// Grants the operator's service account in the story's namespace the permissions of its manifests.
pub fn grant(story: &Story) {
    grant_from(story, &checkout().join(ETCD.permissions));
}

/// Grants the operator's service account in the story's namespace the permissions of these manifests, and no others. Cluster-scoped
/// objects are deleted together with the namespace.
pub fn grant_from(story: &Story, manifests: &Path) {
    story.apply(&account());
    let path = manifests.to_string_lossy().into_owned();
    // Without the story's namespace: `kubectl` rejects manifests that name another one.
    let printing = [
        "create",
        "--dry-run=client",
        "--output=json",
        "--filename",
        &path,
    ];
    let printed = story
        .lab()
        .kubectl()
        .args(printing)
        .run()
        .unwrap_or_else(|error| panic!("{error:#}"));
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let objects: Vec<Value> = objects
        .map(|object| object.expect("kubectl prints JSON"))
        .flat_map(
            |object| match object.get("items").and_then(Value::as_array) {
                Some(items) => items.clone(),
                None => vec![object],
            },
        )
        .filter(|object| {
            !matches!(
                object["kind"].as_str(),
                Some("Namespace" | "ServiceAccount")
            )
        })
        .collect();
    let uid = story.field(&["namespace", story.namespace()], ".metadata.uid");
    let scoped_to: Vec<Value> = objects
        .iter()
        .map(|object| scoped_to(object.clone(), &objects, story.namespace(), &uid))
        .collect();
    story.apply(&json!({"apiVersion": "v1", "kind": "List", "items": scoped_to}).to_string());
}

/// Adapts a manifest of the operator's permissions to a story's namespace: stories run at the same time, so a cluster-scoped object
/// gets a name of its own and the namespace as its owner.
fn scoped_to(mut object: Value, all: &[Value], namespace: &str, uid: &str) -> Value {
    let own =
        |name: &Value| Value::from(format!("{}-{namespace}", name.as_str().unwrap_or_default()));
    if object["kind"]
        .as_str()
        .is_some_and(|kind| kind.starts_with("Cluster"))
    {
        object["metadata"]["name"] = own(&object["metadata"]["name"]);
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid}]);
    } else {
        object["metadata"]["namespace"] = namespace.into();
    }
    let defined = |name: &Value| {
        all.iter()
            .any(|other| other["kind"] == "ClusterRole" && other["metadata"]["name"] == *name)
    };
    if object["roleRef"]["kind"] == "ClusterRole" && defined(&object["roleRef"]["name"]) {
        object["roleRef"]["name"] = own(&object["roleRef"]["name"]);
    }
    for subject in object
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if subject["kind"] == "ServiceAccount" {
            subject["name"] = ACCOUNT.into();
            subject["namespace"] = namespace.into();
        }
    }
    object
}

fn account() -> String {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}).to_string()
}

/// Starts a program that is killed when this process ends.
fn run(program: &Path, args: &[String], env: &[(String, String)], log: &Path) -> Child {
    let mut command = Cmd::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(args);
    for (key, value) in env {
        command = command.env(key, value);
    }
    let out = File::options()
        .create(true)
        .append(true)
        .open(log)
        .expect("the log is writable");
    let err = out.try_clone().expect("the file handle can be cloned");
    spawn_from_permanent_thread(command, out, err)
}

type Start = Box<dyn FnOnce() + Send>;

/// Starts a child from a thread that never ends: the kernel sends the death signal when the parent *thread* ends.
fn spawn_from_permanent_thread(command: Cmd, out: File, err: File) -> Child {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (requests, queue) = mpsc::channel::<Start>();
        std::thread::spawn(move || queue.iter().for_each(|start| start()));
        Mutex::new(requests)
    });
    let (sender, receiver) = mpsc::channel();
    let start = move || {
        let started =
            command.spawn(|command| _ = command.stdin(Stdio::null()).stdout(out).stderr(err));
        // The receiver waits for the result.
        let _ = sender.send(started);
    };
    let queue = starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(Box::new(start));
    queue.expect("the thread runs");
    receiver
        .recv()
        .expect("the thread answers")
        .unwrap_or_else(|error| panic!("{error:#}"))
}
