//! Edits of a running cluster that are refused: by `kubectl scale`, by patches, and by a manifest that is good but for one
//! field. Each says what to do instead, and of none anything is done. (What may be written at all, field by field, is tried
//! with the cases in `bootstrap`.)

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::look::{LONG, clients_of, until_whole};
use crate::middle::{lives_again, spec};
use crate::noted::dies_noting;

/// Edits, and what is answered. The first two come by the scale subresource, as autoscalers send them.
fn edits() -> Vec<(Vec<String>, &'static str)> {
    let scale = |to: &str| vec!["scale".to_owned(), "etcd/orders".to_owned(), format!("--replicas={to}")];
    let patch = |spec: serde_json::Value| {
        let patch = json!({ "spec": spec }).to_string();
        ["patch", "etcd/orders", "--type=merge", "--patch", &patch].map(str::to_owned).to_vec()
    };
    vec![
        (scale("0"), "delete the resource or set paused"),
        (scale("8"), "seven members are the most"),
        (patch(json!({"members": 0})), "delete the resource or set paused"),
        (patch(json!({"version": "3.9.9"})), "not known to this release of Evenkeel"),
        (patch(json!({"version": "3.7.3"})), "spec.version cannot be changed yet"),
        (
            patch(json!({"storage": {"ephemeral": true, "size": null}})),
            "spec.storage.ephemeral cannot be changed",
        ),
        (patch(json!({"storage": {"size": "2Gi"}})), "growing is not supported yet"),
        // All or nothing: what is good of it is not done either.
        (
            patch(json!({"members": 5, "etcd": {"quota": "2Gi"}})),
            "spec.etcd.quota is more than spec.storage.size",
        ),
    ]
}

#[test]
fn edits_that_are_refused_say_what_to_do_and_leave_a_running_change_and_healing_as_they_were() {
    let story = Story::begin("refused");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    cluster.wait_ready(LONG);
    until_whole(&story, &cluster, 1);
    let clients = clients_of(&cluster);
    // In the middle of a change that was asked for before.
    dies_noting(&mut operator, &cluster, "Add", || cluster.patch(&json!({"members": 3})));
    let before = story.get(&["etcd/orders"]);
    for (edit, answer) in edits() {
        let edit: Vec<&str> = edit.iter().map(String::as_str).collect();
        let said = story.try_kubectl(&edit).expect_err("it is refused");
        assert!(said.contains(answer), "{edit:?}: {said}");
    }
    let after = story.get(&["etcd/orders"]);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    lives_again(&story, &mut operator);
    until_whole(&story, &cluster, 3);

    let victim = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &victim.name]);
    until_whole(&story, &cluster, 3);
    assert_ne!(cluster.pod(&victim.name).uid, victim.uid);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
