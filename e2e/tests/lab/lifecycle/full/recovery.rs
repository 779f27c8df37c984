//! Whatever became of a lab, `lab up` brings it back.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use evenkeel_e2e::http_get;
use evenkeel_lab::command::Cmd;

use crate::host::processes_of;
use crate::lifecycle::{OwnLab, eventually, program};
use crate::stateless::web;

/// Puts something into the lab that must outlive what befalls it.
fn furnish(own: &OwnLab) {
    own.kubectl(&[
        "create",
        "configmap",
        "note",
        "--from-literal=said=remember",
    ]);
    eventually("pods are admitted", || {
        own.try_kubectl(&["get", "serviceaccount", "default"])
            .is_ok()
    });
    let file = own.dir().join("web.yaml");
    fs::write(&file, web(2)).unwrap();
    own.kubectl(&["apply", "-f", &file.display().to_string()]);
    is_furnished(own);
}

/// What was put there is there, and its pods answer on this machine.
fn is_furnished(own: &OwnLab) {
    assert_eq!(
        own.kubectl(&["get", "configmap", "note", "-o=jsonpath={.data.said}"]),
        "remember"
    );
    let service = own.kubectl(&["get", "service", "web", "-o=jsonpath={.spec.clusterIP}"]);
    let mut answered = std::collections::BTreeSet::new();
    eventually("both replicas answer", || {
        answered.extend(http_get(&format!("{service}:80"), "/"));
        answered.len() == 2
    });
}

#[test]
fn after_kill_9_of_every_process_and_after_a_reboot_up_brings_everything_back() {
    let own = OwnLab::new("back");
    own.up();
    furnish(&own);

    own.kill_everything();
    half_make(&own);
    own.up();
    is_furnished(&own);

    reboot(&own);
    own.up();
    is_furnished(&own);
    let (code, said) = own.try_lab(&["status"]);
    assert_eq!(code, 0, "{said}");
}

/// Leaves cables as an `up` does that is killed between making one and setting it up.
fn half_make(own: &OwnLab) {
    let (interface, netns) = (own.interface(), |machine: &str| {
        format!("ek-{}-{machine}", own.name)
    });
    let ip = |args: &[&str]| Cmd::new("ip").args(args).run().unwrap();
    ip(&["addr", "flush", "dev", &interface]);
    ip(&["link", "set", &interface, "down"]);
    ip(&[
        "-n",
        &netns("control"),
        "link",
        "set",
        "port-node-1",
        "nomaster",
        "down",
    ]);
    ip(&["-n", &netns("node-1"), "addr", "flush", "dev", "eth0"]);
    ip(&["-n", &netns("node-1"), "link", "set", "eth0", "down"]);
}

/// Takes away what a reboot takes away: all but the files.
fn reboot(own: &OwnLab) {
    let (range, interface) = (own.range(), own.interface());
    own.kill_everything();
    let ip = |args: &[&str]| Cmd::new("ip").args(args).run().unwrap();
    ip(&["link", "del", &interface]);
    ip(&["route", "del", "unreachable", &format!("{range}.0.0/16")]);
    for machine in ["control", "node-1"] {
        ip(&["netns", "del", &format!("ek-{}-{machine}", own.name)]);
    }
    // Where /run is on a disk, a file that stands for nothing stays behind.
    fs::write(format!("/run/netns/ek-{}-node-1", own.name), "").unwrap();
    let table = format!("evenkeel_lab_{}", own.name.replace('-', "_"));
    Cmd::new("nft")
        .args(["delete", "table", "inet", &table])
        .run()
        .unwrap();
    for tree in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        remove_cgroup(&tree.path().join("evenkeel-lab").join(&own.name));
    }
    // A version 2 machine has one tree for all.
    remove_cgroup(&Path::new("/sys/fs/cgroup/evenkeel-lab").join(&own.name));
    let routes = ip(&["route"]);
    assert!(
        !routes.contains(&format!("{range}.")),
        "the reboot left routes: {routes}"
    );
}

fn remove_cgroup(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for child in entries.flatten().filter(|entry| entry.path().is_dir()) {
        remove_cgroup(&child.path());
    }
    eventually("the cgroup is empty", || {
        fs::remove_dir(dir).is_ok() || !dir.exists()
    });
}

#[test]
fn an_up_that_was_killed_at_any_moment_is_taken_up_by_the_next_and_two_at_once_both_succeed() {
    let own = OwnLab::new("resume");
    let up = || {
        let command = Cmd::new("timeout")
            .args(["--foreground", "--signal=KILL", "300"])
            .arg(program());
        let command = command.args(["--name", &own.name, "up", "--nodes", "1"]);
        let quiet = |command: &mut std::process::Command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        };
        command.spawn(quiet).unwrap()
    };
    // Each goes a little further than the one before, so that every step is the first one to be cut short once.
    let moments = (1..=16)
        .map(|step| step * 50)
        .chain([1000, 1300, 1700, 2200, 3000, 4000]);
    for moment in moments.map(Duration::from_millis) {
        let command = Cmd::new(program()).args(["--name", &own.name, "up", "--nodes", "1"]);
        let mut child = command
            .spawn(|command| {
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
            })
            .unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    let (mut one, mut other) = (up(), up());
    let (one, other) = (one.wait().unwrap(), other.wait().unwrap());
    assert!(
        one.success() && other.success(),
        "one ended with {one}, the other with {other}"
    );
    furnish(&own);
    // Whom an init has forked is called like it for a moment.
    eventually(
        "the control plane and the node have an init, each once",
        || {
            let all = processes_of(&own.name, None);
            let inits = all
                .iter()
                .filter(|process| process.words.iter().any(|word| word == "__init"));
            inits.count() == 2
        },
    );
}
