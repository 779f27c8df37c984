//! A shell like the reader's: a terminal with 80 columns, and variables that are kept from block to block.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_docs::CommandBlock;
use evenkeel_lab::command::Cmd;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The byte that marks the end of the output. Written when the commands have ended, because a background process may keep the
/// terminal open.
const END: u8 = 0x1e;

/// The result of a block.
pub(crate) struct BlockResult {
    /// The exit code; `None` on timeout.
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
}

pub(crate) struct Shell {
    /// The directory for the shell's files.
    dir: PathBuf,
    env: Vec<(String, String)>,
    variables: BTreeSet<String>,
    /// Process groups with background processes.
    running: Vec<Pid>,
}

impl Shell {
    pub(crate) fn new(dir: PathBuf, env: Vec<(String, String)>) -> Self {
        Self {
            dir,
            env,
            variables: BTreeSet::new(),
            running: Vec::new(),
        }
    }

    /// Runs a block with a time limit.
    pub(crate) fn run(&mut self, block: &CommandBlock, limit: Duration) -> BlockResult {
        self.variables
            .extend(block.script.lines().filter_map(assigned));
        let (script, state) = (self.dir.join("block"), self.dir.join("state"));
        let keep: Vec<_> = self.variables.iter().map(String::as_str).collect();
        let text = format!(
            "set -euo pipefail\n[ ! -e '{state}' ] || . '{state}'\n\
             trap 'for it in {}; do declare -p \"$it\" 2>/dev/null || true; done >\"{state}\"' EXIT\n{}\n",
            keep.join(" "),
            block.script,
            state = state.display(),
        );
        std::fs::write(&script, text).expect("the script is writable");
        let size = Winsize {
            ws_row: 50,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = openpty(&size, None).expect("a pseudo-terminal can be opened");
        let (master, mut slave) = (File::from(terminal.master), File::from(terminal.slave));
        let (out, err) = (
            slave.try_clone().expect("the terminal can be cloned"),
            slave.try_clone().expect("the terminal can be cloned"),
        );
        let mut command = Cmd::new("bash").arg(&script).dir(evenkeel_e2e::checkout());
        for (key, value) in &self.env {
            command = command.env(key, value);
        }
        // In a process group of its own, so that all processes that the commands start can be killed.
        let started = command.spawn(|command| {
            command
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(out)
                .stderr(err);
        });
        let mut child = started.unwrap_or_else(|error| panic!("{error:#}"));
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a process ID fits into i32"));
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(read(master)));
        let began = Instant::now();
        let code = loop {
            if let Some(ended) = child.try_wait().expect("a child process can be waited for") {
                break Some(ended.code().unwrap_or(-1));
            }
            if began.elapsed() > limit {
                // Ignored: the group may have exited just now.
                let _ = killpg(group, Signal::SIGKILL);
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if block.starts_background_process() {
            self.running.push(group);
        }
        slave.write_all(&[END]).expect("the terminal is writable");
        BlockResult {
            code,
            printed: strip_escapes(&receiver.recv().expect("the reader returns the output")),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for group in &self.running {
            // Ignored: the group may have exited by itself.
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }
}

/// Returns the name of the variable that a line assigns.
fn assigned(line: &str) -> Option<String> {
    let line = line.trim();
    let (name, _) = line
        .strip_prefix("export ")
        .unwrap_or(line)
        .split_once('=')?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|it| it.is_ascii_alphanumeric() || it == '_');
    is_name.then(|| name.to_owned())
}

/// Reads the output up to the end mark.
fn read(mut terminal: File) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    while let Ok(count) = terminal.read(&mut some) {
        all.extend(&some[..count]);
        if count == 0 || all.contains(&END) {
            break;
        }
    }
    all
}

/// Removes colours and carriage returns.
fn strip_escapes(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed).replace(['\r', char::from(END)], "");
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    // An escape sequence ends with its first letter.
    parts.fold(first, |all, part| {
        let end = part
            .find(|it: char| it.is_ascii_alphabetic())
            .map_or(part.len(), |at| at + 1);
        all + &part[end..]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(script: &str) -> CommandBlock {
        let timeout = Duration::from_secs(20);
        CommandBlock {
            line: 1,
            script: script.to_owned(),
            exit_code: 0,
            timeout,
            expected: None,
        }
    }

    #[test]
    fn a_shell_is_a_terminal_of_80_columns_and_keeps_its_variables() {
        let dir = tempfile::tempdir().unwrap();
        let mut shell = Shell::new(
            dir.path().to_owned(),
            vec![("OURS".to_owned(), "here".to_owned())],
        );
        let mut run =
            |script: &str, limit: u64| shell.run(&block(script), Duration::from_secs(limit));
        let result = run(
            "name='two words'\n[ -t 1 ] && stty size <&1\necho $OURS\necho done >&2",
            20,
        );
        assert_eq!(
            (result.code, result.printed.as_str()),
            (Some(0), "50 80\nhere\ndone\n")
        );
        assert_eq!(
            run("echo \"$name\"; printf '\\e[1mbold\\e[0m\\n'", 20).printed,
            "two words\nbold\n"
        );
        let result = run("false\necho not reached", 20);
        assert_eq!((result.code, result.printed.as_str()), (Some(1), ""));
        assert_eq!(run("exit 3", 20).code, Some(3));
        assert_eq!(run("echo started; sleep 60", 1).code, None);
        let began = Instant::now();
        assert_eq!(run("sleep 30 &\necho on", 20).printed, "on\n");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the run waited for a background process"
        );
    }
}
