//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn installed_from_the_chart_it_runs_clusters_and_leaves_them_in_peace_when_it_is_upgraded_or_uninstalled()
 {
    let story = Story::begin("chart");
    load_image(&story, IMAGE, &built());
    install(&story);
    // Other stories have the same definitions and roles: they are taken over as they are.
    let only = format!("namespaces={{{}}}", story.namespace());
    let (operator, cluster) = (shown(&chart("evenkeel")), shown(&chart("etcd-cluster")));
    let deploy = |extra: &[&str]| {
        let args = [
            "upgrade",
            "--install",
            story.namespace(),
            &operator,
            "--set",
            &only,
            "--set",
            "userRoles=false",
        ];
        let wait = ["--take-ownership", "--wait", "--timeout=3m"];
        helm(&story, &[&args[..], &wait[..], extra].concat()).unwrap()
    };
    let said = deploy(&[]);
    assert!(said.contains("looks after the namespaces"), "{said}");
    let make = |members: &str| {
        let members = format!("spec.members={members}");
        let args = [
            "upgrade",
            "--install",
            "orders",
            &cluster,
            "--set",
            &members,
            "--set",
            "spec.storage.size=1Gi",
        ];
        helm(&story, &args).unwrap()
    };
    assert!(make("1").contains("orders-etcd-client"));
    let orders = Cluster::named(&story, "orders");
    orders.wait_ready(LONG);
    until_whole(&story, &orders, 1);
    make("3");
    until_whole(&story, &orders, 3);
    story.eventually("it is told as well", || {
        evenkeel(&story, &["status"]).code == 0
    });

    // Another build, or other settings, of the operator restart nothing of the cluster's.
    let workload = orders.workload();
    let before = uids(&orders);
    deploy(&["--set", "replicas=1", "--set", "log.filter=debug"]);
    assert_eq!(uids(&orders), before);
    helm(&story, &["uninstall", story.namespace(), "--wait"]).unwrap();
    assert_eq!(uids(&orders), before, "without an operator it serves on");
    workload.finish();
    // Back again, it takes up what is there.
    deploy(&[]);
    story.kubectl(&["delete", "pod", &orders.pods().remove(0).name]);
    story.within(LONG, "it is looked after again", || {
        orders.pods().len() == 3
    });
    until_whole(&story, &orders, 3);
    helm(&story, &["uninstall", "orders"]).unwrap();
    story.within(LONG, "the cluster is gone", || orders.pods().is_empty());
    let claims = story.kubectl(&["get", "pvc", "-o", "name"]);
    assert_eq!(claims.lines().count(), 3, "its volumes stay: {claims}");
}

#[test]
fn whoever_may_edit_a_namespace_may_have_clusters_there_and_whoever_may_view_it_sees_them() {
    let story = Story::begin("roles");
    install(&story);
    let users = shown(&checkout().join("deploy/operator/users.yaml"));
    story
        .lab()
        .kubectl()
        .args(["apply", "-f", &users])
        .run()
        .unwrap();
    for role in ["view", "edit"] {
        story.kubectl(&["create", "serviceaccount", role]);
        let account = format!("--serviceaccount={}:{role}", story.namespace());
        story.kubectl(&[
            "create",
            "rolebinding",
            role,
            &format!("--clusterrole={role}"),
            &account,
        ]);
    }
    let may = |role: &str, verb: &str, part: &str| {
        let who = format!("--as=system:serviceaccount:{}:{role}", story.namespace());
        let part = format!("--subresource={part}");
        let asked = story.try_kubectl(&[
            "auth",
            "can-i",
            verb,
            "etcdclusters.evenkeel.dev",
            &part,
            &who,
        ]);
        asked.is_ok_and(|said| said.trim() == "yes")
    };
    story.eventually("the roles are aggregated", || {
        may("view", "list", "") && may("edit", "create", "")
    });
    assert!(
        may("edit", "update", "scale") && may("edit", "get", "") && may("view", "get", "status")
    );
    assert!(
        !may("view", "create", "") && !may("view", "update", "scale"),
        "whoever may look may not change"
    );
    assert!(!may("edit", "update", "status"), "that is the operator's");
}
