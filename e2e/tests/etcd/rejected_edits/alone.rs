//! The stories of this topic that disturb all others.

use super::*;

/// Replaces the CRD's schema by one that accepts everything, until the result is dropped.
fn without_schema(story: &Story) -> CurrentCrd<'_> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    // The resource's CEL rules refer to fields that are then unknown.
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
    CurrentCrd(story)
}

#[test]
fn an_invalid_spec_is_reported_and_the_accepted_one_stays_in_effect() {
    // All other stories need the schema.
    let story = Story::alone("older-schema");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
    cluster.patch(&json!({"members": 3}));
    wait_healthy(&story, &cluster, 3);
    let clients = cluster.workload();
    {
        let _schema = without_schema(&story);
        // The API server takes a moment to use another schema.
        let unknown =
            json!({"spec": {"version": "3.9.9", "members": 9, "heal": {"replaceAfter": "4m"}}})
                .to_string();
        story.eventually("the API server accepts the edit", || {
            story
                .try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &unknown])
                .is_ok()
        });
        story.within(
            CLUSTER_LIMIT,
            "the status reports the invalid spec and the reason",
            || {
                cluster.condition("Degraded") == ("True".to_owned(), "InvalidSpec".to_owned())
                    && cluster
                        .condition_message("Degraded")
                        .contains("stays in effect")
            },
        );
        // Recovery continues, also by an operator that has never seen the accepted spec.
        operator.kill();
        let victim = cluster.pods().remove(0);
        story.kubectl(&["delete", "pod", &victim.name]);
        start_after_kill(&story, &mut operator);
        story.within(CLUSTER_LIMIT, "the member is back", || {
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
            "a rejected edit had an effect"
        );
        let image = story.field(&["pod", &victim.name], ".spec.containers[0].image");
        assert!(image.ends_with("v3.6.16"), "{image}");

        // The valid fields of the same edit are in effect.
        let accepted = story.field(&["configmap", "orders-etcd-identity"], ".data.spec");
        assert!(
            accepted.contains("4m") && accepted.contains("3.6.16"),
            "{accepted}"
        );

        // Field by field: a corrected field is no longer reported.
        let fixed = json!({"spec": {"version": "3.6.16"}}).to_string();
        story.kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &fixed]);
    }
    story.within(CLUSTER_LIMIT, "the status reports the other field", || {
        cluster.status()["waitingFor"]
            .to_string()
            .contains("spec.members")
    });
    // The API server takes a moment to use the schema again.
    story.eventually("the API server accepts the corrected edit", || {
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
    wait_healthy(&story, &cluster, 5);
    wait_idle(&operator);
    clients.finish();
    cluster.wait_same_data();
}
