//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn the_operator_gets_its_namespace_and_stops_on_sigterm() {
    let story = Story::begin("operator-start");
    let mut operator = Operator::with(&story, script_options());
    let namespace = story.namespace();
    let expected = format!(
        "started with --namespaces {namespace} --lease-namespace {namespace} --listen 127.0.0.1:0\n"
    );
    story.eventually("the log has the arguments", || operator.log() == expected);
    assert!(operator.is_running());
    assert!(
        (10_000..100_000_000).contains(&operator.rss()),
        "{} bytes",
        operator.rss()
    );
    assert!(
        operator.cpu() < Duration::from_secs(5),
        "{:?} of processor time",
        operator.cpu()
    );
    operator.stop();
    assert!(!operator.is_running() && operator.log_has("ending"));
}

#[test]
fn the_operator_is_frozen_thawed_killed_and_restarted() {
    let story = Story::begin("operator-lives");
    let mut operator = Operator::with(&story, script_options());
    story.eventually("it runs", || operator.log_has("started"));
    operator.freeze();
    assert!(operator.is_running(), "a frozen process counts as exited");
    operator.thaw();
    let first = operator.pid();
    operator.kill();
    assert!(!operator.is_running() && !std::path::Path::new(&format!("/proc/{first}")).exists());
    operator.restart();
    assert_ne!(operator.pid(), first);
    story.eventually("it has started twice", || {
        operator.log().matches("started").count() == 2
    });
    // A frozen process can be killed, too, and a running one can be restarted.
    operator.freeze();
    operator.restart();
    story.eventually("it has started three times", || {
        operator.log().matches("started").count() == 3
    });
}

#[test]
fn the_operator_outlives_the_thread_that_started_it() {
    let story = Story::begin("operator-thread");
    let mut operator = std::thread::scope(|scope| {
        scope
            .spawn(|| Operator::with(&story, script_options()))
            .join()
            .unwrap()
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        assert!(operator.is_running());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[should_panic(expected = "exited with exit status: 3")]
fn a_nonzero_exit_code_fails_the_story() {
    let story = Story::begin("operator-anger");
    let env = vec![("EXIT_CODE".to_owned(), "3".to_owned())];
    let mut operator = Operator::with(
        &story,
        Options {
            env,
            ..script_options()
        },
    );
    story.eventually("it runs", || operator.log_has("started"));
    operator.stop();
}

#[test]
fn an_operator_killed_between_two_writes_does_the_second_after_a_restart() {
    let story = Story::begin("operator-crash");
    grant(&story);
    // Unlike the operator, kubectl sends no token over plain HTTP.
    let proxy = Arc::new(Proxy::start_as(story.lab(), &token(&story)));
    let dir = tempfile::tempdir().unwrap();
    let object =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let objects = dir.path().join("objects.json");
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": [object("intent"), object("effect")]});
    std::fs::write(&objects, list.to_string()).unwrap();
    let env = vec![
        ("ACT".to_owned(), objects.to_string_lossy().into_owned()),
        (
            "KUBECTL".to_owned(),
            story
                .lab()
                .programs()
                .join("kubectl")
                .to_string_lossy()
                .into_owned(),
        ),
        ("HOME".to_owned(), dir.path().to_string_lossy().into_owned()),
    ];
    proxy.once(Verdict::HoldBefore, |write| write.ordinal == Some(2));
    let mut operator = Operator::with(
        &story,
        Options {
            env,
            proxy: Some(Arc::clone(&proxy)),
            ..script_options()
        },
    );
    let held = proxy.wait_held(WAIT_LIMIT);
    assert_eq!(held.write.name(), Some("effect"));
    operator.kill();
    drop(held);
    assert!(story.try_kubectl(&["get", "configmap", "intent"]).is_ok());
    assert!(story.try_kubectl(&["get", "configmap", "effect"]).is_err());

    operator.restart();
    let ended = operator.wait_exit(WAIT_LIMIT).expect("the script exits");
    assert!(!ended.success(), "the intent did not exist yet");
    let counts = proxy.object_counts();
    assert_eq!(
        counts["configmaps/intent"],
        ObjectCounts {
            created: 1,
            deleted: 0
        }
    );
    assert_eq!(
        counts["configmaps/effect"],
        ObjectCounts {
            created: 1,
            deleted: 0
        }
    );
}
