//! The operator as a process of a story, on this machine: with the rights it has in a cluster, through a [`Proxy`], and
//! killed, frozen or restarted at will.
//!
//! This machine reaches the pods and services of the lab, so the operator works as it does in a pod.

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
use crate::scene::{self, plain, shortened};
use crate::{PATIENCE, Story, checkout};

/// Whose token the operator has: the service account of its manifests.
pub const ACCOUNT: &str = "evenkeel";

/// How long an orderly end may take.
const END: Duration = PATIENCE;

/// For how long it may stand still and be sure of its lease: it relies on it for 12 s, and may have renewed it 5 s ago.
const STILL: Duration = Duration::from_secs(5);

/// How many lines of its log the output of a failed story shows; the file of the scene has them all.
const TAIL: usize = 40;

/// How an operator runs, where it differs from the usual.
#[derive(Default)]
pub struct Options {
    /// What the story calls it: two replicas want two names. `operator` when empty.
    pub name: String,
    /// The program; the one built with the stories when `None` (or what the variable `EVENKEEL_OPERATOR` names).
    pub program: Option<PathBuf>,
    /// Arguments after the usual ones.
    pub args: Vec<String>,
    /// Variables beside the usual ones, or instead of them.
    pub env: Vec<(String, String)>,
    /// The proxy it goes through; one of its own when `None`.
    pub proxy: Option<Arc<Proxy>>,
    /// What it is installed from; the etcd operator's when `None`.
    pub manifests: Option<Manifests>,
}

/// What an operator is installed from, below the checkout.
#[derive(Clone, Copy, Debug)]
pub struct Manifests {
    /// The definitions of its resources.
    pub definitions: &'static str,
    /// Its rights.
    pub rights: &'static str,
}

/// Those of the etcd operator.
const ETCD: Manifests = Manifests {
    definitions: "deploy/crds",
    rights: "deploy/operator/rbac.yaml",
};

/// A running operator. Dropped, it is killed. One that ends because it lost its lease is started again, as a kubelet does it:
/// on two cores that carry everything else a lease may be lost, and that is no story's business but those that freeze it.
pub struct Operator {
    name: String,
    proxy: Arc<Proxy>,
    dir: TempDir,
    life: Arc<Mutex<Life>>,
    /// Whether it is the etcd operator, whose rights are looked at.
    is_ours: bool,
    /// Where its log goes when the story fails.
    scene: PathBuf,
}

/// How it is started, and its process.
struct Life {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
    child: Child,
    /// Whether it is to be started again when it loses its lease.
    watched: bool,
}

/// How often a kubelet looks, here.
const WATCH: Duration = Duration::from_millis(500);

/// What it says last when it has lost its lease.
const LEASE_LOST: &str = "lost the lease to another replica";

impl Life {
    fn begin(&mut self) {
        self.child = run(&self.program, &self.args, &self.env, &self.log);
        self.watched = true;
    }

    fn has_lost_its_lease(&mut self) -> bool {
        let ended = self.watched && matches!(self.child.try_wait(), Ok(Some(_)));
        let said =
            || std::fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned());
        ended
            && said().is_ok_and(|log| {
                log.lines()
                    .rev()
                    .take(5)
                    .any(|line| line.contains(LEASE_LOST))
            })
    }
}

/// Starts it again whenever it has lost its lease, for as long as there is somebody to start it for.
fn watch(name: String, life: Weak<Mutex<Life>>) {
    std::thread::spawn(move || {
        while let Some(life) = life.upgrade() {
            let mut life = life.lock().unwrap_or_else(PoisonError::into_inner);
            if life.has_lost_its_lease() {
                println!("{name} has lost its lease, and is started again");
                life.begin();
            }
            drop(life);
            std::thread::sleep(WATCH);
        }
    });
}

impl Operator {
    /// The operator for a story's namespace.
    pub fn start(story: &Story) -> Self {
        Self::with(story, Options::default())
    }

