//! Pages of the docs that list data of this crate: conditions with runbooks, and the keys of labels and annotations.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use evenkeel_api::conditions::{ConditionStatus, ConditionType, Reason};

fn page(path: &str) -> String {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    std::fs::read_to_string(docs.join(path)).unwrap()
}

#[test]
fn every_reason_of_a_problem_has_a_runbook() {
    let page = page("troubleshooting/README.md");
    let problems = Reason::all().filter(|reason| {
        let mut conditions = reason.conditions().iter();
        conditions.any(|(condition, status)| {
            (*condition, *status) == (ConditionType::Degraded, ConditionStatus::True)
        })
    });
    let missing: Vec<_> = problems
        .map(|reason| format!("| `{reason}` | ["))
        .filter(|row| !page.lines().any(|line| line.starts_with(row)))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/troubleshooting/README.md has no rows {missing:?}"
    );
}

#[test]
fn the_reference_lists_every_label_and_annotation() {
    let page = page("reference/labels.md");
    let sources = concat!(
        include_str!("../src/common/labels.rs"),
        include_str!("../src/etcd/labels.rs"),
        include_str!("../src/backup/labels.rs")
    );
    let keys: Vec<_> = sources
        .lines()
        .filter_map(|line| line.split_once("&str = \"")?.1.strip_suffix("\";"))
        .filter(|value| value.contains('/'))
        .collect();
    assert!(keys.len() > 15, "only {keys:?} were found");
    let missing: Vec<_> = keys
        .iter()
        .filter(|key| !page.contains(&format!("`{key}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/reference/labels.md does not mention {missing:?}"
    );
}
