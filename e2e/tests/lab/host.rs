//! Observations of a lab from this machine: processes in `/proc`, loop devices in `/sys`, sockets. Stories of faults use them and
//! Kubernetes' own status, never the code that injects the faults.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use evenkeel_lab::command::Cmd;

/// A process of this machine, identified by its PID and its start time, because PIDs are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
    /// The words of the command line.
    pub(crate) words: Vec<String>,
    /// The path of the cgroup in the first hierarchy that has one.
    pub(crate) cgroup: String,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words)
            .split_terminator('\0')
            .map(str::to_owned)
            .collect();
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let cgroup = cgroups
            .lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .find(|path| *path != "/");
        let cgroup = cgroup.unwrap_or("/").to_owned();
        Some(Self {
            pid,
            started: started(pid)?,
            words,
            cgroup,
        })
    }

    /// Whether the process exists and is not a zombie.
    pub(crate) fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// The file name of the program.
    pub(crate) fn program(&self) -> &str {
        self.words
            .first()
            .and_then(|word| word.rsplit('/').next())
            .unwrap_or_default()
    }

    /// Whether the process was forked and has not called exec yet: its command line is that of its parent.
    pub(crate) fn is_a_fork(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent
            .and_then(Self::read)
            .is_some_and(|parent| parent.words == self.words)
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&self) {
        assert!(self.is_alive(), "{self:?} does not exist any more");
        Cmd::new("kill")
            .args(["-9", &self.pid.to_string()])
            .run()
            .unwrap();
    }
}

/// Returns the start time of a process in clock ticks; `None` if it is dead.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything: the fields after the last bracket begin with the state.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        None
    } else {
        fields.get(19)?.parse().ok()
    }
}

/// Returns all processes of this machine.
pub(crate) fn processes() -> Vec<Process> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::read).collect()
}

/// Returns the processes whose command line contains this word.
pub(crate) fn marked(word: &str) -> Vec<Process> {
    processes()
        .into_iter()
        .filter(|process| process.words.iter().any(|one| one.contains(word)))
        .collect()
}

/// Returns the processes of a lab, or of one of its machines, by their cgroup.
pub(crate) fn processes_of(lab: &str, machine: Option<&str>) -> Vec<Process> {
    let below = format!(
        "/evenkeel-lab/{lab}/{}",
        machine.map(|name| format!("{name}/")).unwrap_or_default()
    );
    processes()
        .into_iter()
        .filter(|process| format!("{}/", process.cgroup).contains(&below))
        .collect()
}

/// Returns the process of a machine that runs this program from the lab's directory.
pub(crate) fn service(lab: &str, machine: &str, program: &str) -> Option<Process> {
    let path = format!("/labs/{lab}/programs/{program}");
    let mut all = processes_of(lab, Some(machine)).into_iter();
    all.find(|process| {
        process
            .words
            .first()
            .is_some_and(|word| word.ends_with(&path))
    })
}

/// Returns the files of this machine's loop devices.
pub(crate) fn loop_files() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().filter_map(Result::ok);
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.map(|file| file.trim().to_owned()).collect()
}

/// Whether a connection is refused at once, not lost: the address exists, but the port is closed.
pub(crate) fn refuses_connections(address: &str) -> bool {
    let rejected = TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(2));
    rejected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Runs a function on drop: a fault must not outlive its story.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Returns a word that marks the web servers of this story among all processes of the machine.
pub(crate) fn marker(story: &Story, pod: &str) -> String {
    format!("/tmp/{pod}-of-{}", story.namespace())
}

/// Returns a pod on a certain node that answers over HTTP, and that stays there when the node is lost. Its process has the [`marker`]
/// in its command line.
pub(crate) fn pinned(story: &Story, pod: &str, node: &str) -> String {
    let home = marker(story, pod);
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {pod}, labels: {{app: {pod}}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  tolerations: [{{operator: Exists, effect: NoExecute}}]
  containers:
    - name: web
      image: {BUSYBOX_IMAGE}
      command: [sh, -c, \"mkdir -p {home}; hostname > {home}/index.html; exec httpd -f -p 8080 -h {home}\"]
      readinessProbe: {{httpGet: {{port: 8080, path: /}}, periodSeconds: 1}}
      {RESTRICTED}
"
    )
}

/// A running [`pinned`] pod: its address and its process.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) process: Process,
}

/// Creates a [`pinned`] pod and waits until it answers.
pub(crate) fn serve(story: &Story, pod: &str, node: &str) -> Server {
    story.apply(&pinned(story, pod, node));
    serving(story, pod)
}

/// Waits until a [`pinned`] pod answers.
pub(crate) fn serving(story: &Story, pod: &str) -> Server {
    let mut served = None;
    story.eventually(&format!("{pod} answers and has one process"), || {
        let address = format!("{}:8080", story.field(&["pod", pod], ".status.podIP"));
        let answers = evenkeel_e2e::http_get(&address, "/").as_deref() == Some(pod);
        // The server forks to answer: while it does, there are two processes.
        let found = marked(&marker(story, pod));
        if let ([process], true) = (found.as_slice(), answers) {
            served = Some(Server {
                address,
                process: process.clone(),
            });
        }
        served.is_some()
    });
    served.expect("the wait found the process")
}

/// Returns the names of the nodes in Kubernetes, lowest number first.
pub(crate) fn nodes(story: &Story) -> Vec<String> {
    let names = story.kubectl(&["get", "nodes", "-o", "name"]);
    let mut names: Vec<String> = names
        .lines()
        .map(|line| line.trim_start_matches("node/").to_owned())
        .collect();
    names.sort_by_key(|name| {
        name.rsplit('-')
            .next()
            .and_then(|number| number.parse::<u32>().ok())
    });
    names
}

/// Returns the address of a node's kubelet.
pub(crate) fn kubelet(story: &Story, node: &str) -> String {
    let address = story.field(
        &["node", node],
        ".status.addresses[?(@.type==\"InternalIP\")].address",
    );
    format!("{address}:10250")
}

/// Returns the Ready condition of a node: `True`, `False` or `Unknown`.
pub(crate) fn ready(story: &Story, node: &str) -> String {
    story.field(
        &["node", node],
        ".status.conditions[?(@.type==\"Ready\")].status",
    )
}

/// Waits until Kubernetes reports a node as lost.
pub(crate) fn wait_lost(story: &Story, node: &str) {
    story.eventually(&format!("Kubernetes reports {node} as lost"), || {
        ready(story, node) == "Unknown"
    });
}

/// Waits until Kubernetes reports a node as Ready.
pub(crate) fn wait_ready(story: &Story, node: &str) {
    story.eventually(&format!("Kubernetes reports {node} as Ready"), || {
        ready(story, node) == "True"
    });
}
