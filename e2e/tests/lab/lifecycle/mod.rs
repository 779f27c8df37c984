//! The life of a lab, told by labs of the stories' own through the program `lab`: they come up from whatever state
//! they are in, harm nobody, and leave nothing.

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

use evenkeel_e2e::{PATIENCE, checkout};
use evenkeel_lab::command::Cmd;

/// The program, where `make` puts it.
fn program() -> PathBuf {
    checkout().join("bin/lab")
}

/// Runs `lab` to its end; its exit code, and all it printed. One that does not end is killed, and its code is 137.
fn lab(args: &[&str]) -> (i32, String) {
    run(Cmd::new("timeout")
        .args(["--foreground", "--signal=KILL", "300"])
        .arg(program())
        .args(args))
}

/// Runs a command to its end; its exit code, and all it printed.
fn run(command: Cmd) -> (i32, String) {
    let piped = |command: &mut std::process::Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    };
    let output = command.spawn(piped).unwrap().wait_with_output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code().unwrap_or(-1), said)
}

/// Waits until it is so.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(
            began.elapsed() < PATIENCE,
            "waited {} s in vain until {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A small lab of a story's own. Its name follows from that of the stories' lab, so that what a killed run left of it
/// is cleaned up by the next.
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

    /// Runs `lab` on it, which must succeed; all it printed.
    fn lab(&self, args: &[&str]) -> String {
        let (code, said) = self.try_lab(args);
        assert_eq!(code, 0, "lab {args:?} failed:\n{said}");
        said
    }

    /// Runs `lab` on it; its exit code, and all it printed.
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
            .unwrap_or_else(|said| panic!("{said}"))
    }

    /// The first two numbers of all its addresses, such as `10.203`.
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

    /// This machine's interface into it, found by its address.
    fn interface(&self) -> String {
        let own = format!(" {}.0.1/24 ", self.range());
        let all = Cmd::new("ip").args(["-4", "-o", "addr"]).run().unwrap();
        let line = all
            .lines()
            .find(|line| line.contains(&own))
            .unwrap_or_else(|| panic!("no interface has {own}"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Kills every process it has, as `kill -9` does.
    fn kill_everything(&self) {
        eventually("every process of the lab is dead", || {
            let left = crate::host::processes_of(&self.name, None);
            // One that ended meanwhile is what was wanted.
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
            let (code, said) = self.try_lab(&["down"]);
            if code != 0 {
                eprintln!("{said}");
            }
        }
    }
}
