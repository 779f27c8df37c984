//! What a page tells whoever runs it, in comments that readers do not see.
//!
//! | comment | meaning |
//! |---|---|
//! | `page: apart, operator=none, cluster=3, bare` | how the page is run, see [`How`] |
//! | `run: exit=3, timeout=60` | how the next block is run |
//! | `not run: why` | the next block is not |
//! | `do`, and lines | commands that are run and not shown |
//! | `screen: until="…", upto="…"` to `/screen` | what stands between is captured by `make screens` |

use std::time::Duration;

/// How long a block may take, and how long what it shows is waited for, unless it says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// How a page is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct How {
    /// It hurts what others stand on.
    pub apart: bool,
    /// An operator runs in its namespace.
    pub operator: bool,
    /// Nothing of Evenkeel is installed when it begins, nor when it ends.
    pub bare: bool,
    /// A cluster `orders` of so many members is there when it begins.
    pub cluster: Option<u8>,
}

impl Default for How {
    fn default() -> Self {
        Self {
            apart: false,
            operator: true,
            bare: false,
            cluster: None,
        }
    }
}

/// How a block is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) exit: i32,
    pub(crate) timeout: Duration,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            exit: 0,
            timeout: PATIENCE,
        }
    }
}

/// How something is captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// What must be seen before it is captured.
    pub until: String,
    /// The beginning of the line before which it ends, if it does not end by itself.
    pub upto: Option<String>,
}

/// One comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Page(How),
    Run(Run),
    NotRun(String),
    Do(String),
    Screen(Screen),
    ScreenEnds,
    /// For readers of the source alone.
    Remark,
}

/// Reads a comment: what stands between `<!--` and `-->`.
pub(crate) fn read(comment: &str) -> Result<Note, String> {
    let comment = comment.trim();
    if let Some(script) = comment.strip_prefix("do\n") {
        return Ok(Note::Do(script.to_owned()));
    }
    if comment == "/screen" {
        return Ok(Note::ScreenEnds);
    }
    let (kind, rest) = comment.split_once(':').unwrap_or((comment, ""));
    let rest = rest.trim();
    match kind {
        "page" => page(rest).map(Note::Page),
        "run" => run(rest).map(Note::Run),
        "not run" if rest.len() < 10 => Err("a block that is not run says why".to_owned()),
        "not run" => Ok(Note::NotRun(rest.to_owned())),
        "screen" => screen(rest).map(Note::Screen),
        _ if kind.starts_with("Generated ") => Ok(Note::Remark),
        _ => Err(format!("the comment `{kind}` is not known")),
    }
}

fn page(rest: &str) -> Result<How, String> {
    let mut how = How::default();
    for (key, value) in pairs(rest)? {
        match (key.as_str(), value.as_str()) {
            ("apart", "") => how.apart = true,
            ("operator", "none") => how.operator = false,
            ("bare", "") => (how.bare, how.apart, how.operator) = (true, true, false),
            ("cluster", count) => {
                how.cluster = Some(
                    count
                        .parse()
                        .map_err(|_| format!("cluster={count} is no number"))?,
                )
            }
            _ => return Err(format!("`{key}` is not known for a page")),
        }
    }
    Ok(how)
}

fn run(rest: &str) -> Result<Run, String> {
    let mut run = Run::default();
    for (key, value) in pairs(rest)? {
        let number: u16 = value
            .parse()
            .map_err(|_| format!("{key}={value} is no number"))?;
        match key.as_str() {
            "exit" => run.exit = i32::from(number),
            "timeout" => run.timeout = Duration::from_secs(number.into()),
            _ => return Err(format!("`{key}` is not known for a block")),
        }
    }
    Ok(run)
}

fn screen(rest: &str) -> Result<Screen, String> {
    let mut screen = Screen::default();
    for (key, value) in pairs(rest)? {
        match key.as_str() {
            "until" => screen.until = value,
            "upto" => screen.upto = Some(value),
            _ => return Err(format!("`{key}` is not known for a screen")),
        }
    }
    if screen.until.is_empty() {
        return Err("a screen says what must be seen on it: until=\"…\"".to_owned());
    }
    Ok(screen)
}

/// `a, b=c, d="e, f"`.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find([',', '=']).unwrap_or(rest.len());
        let key = rest[..end].trim().to_owned();
        let mut value = String::new();
        let after = &rest[end..];
        rest = match after.strip_prefix('=') {
            Some(after) => match after.strip_prefix('"') {
                Some(quoted) => {
                    let end = quoted
                        .find('"')
                        .ok_or_else(|| format!("{key} has no closing quote"))?;
                    value = quoted[..end].to_owned();
                    &quoted[end + 1..]
                }
                None => {
                    let end = after.find(',').unwrap_or(after.len());
                    value = after[..end].trim().to_owned();
                    &after[end..]
                }
            },
            None => after,
        };
        rest = rest.trim_start_matches(',').trim();
        all.push((key, value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read() {
        let how = How {
            apart: true,
            operator: false,
            bare: false,
            cluster: Some(3),
        };
        assert_eq!(
            read(" page: apart, operator=none, cluster=3 "),
            Ok(Note::Page(how))
        );
        let run = Run {
            exit: 3,
            timeout: Duration::from_secs(20),
        };
        assert_eq!(read("run: exit=3, timeout=20"), Ok(Note::Run(run)));
        let screen = Screen {
            until: "No quorum, none".to_owned(),
            upto: Some("What was".to_owned()),
        };
        assert_eq!(
            read(r#"screen: until="No quorum, none", upto="What was""#),
            Ok(Note::Screen(screen))
        );
        assert_eq!(
            read("do\nkill 1\nkill 2\n"),
            Ok(Note::Do("kill 1\nkill 2".to_owned()))
        );
        assert_eq!(read("Generated by `make generate`."), Ok(Note::Remark));
    }

    #[test]
    fn what_is_not_understood_is_not_passed_over() {
        for wrong in [
            "run: exit",
            "run: exits=3",
            "not run:",
            "not run: why",
            "page: alone",
            "skip",
            "screen: upto=a",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
