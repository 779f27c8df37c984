//! Directives: HTML comments in a page that say how its commands are run.
//!
//! | comment | meaning |
//! |---|---|
//! | `page: apart, operator=none, cluster=3, bare` | the setup of the page, see [`PageSetup`] |
//! | `run: exit=3, timeout=60, first` | options of the next block; `first`: it runs before all others |
//! | `not run: why` | the next block is skipped |
//! | `do`, and lines | commands that are run and not shown |
//! | `screen: until="…", upto="…"` to `/screen` | the text between is captured by `make screens` |

use std::time::Duration;

/// The default time limit of a block and of waiting for its expected output.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(150);

/// The setup of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSetup {
    /// Whether the page disturbs other tests and must run alone.
    pub exclusive: bool,
    /// Whether an operator runs in its namespace.
    pub has_operator: bool,
    /// Whether Evenkeel is not installed before and after the page.
    pub is_bare: bool,
    /// The size of the cluster `orders` that exists before the page.
    pub cluster_members: Option<u8>,
}

impl Default for PageSetup {
    fn default() -> Self {
        Self {
            exclusive: false,
            has_operator: true,
            is_bare: false,
            cluster_members: None,
        }
    }
}

/// The options of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunOptions {
    pub(crate) exit_code: i32,
    pub(crate) timeout: Duration,
    /// Whether the block runs before all blocks without this option: a page may break something in its last section.
    pub(crate) is_first: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            exit_code: 0,
            timeout: DEFAULT_TIMEOUT,
            is_first: false,
        }
    }
}

/// How output is captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenCapture {
    /// The text that must appear before the capture.
    pub until: String,
    /// The start of the line before which the capture ends.
    pub up_to: Option<String>,
}

/// One directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    Page(PageSetup),
    Run(RunOptions),
    NotRun(String),
    Hidden(String),
    Screen(ScreenCapture),
    ScreenEnd,
    /// A comment for readers of the source.
    Generated,
}

/// Parses the text between `<!--` and `-->`.
pub(crate) fn parse_directive(comment: &str) -> Result<Directive, String> {
    let comment = comment.trim();
    if let Some(script) = comment.strip_prefix("do\n") {
        return Ok(Directive::Hidden(script.to_owned()));
    }
    if comment == "/screen" {
        return Ok(Directive::ScreenEnd);
    }
    let (kind, rest) = comment.split_once(':').unwrap_or((comment, ""));
    let rest = rest.trim();
    match kind {
        "page" => parse_page_setup(rest).map(Directive::Page),
        "run" => parse_run_options(rest).map(Directive::Run),
        "not run" if rest.len() < 10 => Err("`not run` needs a reason".to_owned()),
        "not run" => Ok(Directive::NotRun(rest.to_owned())),
        "screen" => parse_screen(rest).map(Directive::Screen),
        _ if kind.starts_with("Generated ") => Ok(Directive::Generated),
        _ => Err(format!("unknown directive `{kind}`")),
    }
}

fn parse_page_setup(rest: &str) -> Result<PageSetup, String> {
    let mut setup = PageSetup::default();
    for (key, value) in parse_pairs(rest)? {
        match (key.as_str(), value.as_str()) {
            ("apart", "") => setup.exclusive = true,
            ("operator", "none") => setup.has_operator = false,
            ("bare", "") => {
                (setup.is_bare, setup.exclusive, setup.has_operator) = (true, true, false)
            }
            ("cluster", count) => {
                setup.cluster_members = Some(
                    count
                        .parse()
                        .map_err(|_| format!("cluster={count} is not a number"))?,
                )
            }
            _ => return Err(format!("unknown option `{key}` for a page")),
        }
    }
    Ok(setup)
}

fn parse_run_options(rest: &str) -> Result<RunOptions, String> {
    let mut run = RunOptions::default();
    for (key, value) in parse_pairs(rest)? {
        if (key.as_str(), value.as_str()) == ("first", "") {
            run.is_first = true;
            continue;
        }
        let number: u16 = value
            .parse()
            .map_err(|_| format!("{key}={value} is not a number"))?;
        match key.as_str() {
            "exit" => run.exit_code = i32::from(number),
            "timeout" => run.timeout = Duration::from_secs(number.into()),
            _ => return Err(format!("unknown option `{key}` for a block")),
        }
    }
    Ok(run)
}

fn parse_screen(rest: &str) -> Result<ScreenCapture, String> {
    let mut screen = ScreenCapture::default();
    for (key, value) in parse_pairs(rest)? {
        match key.as_str() {
            "until" => screen.until = value,
            "upto" => screen.up_to = Some(value),
            _ => return Err(format!("unknown option `{key}` for a screen")),
        }
    }
    if screen.until.is_empty() {
        return Err("a screen needs the text that must appear: until=\"…\"".to_owned());
    }
    Ok(screen)
}

/// Parses `a, b=c, d="e, f"`.
fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
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
    fn directives_are_parsed() {
        let setup = PageSetup {
            exclusive: true,
            has_operator: false,
            is_bare: false,
            cluster_members: Some(3),
        };
        assert_eq!(
            parse_directive(" page: apart, operator=none, cluster=3 "),
            Ok(Directive::Page(setup))
        );
        let run = RunOptions {
            exit_code: 3,
            timeout: Duration::from_secs(20),
            is_first: false,
        };
        assert_eq!(
            parse_directive("run: exit=3, timeout=20"),
            Ok(Directive::Run(run))
        );
        let first = RunOptions {
            is_first: true,
            ..RunOptions::default()
        };
        assert_eq!(parse_directive("run: first"), Ok(Directive::Run(first)));
        let screen = ScreenCapture {
            until: "No quorum, none".to_owned(),
            up_to: Some("Last decisions".to_owned()),
        };
        assert_eq!(
            parse_directive(r#"screen: until="No quorum, none", upto="Last decisions""#),
            Ok(Directive::Screen(screen))
        );
        assert_eq!(
            parse_directive("do\nkill 1\nkill 2\n"),
            Ok(Directive::Hidden("kill 1\nkill 2".to_owned()))
        );
        assert_eq!(
            parse_directive("Generated by `make generate`."),
            Ok(Directive::Generated)
        );
    }

    #[test]
    fn unknown_directives_are_rejected() {
        for wrong in [
            "run: exit",
            "run: exits=3",
            "run: first=1",
            "not run:",
            "not run: why",
            "page: alone",
            "skip",
            "screen: upto=a",
        ] {
            assert!(parse_directive(wrong).is_err(), "{wrong}");
        }
    }
}
