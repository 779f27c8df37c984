//! Rejected edits of a running cluster: by `kubectl scale`, by patches, and by a manifest in which only one field is invalid. Each
//! message names the remedy, and no edit has an effect. (The cases in `bootstrap` test every field.)

mod alone;
mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::alone::previous::CurrentCrd;
use crate::assertions::{CLUSTER_LIMIT, create_orders, wait_healthy};
use crate::intents::kill_after_intent;
use crate::interrupts::{spec, start_after_kill, wait_idle};

/// Returns edits and the expected messages. The first two use the scale subresource, as autoscalers do.
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
        (
            scale("0"),
            "To pause the operator, set spec.paused; to remove the cluster, delete the resource",
        ),
        (scale("8"), "must be at most 7"),
        (
            patch(json!({"members": 0})),
            "To pause the operator, set spec.paused; to remove the cluster, delete the resource",
        ),
        (
            patch(json!({"version": "3.9.9"})),
            "not supported by this release of Evenkeel",
        ),
        (
            patch(json!({"version": "3.6.2"})),
            "3.6.0 to 3.6.3 have a known defect",
        ),
        (
            patch(json!({"etcd": {"options": {"data-dir": "/tmp"}}})),
            "the operator sets the names, addresses and data directories of members",
        ),
        (
            patch(json!({"storage": {"ephemeral": true, "size": null}})),
            "the operator does not move data between pods and volumes",
        ),
        (
            patch(json!({"storage": {"size": "512Mi"}})),
            "the volume also stores the write-ahead log and snapshots",
        ),
        // A patch with one invalid field is rejected as a whole.
        (
            patch(json!({"members": 5, "etcd": {"quota": "2Gi"}})),
            "must not exceed spec.storage.size",
        ),
    ]
}

/// Asserts that each of these edits is rejected with its reason.
pub(crate) fn assert_edits_rejected(story: &Story) {
    for (edit, answer) in edits() {
        let edit: Vec<&str> = edit.iter().map(String::as_str).collect();
        let output = story.try_kubectl(&edit).expect_err("the edit is rejected");
        assert!(output.contains(answer), "{edit:?}: {output}");
    }
}
