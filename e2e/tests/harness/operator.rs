//! The operator's process in a story's hands, with a script in its place.

mod full;

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_e2e::operator::{Operator, Options, grant, grant_from, token};
use evenkeel_e2e::proxy::{Lives, Proxy, Verdict};
use evenkeel_e2e::{PATIENCE, Story, checkout};
use serde_json::json;

fn stand_in() -> Options {
    Options {
        program: Some(checkout().join("e2e/tests/harness/stand-in")),
        ..Options::default()
    }
}

#[test]
fn one_that_lost_its_lease_is_started_again_and_one_that_ended_otherwise_or_was_killed_is_not() {
    let story = Story::begin("operator-lease");
    let giving_up = |words: &str| {
        let env = vec![("GIVES_UP".to_owned(), words.to_owned())];
        Operator::with(&story, Options { env, ..stand_in() })
    };
    let lives = |operator: &Operator| operator.log().matches("started").count();
    let mut loses = giving_up(
        "lost the lease to another replica: restart this process to become a candidate again",
    );
    let breaks = giving_up("something is wrong");
    story.eventually("it has begun three times", || lives(&loses) > 2);
    loses.kill();
    let then = lives(&loses);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((lives(&loses), lives(&breaks)), (then, 1));
}

#[test]
fn it_has_the_rights_of_the_manifests_and_no_other_and_what_is_outside_the_namespace_goes_with_it()
{
    let story = Story::begin("operator-rights");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbac.yaml");
    // As manifests are written: for a namespace of their own, with their account beside them.
    std::fs::write(
        &path,
        "apiVersion: v1
kind: ServiceAccount
metadata: {name: evenkeel, namespace: evenkeel-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: evenkeel, namespace: evenkeel-system}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: evenkeel, namespace: evenkeel-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: evenkeel}
subjects: [{kind: ServiceAccount, name: evenkeel, namespace: evenkeel-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evenkeel-nodes}
rules: [{apiGroups: [''], resources: [nodes], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: evenkeel-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: evenkeel-nodes}
subjects: [{kind: ServiceAccount, name: evenkeel, namespace: evenkeel-system}]
",
    )
    .unwrap();
    grant_from(&story, &path);
    let who = format!("--as=system:serviceaccount:{}:evenkeel", story.namespace());
    let may = |verb: &str, what: &str| {
        let asked = story
            .command(&["auth", "can-i", verb, what, &who])
            .attempt()
            .unwrap();
        asked.0
    };
    // The API server takes a moment to know of rights that were just given.
    story.eventually("it has the rights of the manifests", || {
        may("create", "configmaps") && may("list", "nodes")
    });
    assert!(!may("create", "secrets") && !may("delete", "configmaps") && !may("delete", "nodes"));
    let elsewhere = story.lab().kubectl().args([
        "auth",
        "can-i",
        "create",
        "configmaps",
        "-n",
        "default",
        &who,
    ]);
    assert!(
        !elsewhere.attempt().unwrap().0,
        "in its own namespace alone"
    );

    story.kubectl(&["delete", "namespace", story.namespace(), "--wait=false"]);
    let outside = format!("evenkeel-nodes-{}", story.namespace());
    for kind in ["clusterrole", "clusterrolebinding"] {
        story.eventually(&format!("the {kind} goes with the namespace"), || {
            story.try_kubectl(&["get", kind, &outside]).is_err()
        });
    }
}
