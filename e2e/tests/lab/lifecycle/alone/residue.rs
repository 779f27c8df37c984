//! `lab down` leaves nothing behind and harms no other process.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

use evenkeel_e2e::{Story, http_get};
use evenkeel_lab::command::Cmd;

use crate::alone::node_faults::with_disk;
use crate::host::{loop_files, nodes, processes, processes_of, serve, service};
use crate::lifecycle::{OwnLab, eventually};
use crate::pods;

/// Lists everything on this machine that labs change, each item as its kind and its text.
fn machine() -> BTreeSet<(&'static str, String)> {
    let mut items = BTreeSet::new();
    let mut add = |kind, some: Vec<String>| items.extend(some.into_iter().map(|item| (kind, item)));
    let read = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let output = |program: &str, args: &[&str]| {
        let text = Cmd::new(program).args(args).run().unwrap();
        text.lines()
            .map(|line| format!("{} ", line.trim()))
            .collect::<Vec<_>>()
    };
    add("mount", read("/proc/self/mountinfo"));
    add("loop device", loop_files());
    add("network namespace", below("/run/netns"));
    add("interface", output("ip", &["-br", "addr"]));
    add(
        "route",
        output("ip", &["-4", "route", "show", "table", "all"]),
    );
    add("routing rule", output("ip", &["rule"]));
    add("nftables table", output("nft", &["list", "tables"]));
    let homes = [
        "/opt",
        "/run",
        "/etc",
        "/etc/cni",
        "/usr/libexec",
        "/var/lib",
        "/var/log",
        "/var/cache",
    ];
    for dir in homes.into_iter().chain(["/var/lib/evenkeel/labs"]) {
        add("file", below(dir));
    }
    // One tree per controller in cgroup v1; in v2 this reads the one tree.
    for tree in below("/sys/fs/cgroup")
        .into_iter()
        .chain(["/sys/fs/cgroup".to_owned()])
    {
        add("cgroup", directories(&tree));
        add("cgroup", directories(&format!("{tree}/evenkeel-lab")));
    }
    let settings = [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    ];
    for setting in settings {
        add(
            "setting",
            read(&format!("/proc/sys/{setting}"))
                .iter()
                .map(|value| format!("{setting} {value}"))
                .collect(),
        );
    }
    items
}

fn below(dir: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect()
}

fn directories(dir: &str) -> Vec<String> {
    below(dir)
        .into_iter()
        .filter(|path| Path::new(path).is_dir())
        .collect()
}

/// Lists the machine without labs: other labs may be started and stopped during the story.
fn without_labs() -> BTreeSet<(&'static str, String)> {
    let lab_addresses =
        |item: &str| (200..240).any(|second| item.contains(&format!("10.{second}.")));
    let mut items = machine();
    items.retain(|(_, item)| {
        !item.contains("evenkeel") && !item.contains("/ek-") && !lab_addresses(item)
    });
    items
}

/// Lists the items of one lab: by its name, its addresses and its interface.
fn traces(name: &str, range: &str, interface: &str) -> BTreeSet<(&'static str, String)> {
    let shapes = [
        format!("/run/netns/ek-{name}-"),
        format!("/labs/{name}"),
        format!("/labs/.{name}."),
        format!("/evenkeel-lab/{name}"),
        format!("evenkeel_lab_{} ", name.replace('-', "_")),
        format!("{range}."),
        format!(" {interface} "),
    ];
    let mut items = machine();
    items.retain(|(_, item)| shapes.iter().any(|shape| item.contains(shape)));
    let of_process = |pid: u32| -> bool {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounts.contains(&format!("/labs/{name}/"))
    };
    let at_home = format!("/labs/{name}/");
    let mut kept = processes();
    kept.retain(|one| one.words.iter().any(|word| word.contains(&at_home)) || of_process(one.pid));
    items.extend(
        kept.into_iter()
            .chain(processes_of(name, None))
            .map(|one| ("process", format!("{one:?}"))),
    );
    items
}

/// A containerd that belongs to no lab.
struct OtherContainerd {
    child: Child,
    dir: tempfile::TempDir,
}

impl OtherContainerd {
    fn start(lab: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (program, config, log) = (at("containerd"), at("config.toml"), at("log"));
        fs::copy(
            format!("/var/lib/evenkeel/labs/{lab}/programs/containerd"),
            &program,
        )
        .unwrap();
        let settings = format!(
            "version = 2\nroot = \"{}\"\nstate = \"{}\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = \"{}\"\n[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{}\"\n",
            at("root"),
            at("state"),
            at("socket"),
            at("opt")
        );
        fs::write(&config, settings).unwrap();
        let log = fs::File::create(log).unwrap();
        let child = Cmd::new(program)
            .args(["--config", &config])
            .spawn(|command| {
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log);
            });
        let mut own = Self {
            child: child.unwrap(),
            dir,
        };
        eventually("the other containerd listens", || own.is_healthy());
        own
    }

    fn is_healthy(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
            && UnixStream::connect(self.dir.path().join("socket")).is_ok()
    }
}

impl Drop for OtherContainerd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn down_leaves_nothing_behind_and_harms_no_other_lab_or_containerd() {
    // Alone: other stories change the compared items.
    let story = Story::alone("residue");
    let beside = std::env::var("LAB").unwrap();
    let node = nodes(&story).remove(0);
    let web = serve(&story, "web", &node);
    let api_server = service(&beside, "control", "kube-apiserver").unwrap();
    let mut other_containerd = OtherContainerd::start(&beside);
    let own = OwnLab::new("gone");
    let before = without_labs();

    own.up();
    let (range, interface) = (own.range(), own.interface());
    eventually("pods can be created", || {
        own.try_kubectl(&["get", "serviceaccount", "default"])
            .is_ok()
    });
    let file = own.dir().join("disk.yaml");
    fs::write(&file, with_disk("node-1")).unwrap();
    own.kubectl(&["apply", "-f", &file.display().to_string()]);
    own.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=90s",
        "pod/store",
    ]);
    let lived: Vec<_> = processes_of(&own.name, None);
    let kinds: BTreeSet<_> = traces(&own.name, &range, &interface)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    let all = [
        "cgroup",
        "file",
        "interface",
        "loop device",
        "mount",
        "network namespace",
        "nftables table",
        "process",
        "route",
    ];
    assert_eq!(
        kinds,
        BTreeSet::from(all),
        "not every kind of item is found while the lab is up"
    );

    own.lab(&["down"]);
    let left: Vec<_> = lived.iter().filter(|process| process.is_alive()).collect();
    assert!(left.is_empty(), "processes outlive their lab: {left:?}");
    assert_eq!(traces(&own.name, &range, &interface), BTreeSet::new());
    assert_eq!(without_labs(), before);
    let (code, output) = own.try_lab(&["status"]);
    assert!(code != 0 && output.contains("there is no lab"), "{output}");
    own.lab(&["down"]);

    assert!(
        other_containerd.is_healthy(),
        "the other containerd was stopped with the lab"
    );
    assert!(
        api_server.is_alive() && web.process.is_alive(),
        "the other lab was harmed"
    );
    eventually("the other lab's pod answers", || {
        http_get(&web.address, "/").as_deref() == Some("web")
    });
    assert_eq!(pods::restarts(&story, "web"), 0);
}
