//! What users may write, tried on a real API server: each file in `crates/api/tests/cases` says in its first line what
//! becomes of it.

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

/// Creates an object, or replaces the one of its name that is `there`. Unknown fields are refused, as for `kubectl`, which would
/// take a tenth of a second for each.
fn write(
    story: &Story,
    document: &str,
    there: &BTreeMap<String, Value>,
    how: &str,
) -> Result<Value, String> {
    let mut object: Value = serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
    let name = name_of(&object);
    let query = format!("fieldValidation=Strict{how}");
    match there.get(&name) {
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

/// What became of a case, where it is not what the case says.
fn wrong(story: &Story, path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (expected, documents) = text.split_once('\n').unwrap();
    let refused = expected.strip_prefix("# refused: ");
    let mut there = BTreeMap::new();
    let documents: Vec<_> = documents.split("---\n").collect();
    let (last, before) = documents.split_last().unwrap();
    for document in before {
        match write(story, document, &there, "") {
            Ok(object) => _ = there.insert(name_of(&object), object),
            Err(said) => return Some(format!("what stood there before is refused: {said}")),
        }
    }
    let last = write(story, last, &there, "&dryRun=All");
    match (refused, last) {
        (None, Ok(_)) => None,
        (Some(part), Err(said)) if said.contains(part) => None,
        (_, became) => Some(format!("expected `{expected}`, and it was {became:?}")),
    }
}

#[test]
fn the_api_server_accepts_and_refuses_what_each_case_says() {
    let story = Story::begin("api-cases");
    // No operator: nothing is to come of the ones that are accepted.
    install(&story);
    let directory = checkout().join("crates/api/tests/cases");
    let cases: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(cases.len() >= 90, "only {} cases were found", cases.len());
    // A few at a time: nearly all of it is waiting.
    let told: Vec<String> = std::thread::scope(|scope| {
        let shares = cases.chunks(cases.len().div_ceil(4));
        let threads: Vec<_> = shares
            .map(|share| {
                let told =
                    |path: &PathBuf| Some(format!("{}: {}", path.display(), wrong(&story, path)?));
                scope.spawn(move || share.iter().filter_map(told).collect::<Vec<_>>())
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        told.is_empty(),
        "{} of {} cases:\n{}",
        told.len(),
        cases.len(),
        told.join("\n")
    );
}
