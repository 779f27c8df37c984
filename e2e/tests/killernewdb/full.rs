//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_lost_pod_comes_back_and_a_lost_volume_is_rebuilt_from_the_others() {
    let story = Story::begin("kndb-heal");
    let _operator = operator(&story);
    let database = Database::create(&story, 3);
    let client = database.client();
    for pod in ["shop-1", "shop-0"] {
        let uid = story.field(&["pod", pod], ".metadata.uid");
        story.kubectl(&["delete", "pod", pod]);
        story.eventually("the pod is back", || {
            let path = format!("pods/{pod}");
            story
                .read("/api/v1", &path)
                .is_some_and(|pod| pod["metadata"]["uid"] != uid.as_str())
        });
        database.until_healthy(3);
        assert_eq!(
            database.members(),
            ["shop-0", "shop-1", "shop-2"],
            "the members differ"
        );
    }
    // The volume of a replica, then that of the primary.
    for (lost, then) in [
        ("shop-1", ["shop-0", "shop-2", "shop-3"]),
        ("shop-0", ["shop-2", "shop-3", "shop-4"]),
    ] {
        client.wait_for_writes();
        story.kubectl(&[
            "delete",
            &format!("pod/{lost}"),
            &format!("pvc/{lost}"),
            "--wait=false",
        ]);
        story.eventually("another member replaces it", || database.members() == then);
        database.until_healthy(3);
    }
    client.finish();
}

/// Selects the write at which the operator is killed.
type WriteFilter = fn(&Write) -> bool;

fn deletes_a_pod(write: &Write) -> bool {
    write.verb == "DELETE" && write.is_to("pods")
}

/// Whether a write records something in the ledger.
fn records_in_ledger(write: &Write) -> bool {
    write.verb == "PATCH" && write.is_to("configmaps") && write.name() == Some(NAME)
}

#[test]
fn an_operator_killed_between_intent_and_effect_finishes_after_a_restart() {
    let story = Story::begin("kndb-killed");
    let mut operator = operator(&story);
    let database = Database::create(&story, 1);
    let client = database.client();
    // First after a name is reserved, before anything is created; then before a pod is deleted, whose member has left.
    let moments: [(u8, WriteFilter, Verdict); 2] = [
        (2, records_in_ledger, Verdict::HoldAfter),
        (1, deletes_a_pod, Verdict::HoldBefore),
    ];
    for (members, moment, verdict) in moments {
        operator.proxy().once(verdict, moment);
        story.kubectl(&["scale", "kndb", NAME, &format!("--replicas={members}")]);
        let held = operator.proxy().wait_held(evenkeel_e2e::WAIT_LIMIT);
        operator.kill();
        drop(held);
        start_after_kill(&story, &mut operator);
        database.until_healthy(members);
        assert_eq!(database.members().len(), usize::from(members));
    }
    client.finish();
}

/// Starts a killed operator. Deletes its lease first: the wait for it is the topic of other stories.
fn start_after_kill(story: &Story, operator: &mut Operator) {
    story.kubectl(&[
        "delete",
        "lease",
        "killernewdb-operator",
        "--ignore-not-found",
    ]);
    operator.restart();
}

#[test]
fn an_operator_installed_from_its_manifests_runs_a_database() {
    let story = Story::begin("kndb-install");
    install_crds(&story, CRD);
    database::images(&story);
    let program = binary("killernewdb-operator");
    load_image(&story, "killernewdb-operator:0.1.0", &program);
    // Adapted to the story's namespace: other stories run at the same time.
    let place = story.namespace();
    for file in ["rbac.yaml", "operator.yaml"] {
        let text =
            std::fs::read_to_string(checkout().join("examples/killernewdb/deploy").join(file))
                .unwrap();
        let text = text
            .replace("kind: ClusterRoleBinding", "kind: RoleBinding")
            .replace("kind: ClusterRole\n", "kind: Role\n")
            .replace("kind: ClusterRole,", "kind: Role,")
            .replace(
                "namespace: killernewdb-system",
                &format!("namespace: {place}"),
            )
            .replace(
                "KILLERNEWDB_NAMESPACES, value: \"\"",
                &format!("KILLERNEWDB_NAMESPACES, value: {place}"),
            );
        story.apply(&text);
    }
    story.kubectl(&[
        "rollout",
        "status",
        "deployment/killernewdb-operator",
        "--timeout=90s",
    ]);
    let sample =
        std::fs::read_to_string(checkout().join("examples/killernewdb/deploy/sample.yaml"))
            .unwrap();
    story.apply(&sample);
    let database = Database::named(&story);
    database.until_healthy(3);
    database.client().finish();
    let output = story.kubectl(&[
        "exec",
        "shop-1",
        "--",
        "/usr/local/bin/killernewdb",
        "ask",
        "get",
        "1",
    ]);
    assert_eq!(output.trim(), "written");
    story.kubectl(&["delete", "kndb", NAME]);
    story.eventually("all objects are deleted with the resource", || {
        story
            .kubectl(&[
                "get",
                "pods,pvc",
                "--selector=killernewdb.example/database",
                "-o=name",
            ])
            .is_empty()
    });
}
