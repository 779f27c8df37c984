//! A page: its commands in the order of the page, how each is run, and what the page says that it shows.

use std::ops::Range;
use std::time::Duration;

pub use crate::notes::{How, Screen};
use crate::notes::{Note, PATIENCE, Run, read};

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its path from the checkout.
    pub path: String,
    /// How it is run.
    pub how: How,
    /// Its commands.
    pub blocks: Vec<Block>,
    /// Those that are not run: line and reason.
    pub left: Vec<(usize, String)>,
}

/// Commands that are run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of the first, from 1.
    pub line: usize,
    /// The commands.
    pub script: String,
    /// The exit code that they must end with.
    pub exit: i32,
    /// How long they may take, and how long what they show is waited for.
    pub timeout: Duration,
    /// What the page says that they show.
    pub shows: Option<Shown>,
}

/// What commands show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lines of the page, from 0, without the fence.
    pub lines: Range<usize>,
    /// The text.
    pub text: String,
    /// How it is captured, if it is.
    pub screen: Option<Screen>,
}

/// Commands that only look, and may be asked again until they show what they should.
const LOOKS: [&str; 7] = [
    "kubectl get ",
    "kubectl describe ",
    "kubectl evenkeel status",
    "kubectl evenkeel why",
    "kubectl evenkeel logs",
    "kubectl explain ",
    "lab status",
];

impl Block {
    /// Whether its commands only look.
    pub fn only_looks(&self) -> bool {
        let mut lines = self
            .script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.all(|line| {
            LOOKS
                .iter()
                .any(|look| line.starts_with(look) || line == look.trim())
        })
    }

    /// Whether something of it goes on when it has ended.
    pub fn leaves_something_running(&self) -> bool {
        self.script
            .lines()
            .any(|line| line.trim_end().ends_with(" &"))
    }
}

/// What is to be done with the next block.
enum Next {
    Run(Run),
    NotRun(String),
}

/// What has been read of a page so far.
struct Reader {
    page: Page,
    next: Option<Next>,
    screen: Option<Screen>,
    /// Whether the last block was left out: what it shows cannot be checked.
    left: bool,
}

impl Page {
    /// Reads a page; says in which line something is wrong.
    pub fn read(path: &str, text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().collect();
        let page = Self {
            path: path.to_owned(),
            how: How::default(),
            blocks: Vec::new(),
            left: Vec::new(),
        };
        let mut reader = Reader {
            page,
            next: None,
            screen: None,
            left: false,
        };
        let mut at = 0;
        while at < lines.len() {
            let read = reader.take(&lines, at);
            at = read.map_err(|why| format!("{path}:{}: {why}", at + 1))?;
        }
        if reader.screen.is_some() {
            return Err(format!("{path}: a screen does not end"));
        }
        if reader.next.is_some() {
            return Err(format!("{path}: the last comment is about no block"));
        }
        Ok(reader.page)
    }

    /// The page with other lines in place of some, as captured: the last first, so that the others stay where they are.
    pub fn with_screens(text: &str, mut captured: Vec<(Range<usize>, String)>) -> String {
        captured.sort_by_key(|(lines, _)| std::cmp::Reverse(lines.start));
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (range, shown) in captured {
            lines.splice(range, shown.lines().map(str::to_owned));
        }
        lines.join("\n") + "\n"
    }
}

impl Reader {
    /// Takes what begins at a line, and says where the next begins.
    fn take(&mut self, lines: &[&str], at: usize) -> Result<usize, String> {
        let line = lines[at].trim();
        if let Some(language) = line.strip_prefix("```") {
            let length = lines[at + 1..].iter().position(|line| line.trim() == "```");
            let end = at + 1 + length.ok_or("a code block does not end")?;
            self.fence(language.trim(), at, end, lines)?;
            return Ok(end + 1);
        }
        if let Some(first) = line.strip_prefix("<!--") {
            let length = lines[at..].iter().position(|line| line.contains("-->"));
            let end = at + length.ok_or("a comment does not end")?;
            let comment = if end == at {
                first.split("-->").next().unwrap_or_default().to_owned()
            } else {
                let last = lines[end].split("-->").next().unwrap_or_default();
                [&[first], &lines[at + 1..end], &[last]].concat().join("\n")
            };
            self.note(read(&comment)?, at)?;
            return Ok(end + 1);
        }
        if !line.is_empty() && self.next.is_some() {
            return Err("the comment above is about a block that does not follow".to_owned());
        }
        Ok(at + 1)
    }

    fn note(&mut self, note: Note, at: usize) -> Result<(), String> {
        match note {
            Note::Page(_) if !self.page.blocks.is_empty() || !self.page.left.is_empty() => {
                return Err("how a page is run stands above its first block".to_owned());
            }
            Note::Page(how) => self.page.how = how,
            Note::Run(run) => self.next = Some(Next::Run(run)),
            Note::NotRun(why) => self.next = Some(Next::NotRun(why)),
            Note::Do(script) => {
                self.left = false;
                self.push(at + 1, script, Run::default());
            }
            Note::Screen(_) if self.left || self.page.blocks.is_empty() => {
                return Err(
                    "a screen follows the commands that show it, and they are run".to_owned(),
                );
            }
            Note::Screen(screen) => self.screen = Some(screen),
            Note::ScreenEnds => {
                if self.screen.take().is_some() {
                    return Err(
                        "there is nothing in this screen: put an empty block of text there"
                            .to_owned(),
                    );
                }
            }
            Note::Remark => {}
        }
        Ok(())
    }

