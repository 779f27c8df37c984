//! Edits of a running cluster that are refused: by `kubectl scale`, by patches, and by a manifest that is good but for one
//! field. Each says what to do instead, and of none anything is done. (What may be written at all, field by field, is tried
//! with the cases in `bootstrap`.)

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::look::{LONG, formed, until_whole};
use crate::middle::{comes_to_rest, lives_again, spec};
use crate::noted::dies_noting;
use crate::previous::SchemaOfNow;

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

#[test]
fn edits_that_are_refused_say_what_to_do_and_leave_a_running_change_and_healing_as_they_were() {
    let story = Story::begin("refused");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let clients = cluster.workload();
    // In the middle of a change that was asked for before.
    dies_noting(&mut operator, &cluster, "Add", || {
        cluster.patch(&json!({"members": 3}))
    });
    let before = story.get(&["etcd/orders"]);
    for (edit, answer) in edits() {
        let edit: Vec<&str> = edit.iter().map(String::as_str).collect();
        let said = story.try_kubectl(&edit).expect_err("it is refused");
        assert!(said.contains(answer), "{edit:?}: {said}");
    }
    let after = story.get(&["etcd/orders"]);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    lives_again(&story, &mut operator);
    until_whole(&story, &cluster, 3);

    let victim = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &victim.name]);
    until_whole(&story, &cluster, 3);
    assert_ne!(cluster.pod(&victim.name).uid, victim.uid);
    clients.finish();
    cluster.holds_the_same_everywhere();
}

/// A schema that lets anything pass, until the story is done with it.
fn without_a_schema(story: &Story) -> SchemaOfNow<'_> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    // What the resource's own rules speak of is then unknown.
    let patch = json!([
        {"op": "remove", "path": format!("{schema}/x-kubernetes-validations")},
        {"op": "replace", "path": format!("{schema}/properties/spec"), "value": anything},
    ]);
    let patch = patch.to_string();
    story.kubectl(&[
        "patch",
        "crd",
        "etcdclusters.evenkeel.dev",
        "--type=json",
        "--patch",
        &patch,
    ]);
    SchemaOfNow(story)
}

#[test]
#[ignore = "it hurts nodes: make test-hurt"]
fn a_spec_that_only_the_operator_refuses_is_told_and_the_one_before_stays_in_force() {
    // Nobody else can do without the schema.
    let story = Story::apart("older-schema");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    cluster.patch(&json!({"members": 3}));
    until_whole(&story, &cluster, 3);
    let clients = cluster.workload();
    {
        let _schema = without_a_schema(&story);
        // The API server takes a moment to learn of another schema.
        let unknown =
            json!({"spec": {"version": "3.9.9", "members": 9, "heal": {"replaceAfter": "4m"}}})
                .to_string();
        story.eventually("it is taken", || {
            story
                .try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &unknown])
                .is_ok()
        });
        story.within(LONG, "it is told, with the reason", || {
            cluster.condition("Degraded") == ("True".to_owned(), "SpecRefused".to_owned())
                && cluster.status()["waitingFor"]
                    .to_string()
                    .contains("stays in force")
        });
        // Healing goes on, by one who has never seen the spec that is in force, too.
        operator.kill();
        let victim = cluster.pods().remove(0);
        story.kubectl(&["delete", "pod", &victim.name]);
        lives_again(&story, &mut operator);
        story.within(LONG, "the member is back", || {
            let pods = cluster.pods();
            pods.len() == 3
                && pods.iter().all(|pod| pod.ready)
                && pods
                    .iter()
                    .any(|pod| pod.name == victim.name && pod.uid != victim.uid)
        });
        assert_eq!(cluster.condition("Degraded").1, "SpecRefused");
        assert_eq!(
            cluster.member_list().len(),
            3,
            "of what is refused nothing is done"
        );
        let image = story.field(&["pod", &victim.name], ".spec.containers[0].image");
        assert!(image.ends_with("v3.6.16"), "{image}");

        // What could be accepted of the same edit is in force.
        let noted = story.field(&["configmap", "orders-etcd-identity"], ".data.spec");
        assert!(noted.contains("4m") && noted.contains("3.6.16"), "{noted}");

        // Field by field: what is mended is told no more.
        let mended = json!({"spec": {"version": "3.6.16"}}).to_string();
        story.kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &mended]);
    }
    story.within(LONG, "the other field is told now", || {
        cluster.status()["waitingFor"]
            .to_string()
            .contains("spec.members")
    });
    // The schema, too, takes a moment to come back.
    story.eventually("it is mended", || {
        story
            .try_kubectl(&[
                "patch",
                "etcd/orders",
                "--type=merge",
                "--patch",
                r#"{"spec":{"members":5}}"#,
            ])
            .is_ok()
    });
    until_whole(&story, &cluster, 5);
    comes_to_rest(&operator);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
