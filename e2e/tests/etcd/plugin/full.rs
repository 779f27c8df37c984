//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn the_plugin_says_what_to_do_where_it_is_not_allowed_or_nobody_answers() {
    let story = Story::begin("plugin-no");
    let dir = tempfile::tempdir().unwrap();
    let with = |server: &str, token: &str| {
        let authority = story.field(&["configmap", "kube-root-ca.crt"], ".data['ca\\.crt']");
        let file = dir.path().join("kubeconfig");
        let mut config = evenkeel_e2e::operator::kubeconfig_of(server, token, story.namespace());
        let cluster = &mut config["clusters"][0]["cluster"];
        std::fs::write(dir.path().join("ca.crt"), authority).unwrap();
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
    let said = evenkeel_as(&story, &with(server.trim(), token.trim()), &["status"]);
    assert!(
        said.code == 6 && said.err.contains("ClusterRole `view`"),
        "{}",
        said.err
    );
    let said = evenkeel_as(&story, &with(server.trim(), "nonsense"), &["status"]);
    assert!(
        said.code == 6 && said.err.contains("log in again"),
        "{}",
        said.err
    );
    let said = evenkeel_as(
        &story,
        &with("https://127.0.0.1:9", "nonsense"),
        &["status"],
    );
    assert!(
        said.code == 7 && said.err.contains("does not answer"),
        "{}",
        said.err
    );
    let said = evenkeel_as(&story, "/nowhere", &["status"]);
    assert_eq!(said.code, 7, "{}", said.err);
    assert_eq!(evenkeel(&story, &["stattus"]).code, 2);
}

#[test]
fn a_cluster_that_takes_no_writes_for_want_of_space_is_not_called_writable() {
    let story = Story::begin("plugin-full");
    let _operator = Operator::start(&story);
    let cluster = formed(
        &story,
        "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi}\netcd: {quota: 16Mi}",
        1,
    );
    story.eventually("it is told as well", || {
        evenkeel(&story, &["status"]).code == 0
    });
    let large = "x".repeat(100_000);
    let full = (0..400).any(|key| {
        let said = cluster.try_etcdctl(&["put", &format!("key-{key}"), &large]);
        said.is_err_and(|said| said.contains("database space exceeded"))
    });
    assert!(full, "it has an end");
    let said = evenkeel(&story, &["status"]);
    assert!(
        said.code == 4 && said.out.starts_with("orders: NOT writable"),
        "{}",
        said.out
    );
    assert!(said.out.contains("NOSPACE"), "{}", said.out);
    let said = evenkeel(&story, &["why"]);
    assert!(
        said.out.contains("NOSPACE") && !said.out.contains("nothing needs you"),
        "{}",
        said.out
    );
}

#[test]
fn a_member_that_does_not_listen_keeps_nobody_waiting() {
    let story = Story::begin("plugin-mute");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let victim = follower(&story, &cluster);
    // Its pod is there, and nobody in it answers: the API server tries, and says so after a while.
    operator.kill();
    let pod = story.lab().pod(story.namespace(), &victim.name).unwrap();
    pod.freeze(Some("etcd"), None).unwrap();
    let began = std::time::Instant::now();
    let said = evenkeel(&story, &["status"]);
    assert!(said.out.contains(&victim.name), "{}", said.out);
    assert!(
        said.out
            .starts_with("orders: writable, survives no further failure"),
        "by the members' own word: {}",
        said.out
    );
    println!("told after {:.1} s", began.elapsed().as_secs_f64());
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "nobody waits for minutes"
    );
    pod.thaw(Some("etcd"), None).unwrap();
}
