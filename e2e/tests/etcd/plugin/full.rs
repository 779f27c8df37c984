//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn the_plugin_names_the_remedy_without_permission_or_connection() {
    let story = Story::begin("plugin-no");
    let dir = tempfile::tempdir().unwrap();
    let with = |server: &str, token: &str| {
        let ca = story.field(&["configmap", "kube-root-ca.crt"], ".data['ca\\.crt']");
        let file = dir.path().join("kubeconfig");
        let mut config = evenkeel_e2e::operator::kubeconfig_for(server, token, story.namespace());
        let cluster = &mut config["clusters"][0]["cluster"];
        std::fs::write(dir.path().join("ca.crt"), ca).unwrap();
        cluster["certificate-authority"] =
            Value::from(dir.path().join("ca.crt").to_string_lossy().into_owned());
        std::fs::write(&file, config.to_string()).unwrap();
        file.to_string_lossy().into_owned()
    };
    let server = story.kubectl(&[
        "config",
        "view",
        "--minify",
        "-o=jsonpath={.clusters[0].cluster.server}",
    ]);
    let token = story.kubectl(&["create", "token", "default"]);
    let output = evenkeel_as(&story, &with(server.trim(), token.trim()), &["status"]);
    assert!(
        output.code == 6
            && output.err.contains(&format!(
                "needs list on etcdclusters in namespace {}",
                story.namespace()
            ))
            && output.err.contains("ask for the ClusterRole view"),
        "{}",
        output.err
    );
    let output = evenkeel_as(&story, &with(server.trim(), "nonsense"), &["status"]);
    assert!(
        output.code == 6 && output.err.contains("log in again"),
        "{}",
        output.err
    );
    let output = evenkeel_as(
        &story,
        &with("https://127.0.0.1:9", "nonsense"),
        &["status"],
    );
    assert!(
        output.code == 7 && output.err.contains("does not respond"),
        "{}",
        output.err
    );
    let output = evenkeel_as(&story, "/nowhere", &["status"]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert_eq!(evenkeel(&story, &["stattus"]).code, 2);
}

#[test]
fn a_cluster_with_a_full_database_is_not_reported_as_writable() {
    let story = Story::begin("plugin-full");
    let _operator = Operator::start(&story);
    let cluster = create_orders(
        &story,
        "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi}\netcd: {quota: 16Mi}",
        1,
    );
    story.eventually("the plugin reports a healthy cluster", || {
        evenkeel(&story, &["status"]).code == 0
    });
    let large = "x".repeat(100_000);
    let full = (0..400).any(|key| {
        let output = cluster.try_etcdctl(&["put", &format!("key-{key}"), &large]);
        output.is_err_and(|output| output.contains("database space exceeded"))
    });
    assert!(full, "the database did not become full");
    let output = evenkeel(&story, &["status"]);
    assert!(
        output.code == 4 && output.out.contains("Health       READ-ONLY "),
        "{}",
        output.out
    );
    assert!(output.out.contains("NOSPACE"), "{}", output.out);
    let output = evenkeel(&story, &["why"]);
    assert!(
        output.out.contains("NOSPACE") && !output.out.contains("Action required: none"),
        "{}",
        output.out
    );
}

#[test]
fn the_plugin_does_not_wait_for_a_frozen_member() {
    let story = Story::begin("plugin-mute");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let victim = follower(&story, &cluster);
    // A member that does not answer within a minute of the creation of its pod counts as starting.
    std::thread::sleep(std::time::Duration::from_secs(61));
    // The pod exists, but its etcd does not respond: the API server tries, and reports it after some time.
    operator.kill();
    let pod = story.lab().pod(story.namespace(), &victim.name).unwrap();
    pod.freeze(Some("etcd"), None).unwrap();
    let began = std::time::Instant::now();
    let output = evenkeel(&story, &["status"]);
    assert!(output.out.contains(&victim.name), "{}", output.out);
    assert!(
        output.code == 3
            && output.out.contains("Health       DEGRADED")
            && output.out.contains("  no answer  "),
        "the plugin does not use the members' own answers: {}",
        output.out
    );
    println!("reported after {:.1} s", began.elapsed().as_secs_f64());
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "the plugin took too long"
    );
    pod.thaw(Some("etcd"), None).unwrap();
}

#[test]
fn a_user_with_the_role_view_is_told_which_permission_is_missing() {
    let story = Story::begin("plugin-view");
    let _operator = Operator::start(&story);
    create_orders(&story, &spec(1), 1);
    // The ClusterRole view, and what deploy/operator/users.yaml adds to it.
    for words in [
        "create role clusters --verb=get,list,watch --resource=etcdclusters.evenkeel.dev",
        "create rolebinding jane-clusters --role=clusters --user=jane",
        "create rolebinding jane-view --clusterrole=view --user=jane",
    ] {
        let words: Vec<_> = words.split(' ').collect();
        story.kubectl(&words);
    }
    let as_jane = |args: &[&str]| evenkeel(&story, &[&["--as", "jane"], args].concat());
    story.eventually("jane may read the cluster", || {
        as_jane(&["why", "orders"]).code == 0
    });
    let needs = |verb: &str, resource: &str| {
        let namespace = story.namespace();
        format!("needs {verb} on {resource} in namespace {namespace}")
    };
    for verb in ["pause", "restart"] {
        let output = as_jane(&[verb, "orders"]);
        assert!(
            output.code == 6
                && output.err.contains(&needs("patch", "etcdclusters"))
                && output.err.contains("ask for the ClusterRole edit"),
            "{verb}: {}",
            output.err
        );
    }
    for args in [
        &["move-leader", "orders"][..],
        &["etcdctl", "orders", "member", "list"],
    ] {
        let output = as_jane(args);
        assert!(
            output.code == 6 && output.err.contains(&needs("create", "pods/exec")),
            "{args:?}: {}",
            output.err
        );
    }
    let output = as_jane(&["status", "orders"]);
    let screen = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        output.code == 4
            && screen.contains(&format!("Health unknown ({})", needs("get", "pods/proxy")))
            && !screen.contains("Problem"),
        "{}",
        output.out
    );
    let output = evenkeel(&story, &["status", "--request-timeout=1ms"]);
    assert!(
        output.code == 7 && output.err.contains("no response within 1ms"),
        "{}",
        output.err
    );
}

#[test]
fn a_restart_states_when_it_begins() {
    let story = Story::begin("plugin-when");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    evenkeel(&story, &["pause", "orders"]);
    let output = evenkeel(&story, &["restart", "orders"]);
    assert!(
        output.code == 0
            && output
                .out
                .contains("  - the cluster is resumed: `kubectl evenkeel resume orders"),
        "{}",
        output.out
    );
    operator.kill();
    story.eventually("the plugin reports that no operator is running", || {
        let output = evenkeel(&story, &["restart", "orders"]);
        assert_eq!(output.code, 0, "{}", output.err);
        output.out.contains("  - an operator runs: Lease ")
    });
    let output = evenkeel(&story, &["resume", "orders"]);
    assert!(
        output.out.contains("resumed, but no operator is running"),
        "{}",
        output.out
    );
    // Leadership does not need the operator.
    let before = leader(&story, &cluster).name;
    assert_eq!(evenkeel(&story, &["move-leader", "orders"]).code, 0);
    assert_ne!(leader(&story, &cluster).name, before);
}
