//! `lab up` restores a lab from any state.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use evenkeel_e2e::http_get;
use evenkeel_lab::command::Cmd;

use crate::host::processes_of;
use crate::lifecycle::{OwnLab, eventually, program};
use crate::stateless::web;

/// Creates objects in the lab that must survive.
fn create_objects(own: &OwnLab) {
    own.kubectl(&["create", "configmap", "note", "--from-literal=key=value"]);
    eventually("pods can be created", || {
        own.try_kubectl(&["get", "serviceaccount", "default"])
            .is_ok()
    });
    let file = own.dir().join("web.yaml");
    fs::write(&file, web(2)).unwrap();
    own.kubectl(&["apply", "-f", &file.display().to_string()]);
    assert_objects(own);
}

/// Asserts that the objects exist, and that their pods answer on this machine.
fn assert_objects(own: &OwnLab) {
    assert_eq!(
        own.kubectl(&["get", "configmap", "note", "-o=jsonpath={.data.key}"]),
        "value"
    );
    let service = own.kubectl(&["get", "service", "web", "-o=jsonpath={.spec.clusterIP}"]);
    let mut answered = std::collections::BTreeSet::new();
    eventually("both replicas answer", || {
        answered.extend(http_get(&format!("{service}:80"), "/"));
        answered.len() == 2
    });
}

#[test]
fn up_restores_a_lab_after_kill_9_and_after_a_reboot() {
    let own = OwnLab::new("back");
    own.up();
    create_objects(&own);

    own.kill_everything();
    break_links(&own);
    own.up();
    assert_objects(&own);

    reboot(&own);
    own.up();
    assert_objects(&own);
    let (code, output) = own.try_lab(&["status"]);
    assert_eq!(code, 0, "{output}");
}

/// Leaves links as an `up` does that is killed between their creation and their configuration.
fn break_links(own: &OwnLab) {
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

/// Removes what a reboot removes: everything but files.
fn reboot(own: &OwnLab) {
    let (range, interface) = (own.range(), own.interface());
    own.kill_everything();
    let ip = |args: &[&str]| Cmd::new("ip").args(args).run().unwrap();
    ip(&["link", "del", &interface]);
    ip(&["route", "del", "unreachable", &format!("{range}.0.0/16")]);
    for machine in ["control", "node-1"] {
        ip(&["netns", "del", &format!("ek-{}-{machine}", own.name)]);
    }
    // If /run is on a disk, a file without a namespace is left.
    fs::write(format!("/run/netns/ek-{}-node-1", own.name), "").unwrap();
    let table = format!("evenkeel_lab_{}", own.name.replace('-', "_"));
    Cmd::new("nft")
        .args(["delete", "table", "inet", &table])
        .run()
        .unwrap();
    for tree in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        remove_cgroup(&tree.path().join("evenkeel-lab").join(&own.name));
    }
    // A machine with cgroup v2 has one tree.
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
fn an_up_that_was_killed_is_completed_by_the_next_one() {
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
    // Each attempt runs a little longer than the one before, so that every step is interrupted once.
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
        "one exited with {one}, the other with {other}"
    );
    create_objects(&own);
    // A process that an init has forked has the same command line for a moment.
    eventually("the control plane and the node have one init each", || {
        let all = processes_of(&own.name, None);
        let inits = all
            .iter()
            .filter(|process| process.words.iter().any(|word| word == "__init"));
        inits.count() == 2
    });
}