    /// The operator for a story's namespace, in another way than usual.
    pub fn with(story: &Story, options: Options) -> Self {
        let Options {
            name,
            program,
            args: more,
            env: variables,
            proxy,
            manifests,
        } = options;
        let name = if name.is_empty() {
            "operator".to_owned()
        } else {
            name
        };
        let program = program.unwrap_or_else(built);
        assert!(
            program.exists(),
            "there is no {}: build it first, as hack/test does",
            program.display()
        );
        let proxy = proxy.unwrap_or_else(|| Arc::new(Proxy::start(story.lab())));
        let is_ours = manifests.is_none();
        let manifests = manifests.unwrap_or(ETCD);
        define(story, manifests.definitions);
        grant_from(story, &checkout().join(manifests.rights));
        let token = token(story);
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-")
            .tempdir()
            .expect("a directory for the operator");
        let kubeconfig = dir.path().join("kubeconfig");
        let config = kubeconfig_of(&proxy.url(), &token, story.namespace());
        std::fs::write(&kubeconfig, config.to_string()).expect("the kubeconfig can be written");
        let usual = [
            "--namespaces",
            story.namespace(),
            "--lease-namespace",
            story.namespace(),
        ];
        let mut args: Vec<String> = usual
            .into_iter()
            .chain(["--listen", "127.0.0.1:0"])
            .map(str::to_owned)
            .collect();
        args.extend(more);
        let mut env = vec![
            (
                "KUBECONFIG".to_owned(),
                kubeconfig.to_string_lossy().into_owned(),
            ),
            ("EVENKEEL_LOG".to_owned(), "info,evenkeel=debug".to_owned()),
        ];
        env.extend(variables);
        let log = log_in(&dir);
        let child = run(&program, &args, &env, &log);
        let life = Arc::new(Mutex::new(Life {
            program,
            args,
            env,
            log,
            child,
            watched: true,
        }));
        watch(
            format!("{}/{name}", story.namespace()),
            Arc::downgrade(&life),
        );
        Self {
            name,
            proxy,
            dir,
            life,
            is_ours,
            scene: scene::file_of(story.namespace()),
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands between it and the API server.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The same proxy, for another operator too.
    pub fn shared_proxy(&self) -> Arc<Proxy> {
        Arc::clone(&self.proxy)
    }

    /// Its process' number.
    pub fn pid(&self) -> u32 {
        self.life().child.id()
    }

    /// Everything it has printed, in all its lives.
    pub fn log(&self) -> String {
        std::fs::read(log_in(&self.dir)).map_or_else(
            |_| String::new(),
            |log| String::from_utf8_lossy(&log).into(),
        )
    }

    /// Whether it has ever printed this.
    pub fn log_has(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    /// Whether it runs, or is frozen.
    pub fn is_running(&mut self) -> bool {
        matches!(self.life().child.try_wait(), Ok(None))
    }

    /// Kills it, wherever it is. Its connections end with it.
    pub fn kill(&mut self) {
        let mut life = self.life();
        life.watched = false;
        // Neither fails but when it has ended before, and then all is well.
        let _ = life.child.kill();
        let _ = life.child.wait();
    }

    /// Ends it as Kubernetes does, and expects it to go in time and in peace.
    pub fn stop(&mut self) {
        assert!(self.is_running(), "{} has ended by itself", self.name);
        self.life().watched = false;
        self.signal(Signal::SIGTERM);
        let ended = self.ends_within(END);
        let ended =
            ended.unwrap_or_else(|| panic!("{} did not end within {} s", self.name, END.as_secs()));
        assert!(ended.success(), "{} ended with {ended}", self.name);
    }

    /// Waits until it has ended by itself; `None` when it has not.
    pub fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            let ended = self
                .life()
                .child
                .try_wait()
                .expect("our own child can be waited for");
            match ended {
                None if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
                ended => return ended,
            }
        }
    }

    /// Stops it in the middle of whatever it does; its connections stay. Returns when it stands still.
    pub fn freeze(&self) {
        self.life().watched = false;
        self.signal(Signal::SIGSTOP);
        let began = Instant::now();
        while self
            .process("State")
            .is_none_or(|state| !state.starts_with('T'))
        {
            assert!(began.elapsed() < END, "{} does not freeze", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets it go on as if nothing had happened.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Has something happen while it stands still. When that took so long that its lease may be gone, it is started again: it
    /// would see that it leads no more, and end.
    pub fn stands_still_while<T>(&mut self, happens: impl FnOnce() -> T) -> T {
        self.freeze();
        let began = Instant::now();
        let happened = happens();
        if began.elapsed() < STILL {
            self.thaw();
            self.life().watched = true;
        } else {
            self.restart();
        }
        happened
    }

    /// Starts it again, from nothing; kills it first if it runs.
    pub fn restart(&mut self) {
        self.kill();
        self.life().begin();
    }

    /// How much memory it occupies, in bytes.
    pub fn rss(&self) -> u64 {
        let kib = self
            .process("VmRSS")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a running process has memory") * 1024
    }

    /// For how long it has had a processor, its threads together.
    pub fn cpu(&self) -> Duration {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // After its name, which may hold anything, its own time is the twelfth word, and the kernel's for it the next.
        let words = stat
            .rsplit_once(')')
            .map_or("", |(_, words)| words)
            .split_whitespace();
        let ticks: Vec<u64> = words
            .skip(11)
            .take(2)
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(
            ticks.len(),
            2,
            "a running process has had a processor: {stat}"
        );
        // The kernel tells everybody a hundred a second, however it counts itself.
        Duration::from_millis(ticks.iter().sum::<u64>() * 10)
    }

    /// A line of what the kernel tells of it.
    fn process(&self, field: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process has a number");
        signal::kill(Pid::from_raw(pid), signal).expect("our own child takes signals");
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
        if self.is_ours {
            crate::rights::note(
                &self.proxy.requests(),
                &format!("{}-{}", self.name, self.pid()),
            );
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().map(plain).collect();
            scene::append(
                &self.scene,
                &format!("log of {}", self.name),
                &lines.join("\n"),
            );
            scene::append(
                &self.scene,
                &format!("the last writes of {}", self.name),
                &self.proxy.told(),
            );
            let tail = lines
                .get(lines.len().saturating_sub(TAIL)..)
                .unwrap_or_default();
            let tail: Vec<_> = tail.iter().map(|line| shortened(line)).collect();
            eprintln!("--- the last of {}'s log\n{}", self.name, tail.join("\n"));
        }
    }
}

fn log_in(dir: &TempDir) -> PathBuf {
    dir.path().join("log")
}

/// Makes an image of a program of this machine, and loads it into every node, once per run.
pub fn load_image(story: &Story, name: &str, program: &Path) {
    once_per_run(&format!("load {name} into {}", story.lab().name()), || {
        let loaded = images::load_program(story.lab(), name, program);
        loaded.unwrap_or_else(|error| panic!("{error:#}"));
    });
}

/// The operator that was built beside the stories.
pub fn built() -> PathBuf {
    if let Some(named) = std::env::var_os("EVENKEEL_OPERATOR") {
        return named.into();
    }
    built_beside("evenkeel-operator")
}

/// A program that was built beside the stories.
pub fn built_beside(name: &str) -> PathBuf {
    // A story is <target>/debug/deps/<name>-<hash>.
    let story = std::env::current_exe().expect("a running program has a path");
    let built = story
        .parent()
        .and_then(Path::parent)
        .map(|dir| dir.join(name));
    built.expect("stories are built by cargo")
}

/// A kubeconfig of one user at one address.
pub fn kubeconfig_of(server: &str, token: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "story", "cluster": {"server": server}}],
        "users": [{"name": "story", "user": {"token": token}}],
        "contexts": [{"name": "story", "context": {"cluster": "story", "user": "story", "namespace": namespace}}],
        "current-context": "story",
    })
}

