//! Running other programs: one builder whose errors say which command failed and what it printed.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A program to run to its end, its output captured.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    input: Option<Vec<u8>>,
}

impl Cmd {
    /// Names the program; it is looked up in `PATH` unless it is a path.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that starts programs"
    )]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // A plain `su` leaves the administrator's programs off the path.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        Self {
            command,
            input: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs it in this directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Feeds it this text.
    #[must_use]
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs it and returns what it printed; an exit other than 0 is an error that quotes its last words.
    pub fn run(self) -> Result<String> {
        let shown = self.shown();
        let output = self.output()?;
        if !output.status.success() {
            bail!("`{shown}` failed ({}){}", output.status, quoted(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it and tells whether it succeeded, and what it printed on both streams.
    pub fn attempt(self) -> Result<(bool, String)> {
        let output = self.output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text))
    }

    /// Starts it without waiting. Output goes where this process' own goes unless `configure` says otherwise.
    pub fn spawn(mut self, configure: impl FnOnce(&mut Command)) -> Result<Child> {
        let shown = self.shown();
        configure(&mut self.command);
        self.command
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))
    }

    fn output(mut self) -> Result<Output> {
        let shown = self.shown();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        // Written from a thread of its own: a program that prints before it has read everything would block us both.
        let writer = self
            .input
            .take()
            .zip(child.stdin.take())
            .map(|(input, mut pipe)| {
                std::thread::spawn(move || {
                    // A program that stops reading early says why by its exit status.
                    let _ = pipe.write_all(&input);
                })
            });
        let output = child
            .wait_with_output()
            .with_context(|| format!("`{shown}` was lost"))?;
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        Ok(output)
    }

    fn shown(&self) -> String {
        let mut words: Vec<OsString> = vec![self.command.get_program().to_owned()];
        words.extend(self.command.get_args().map(OsStr::to_owned));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

fn quoted(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = if stderr.trim().is_empty() {
        String::from_utf8_lossy(&output.stdout)
    } else {
        stderr
    };
    let lines: Vec<&str> = said.trim().lines().collect();
    let last = lines
        .iter()
        .skip(lines.len().saturating_sub(15))
        .copied()
        .collect::<Vec<_>>()
        .join("\n  ");
    if last.is_empty() {
        String::new()
    } else {
        format!(":\n  {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_named_with_its_last_words() {
        let error = Cmd::new("sh")
            .args(["-c", "echo no such luck >&2; exit 3"])
            .run()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("no such luck") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn input_larger_than_a_pipe_reaches_the_command() {
        let text = "x".repeat(1 << 20);
        assert_eq!(Cmd::new("cat").input(text.clone()).run().unwrap(), text);
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = Cmd::new("no-such-program-here")
            .run()
            .unwrap_err()
            .to_string();
        assert!(error.contains("no-such-program-here"), "{error}");
    }
}
