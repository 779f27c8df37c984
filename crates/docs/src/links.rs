//! Links between the docs: each leads to a file that is there, and to a heading that is in it.

use std::path::{Component, Path, PathBuf};

/// A link that leads nowhere: in which line, and where it was to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// As it is written.
    pub target: String,
    /// What is wrong with it.
    pub why: String,
}

/// The links of a page that lead nowhere. `page` is its path from the checkout, `text` what is in it.
pub fn broken(checkout: &Path, page: &str, text: &str) -> Vec<Broken> {
    let links = targets(text)
        .into_iter()
        .filter(|(_, target)| !is_elsewhere(target));
    let judged = links.filter_map(|(line, target)| {
        let why = trouble(checkout, page, text, &target)?;
        Some(Broken { line, target, why })
    });
    judged.collect()
}

fn is_elsewhere(target: &str) -> bool {
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
}

/// What is wrong with a link, if something is.
fn trouble(checkout: &Path, page: &str, text: &str, target: &str) -> Option<String> {
    let (file, heading) = target
        .split_once('#')
        .map_or((target, None), |(file, heading)| (file, Some(heading)));
    let other = if file.is_empty() {
        None
    } else {
        let directory = Path::new(page).parent().unwrap_or(Path::new(""));
        let Some(path) = plain(&directory.join(file)) else {
            return Some("it leads out of the checkout".to_owned());
        };
        if !checkout.join(&path).exists() {
            return Some(format!("there is no {}", path.display()));
        }
        Some(path)
    };
    let heading = heading?;
    let headings = match other {
        None => headings(text),
        Some(path) => headings(&std::fs::read_to_string(checkout.join(path)).unwrap_or_default()),
    };
    (!headings.iter().any(|it| it == heading)).then(|| format!("there is no heading {heading}"))
}

/// A path without `.` and `..`; nothing if it leads out.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// Where the links of a page lead, each with its line. Code is left out.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push((number, rest[..end].trim().to_owned()));
            }
        }
    }
    found
}

/// How headings are called in links.
fn headings(text: &str) -> Vec<String> {
    let titles = prose(text).filter_map(|(_, line)| {
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

/// The lines outside of code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// A line without what stands between backticks.
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
    fn every_link_in_the_docs_leads_somewhere() {
        let mut told = Vec::new();
        let pages = crate::files::all(checkout()).unwrap();
        assert!(pages.len() > 20, "only {pages:?} were found");
        for page in pages {
            let text = std::fs::read_to_string(checkout().join(&page)).unwrap();
            let broken = broken(checkout(), &page, &text);
            told.extend(
                broken
                    .into_iter()
                    .map(|it| format!("{page}:{}: {}: {}", it.line, it.target, it.why)),
            );
        }
        assert!(told.is_empty(), "{}", told.join("\n"));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "[a](README.md) [b](gone.md)\n[c](README.md#no-such-heading) and [d](../../outside)\n\
            [e](https://example.org/gone) `[f](code.md)`\n```\n[g](code.md)\n```\n## Here it is\n[h](#here-it-is)[i](#gone)";
        let found = broken(checkout(), "README.md", text);
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
    fn headings_are_called_as_readers_of_markdown_call_them() {
        assert_eq!(slug("`lab node`: what, why?"), "lab-node-what-why");
    }
}
