//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_pod_comes_back_with_its_data_and_a_lost_volume_is_rebuilt_from_the_others() {
    let story = Story::begin("kndb-heal");
    let _operator = operator(&story);
    let database = Database::create(&story, 3);
    let client = database.client();
    for pod in ["shop-1", "shop-0"] {
        let uid = story.field(&["pod", pod], ".metadata.uid");
        story.kubectl(&["delete", "pod", pod]);
        story.eventually("it is back", || {
            let path = format!("pods/{pod}");
            story
                .read("/api/v1", &path)
                .is_some_and(|pod| pod["metadata"]["uid"] != uid.as_str())
        });
        database.until_healthy(3);
        assert_eq!(
            database.members(),
            ["shop-0", "shop-1", "shop-2"],
            "they are the same members"
        );
    }
    // The volume of a member, and then that of the primary.
    for (lost, then) in [
        ("shop-1", ["shop-0", "shop-2", "shop-3"]),
        ("shop-0", ["shop-2", "shop-3", "shop-4"]),
    ] {
        client.writes_some();
        story.kubectl(&[
            "delete",
            &format!("pod/{lost}"),
            &format!("pvc/{lost}"),
            "--wait=false",
        ]);
        story.eventually("somebody else is in its place", || {
            database.members() == then
        });
        database.until_healthy(3);
    }
    client.finish();
}

/// Tells the write at which the operator dies.
type Moment = fn(&Write) -> bool;

fn deletes_a_pod(write: &Write) -> bool {
    write.verb == "DELETE" && write.is_to("pods")
}

/// Whether a write notes something in the ledger.
fn notes(write: &Write) -> bool {
    write.verb == "PATCH" && write.is_to("configmaps") && write.name() == Some(NAME)
}

#[test]
fn an_operator_killed_between_what_it_intends_and_what_it_does_finishes_that_in_its_next_life() {
    let story = Story::begin("kndb-killed");
    let mut operator = operator(&story);
    let database = Database::create(&story, 1);
    let client = database.client();
    // A name is reserved, and nothing is done about it; a pod that is about to be deleted, when its member has left.
    let moments: [(u8, Moment, Verdict); 2] = [
        (2, notes, Verdict::StopAfter),
        (1, deletes_a_pod, Verdict::StopBefore),
    ];
    for (members, moment, verdict) in moments {
        operator.proxy().once(verdict, moment);
        story.kubectl(&["scale", "kndb", NAME, &format!("--replicas={members}")]);
        let stopped = operator.proxy().stopped(evenkeel_e2e::PATIENCE);
        operator.kill();
        drop(stopped);
        lives_again(&story, &mut operator);
        database.until_healthy(members);
        assert_eq!(database.members().len(), usize::from(members));
    }
    client.finish();
}

/// Starts a dead operator. How long a successor waits for its lease is for other stories.
fn lives_again(story: &Story, operator: &mut Operator) {
    story.kubectl(&[
        "delete",
        "lease",
        "killernewdb-operator",
        "--ignore-not-found",
    ]);
    operator.restart();
}

#[test]
fn installed_from_its_manifests_it_runs_a_database() {
    let story = Story::begin("kndb-install");
    define(&story, DEFINITION);
    database::images(&story);
    let program = built_beside("killernewdb-operator");
    load_image(&story, "killernewdb-operator:0.1.0", &program);
    // Fitted into the story's namespace: others run beside it.
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
    let said = story.kubectl(&[
        "exec",
        "shop-1",
        "--",
        "/usr/local/bin/killernewdb",
        "ask",
        "get",
        "1",
    ]);
    assert_eq!(said.trim(), "written");
    story.kubectl(&["delete", "kndb", NAME]);
    story.eventually("all of it goes with its resource", || {
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
