//! What this machine itself shows of a lab: processes in `/proc`, loop devices in `/sys`, sockets. The observers of
//! faults look here and at Kubernetes' own word, never through the code that injects.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story};
use evenkeel_lab::command::Cmd;

/// A process of this machine. A number alone may be somebody else's later; with the moment of its start it is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
    /// The words of its command line.
    pub(crate) words: Vec<String>,
    /// The path of its cgroup in the first hierarchy that says anything.
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

    /// Whether it still lives; a corpse that nobody buried yet does not.
    pub(crate) fn lives(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// The file name of its program.
    pub(crate) fn program(&self) -> &str {
        self.words
            .first()
            .and_then(|word| word.rsplit('/').next())
            .unwrap_or_default()
    }

    /// Whether it was forked and has not become a program of its own yet: its parent is the very same program.
    pub(crate) fn is_a_fork(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent
            .and_then(Self::read)
            .is_some_and(|parent| parent.words == self.words)
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&self) {
        assert!(self.lives(), "{self:?} is gone already");
        Cmd::new("kill")
            .args(["-9", &self.pid.to_string()])
            .run()
            .unwrap();
    }
}

/// When a process was started, in the kernel's own count; nothing for one that is dead.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything: what follows the last one is plain words, the first the state.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        None
    } else {
        fields.get(19)?.parse().ok()
    }
}

/// Every process of this machine.
pub(crate) fn processes() -> Vec<Process> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::read).collect()
}

/// The processes whose command line holds this word.
pub(crate) fn marked(word: &str) -> Vec<Process> {
    processes()
        .into_iter()
        .filter(|process| process.words.iter().any(|one| one.contains(word)))
        .collect()
}

/// The processes of a lab, or of one of its machines, by the cgroup that each of them says it is in.
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

/// The one process of a machine that runs this program from the lab's own directory.
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

/// The files behind this machine's loop devices.
pub(crate) fn loop_files() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().filter_map(Result::ok);
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.map(|file| file.trim().to_owned()).collect()
}

/// Whether somebody is there to say no: a connection is refused at once, not lost.
pub(crate) fn refuses(address: &str) -> bool {
    let refused = TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(2));
    refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Does something when the story ends, however it ends: a fault must not outlive the story that made it.
pub(crate) struct Afterwards<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Afterwards<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A word by which the web servers of this story are told from all other processes of the machine.
pub(crate) fn marker(story: &Story, pod: &str) -> String {
    format!("/tmp/{pod}-of-{}", story.namespace())
}

/// A pod on a certain node that answers over HTTP, and that stays whatever becomes of the node. Its one process has
/// the [`marker`] in its command line.
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

/// A [`pinned`] pod that runs: where it answers, and its process.
pub(crate) struct Served {
    pub(crate) address: String,
    pub(crate) process: Process,
}

/// Runs a [`pinned`] pod until it answers.
pub(crate) fn serve(story: &Story, pod: &str, node: &str) -> Served {
    story.apply(&pinned(story, pod, node));
    serving(story, pod)
}

/// Waits until a [`pinned`] pod answers.
pub(crate) fn serving(story: &Story, pod: &str) -> Served {
    let mut served = None;
    story.eventually(&format!("{pod} answers, and is one process"), || {
        let address = format!("{}:8080", story.field(&["pod", pod], ".status.podIP"));
        let answers = evenkeel_e2e::http_get(&address, "/").as_deref() == Some(pod);
        // The server forks to answer: for as long as a probe is answered, there are two.
        let found = marked(&marker(story, pod));
        if let ([process], true) = (found.as_slice(), answers) {
            served = Some(Served {
                address,
                process: process.clone(),
            });
        }
        served.is_some()
    });
    served.expect("else the wait had not ended")
}

/// The names of the nodes that Kubernetes knows, oldest number first.
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

/// Where a node's kubelet listens.
pub(crate) fn kubelet(story: &Story, node: &str) -> String {
    let address = story.field(
        &["node", node],
        ".status.addresses[?(@.type==\"InternalIP\")].address",
    );
    format!("{address}:10250")
}

/// What Kubernetes says of a node: `True` where it is Ready, `False` or `Unknown` where it is not.
pub(crate) fn ready(story: &Story, node: &str) -> String {
    story.field(
        &["node", node],
        ".status.conditions[?(@.type==\"Ready\")].status",
    )
}

/// Waits until Kubernetes takes a node for lost.
pub(crate) fn until_lost(story: &Story, node: &str) {
    story.eventually(&format!("Kubernetes takes {node} for lost"), || {
        ready(story, node) == "Unknown"
    });
}

/// Waits until Kubernetes takes a node for well.
pub(crate) fn until_ready(story: &Story, node: &str) {
    story.eventually(&format!("Kubernetes takes {node} for well"), || {
        ready(story, node) == "True"
    });
}
