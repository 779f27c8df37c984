//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

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
fn a_spec_that_only_the_operator_refuses_is_told_and_the_one_before_stays_in_force() {
    // Nobody else can do without the schema.
    let story = Story::alone("older-schema");
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
            cluster.condition("Degraded") == ("True".to_owned(), "InvalidSpec".to_owned())
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
        assert_eq!(cluster.condition("Degraded").1, "InvalidSpec");
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
