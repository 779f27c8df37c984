//! Creation, recovery and deletion of labs with the program `lab`, on labs of the stories' own: they start from any state, harm no
//! other process, and leave nothing.

mod alone {
    mod residue;
}
mod command;
mod full {
    mod recovery;
}

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use evenkeel_e2e::{WAIT_LIMIT, checkout};
use evenkeel_lab::command::Cmd;

/// Returns the path of the program that `make` builds.
fn program() -> PathBuf {
    checkout().join("bin/lab")
}

/// Runs `lab`; returns its exit code and its output. After 300 s it is killed, and its code is 137.
fn lab(args: &[&str]) -> (i32, String) {
    run(Cmd::new("timeout")
        .args(["--foreground", "--signal=KILL", "300"])
        .arg(program())
        .args(args))
}

/// Runs a command; returns its exit code and its output.
fn run(command: Cmd) -> (i32, String) {
    let piped = |command: &mut std::process::Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    };
    let output = command.spawn(piped).unwrap().wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code().unwrap_or(-1), text)
}

/// Waits until a condition holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < WAIT_LIMIT,
            "not within {} s: {what}",
            WAIT_LIMIT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A small lab of a story. Its name is derived from that of the stories' lab, so that the next run cleans up after one that was
/// killed.
struct OwnLab {
    name: String,
}

impl OwnLab {
    fn new(suffix: &str) -> Self {
        let own = Self {
            name: format!("{}-{suffix}", std::env::var("LAB").unwrap()),
        };
        own.lab(&["down"]);
        own
    }

    /// Runs `lab` on it; it must succeed. Returns its output.
    fn lab(&self, args: &[&str]) -> String {
        let (code, output) = self.try_lab(args);
        assert_eq!(code, 0, "lab {args:?} failed:\n{output}");
        output
    }

    /// Runs `lab` on it; returns its exit code and its output.
    fn try_lab(&self, args: &[&str]) -> (i32, String) {
        let mut all = vec!["--name", &self.name];
        all.extend(args);
        lab(&all)
    }

    fn up(&self) -> String {
        self.lab(&["up", "--nodes", "1"])
    }

    fn dir(&self) -> PathBuf {
        PathBuf::from("/var/lib/evenkeel/labs").join(&self.name)
    }

    fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        let kubeconfig = self.dir().join("kubeconfig");
        let command = Cmd::new(self.dir().join("programs/kubectl"))
            .arg("--kubeconfig")
            .arg(kubeconfig);
        let command = command
            .arg("--cache-dir")
            .arg(self.dir().join("kubectl-cache"))
            .args(args);
        command.run().map_err(|error| format!("{error:#}"))
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args)
            .unwrap_or_else(|output| panic!("{output}"))
    }

    /// Returns the first two numbers of all its addresses, such as `10.203`.
    fn range(&self) -> String {
        let server = self.kubectl(&[
            "config",
            "view",
            "-o=jsonpath={.clusters[0].cluster.server}",
        ]);
        let numbers: Vec<&str> = server
            .trim_start_matches("https://")
            .split('.')
            .take(2)
            .collect();
        numbers.join(".")
    }

    /// Returns this machine's interface to the lab, found by its address.
    fn interface(&self) -> String {
        let own = format!(" {}.0.1/24 ", self.range());
        let all = Cmd::new("ip").args(["-4", "-o", "addr"]).run().unwrap();
        let line = all
            .lines()
            .find(|line| line.contains(&own))
            .unwrap_or_else(|| panic!("no interface has {own}"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Kills every process of the lab with SIGKILL.
    fn kill_everything(&self) {
        eventually("every process of the lab is dead", || {
            let left = crate::host::processes_of(&self.name, None);
            // Ignored: a process may have exited meanwhile.
            let _ = Cmd::new("kill")
                .arg("-9")
                .args(left.iter().map(|process| process.pid.to_string()))
                .attempt();
            left.is_empty()
        });
    }
}

impl Drop for OwnLab {
    fn drop(&mut self) {
        if std::env::var_os("KEEP").is_none() {
            let (code, output) = self.try_lab(&["down"]);
            if code != 0 {
                eprintln!("{output}");
            }
        }
    }
}
