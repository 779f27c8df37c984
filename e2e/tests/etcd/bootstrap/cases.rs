//! Specs on a real API server: each file in `crates/api/tests/cases` states in its first line whether the API server accepts or
//! rejects it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use evenkeel_e2e::operator::install;
use evenkeel_e2e::{Story, checkout};
use serde_json::Value;

const GROUP: &str = "/apis/evenkeel.dev/v1alpha1";

fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Creates an object, or replaces the existing one of its name. Unknown fields are rejected, as by `kubectl`, whose start takes 0.1 s
/// for each case.
fn write(
    story: &Story,
    document: &str,
    existing: &BTreeMap<String, Value>,
    query_suffix: &str,
) -> Result<Value, String> {
    let mut object: Value = serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
    let name = name_of(&object);
    let query = format!("fieldValidation=Strict{query_suffix}");
    match existing.get(&name) {
        None => story.try_send(
            "POST",
            GROUP,
            &format!("etcdclusters?{query}"),
            Some(&object),
        ),
        Some(before) => {
            object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            story.try_send(
                "PUT",
                GROUP,
                &format!("etcdclusters/{name}?{query}"),
                Some(&object),
            )
        }
    }
}

/// Returns the result of a case if it differs from its first line.
fn mismatch(story: &Story, path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (expected, documents) = text.split_once('\n').unwrap();
    let rejected = expected.strip_prefix("# rejected: ");
    let mut existing = BTreeMap::new();
    let documents: Vec<_> = documents.split("---\n").collect();
    let (last, before) = documents.split_last().unwrap();
    for document in before {
        match write(story, document, &existing, "") {
            Ok(object) => _ = existing.insert(name_of(&object), object),
            Err(output) => return Some(format!("an earlier document is rejected: {output}")),
        }
    }
    let last = write(story, last, &existing, "&dryRun=All");
    match (rejected, last) {
        (None, Ok(_)) => None,
        (Some(part), Err(output)) if output.contains(part) => None,
        (_, result) => Some(format!("expected `{expected}`, got {result:?}")),
    }
}

#[test]
fn the_api_server_accepts_or_rejects_each_case_as_stated() {
    let story = Story::begin("api-cases");
    // No operator: accepted resources must have no effect.
    install(&story);
    let directory = checkout().join("crates/api/tests/cases");
    let cases: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(cases.len() >= 90, "only {} cases were found", cases.len());
    // In four threads: almost all time is spent waiting.
    let mismatches: Vec<String> = std::thread::scope(|scope| {
        let shares = cases.chunks(cases.len().div_ceil(4));
        let threads: Vec<_> = shares
            .map(|share| {
                let mismatches = |path: &PathBuf| {
                    Some(format!("{}: {}", path.display(), mismatch(&story, path)?))
                };
                scope.spawn(move || share.iter().filter_map(mismatches).collect::<Vec<_>>())
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        mismatches.is_empty(),
        "{} of {} cases:\n{}",
        mismatches.len(),
        cases.len(),
        mismatches.join("\n")
    );
}
