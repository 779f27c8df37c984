//! Stories of the made-up database: the example's operator and members, real, on a real Kubernetes, with a client whose every
//! acknowledged write must be there in the end.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "stories fail by panicking"
)]

mod database;
mod full;

use std::time::Duration;

use evenkeel_e2e::operator::{Operator, built_beside, define, load_image};
use evenkeel_e2e::proxy::{Verdict, Write};
use evenkeel_e2e::{Story, checkout};
use serde_json::Value;

use database::{DEFINITION, Database, NAME, operator};

#[test]
fn one_member_becomes_three_and_two_and_keeps_what_was_written() {
    let story = Story::begin("kndb-scale");
    let operator = operator(&story);
    let database = Database::create(&story, 1);
    let client = database.client();
    for members in [3, 2] {
        story.kubectl(&["scale", "kndb", NAME, &format!("--replicas={members}")]);
        database.until_healthy(members);
    }
    client.finish();
    let left = story.get(&["pvc"])["items"].as_array().map(Vec::len);
    assert_eq!(left, Some(2), "the volume of who left is gone");
    operator
        .proxy()
        .becomes_quiet(Duration::from_secs(4), evenkeel_e2e::PATIENCE);
    // What it did, on which facts, can be read afterwards.
    let decisions = story.get(&["configmap", &format!("{NAME}-killernewdb-decisions")]);
    let texts: Vec<&str> = decisions["data"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_str)
        .collect();
    assert!(
        texts
            .iter()
            .any(|text| text.contains("bootstrap the database on shop-0")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("delete PersistentVolumeClaim shop-2")),
        "{texts:?}"
    );
}
