//! Checks the tests that `docs/capability-levels.md` cites: each must exist in the named file, be a test, and be
//! marked as hurting nodes exactly if the page says so.
//!
//! In the column *shown by* a cell has parts separated by semicolons, each with a file and its tests: ``
//! `path/of.rs`: `one`, `other` ``. The file may be preceded by `hurts nodes:`.

use std::path::Path;

const PAGE: &str = "docs/capability-levels.md";

/// A test that the page cites.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Citation {
    /// The line of the page, from 1.
    line: usize,
    file: String,
    name: String,
    /// Whether the page says that the test hurts nodes.
    hurts_nodes: bool,
}

fn last_cell(row: &str) -> &str {
    row.trim()
        .trim_end_matches('|')
        .rsplit('|')
        .next()
        .unwrap_or_default()
        .trim()
}

/// Returns all cited tests of a page, and the parts that do not start with a file.
fn citations(page: &str) -> (Vec<Citation>, Vec<String>) {
    let (mut found, mut without_file) = (Vec::new(), Vec::new());
    let mut cites_tests = None;
    for (line, row) in (1..).zip(page.lines()) {
        if !row.starts_with('|') {
            cites_tests = None;
            continue;
        }
        // The first row of a table is its heading.
        if !*cites_tests.get_or_insert_with(|| last_cell(row) == "shown by") {
            continue;
        }
        for part in last_cell(row).split(';') {
            let mut quoted = part.split('`').skip(1).step_by(2);
            let Some(file) = quoted.next() else { continue };
            if !file.ends_with(".rs") {
                without_file.push(format!("{PAGE}:{line}: `{file}` has no file before it"));
                continue;
            }
            let hurts_nodes = part.trim_start().starts_with("hurts nodes:");
            found.extend(quoted.map(|name| Citation {
                line,
                file: file.to_owned(),
                name: name.to_owned(),
                hurts_nodes,
            }));
        }
    }
    (found, without_file)
}

/// Returns whether a file has a test of this name. Tests of documentation pages are listed with their page.
fn has_test(source: &str, name: &str) -> bool {
    let (function, of_page) = (format!("fn {name}("), format!("{name}: \"docs/"));
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    if source.contains("pages! {") && lines.iter().any(|line| line.starts_with(&of_page)) {
        return true;
    }
    let is_function = |line: &&str| {
        line.strip_prefix("async ")
            .unwrap_or(line)
            .starts_with(&function)
    };
    let Some(at) = lines.iter().position(is_function) else {
        return false;
    };
    // The attributes and comments above the function.
    let mut above = lines
        .iter()
        .take(at)
        .rev()
        .take_while(|line| !line.is_empty());
    above.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
}

/// Returns whether the tests of a file hurt nodes: those are in a module `alone` and run alone (`.config/nextest.toml`).
fn hurts_nodes(file: &str) -> bool {
    Path::new(file)
        .with_extension("")
        .iter()
        .any(|module| module == "alone")
}

/// Returns the problem with a cited test, given the content of its file.
fn problem(citation: &Citation, source: Option<&str>) -> Option<String> {
    let Citation {
        line, file, name, ..
    } = citation;
    let problem = match source.map(|source| has_test(source, name)) {
        None => "the file does not exist",
        Some(false) => "the test does not exist",
        Some(true) if hurts_nodes(file) && !citation.hurts_nodes => {
            "the test hurts nodes, but the page does not say so"
        }
        Some(true) if !hurts_nodes(file) && citation.hurts_nodes => {
            "the test does not hurt nodes, but the page says so"
        }
        Some(true) => return None,
    };
    Some(format!("{PAGE}:{line}: {file}: {name}: {problem}"))
}

#[test]
fn every_test_cited_by_the_capability_levels_exists() {
    let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let (citations, mut problems) =
        citations(&std::fs::read_to_string(checkout.join(PAGE)).unwrap());
    assert!(citations.len() > 80, "only {} were found", citations.len());
    assert!(
        citations.iter().filter(|it| it.hurts_nodes).count() > 5,
        "the tests that hurt nodes were not found"
    );
    problems.extend(citations.iter().filter_map(|citation| {
        let source = std::fs::read_to_string(checkout.join(&citation.file)).ok();
        problem(citation, source.as_deref())
    }));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn citations_are_read_from_tables_with_a_shown_by_column() {
    let page = "| level | for etcd |\n|---|---|\n| 1 | `not/cited.rs`: `nor_this` |\n\n| question | shown by |\n|---|---|\n\
        | `a` | `x.rs`: `one`, `two` and more; hurts nodes: `y.rs`: `three` |\n| b | see `c`; no test |\n";
    let (found, without_file) = citations(page);
    let parsed: Vec<_> = found
        .iter()
        .map(|it| (it.line, &*it.file, &*it.name, it.hurts_nodes))
        .collect();
    assert_eq!(
        parsed,
        [
            (7, "x.rs", "one", false),
            (7, "x.rs", "two", false),
            (7, "y.rs", "three", true)
        ]
    );
    assert_eq!(
        without_file,
        [format!("{PAGE}:8: `c` has no file before it")]
    );
}

#[test]
fn missing_tests_and_wrong_marks_are_detected() {
    let source = "fn helper() {}\n\n/// A comment.\n#[test]\nfn plain() {}\n";
    let check = |file: &str, name: &str, hurts_nodes: bool, source: Option<&str>| {
        let citation = Citation {
            line: 1,
            file: file.to_owned(),
            name: name.to_owned(),
            hurts_nodes,
        };
        problem(&citation, source)
    };
    for (file, hurts_nodes) in [
        ("x.rs", false),
        ("alones.rs", false),
        ("x/alone.rs", true),
        ("alone/x.rs", true),
    ] {
        assert_eq!(check(file, "plain", hurts_nodes, Some(source)), None);
        assert!(
            check(file, "plain", !hurts_nodes, Some(source)).is_some(),
            "{file} has a wrong mark"
        );
        assert!(
            check(file, "plain", hurts_nodes, None).is_some(),
            "{file} does not exist"
        );
    }
    for name in ["helper", "pla", "plain_and_more"] {
        assert!(
            check("x.rs", name, false, Some(source)).is_some(),
            "{name} is not a test"
        );
    }
    let pages = "pages! {\n    page_is_current: \"docs/it.md\",\n}\n";
    assert_eq!(check("x.rs", "page_is_current", false, Some(pages)), None);
}
