//! Checks links between pages: each must point to an existing file and, if given, to a heading in it.

use std::path::{Component, Path, PathBuf};

/// A broken link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLink {
    /// The line, from 1.
    pub line: usize,
    /// The target as written.
    pub target: String,
    /// The problem.
    pub reason: String,
}

/// Returns the broken links of a page. `page` is its path in the checkout, `text` its content.
pub fn broken_links(checkout: &Path, page: &str, text: &str) -> Vec<BrokenLink> {
    let links = link_targets(text)
        .into_iter()
        .filter(|(_, target)| !is_external(target));
    let broken = links.filter_map(|(line, target)| {
        let reason = problem(checkout, page, text, &target)?;
        Some(BrokenLink {
            line,
            target,
            reason,
        })
    });
    broken.collect()
}

fn is_external(target: &str) -> bool {
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
}

/// Returns the problem with a link, if there is one.
fn problem(checkout: &Path, page: &str, text: &str, target: &str) -> Option<String> {
    let (file, heading) = target
        .split_once('#')
        .map_or((target, None), |(file, heading)| (file, Some(heading)));
    let other = if file.is_empty() {
        None
    } else {
        let directory = Path::new(page).parent().unwrap_or(Path::new(""));
        let Some(path) = normalized(&directory.join(file)) else {
            return Some("the target is outside the checkout".to_owned());
        };
        if !checkout.join(&path).exists() {
            return Some(format!("{} does not exist", path.display()));
        }
        Some(path)
    };
    let heading = heading?;
    let headings = match other {
        None => heading_anchors(text),
        Some(path) => {
            heading_anchors(&std::fs::read_to_string(checkout.join(path)).unwrap_or_default())
        }
    };
    (!headings.iter().any(|it| it == heading)).then(|| format!("heading {heading} does not exist"))
}

/// Returns the path without `.` and `..`; `None` if it leaves the checkout.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => result.push(name),
            Component::CurDir => {}
            Component::ParentDir if result.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(result)
}

/// Returns the link targets of a page with their lines. Links in code are ignored.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in text_lines(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                targets.push((number, rest[..end].trim().to_owned()));
            }
        }
    }
    targets
}

/// Returns the anchors of all headings.
fn heading_anchors(text: &str) -> Vec<String> {
    let titles = text_lines(text).filter_map(|(_, line)| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    titles.map(slug).collect()
}

fn slug(title: &str) -> String {
    let letters = title.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter if letter.is_alphanumeric() => letter.to_lowercase().next(),
        _ => None,
    });
    letters.collect()
}

/// Returns the lines outside code blocks, numbered from 1.
fn text_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Returns a line without inline code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn every_link_in_the_docs_has_a_target() {
        let mut problems = Vec::new();
        let pages = crate::files::markdown_files(checkout()).unwrap();
        assert!(pages.len() > 20, "only {pages:?} were found");
        for page in pages {
            let text = std::fs::read_to_string(checkout().join(&page)).unwrap();
            let broken = broken_links(checkout(), &page, &text);
            problems.extend(
                broken
                    .into_iter()
                    .map(|it| format!("{page}:{}: {}: {}", it.line, it.target, it.reason)),
            );
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn broken_links_are_detected() {
        let text = "[a](README.md) [b](gone.md)\n[c](README.md#no-such-heading) and [d](../../outside)\n\
            [e](https://example.org/gone) `[f](code.md)`\n```\n[g](code.md)\n```\n## Here it is\n[h](#here-it-is)[i](#gone)";
        let found = broken_links(checkout(), "README.md", text);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.line, it.target.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (1, "gone.md"),
                (2, "README.md#no-such-heading"),
                (2, "../../outside"),
                (8, "#gone")
            ]
        );
    }

    #[test]
    fn heading_anchors_follow_the_rules_of_markdown_renderers() {
        assert_eq!(slug("`lab node`: what, why?"), "lab-node-what-why");
    }
}
