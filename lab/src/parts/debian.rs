//! Programs from Debian packages. Small tools are installed; the container runtime is unpacked into the cache, so that an
//! existing containerd or Docker stays untouched.
//!
//! apt verifies every package against the checksum in the signed index of Debian. Versions are not pinned, since Debian
//! removes a version from its archive when it publishes the next. `packages.txt` records the unpacked versions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{self, CacheKey};
use crate::command::Cmd;
use crate::progress::Progress;

/// Programs that the lab needs on the host, each with its package.
const TOOLS: [(&str, &str); 10] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_growfs", "xfsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("sysctl", "procps"),
    ("cc", "gcc"),
    ("modprobe", "kmod"),
];

/// Packages that are unpacked into the cache.
const RUNTIME_PACKAGES: [&str; 4] = [
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
];

/// Programs of the unpacked packages that a lab runs.
pub const PROGRAMS: [&str; 4] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
];
/// CNI plugins of the unpacked packages that a lab runs.
pub const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// A package with the checksum of its file.
#[derive(Debug)]
pub struct PinnedPackage {
    /// The name of the package.
    pub name: &'static str,
    /// The SHA-256 of the package file, in hexadecimal.
    pub sha256: &'static str,
}

/// Installs missing tools.
pub fn install_tools() -> Result<()> {
    let mut missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(program, _)| !is_on_path(program))
        .map(|(_, package)| *package)
        .collect();
    // The pause program is linked statically; libc6-dev contains the headers and the static C library.
    if !Path::new("/usr/include/stdio.h").exists() {
        missing.push("libc6-dev");
    }
    missing.dedup();
    if missing.is_empty() {
        Ok(())
    } else {
        install(&missing)
    }
}

/// Installs packages when `is_present` returns false; fails when it still returns false afterwards.
pub fn ensure(packages: &[&str], is_present: impl Fn() -> bool) -> Result<()> {
    if is_present() {
        return Ok(());
    }
    install(packages)?;
    if is_present() {
        Ok(())
    } else {
        bail!(
            "the packages {} are installed, but the required program is still missing",
            packages.join(" ")
        )
    }
}

/// Returns the directory of the unpacked container runtime; unpacks it when it is missing in the cache.
pub fn runtime() -> Result<PathBuf> {
    let key = CacheKey::default()
        .text(&release())
        .text(&RUNTIME_PACKAGES.join(" "));
    cache::get_or_build("debian", key, |dir| {
        let progress = Progress::start("Container runtime", "unpacking Debian packages");
        Apt::system().fetch(&RUNTIME_PACKAGES.map(str::to_owned), dir)?;
        progress.finish();
        Ok(())
    })
}

/// Fetches packages of Debian testing, verifies their checksums, and unpacks them into `dir`.
pub fn unpack_from_testing(packages: &[PinnedPackage], dir: &Path) -> Result<()> {
    let apt = Apt::testing(&dir.join(".apt"))?;
    let names: Vec<String> = packages
        .iter()
        .map(|package| package.name.to_owned())
        .collect();
    let fetched = apt.fetch(&names, dir)?;
    for PinnedPackage { name, sha256 } in packages {
        let line = fetched
            .iter()
            .find(|line| line.starts_with(&format!("{name} ")));
        if !line.is_some_and(|line| line.ends_with(sha256)) {
            bail!(
                "Debian testing has package {name} with another checksum than {sha256}: {line:?}"
            );
        }
    }
    crate::files::remove(&dir.join(".apt"))
}

/// apt with the configuration of the system or with a separate one.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn system() -> Self {
        Self {
            options: Vec::new(),
        }
    }

    /// Returns apt with Debian testing as its only source and with its state in `dir`.
    fn testing(dir: &Path) -> Result<Self> {
        for subdir in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(subdir))?;
        }
        let archive = archive_url()?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        fs::write(
            dir.join("sources.list"),
            format!("deb [signed-by={keyring}] {archive} testing main\n"),
        )?;
        let path = dir.display();
        let options = [
            format!("Dir::State={path}/state"),
            format!("Dir::Cache={path}/cache"),
            format!("Dir::Etc::sourcelist={path}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
        ];
        let apt = Self {
            options: options.to_vec(),
        };
        apt.command("apt-get")
            .arg("update")
            .run()
            .context("cannot update the package index of Debian testing")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Cmd {
        let mut command = Cmd::new(program)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        // Unattended upgrades may hold the lock of dpkg.
        if program == "apt-get" {
            command = command.args(["-o", "DPkg::Lock::Timeout=300"]);
        }
        for option in &self.options {
            command = command.args(["-o", option]);
        }
        command
    }

    /// Downloads and unpacks packages. Returns a line with name, version and checksum per package and writes the lines
    /// to `packages.txt`.
    fn fetch(&self, packages: &[String], dir: &Path) -> Result<Vec<String>> {
        let downloads = dir.join(".debs");
        fs::create_dir_all(&downloads)?;
        let download = || {
            let command =
                self.command("apt-get")
                    .args(["-o", "APT::Sandbox::User=root", "download"]);
            command.args(packages).dir(&downloads).run()
        };
        // The package index may be missing or outdated: update it and retry once.
        if download().is_err() {
            self.command("apt-get")
                .arg("update")
                .run()
                .context("cannot update the package index")?;
            download()
                .with_context(|| format!("cannot download packages {}", packages.join(", ")))?;
        }
        let mut lines = Vec::new();
        for entry in fs::read_dir(&downloads)? {
            let path = entry?.path();
            Cmd::new("dpkg").arg("-x").arg(&path).arg(dir).run()?;
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (name, version) = file.split_once('_').unwrap_or((&file, ""));
            lines.push(format!(
                "{name} {version} {}",
                cache::sha256(&fs::read(&path)?)
            ));
        }
        lines.sort();
        fs::write(dir.join("packages.txt"), lines.join("\n") + "\n")?;
        crate::files::remove(&downloads)?;
        Ok(lines)
    }
}

fn install(packages: &[&str]) -> Result<()> {
    let progress = Progress::start("Debian packages", &packages.join(" "));
    let apt = Apt::system();
    let install = || {
        apt.command("apt-get")
            .args(["install", "-y", "-q", "--no-install-recommends"])
            .args(packages)
            .run()
    };
    if install().is_err() {
        apt.command("apt-get")
            .arg("update")
            .run()
            .context("cannot update the package index")?;
        install().with_context(|| {
            format!(
                "failed to install packages {}; install them manually",
                packages.join(" ")
            )
        })?;
    }
    progress.finish();
    Ok(())
}

/// Returns whether a program is in `PATH` or in an sbin directory.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|dir| Path::new(dir).join(program).is_file())
}

/// Returns the distribution and its release: packages of one release may not run on another.
fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or_default()
            .to_owned()
    };
    format!("{} {}", value("ID="), value("VERSION_ID="))
}

/// Returns the URL of the Debian archive that this host uses.
fn archive_url() -> Result<String> {
    let output = Cmd::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)|$(RELEASE)|$(REPO_URI)"])
        .run()?;
    let uri = output.lines().find_map(|line| {
        let mut parts = line.split('|').skip(2);
        parts
            .next()
            .filter(|uri| uri.trim_end_matches('/').ends_with("/debian"))
    });
    uri.map(str::to_owned).context(
        "cannot find a Debian archive in the package sources of apt: add one to /etc/apt/sources.list",
    )
}
