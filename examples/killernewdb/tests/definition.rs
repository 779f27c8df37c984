//! Checks of the manifests, the tutorial and the size of the example.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::path::Path;
use std::{env, fs};

use killernewdb::KillerNewDb;
use kube::core::CustomResourceExt;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[path = "../examples/crd.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "only the command line uses its main, as a separate crate"
)]
mod crd;

#[test]
fn the_committed_crd_matches_the_type() {
    let committed = read("examples/killernewdb/deploy/crd.yaml");
    assert!(
        committed == crd::text().unwrap(),
        "examples/killernewdb/deploy/crd.yaml: run make generate"
    );
}

#[test]
fn the_sample_is_valid() {
    let sample: KillerNewDb =
        serde_saphyr::from_str(&read("examples/killernewdb/deploy/sample.yaml")).unwrap();
    assert_eq!(sample.spec.members, 3);
    assert_eq!(KillerNewDb::crd_name(), "killernewdbs.killernewdb.example");
}

/// Returns every code block of the tutorial with its file.
fn snippets(text: &str) -> Vec<(String, String)> {
    let blocks = text.split("\n```rust").skip(1);
    let cut = |block: &str| {
        let (file, rest) = block.split_once('\n').unwrap();
        let (code, _) = rest.split_once("\n```").expect("a block has an end");
        (file.trim().to_owned(), code.to_owned())
    };
    blocks.map(cut).collect()
}

#[test]
fn every_code_block_of_the_tutorial_is_in_its_file() {
    let snippets = snippets(&read("docs/write-an-operator.md"));
    assert!(snippets.len() > 6, "there are only {}", snippets.len());
    for (file, code) in snippets {
        let whole = read(&file);
        // A line `// …` marks an omission.
        for part in code.split("\n// …\n") {
            assert!(
                whole.contains(part),
                "docs/write-an-operator.md says that {file} has this:\n{part}"
            );
        }
    }
}

#[test]
fn the_smallest_operator_is_shown_completely() {
    let smallest = "examples/killernewdb/examples/smallest.rs";
    let snippets = snippets(&read("docs/write-an-operator.md"));
    assert_eq!(snippets[0].0, smallest);
    assert_eq!(snippets[0].1.trim(), read(smallest).trim());
}

/// Counts the lines of code: no comments, no imports, no lines with only brackets.
fn lines(file: &str) -> usize {
    let text = read(&format!("examples/killernewdb/src/{file}"));
    // An import may have several lines.
    let (mut count, mut imports) = (0, false);
    for line in text.lines().map(str::trim) {
        imports |= line.starts_with("use ");
        let is_code = line.chars().any(char::is_alphanumeric) && !line.starts_with("//");
        count += usize::from(is_code && !imports);
        imports &= !line.ends_with(';');
    }
    count
}

#[test]
fn the_operator_has_less_than_350_lines_of_logic() {
    let logic: usize = ["decide.rs", "operator.rs", "main.rs"]
        .map(lines)
        .into_iter()
        .sum();
    println!("{logic} lines");
    assert!(logic < 350, "{logic} lines");
}
