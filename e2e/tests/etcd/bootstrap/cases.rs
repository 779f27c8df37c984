//! What users may write, tried on a real API server: each file in `crates/api/tests/cases` says in its first line what
//! becomes of it.

use std::path::{Path, PathBuf};

use evenkeel_e2e::operator::install;
use evenkeel_e2e::{Story, checkout};

/// What became of a case, where it is not what the case says.
fn wrong(story: &Story, path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (expected, documents) = text.split_once('\n').unwrap();
    let refused = expected.strip_prefix("# refused: ");
    let apply = |document: &str, args: &[&str]| {
        let applied = story
            .command(&["apply", "--filename=-"])
            .args(args.iter().copied())
            .input(document)
            .run();
        applied.map_err(|error| format!("{error:#}"))
    };
    let documents: Vec<_> = documents.split("---\n").collect();
    let (last, before) = documents.split_last().unwrap();
    for document in before {
        if let Err(said) = apply(document, &[]) {
            return Some(format!("what stood there before is refused: {said}"));
        }
    }
    match (refused, apply(last, &["--dry-run=server"])) {
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
