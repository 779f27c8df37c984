//! A shell as a reader has it: a terminal of 80 columns, and variables that stay from one block to the next.

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

/// What ends what was printed: written by us when the commands have ended, for something may run on.
const END: u8 = 0x1e;

/// What a block did.
pub(crate) struct Did {
    /// The exit code; none when it took too long.
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
}

pub(crate) struct Shell {
    /// Files of its own.
    dir: PathBuf,
    env: Vec<(String, String)>,
    variables: BTreeSet<String>,
    /// Groups of processes that something was left running in.
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

    /// Runs a block, for at most so long.
    pub(crate) fn run(&mut self, block: &CommandBlock, limit: Duration) -> Did {
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
        std::fs::write(&script, text).expect("the commands can be written");
        let size = Winsize {
            ws_row: 50,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = openpty(&size, None).expect("there is a pseudo-terminal");
        let (master, mut slave) = (File::from(terminal.master), File::from(terminal.slave));
        let (out, err) = (
            slave.try_clone().expect("it has two"),
            slave.try_clone().expect("and three"),
        );
        let mut command = Cmd::new("bash").arg(&script).dir(evenkeel_e2e::checkout());
        for (key, value) in &self.env {
            command = command.env(key, value);
        }
        // A group of its own: whatever it starts can be ended.
        let started = command.spawn(|command| {
            command
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(out)
                .stderr(err);
        });
        let mut child = started.unwrap_or_else(|error| panic!("{error:#}"));
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a process has a number"));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(read(master)));
        let began = Instant::now();
        let code = loop {
            if let Some(ended) = child.try_wait().expect("our own child can be waited for") {
                break Some(ended.code().unwrap_or(-1));
            }
            if began.elapsed() > limit {
                // It may have ended just now.
                let _ = killpg(group, Signal::SIGKILL);
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if block.starts_background_process() {
            self.running.push(group);
        }
        slave.write_all(&[END]).expect("the terminal is ours");
        Did {
            code,
            printed: plain(&told.recv().expect("it is read to the end")),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for group in &self.running {
            // What has ended by itself needs no end.
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }
}

/// The name of the variable that a line gives a value to.
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

/// All that is printed, up to the end.
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

/// Without colours, and without what a terminal adds.
fn plain(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed).replace(['\r', char::from(END)], "");
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    // An escape ends with its first letter.
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
    fn a_shell_is_a_terminal_of_80_columns_and_remembers_its_variables() {
        let dir = tempfile::tempdir().unwrap();
        let mut shell = Shell::new(
            dir.path().to_owned(),
            vec![("OURS".to_owned(), "here".to_owned())],
        );
        let mut run =
            |script: &str, limit: u64| shell.run(&block(script), Duration::from_secs(limit));
        let did = run(
            "name='two words'\n[ -t 1 ] && stty size <&1\necho $OURS\necho done >&2",
            20,
        );
        assert_eq!(
            (did.code, did.printed.as_str()),
            (Some(0), "50 80\nhere\ndone\n")
        );
        assert_eq!(
            run("echo \"$name\"; printf '\\e[1mbold\\e[0m\\n'", 20).printed,
            "two words\nbold\n"
        );
        let did = run("false\necho not reached", 20);
        assert_eq!((did.code, did.printed.as_str()), (Some(1), ""));
        assert_eq!(run("exit 3", 20).code, Some(3));
        assert_eq!(run("echo begun; sleep 60", 1).code, None);
        let began = Instant::now();
        assert_eq!(run("sleep 30 &\necho on", 20).printed, "on\n");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "what runs on is not waited for"
        );
    }
}
