//! Whether a lab can run here, found out in a second by trying the very operations it needs, each named.

use std::path::Path;

use crate::cache;
use crate::command::Cmd;
use crate::machine::rehearse_cgroups;
use crate::parts::debian::on_path;

/// Disk that the parts and a small lab take.
const DISK_GIB: u64 = 8;
/// Memory that a small lab and a build take.
const MEMORY_GIB: u64 = 3;

/// One thing that a lab needs.
#[derive(Debug)]
pub struct Need {
    /// What it is.
    pub what: &'static str,
    /// What grants it.
    pub needs: &'static str,
    /// Why it cannot be had, if so.
    pub refused: Option<String>,
}

/// Tries everything; room for building and running is asked for only where a lab is new.
pub fn preflight(new: bool) -> Vec<Need> {
    let root = nix::unistd::geteuid().is_root();
    let mut needs = vec![need(
        "root",
        "root (try sudo)",
        if root {
            Ok(())
        } else {
            Err("this is another user".to_owned())
        },
    )];
    let unshare = |flags: &[&str], then: &str| {
        tried(Cmd::new("unshare").args(flags).args(["sh", "-c", then]))
    };
    needs.push(need(
        "namespaces",
        "CAP_SYS_ADMIN",
        unshare(
            &[
                "--net", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup",
            ],
            "true",
        ),
    ));
    needs.push(need(
        "mounts",
        "CAP_SYS_ADMIN",
        unshare(&["--mount"], "mount -t tmpfs none /mnt"),
    ));
    needs.push(need(
        "a network of its own",
        "CAP_NET_ADMIN",
        network(&unshare),
    ));
    needs.push(need(
        "cgroups",
        "CAP_SYS_ADMIN and cgroups mounted for writing",
        rehearse_cgroups().map_err(|e| format!("{e:#}")),
    ));
    needs.push(need(
        "loop devices",
        "CAP_SYS_ADMIN and /dev/loop-control",
        loops(),
    ));
    needs.push(need("the XFS file system", "a kernel with XFS", xfs()));
    needs.push(need(
        "overlay mounts",
        "CAP_SYS_ADMIN and a kernel with overlayfs",
        filesystem("overlay"),
    ));
    if new {
        needs.push(need("disk", "8 GiB of free disk", disk()));
        needs.push(need("memory", "3 GiB of free memory", memory()));
    }
    needs.push(need(
        "Debian's package tools",
        "apt-get and dpkg",
        packages(),
    ));
    needs
}

fn need(what: &'static str, needs: &'static str, result: Result<(), String>) -> Need {
    Need {
        what,
        needs,
        refused: result.err(),
    }
}

fn tried(command: Cmd) -> Result<(), String> {
    match command.attempt() {
        Ok((true, _)) => Ok(()),
        Ok((false, said)) => Err(said.trim().lines().last().unwrap_or("refused").to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn network(unshare: &impl Fn(&[&str], &str) -> Result<(), String>) -> Result<(), String> {
    if !on_path("ip") {
        // Installed later; that the kernel lets us have a namespace was tried before.
        return Ok(());
    }
    unshare(
        &["--net"],
        "ip link add try0 type veth peer name try1 && ip link add try2 type bridge && ip route add unreachable 10.255.0.0/16",
    )?;
    if on_path("nft") {
        unshare(&["--net"], "nft add table inet preflight")
    } else {
        Ok(())
    }
}

fn loops() -> Result<(), String> {
    if !Path::new("/dev/loop-control").exists() {
        return Err("/dev/loop-control is missing".to_owned());
    }
    // That there is a free one is known to everybody; only attaching a file to it tells.
    let attach = "file=$(mktemp -t evenkeel-XXXXXX) && truncate -s 1M $file && device=$(losetup --find --show $file); code=$?; \
                  rm -f $file; [ $code = 0 ] && losetup --detach $device";
    tried(Cmd::new("sh").args(["-c", attach]))
}

fn xfs() -> Result<(), String> {
    filesystem("xfs")
}

fn filesystem(name: &str) -> Result<(), String> {
    let known = || {
        let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    };
    if known() {
        return Ok(());
    }
    // It may be a module that nobody loaded yet.
    let _ = Cmd::new("modprobe").arg(name).attempt();
    if known() {
        Ok(())
    } else {
        Err(format!("this kernel does not know {name}"))
    }
}

fn disk() -> Result<(), String> {
    // Parts are built in the cache, volumes and containers live in /var/lib.
    let cache = cache::dir().map_err(|error| error.to_string())?;
    let cache = cache
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    for dir in [Path::new("/var/lib"), cache] {
        let space = nix::sys::statvfs::statvfs(dir).map_err(|error| error.to_string())?;
        let free = (space.blocks_available() * space.fragment_size()) >> 30;
        if free < DISK_GIB {
            return Err(format!("only {free} GiB are free in {}", dir.display()));
        }
    }
    Ok(())
}

fn memory() -> Result<(), String> {
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
    if free >= MEMORY_GIB {
        Ok(())
    } else {
        Err(format!("only {free} GiB are free"))
    }
}

fn packages() -> Result<(), String> {
    match ["apt-get", "dpkg"].iter().find(|program| !on_path(program)) {
        None => Ok(()),
        Some(program) => Err(format!(
            "{program} is missing: this is not Debian or one of its kin"
        )),
    }
}
