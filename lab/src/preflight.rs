//! Checks whether a lab can run on this machine: tries the operations that a lab needs and reports those that fail.

use std::path::Path;

use crate::cache;
use crate::command::Cmd;
use crate::machine::check_cgroups;
use crate::parts::debian::is_on_path;

/// Free disk space that the build and a small lab need, in GiB.
const MIN_FREE_DISK_GIB: u64 = 8;
/// Free memory that the build and a small lab need, in GiB.
const MIN_FREE_MEMORY_GIB: u64 = 3;

/// A requirement of a lab and the result of its check.
#[derive(Debug)]
pub struct Requirement {
    /// The name of the requirement.
    pub name: &'static str,
    /// The capability, kernel feature or resource that provides it.
    pub provided_by: &'static str,
    /// The reason why the check failed; `None` when it succeeded.
    pub failure: Option<String>,
}

/// Checks all requirements. Free disk space and memory are checked only for a new lab.
pub fn preflight(is_new_lab: bool) -> Vec<Requirement> {
    let is_root = nix::unistd::geteuid().is_root();
    let mut requirements = vec![requirement(
        "root",
        "root (try sudo)",
        if is_root {
            Ok(())
        } else {
            Err("this process does not run as root".to_owned())
        },
    )];
    let unshare = |flags: &[&str], script: &str| {
        try_command(Cmd::new("unshare").args(flags).args(["sh", "-c", script]))
    };
    requirements.push(requirement(
        "namespaces",
        "CAP_SYS_ADMIN",
        unshare(
            &[
                "--net", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup",
            ],
            "true",
        ),
    ));
    requirements.push(requirement(
        "mounts",
        "CAP_SYS_ADMIN",
        unshare(&["--mount"], "mount -t tmpfs none /mnt"),
    ));
    requirements.push(requirement(
        "a network of its own",
        "CAP_NET_ADMIN",
        check_network(&unshare),
    ));
    requirements.push(requirement(
        "cgroups",
        "CAP_SYS_ADMIN and cgroups mounted for writing",
        check_cgroups().map_err(|e| format!("{e:#}")),
    ));
    requirements.push(requirement(
        "loop devices",
        "CAP_SYS_ADMIN and /dev/loop-control",
        check_loop_devices(),
    ));
    requirements.push(requirement(
        "the XFS file system",
        "a kernel with XFS",
        check_file_system("xfs"),
    ));
    requirements.push(requirement(
        "overlay mounts",
        "CAP_SYS_ADMIN and a kernel with overlayfs",
        check_file_system("overlay"),
    ));
    if is_new_lab {
        requirements.push(requirement(
            "disk",
            "8 GiB of free disk space",
            check_disk(),
        ));
        requirements.push(requirement(
            "memory",
            "3 GiB of free memory",
            check_memory(),
        ));
    }
    requirements.push(requirement(
        "Debian's package tools",
        "apt-get and dpkg",
        check_package_tools(),
    ));
    requirements
}

fn requirement(
    name: &'static str,
    provided_by: &'static str,
    result: Result<(), String>,
) -> Requirement {
    Requirement {
        name,
        provided_by,
        failure: result.err(),
    }
}

fn try_command(command: Cmd) -> Result<(), String> {
    match command.attempt() {
        Ok((true, _)) => Ok(()),
        Ok((false, output)) => Err(output
            .trim()
            .lines()
            .last()
            .unwrap_or("the command failed without a message")
            .to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn check_network(unshare: &impl Fn(&[&str], &str) -> Result<(), String>) -> Result<(), String> {
    if !is_on_path("ip") {
        // `lab up` installs `ip` later; the check of the namespaces covers the permission.
        return Ok(());
    }
    unshare(
        &["--net"],
        "ip link add try0 type veth peer name try1 && ip link add try2 type bridge && ip route add unreachable 10.255.0.0/16",
    )?;
    if is_on_path("nft") {
        unshare(&["--net"], "nft add table inet preflight")
    } else {
        Ok(())
    }
}

fn check_loop_devices() -> Result<(), String> {
    if !Path::new("/dev/loop-control").exists() {
        return Err("/dev/loop-control is missing".to_owned());
    }
    // An unprivileged process can find a free loop device too; only attaching a file shows whether it is usable.
    let attach = "file=$(mktemp -t evenkeel-XXXXXX) && truncate -s 1M $file && device=$(losetup --find --show $file); code=$?; \
                  rm -f $file; [ $code = 0 ] && losetup --detach $device";
    try_command(Cmd::new("sh").args(["-c", attach]))
}

fn check_file_system(name: &str) -> Result<(), String> {
    let is_known = || {
        let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    };
    if is_known() {
        return Ok(());
    }
    // The file system may be in a kernel module that is not loaded yet.
    let _ = Cmd::new("modprobe").arg(name).attempt();
    if is_known() {
        Ok(())
    } else {
        Err(format!("this kernel does not support {name}"))
    }
}

fn check_disk() -> Result<(), String> {
    // Programs are built in the cache; volumes and containers are in /var/lib.
    let cache = cache::dir().map_err(|error| error.to_string())?;
    let cache = cache
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    for dir in [Path::new("/var/lib"), cache] {
        let space = nix::sys::statvfs::statvfs(dir).map_err(|error| error.to_string())?;
        let free = (space.blocks_available() * space.fragment_size()) >> 30;
        if free < MIN_FREE_DISK_GIB {
            return Err(format!("only {free} GiB are free in {}", dir.display()));
        }
    }
    Ok(())
}

fn check_memory() -> Result<(), String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .unwrap_or_default();
    let free: u64 = line
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
        >> 20;
    if free >= MIN_FREE_MEMORY_GIB {
        Ok(())
    } else {
        Err(format!("only {free} GiB of memory are free"))
    }
}

fn check_package_tools() -> Result<(), String> {
    match ["apt-get", "dpkg"]
        .iter()
        .find(|program| !is_on_path(program))
    {
        None => Ok(()),
        Some(program) => Err(format!(
            "{program} is missing: the lab needs Debian or a distribution based on Debian"
        )),
    }
}
