//! A page: its commands in order, their options, and their expected output.

use std::ops::Range;
use std::time::Duration;

use crate::directives::{DEFAULT_TIMEOUT, Directive, RunOptions, parse_directive};
pub use crate::directives::{PageSetup, ScreenCapture};

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The path in the checkout.
    pub path: String,
    /// The setup.
    pub setup: PageSetup,
    /// The command blocks.
    pub blocks: Vec<CommandBlock>,
    /// The skipped blocks: line and reason.
    pub skipped: Vec<(usize, String)>,
}

/// Commands that are run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandBlock {
    /// The line of the first command, from 1.
    pub line: usize,
    /// The commands.
    pub script: String,
    /// The expected exit code.
    pub exit_code: i32,
    /// The time limit of the commands and of waiting for the expected output.
    pub timeout: Duration,
    /// The output that the page shows.
    pub expected: Option<ExpectedOutput>,
}

/// The expected output of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedOutput {
    /// The lines of the page, from 0, without the fence.
    pub lines: Range<usize>,
    /// The text.
    pub text: String,
    /// How the output is captured, if it is.
    pub screen: Option<ScreenCapture>,
}

/// Read-only commands, which may be repeated until they show the expected output.
const READ_ONLY_COMMANDS: [&str; 7] = [
    "kubectl get ",
    "kubectl describe ",
    "kubectl evenkeel status",
    "kubectl evenkeel why",
    "kubectl evenkeel logs",
    "kubectl explain ",
    "lab status",
];

impl CommandBlock {
    /// Returns true if all commands are read-only.
    pub fn is_read_only(&self) -> bool {
        let mut lines = self
            .script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.all(|line| {
            READ_ONLY_COMMANDS
                .iter()
                .any(|command| line.starts_with(command) || line == command.trim())
        })
    }

    /// Returns true if a command keeps running in the background.
    pub fn starts_background_process(&self) -> bool {
        self.script
            .lines()
            .any(|line| line.trim_end().ends_with(" &"))
    }
}

/// The directive for the next block.
enum NextBlock {
    Run(RunOptions),
    NotRun(String),
}

/// The state of the parser.
struct PageParser {
    page: Page,
    next: Option<NextBlock>,
    screen: Option<ScreenCapture>,
    /// The block that was parsed last, to which a `text` block belongs; `None` if it was skipped.
    last: Option<usize>,
    /// The number of blocks that run before all others.
    first_blocks: usize,
}

impl Page {
    /// Parses a page. The error names the line.
    pub fn parse(path: &str, text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().collect();
        let page = Self {
            path: path.to_owned(),
            setup: PageSetup::default(),
            blocks: Vec::new(),
            skipped: Vec::new(),
        };
        let mut parser = PageParser {
            page,
            next: None,
            screen: None,
            last: None,
            first_blocks: 0,
        };
        let mut at = 0;
        while at < lines.len() {
            let read = parser.read_at(&lines, at);
            at = read.map_err(|error| format!("{path}:{}: {error}", at + 1))?;
        }
        if parser.screen.is_some() {
            return Err(format!("{path}: a screen has no end"));
        }
        if parser.next.is_some() {
            return Err(format!("{path}: no block follows the last directive"));
        }
        Ok(parser.page)
    }

    /// Returns the page with captured lines in place of some ranges. The last range is replaced first, so that the
    /// others stay valid.
    pub fn replace_screens(text: &str, mut captured: Vec<(Range<usize>, String)>) -> String {
        captured.sort_by_key(|(lines, _)| std::cmp::Reverse(lines.start));
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (range, output) in captured {
            lines.splice(range, output.lines().map(str::to_owned));
        }
        lines.join("\n") + "\n"
    }
}

impl PageParser {
    /// Parses the element that starts at a line. Returns the line after it.
    fn read_at(&mut self, lines: &[&str], at: usize) -> Result<usize, String> {
        let line = lines[at].trim();
        if let Some(language) = line.strip_prefix("```") {
            let length = lines[at + 1..].iter().position(|line| line.trim() == "```");
            let end = at + 1 + length.ok_or("a code block has no end")?;
            self.read_fence(language.trim(), at, end, lines)?;
            return Ok(end + 1);
        }
        if let Some(first) = line.strip_prefix("<!--") {
            let length = lines[at..].iter().position(|line| line.contains("-->"));
            let end = at + length.ok_or("a comment has no end")?;
            let comment = if end == at {
                first.split("-->").next().unwrap_or_default().to_owned()
            } else {
                let last = lines[end].split("-->").next().unwrap_or_default();
                [&[first], &lines[at + 1..end], &[last]].concat().join("\n")
            };
            self.apply_directive(parse_directive(&comment)?, at)?;
            return Ok(end + 1);
        }
        if !line.is_empty() && self.next.is_some() {
            return Err("no block follows the directive above".to_owned());
        }
        Ok(at + 1)
    }

