//! The operator's process in a story, with a script instead of the operator.

mod full;

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_e2e::operator::{Operator, Options, grant, grant_from, token};
use evenkeel_e2e::proxy::{ObjectCounts, Proxy, Verdict};
use evenkeel_e2e::{Story, WAIT_LIMIT, checkout};
use serde_json::json;

fn script_options() -> Options {
    Options {
        program: Some(checkout().join("e2e/tests/harness/fake-operator")),
        ..Options::default()
    }
}

#[test]
fn only_an_operator_that_lost_its_lease_is_restarted() {
    let story = Story::begin("operator-lease");
    let start_with_last_message = |words: &str| {
        let env = vec![("EXIT_MESSAGE".to_owned(), words.to_owned())];
        Operator::with(
            &story,
            Options {
                env,
                ..script_options()
            },
        )
    };
    let starts = |operator: &Operator| operator.log().matches("started").count();
    let mut lost_lease = start_with_last_message(
        "lost the lease to another replica: restart this process to become a candidate again",
    );
    let other_error = start_with_last_message("another error");
    story.eventually("it has started three times", || starts(&lost_lease) > 2);
    lost_lease.kill();
    let then = starts(&lost_lease);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((starts(&lost_lease), starts(&other_error)), (then, 1));
}

#[test]
fn the_operator_has_exactly_the_permissions_of_its_manifests() {
    let story = Story::begin("operator-permissions");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbac.yaml");
    // Like real manifests: for their own namespace, with their service account.
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
    // The API server takes a moment to use new permissions.
    story.eventually("it has the permissions of the manifests", || {
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
        "it has permissions in another namespace"
    );

    story.kubectl(&["delete", "namespace", story.namespace(), "--wait=false"]);
    let outside = format!("evenkeel-nodes-{}", story.namespace());
    for kind in ["clusterrole", "clusterrolebinding"] {
        story.eventually(&format!("the {kind} is deleted with the namespace"), || {
            story.try_kubectl(&["get", kind, &outside]).is_err()
        });
    }
}
