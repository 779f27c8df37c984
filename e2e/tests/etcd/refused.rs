//! Edits of a running cluster that are refused: by `kubectl scale`, by patches, and by a manifest that is good but for one
//! field. Each says what to do instead, and of none anything is done. (What may be written at all, field by field, is tried
//! with the cases in `bootstrap`.)

mod alone;
mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::alone::previous::SchemaOfNow;
use crate::look::{LONG, formed, until_whole};
use crate::middle::{comes_to_rest, lives_again, spec};
use crate::noted::dies_noting;

/// Edits, and what is answered. The first two come by the scale subresource, as autoscalers send them.
fn edits() -> Vec<(Vec<String>, &'static str)> {
    let scale = |to: &str| {
        vec![
            "scale".to_owned(),
            "etcd/orders".to_owned(),
            format!("--replicas={to}"),
        ]
    };
    let patch = |spec: serde_json::Value| {
        let patch = json!({ "spec": spec }).to_string();
        ["patch", "etcd/orders", "--type=merge", "--patch", &patch]
            .map(str::to_owned)
            .to_vec()
    };
    vec![
        (scale("0"), "delete the resource or set paused"),
        (scale("8"), "seven members are the most"),
        (
            patch(json!({"members": 0})),
            "delete the resource or set paused",
        ),
        (
            patch(json!({"version": "3.9.9"})),
            "not known to this release of Evenkeel",
        ),
        (
            patch(json!({"version": "3.6.2"})),
            "3.6.0 to 3.6.3 are known to be bad",
        ),
        (
            patch(json!({"etcd": {"options": {"data-dir": "/tmp"}}})),
            "Evenkeel sees to members' names",
        ),
        (
            patch(json!({"storage": {"ephemeral": true, "size": null}})),
            "spec.storage.ephemeral cannot be changed",
        ),
        (
            patch(json!({"storage": {"size": "512Mi"}})),
            "etcd keeps its log and snapshots beside the data",
        ),
        // All or nothing: what is good of it is not done either.
        (
            patch(json!({"members": 5, "etcd": {"quota": "2Gi"}})),
            "spec.etcd.quota is more than spec.storage.size",
        ),
    ]
}

/// That each of these edits is refused, with its reason.
pub(crate) fn edits_are_refused(story: &Story) {
    for (edit, answer) in edits() {
        let edit: Vec<&str> = edit.iter().map(String::as_str).collect();
        let said = story.try_kubectl(&edit).expect_err("it is refused");
        assert!(said.contains(answer), "{edit:?}: {said}");
    }
}