    fn apply_directive(&mut self, directive: Directive, at: usize) -> Result<(), String> {
        match directive {
            Directive::Page(_) if !self.page.blocks.is_empty() || !self.page.skipped.is_empty() => {
                return Err("the `page` directive must precede the first block".to_owned());
            }
            Directive::Page(setup) => self.page.setup = setup,
            Directive::Run(run) => self.next = Some(NextBlock::Run(run)),
            Directive::NotRun(reason) => self.next = Some(NextBlock::NotRun(reason)),
            Directive::Hidden(script) => {
                self.push_block(at + 1, script, RunOptions::default());
            }
            Directive::Screen(_) if self.last.is_none() => {
                return Err(
                    "a screen must follow the commands that show it, and they must be run"
                        .to_owned(),
                );
            }
            Directive::Screen(screen) => self.screen = Some(screen),
            Directive::ScreenEnd => {
                if self.screen.take().is_some() {
                    return Err("the screen is empty: add an empty `text` block".to_owned());
                }
            }
            Directive::Generated => {}
        }
        Ok(())
    }

    fn read_fence(
        &mut self,
        language: &str,
        at: usize,
        end: usize,
        lines: &[&str],
    ) -> Result<(), String> {
        match language {
            "sh" => {
                let script = lines[at + 1..end].join("\n");
                match self.next.take() {
                    Some(NextBlock::NotRun(reason)) => {
                        self.last = None;
                        self.page.skipped.push((at + 1, reason));
                    }
                    Some(NextBlock::Run(run)) => self.push_block(at + 1, script, run),
                    None => self.push_block(at + 1, script, RunOptions::default()),
                }
            }
            "text" => {
                let last = self
                    .last
                    .and_then(|at| self.page.blocks.get_mut(at))
                    .filter(|block| block.expected.is_none());
                let Some(block) = last else {
                    return Err("no executed command shows this text".to_owned());
                };
                let text = lines[at + 1..end].join("\n");
                block.expected = Some(ExpectedOutput {
                    lines: at + 1..end,
                    text,
                    screen: self.screen.take(),
                });
            }
            "bash" | "shell" | "console" | "" => {
                return Err(format!(
                    "use `sh` for commands and `text` for their output, not `{language}`"
                ));
            }
            _ => {}
        }
        if self.next.is_some() {
            return Err("the directive above needs a block of commands".to_owned());
        }
        Ok(())
    }

