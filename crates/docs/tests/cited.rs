//! `docs/capability-levels.md` says which tests show what it claims. Each of them must be where the page says, be a test, and hurt nodes
//! if, and only if, the page says so: what is renamed or taken away would else be claimed on.
//!
//! In the column *shown by* a cell has parts between semicolons, each of them a file and its tests: `` `path/of.rs`: `one`, `other` ``.
//! Before the file may stand `hurts nodes:`.

use std::path::Path;

const PAGE: &str = "docs/capability-levels.md";

/// A test as the page names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cited {
    /// The line of the page, from 1.
    line: usize,
    file: String,
    name: String,
    hurts: bool,
}

fn last_cell(row: &str) -> &str {
    row.trim()
        .trim_end_matches('|')
        .rsplit('|')
        .next()
        .unwrap_or_default()
        .trim()
}

/// All that a page cites, and the parts in which no file comes first.
fn cited(page: &str) -> (Vec<Cited>, Vec<String>) {
    let (mut found, mut without_file) = (Vec::new(), Vec::new());
    let mut shows = None;
    for (line, row) in (1..).zip(page.lines()) {
        if !row.starts_with('|') {
            shows = None;
            continue;
        }
        // The first row of a table is its heading.
        if !*shows.get_or_insert_with(|| last_cell(row) == "shown by") {
            continue;
        }
        for part in last_cell(row).split(';') {
            let mut quoted = part.split('`').skip(1).step_by(2);
            let Some(file) = quoted.next() else { continue };
            if !file.ends_with(".rs") {
                without_file.push(format!("{PAGE}:{line}: `{file}` has no file before it"));
                continue;
            }
            let hurts = part.trim_start().starts_with("hurts nodes:");
            found.extend(quoted.map(|name| Cited {
                line,
                file: file.to_owned(),
                name: name.to_owned(),
                hurts,
            }));
        }
    }
    (found, without_file)
}

/// Whether a file has a test of this name. Stories of pages are listed with their page.
fn has_test(source: &str, name: &str) -> bool {
    let (function, of_page) = (format!("fn {name}("), format!("{name}: \"docs/"));
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    if source.contains("pages! {") && lines.iter().any(|line| line.starts_with(&of_page)) {
        return true;
    }
    let begins = |line: &&str| {
        line.strip_prefix("async ")
            .unwrap_or(line)
            .starts_with(&function)
    };
    let Some(at) = lines.iter().position(begins) else {
        return false;
    };
    // Its attributes and comments, up to what is before it.
    let mut above = lines
        .iter()
        .take(at)
        .rev()
        .take_while(|line| !line.is_empty());
    above.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
}

/// Whether the tests of a file hurt nodes: they are in a module `alone`, and so run alone (`.config/nextest.toml`).
fn hurts(file: &str) -> bool {
    Path::new(file)
        .with_extension("")
        .iter()
        .any(|module| module == "alone")
}

/// What is wrong with what is cited, by what is in its file.
fn trouble(cited: &Cited, source: Option<&str>) -> Option<String> {
    let Cited {
        line, file, name, ..
    } = cited;
    let why = match source.map(|source| has_test(source, name)) {
        None => "there is no such file",
        Some(false) => "there is no such test",
        Some(true) if hurts(file) && !cited.hurts => "it hurts nodes, and the page does not say so",
        Some(true) if !hurts(file) && cited.hurts => "it hurts no nodes, and the page says so",
        Some(true) => return None,
    };
    Some(format!("{PAGE}:{line}: {file}: {name}: {why}"))
}

#[test]
fn every_test_that_the_capability_levels_rest_on_is_there_and_hurts_nodes_where_that_is_said() {
    let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let (cited, mut told) = cited(&std::fs::read_to_string(checkout.join(PAGE)).unwrap());
    assert!(cited.len() > 80, "only {} were found", cited.len());
    assert!(
        cited.iter().filter(|one| one.hurts).count() > 5,
        "those that hurt nodes were not found"
    );
    told.extend(cited.iter().filter_map(|one| {
        let source = std::fs::read_to_string(checkout.join(&one.file)).ok();
        trouble(one, source.as_deref())
    }));
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn what_is_cited_is_read_from_tables_that_say_what_they_show() {
    let page = "| level | for etcd |\n|---|---|\n| 1 | `not/cited.rs`: `nor_this` |\n\n| question | shown by |\n|---|---|\n\
        | `a` | `x.rs`: `one`, `two` and more; hurts nodes: `y.rs`: `three` |\n| b | see `c`; no test |\n";
    let (found, without_file) = cited(page);
    let told: Vec<_> = found
        .iter()
        .map(|it| (it.line, &*it.file, &*it.name, it.hurts))
        .collect();
    assert_eq!(
        told,
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
fn what_is_not_there_or_is_no_test_or_hurts_otherwise_than_said_is_found() {
    let source = "fn helper() {}\n\n/// Why.\n#[test]\nfn plain() {}\n";
    let judged = |file: &str, name: &str, hurts: bool, source: Option<&str>| {
        let one = Cited {
            line: 1,
            file: file.to_owned(),
            name: name.to_owned(),
            hurts,
        };
        trouble(&one, source)
    };
    for (file, hurts) in [
        ("x.rs", false),
        ("alones.rs", false),
        ("x/alone.rs", true),
        ("alone/x.rs", true),
    ] {
        assert_eq!(judged(file, "plain", hurts, Some(source)), None);
        assert!(
            judged(file, "plain", !hurts, Some(source)).is_some(),
            "{file} is told otherwise"
        );
        assert!(
            judged(file, "plain", hurts, None).is_some(),
            "{file} is not there"
        );
    }
    for name in ["helper", "pla", "plain_and_more"] {
        assert!(
            judged("x.rs", name, false, Some(source)).is_some(),
            "{name} is no test"
        );
    }
    let pages = "pages! {\n    it_is_as_told: \"docs/it.md\",\n}\n";
    assert_eq!(judged("x.rs", "it_is_as_told", false, Some(pages)), None);
}
