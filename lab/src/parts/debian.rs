//! What comes from Debian's packages. Small tools are installed; the container runtime is unpacked beside the
//! system, so that a containerd or Docker that is already here is neither replaced nor touched.
//!
//! apt verifies every package against the checksum in Debian's signed index. Exact versions are not pinned, since
//! Debian removes a version from its archive when it publishes the next; what was unpacked is noted beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{self, Key};
use crate::command::Cmd;
use crate::progress::Stage;

/// Programs that must be on the machine, with the package each comes in.
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

/// Packages that are unpacked beside the system.
const RUNTIME: [&str; 4] = [
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
];

/// Programs of those packages that a lab runs.
pub const PROGRAMS: [&str; 4] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
];
/// Network plugins of those packages that a lab runs.
pub const CNI: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Installs the tools that are missing.
pub fn install_tools() -> Result<()> {
    let mut missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(_, package)| *package)
        .collect();
    // A static program needs the static C library; headers and archive come together.
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

/// Installs packages unless `there` says that what they bring is there.
pub fn ensure(packages: &[&str], there: impl Fn() -> bool) -> Result<()> {
    if there() {
        return Ok(());
    }
    install(packages)?;
    if there() {
        Ok(())
    } else {
        bail!("installing {} did not help", packages.join(" "))
    }
}

/// The container runtime, unpacked; made on first use.
pub fn runtime() -> Result<PathBuf> {
    let key = Key::default().text(&release()).text(&RUNTIME.join(" "));
    cache::get("debian", key, |dir| {
        let stage = Stage::begin("Container runtime", "unpacking Debian's packages");
        Apt::system().fetch(&RUNTIME.map(str::to_owned), dir)?;
        stage.done();
        Ok(())
    })
}

/// Fetches the given packages, which have the given checksums, of Debian testing, and unpacks them into `dir`.
pub fn unpack_from_testing(packages: &[(&str, &str)], dir: &Path) -> Result<()> {
    let apt = Apt::testing(&dir.join(".apt"))?;
    let names: Vec<String> = packages
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let fetched = apt.fetch(&names, dir)?;
    for (name, wanted) in packages {
        let found = fetched
            .iter()
            .find(|package| package.starts_with(&format!("{name} ")));
        if !found.is_some_and(|package| package.ends_with(wanted)) {
            bail!(
                "Debian testing now has another {name} than the one pinned here ({wanted}): {found:?}"
            );
        }
    }
    crate::files::remove(&dir.join(".apt"))
}

/// An apt with a configuration: the system's, or one of our own beside it.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn system() -> Self {
        Self {
            options: Vec::new(),
        }
    }

    /// An apt that knows only Debian testing and keeps all it knows in `dir`.
    fn testing(dir: &Path) -> Result<Self> {
        for below in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(below))?;
        }
        let archive = archive()?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        fs::write(
            dir.join("sources.list"),
            format!("deb [signed-by={keyring}] {archive} testing main\n"),
        )?;
        let shown = dir.display();
        let options = [
            format!("Dir::State={shown}/state"),
            format!("Dir::Cache={shown}/cache"),
            format!("Dir::Etc::sourcelist={shown}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
        ];
        let apt = Self {
            options: options.to_vec(),
        };
        apt.command("apt-get")
            .arg("update")
            .run()
            .context("cannot read Debian testing's index")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Cmd {
        let mut command = Cmd::new(program)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        // A fresh machine may be at its daily updates.
        if program == "apt-get" {
            command = command.args(["-o", "DPkg::Lock::Timeout=300"]);
        }
        for option in &self.options {
            command = command.args(["-o", option]);
        }
        command
    }

    /// Downloads packages and unpacks them; returns, and notes beside them, each one's version and checksum.
    fn fetch(&self, packages: &[String], dir: &Path) -> Result<Vec<String>> {
        let downloads = dir.join(".debs");
        fs::create_dir_all(&downloads)?;
        let download = || {
            let command =
                self.command("apt-get")
                    .args(["-o", "APT::Sandbox::User=root", "download"]);
            command.args(packages).dir(&downloads).run()
        };
        // An index that is missing or older than the archive: look again once.
        if download().is_err() {
            self.command("apt-get")
                .arg("update")
                .run()
                .context("cannot read Debian's index")?;
            download().with_context(|| format!("cannot fetch {}", packages.join(", ")))?;
        }
        let mut noted = Vec::new();
        for entry in fs::read_dir(&downloads)? {
            let path = entry?.path();
            Cmd::new("dpkg").arg("-x").arg(&path).arg(dir).run()?;
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (name, version) = file.split_once('_').unwrap_or((&file, ""));
            noted.push(format!(
                "{name} {version} {}",
                cache::sha256(&fs::read(&path)?)
            ));
        }
        noted.sort();
        fs::write(dir.join("packages.txt"), noted.join("\n") + "\n")?;
        crate::files::remove(&downloads)?;
        Ok(noted)
    }
}

fn install(packages: &[&str]) -> Result<()> {
    let stage = Stage::begin("Debian packages", &packages.join(" "));
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
            .context("cannot read Debian's index")?;
        install().with_context(|| format!("please install {}", packages.join(" ")))?;
    }
    stage.done();
    Ok(())
}

/// Whether a program is on the `PATH`.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|dir| Path::new(dir).join(program).is_file())
}

/// Which Debian this is: packages of one release do not always run on another.
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

/// The address of the Debian archive that this machine is set up to use.
fn archive() -> Result<String> {
    let listed = Cmd::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)|$(RELEASE)|$(REPO_URI)"])
        .run()?;
    let uri = listed.lines().find_map(|line| {
        let mut parts = line.split('|').skip(2);
        parts
            .next()
            .filter(|uri| uri.trim_end_matches('/').ends_with("/debian"))
    });
    uri.map(str::to_owned).context(
        "apt knows no archive of Debian's: the package sources of this machine are unusual",
    )
}