    fn push_block(&mut self, line: usize, script: String, run: RunOptions) {
        let block = CommandBlock {
            line,
            script,
            exit_code: run.exit_code,
            timeout: run.timeout.min(DEFAULT_TIMEOUT * 2),
            expected: None,
        };
        let at = if run.is_first {
            self.first_blocks += 1;
            self.first_blocks - 1
        } else {
            self.page.blocks.len()
        };
        self.page.blocks.insert(at, block);
        self.last = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n<!-- page: cluster=1 -->\n\nFirst:\n\n```sh\nkubectl get etcd\n```\n\n```text\nNAME\norders\n```\n\n\
        <!-- not run: it takes an hour -->\n```sh\nmake test\n```\n\n<!-- do\nkill it\n-->\n<!-- run: exit=3, timeout=9 -->\n\
        ```sh\nkubectl evenkeel status\n```\n<!-- screen: until=\"No quorum\" -->\n```text\nold\n```\n<!-- /screen -->\n\
        ```yaml\na: b\n```\n- in a list\n  ```sh\n  kubectl port-forward x 1 &\n  ```\n";

    #[test]
    fn commands_are_parsed_in_order_with_their_expected_output() {
        let page = Page::parse("a.md", PAGE).unwrap();
        assert_eq!(page.setup.cluster_members, Some(1));
        let scripts: Vec<_> = page
            .blocks
            .iter()
            .map(|it| (it.line, it.script.trim(), it.exit_code))
            .collect();
        let expected = [
            (6, "kubectl get etcd", 0),
            (20, "kill it", 0),
            (24, "kubectl evenkeel status", 3),
            (36, "kubectl port-forward x 1 &", 0),
        ];
        assert_eq!(scripts, expected);
        assert_eq!(
            page.blocks[0].expected.as_ref().map(|it| it.text.as_str()),
            Some("NAME\norders")
        );
        assert_eq!(page.blocks[2].timeout, Duration::from_secs(9));
        assert_eq!(page.skipped, [(16, "it takes an hour".to_owned())]);
        assert!(page.blocks[0].is_read_only() && !page.blocks[1].is_read_only());
        assert!(
            page.blocks[3].starts_background_process()
                && !page.blocks[0].starts_background_process()
        );
    }

    #[test]
    fn first_blocks_run_before_all_others_in_their_own_order() {
        let page = "```sh\nlook\n```\n<!-- run: first -->\n```sh\nbreak\n```\n```text\nbroken\n```\n```sh\nrepair\n```\n\
            <!-- run: first, exit=1 -->\n```sh\nbreak more\n```\n";
        let page = Page::parse("a.md", page).unwrap();
        let blocks: Vec<_> = page
            .blocks
            .iter()
            .map(|it| (it.script.as_str(), it.exit_code))
            .collect();
        assert_eq!(
            blocks,
            [("break", 0), ("break more", 1), ("look", 0), ("repair", 0)]
        );
        let expected = |at: usize| page.blocks[at].expected.as_ref().map(|it| &*it.text);
        assert_eq!((expected(0), expected(1)), (Some("broken"), None));
    }

    #[test]
    fn captured_output_replaces_the_old_text() {
        let page = Page::parse("a.md", PAGE).unwrap();
        let output = page.blocks[2].expected.clone().unwrap();
        assert_eq!(output.screen.unwrap().until, "No quorum");
        let new = Page::replace_screens(PAGE, vec![(output.lines, "new\nnewer".to_owned())]);
        assert_eq!(new, PAGE.replace("old", "new\nnewer"));
    }

    #[test]
    fn blocks_that_would_not_be_run_or_checked_are_rejected() {
        let invalid = [
            ("```bash\nls\n```", "a.md:1: use `sh` for commands"),
            ("```\nls\n```", "a.md:1: use `sh` for commands"),
            ("```text\nls\n```", "no executed command shows"),
            (
                "<!-- not run: it takes an hour -->\n```sh\nls\n```\n```text\nb\n```",
                "a.md:5: no executed command shows",
            ),
            (
                "```sh\nls\n```\n```text\na\n```\n```text\nb\n```",
                "no executed command shows",
            ),
            (
                "<!-- run: exit=1 -->\nand then\n```sh\nls\n```",
                "a.md:2: no block follows the directive above",
            ),
            (
                "<!-- run: exit=1 -->\n```yaml\na: b\n```",
                "needs a block of commands",
            ),
            ("<!-- run: exit=1 -->", "no block follows"),
            ("```sh\nls", "has no end"),
            (
                "```sh\nls\n```\n<!-- screen: until=\"a\" -->",
                "a screen has no end",
            ),
            (
                "```sh\nls\n```\n<!-- screen: until=\"a\" -->\n<!-- /screen -->",
                "the screen is empty",
            ),
            (
                "<!-- screen: until=\"a\" -->\n```text\na\n```",
                "a screen must follow",
            ),
            (
                "```sh\nls\n```\n<!-- page: cluster=1 -->",
                "must precede the first block",
            ),
            (
                "<!-- nit run: it takes an hour -->\n```sh\nls\n```",
                "unknown directive",
            ),
        ];
        for (text, message) in invalid {
            let error = Page::parse("a.md", text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn every_page_of_the_docs_can_be_parsed() {
        let checkout = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut commands = 0;
        for path in crate::files::user_pages(checkout).unwrap() {
            let text = std::fs::read_to_string(checkout.join(&path)).unwrap();
            let page = Page::parse(&path, &text).unwrap();
            commands += page.blocks.len();
        }
        assert!(commands > 60, "only {commands} were found");
    }
}