/// A token of the operator's account, good for two hours. Wants [`grant`] first.
pub fn token(story: &Story) -> String {
    story
        .kubectl(&["create", "token", ACCOUNT, "--duration=2h"])
        .trim()
        .to_owned()
}

/// Makes the resources known to the lab, once per run.
pub fn install(story: &Story) {
    define(story, ETCD.definitions);
}

/// Makes these definitions known to the lab, once per run.
pub fn define(story: &Story, definitions: &'static str) {
    once_per_run(
        &format!("define {definitions} in {}", story.lab().name()),
        || {
            let manifests = checkout().join(definitions).to_string_lossy().into_owned();
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
        },
    );
}

/// Gives the operator's account in the story's namespace the rights that its manifests give it.
pub fn grant(story: &Story) {
    grant_from(story, &checkout().join(ETCD.rights));
}

/// Gives the operator's account in the story's namespace the rights of these manifests, and no other. What of them is
/// outside the namespace goes with it too.
pub fn grant_from(story: &Story, manifests: &Path) {
    story.apply(&account());
    let path = manifests.to_string_lossy().into_owned();
    // Not in the story's namespace: `kubectl` would refuse manifests that name another.
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
    let fitted: Vec<Value> = objects
        .iter()
        .map(|object| fitted(object.clone(), &objects, story.namespace(), &uid))
        .collect();
    story.apply(&json!({"apiVersion": "v1", "kind": "List", "items": fitted}).to_string());
}

/// A manifest of the operator's rights, made to fit into a namespace: stories run side by side, so what belongs to no
/// namespace gets a name of its own, and the namespace as its owner.
fn fitted(mut object: Value, all: &[Value], namespace: &str, uid: &str) -> Value {
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

/// Starts the program so that it dies with this process, however that ends.
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
        .expect("the log can be written");
    let err = out.try_clone().expect("the log can be written by both");
    from_a_lasting_thread(command, out, err)
}

type Start = Box<dyn FnOnce() + Send>;

/// The kernel's notion of a parent is the *thread* that started the child; one that never ends, then.
fn from_a_lasting_thread(command: Cmd, out: File, err: File) -> Child {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (ask, asked) = mpsc::channel::<Start>();
        std::thread::spawn(move || asked.iter().for_each(|start| start()));
        Mutex::new(ask)
    });
    let (tell, told) = mpsc::channel();
    let start = move || {
        let started =
            command.spawn(|command| _ = command.stdin(Stdio::null()).stdout(out).stderr(err));
        // Whoever asked waits for it.
        let _ = tell.send(started);
    };
    let asked = starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(Box::new(start));
    asked.expect("the thread lasts");
    told.recv()
        .expect("the thread answers")
        .unwrap_or_else(|error| panic!("{error:#}"))
}