    fn fence(
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
                    Some(Next::NotRun(why)) => {
                        self.left = true;
                        self.page.left.push((at + 1, why));
                    }
                    Some(Next::Run(run)) => self.push(at + 1, script, run),
                    None => self.push(at + 1, script, Run::default()),
                }
            }
            "text" => {
                let last = self
                    .page
                    .blocks
                    .last_mut()
                    .filter(|block| !self.left && block.shows.is_none());
                let Some(block) = last else {
                    return Err("this text is shown by no command that is run".to_owned());
                };
                let text = lines[at + 1..end].join("\n");
                block.shows = Some(Shown {
                    lines: at + 1..end,
                    text,
                    screen: self.screen.take(),
                });
            }
            "bash" | "shell" | "console" | "" => {
                return Err(format!(
                    "a block of commands is `sh`, and what they show `text`, not `{language}`"
                ));
            }
            _ => {}
        }
        if self.next.is_some() {
            return Err("the comment above is about a block of commands".to_owned());
        }
        Ok(())
    }

    fn push(&mut self, line: usize, script: String, run: Run) {
        self.left = false;
        self.page.blocks.push(Block {
            line,
            script,
            exit: run.exit,
            timeout: run.timeout.min(PATIENCE * 2),
            shows: None,
        });
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
    fn commands_are_found_in_their_order_with_what_they_show() {
        let page = Page::read("a.md", PAGE).unwrap();
        assert_eq!(page.how.cluster, Some(1));
        let scripts: Vec<_> = page
            .blocks
            .iter()
            .map(|it| (it.line, it.script.trim(), it.exit))
            .collect();
        let wanted = [
            (6, "kubectl get etcd", 0),
            (20, "kill it", 0),
            (24, "kubectl evenkeel status", 3),
            (36, "kubectl port-forward x 1 &", 0),
        ];
        assert_eq!(scripts, wanted);
        assert_eq!(
            page.blocks[0].shows.as_ref().map(|it| it.text.as_str()),
            Some("NAME\norders")
        );
        assert_eq!(page.blocks[2].timeout, Duration::from_secs(9));
        assert_eq!(page.left, [(16, "it takes an hour".to_owned())]);
        assert!(page.blocks[0].only_looks() && !page.blocks[1].only_looks());
        assert!(
            page.blocks[3].leaves_something_running() && !page.blocks[0].leaves_something_running()
        );
    }

    #[test]
    fn what_was_captured_takes_the_place_of_what_was_there() {
        let page = Page::read("a.md", PAGE).unwrap();
        let shown = page.blocks[2].shows.clone().unwrap();
        assert_eq!(shown.screen.unwrap().until, "No quorum");
        let new = Page::with_screens(PAGE, vec![(shown.lines, "new\nnewer".to_owned())]);
        assert_eq!(new, PAGE.replace("old", "new\nnewer"));
    }

    #[test]
    fn what_nobody_would_run_or_check_is_refused() {
        let wrong = [
            ("```bash\nls\n```", "a.md:1: a block of commands is `sh`"),
            ("```\nls\n```", "a.md:1: a block of commands is `sh`"),
            ("```text\nls\n```", "shown by no command"),
            (
                "<!-- not run: it takes an hour -->\n```sh\nls\n```\n```text\nb\n```",
                "a.md:5: this text is shown by no command",
            ),
            (
                "```sh\nls\n```\n```text\na\n```\n```text\nb\n```",
                "shown by no command",
            ),
            (
                "<!-- run: exit=1 -->\nand then\n```sh\nls\n```",
                "a.md:2: the comment above",
            ),
            (
                "<!-- run: exit=1 -->\n```yaml\na: b\n```",
                "about a block of commands",
            ),
            ("<!-- run: exit=1 -->", "about no block"),
            ("```sh\nls", "does not end"),
            (
                "```sh\nls\n```\n<!-- screen: until=\"a\" -->",
                "a screen does not end",
            ),
            (
                "```sh\nls\n```\n<!-- screen: until=\"a\" -->\n<!-- /screen -->",
                "nothing in this screen",
            ),
            (
                "<!-- screen: until=\"a\" -->\n```text\na\n```",
                "a screen follows",
            ),
            (
                "```sh\nls\n```\n<!-- page: cluster=1 -->",
                "above its first block",
            ),
            (
                "<!-- nit run: it takes an hour -->\n```sh\nls\n```",
                "not known",
            ),
        ];
        for (text, why) in wrong {
            let refused = Page::read("a.md", text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn every_page_of_the_docs_can_be_read() {
        let checkout = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut commands = 0;
        for path in crate::files::for_users(checkout).unwrap() {
            let text = std::fs::read_to_string(checkout.join(&path)).unwrap();
            let page = Page::read(&path, &text).unwrap();
            commands += page.blocks.len();
        }
        assert!(commands > 60, "only {commands} were found");
    }
}
