//! Runs other programs. Errors name the command and quote the last lines of its output.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A command to run, with captured output.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    input: Option<Vec<u8>>,
}

impl Cmd {
    /// Creates a command for a program, given by its path or by a name to look up in `PATH`.
    #[expect(clippy::disallowed_methods, reason = "all programs are started here")]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // After a plain `su`, `PATH` lacks the sbin directories.
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

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs the command and returns its standard output. A non-zero exit status is an error that quotes the output.
    pub fn run(self) -> Result<String> {
        let line = self.line();
        let output = self.output()?;
        if !output.status.success() {
            bail!("`{line}` failed ({}){}", output.status, last_lines(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the command; returns whether it succeeded, and its standard output and standard error as one text.
    pub fn attempt(self) -> Result<(bool, String)> {
        let output = self.output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text))
    }

    /// Starts the command without waiting. It inherits the standard streams unless `configure` redirects them.
    pub fn spawn(mut self, configure: impl FnOnce(&mut Command)) -> Result<Child> {
        let line = self.line();
        configure(&mut self.command);
        self.command
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))
    }

    fn output(mut self) -> Result<Output> {
        let line = self.line();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))?;
        // A separate thread writes the input: otherwise a program that prints before it has read all of it would
        // block this process and itself.
        let writer = self
            .input
            .take()
            .zip(child.stdin.take())
            .map(|(input, mut pipe)| {
                std::thread::spawn(move || {
                    // When the program stops reading early, its exit status gives the reason.
                    let _ = pipe.write_all(&input);
                })
            });
        let output = child
            .wait_with_output()
            .with_context(|| format!("cannot wait for `{line}`"))?;
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        Ok(output)
    }

    /// Returns the command line for messages.
    fn line(&self) -> String {
        let mut words: Vec<OsString> = vec![self.command.get_program().to_owned()];
        words.extend(self.command.get_args().map(OsStr::to_owned));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// Returns the last 15 lines of the output, preferably of standard error, for an error message.
fn last_lines(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = if stderr.trim().is_empty() {
        String::from_utf8_lossy(&output.stdout)
    } else {
        stderr
    };
    let lines: Vec<&str> = text.trim().lines().collect();
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
    fn an_error_has_the_command_line_and_its_output() {
        let error = Cmd::new("sh")
            .args(["-c", "echo disk is full >&2; exit 3"])
            .run()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("disk is full") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn input_larger_than_a_pipe_reaches_the_command() {
        let text = "x".repeat(1 << 20);
        assert_eq!(Cmd::new("cat").input(text.clone()).run().unwrap(), text);
    }

    #[test]
    fn an_error_names_a_program_that_does_not_exist() {
        let error = Cmd::new("no-such-program-here")
            .run()
            .unwrap_err()
            .to_string();
        assert!(error.contains("no-such-program-here"), "{error}");
    }
}
