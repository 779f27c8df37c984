//! Stories of the example database: its operator and members on a real Kubernetes, with a client whose acknowledged writes must all
//! exist at the end.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "stories fail by panicking"
)]

mod database;
mod full;

use std::time::Duration;

use evenkeel_e2e::operator::{Operator, binary, install_crds, load_image};
use evenkeel_e2e::proxy::{Verdict, Write};
use evenkeel_e2e::{Story, checkout};
use serde_json::Value;

use database::{CRD, Database, NAME, operator};

#[test]
fn scaling_keeps_all_acknowledged_writes() {
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
    assert_eq!(left, Some(2), "the PVC of the removed member still exists");
    operator
        .proxy()
        .wait_idle(Duration::from_secs(4), evenkeel_e2e::WAIT_LIMIT);
    // The decision log has the actions.
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
