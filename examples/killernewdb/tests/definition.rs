//! The manifests, the documentation and the size of the example are what they are said to be.
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
    reason = "its main is for the command line, and there it is a crate of its own"
)]
mod crd;

#[test]
fn the_committed_definition_is_that_of_the_type() {
    let committed = read("examples/killernewdb/deploy/crd.yaml");
    assert!(
        committed == crd::text().unwrap(),
        "examples/killernewdb/deploy/crd.yaml: run make generate"
    );
}

#[test]
fn the_sample_is_one_that_the_type_accepts() {
    let sample: KillerNewDb =
        serde_saphyr::from_str(&read("examples/killernewdb/deploy/sample.yaml")).unwrap();
    assert_eq!(sample.spec.members, 3);
    assert_eq!(KillerNewDb::crd_name(), "killernewdbs.killernewdb.example");
}

/// Every piece of code in the tutorial, with the file that it is from.
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
fn every_piece_of_code_in_the_tutorial_is_in_the_file_that_it_names() {
    let snippets = snippets(&read("docs/write-an-operator.md"));
    assert!(snippets.len() > 6, "there are only {}", snippets.len());
    for (file, code) in snippets {
        let whole = read(&file);
        // Where something is left out there is a line that says so.
        for part in code.split("\n// …\n") {
            assert!(
                whole.contains(part),
                "docs/write-an-operator.md says that {file} has this:\n{part}"
            );
        }
    }
}

#[test]
fn the_smallest_operator_is_shown_whole() {
    let smallest = "examples/killernewdb/examples/smallest.rs";
    let snippets = snippets(&read("docs/write-an-operator.md"));
    assert_eq!(snippets[0].0, smallest);
    assert_eq!(snippets[0].1.trim(), read(smallest).trim());
}

/// Lines that say something: no comments, no imports, nothing that is only brackets.
fn lines(file: &str) -> usize {
    let text = read(&format!("examples/killernewdb/src/{file}"));
    // An import may go over several lines.
    let (mut count, mut imports) = (0, false);
    for line in text.lines().map(str::trim) {
        imports |= line.starts_with("use ");
        let says = line.chars().any(char::is_alphanumeric) && !line.starts_with("//");
        count += usize::from(says && !imports);
        imports &= !line.ends_with(';');
    }
    count
}

#[test]
fn the_operators_own_logic_is_under_200_lines() {
    let logic: usize = ["decide.rs", "operator.rs", "main.rs"]
        .map(lines)
        .into_iter()
        .sum();
    println!("{logic} lines");
    assert!(logic < 200, "{logic} lines");
}
