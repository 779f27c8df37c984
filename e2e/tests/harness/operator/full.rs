//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn it_is_started_with_its_namespace_and_ended_in_peace() {
    let story = Story::begin("operator-start");
    let mut operator = Operator::with(&story, stand_in());
    let namespace = story.namespace();
    let expected = format!(
        "started with --namespaces {namespace} --lease-namespace {namespace} --listen 127.0.0.1:0\n"
    );
    story.eventually("it says how it was started", || operator.log() == expected);
    assert!(operator.is_running());
    assert!(
        (10_000..100_000_000).contains(&operator.rss()),
        "{} bytes",
        operator.rss()
    );
    assert!(
        operator.cpu() < Duration::from_secs(5),
        "{:?} for next to nothing",
        operator.cpu()
    );
    operator.stop();
    assert!(!operator.is_running() && operator.log_has("ending"));
}

#[test]
fn it_is_frozen_thawed_killed_and_started_again() {
    let story = Story::begin("operator-lives");
    let mut operator = Operator::with(&story, stand_in());
    story.eventually("it runs", || operator.log_has("started"));
    operator.freeze();
    assert!(operator.is_running(), "a frozen one has not ended");
    operator.thaw();
    let first = operator.pid();
    operator.kill();
    assert!(!operator.is_running() && !std::path::Path::new(&format!("/proc/{first}")).exists());
    operator.restart();
    assert_ne!(operator.pid(), first);
    story.eventually("it has begun twice", || {
        operator.log().matches("started").count() == 2
    });
    // A frozen one can be killed too, and one that is started again need not have ended.
    operator.freeze();
    operator.restart();
    story.eventually("it has begun three times", || {
        operator.log().matches("started").count() == 3
    });
}

#[test]
fn it_outlives_the_thread_that_started_it() {
    let story = Story::begin("operator-thread");
    let mut operator = std::thread::scope(|scope| {
        scope
            .spawn(|| Operator::with(&story, stand_in()))
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
#[should_panic(expected = "ended with exit status: 3")]
fn an_end_in_anger_fails_the_story() {
    let story = Story::begin("operator-anger");
    let env = vec![("LAST_WORD".to_owned(), "3".to_owned())];
    let mut operator = Operator::with(&story, Options { env, ..stand_in() });
    story.eventually("it runs", || operator.log_has("started"));
    operator.stop();
}

#[test]
fn it_is_killed_between_an_intent_and_its_effect_and_does_the_rest_in_its_next_life() {
    let story = Story::begin("operator-crash");
    grant(&story);
    // kubectl sends no token over plain HTTP, as the operator does.
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
    proxy.once(Verdict::StopBefore, |write| write.deed == Some(2));
    let mut operator = Operator::with(
        &story,
        Options {
            env,
            proxy: Some(Arc::clone(&proxy)),
            ..stand_in()
        },
    );
    let stopped = proxy.stopped(PATIENCE);
    assert_eq!(stopped.write.name(), Some("effect"));
    operator.kill();
    drop(stopped);
    assert!(story.try_kubectl(&["get", "configmap", "intent"]).is_ok());
    assert!(story.try_kubectl(&["get", "configmap", "effect"]).is_err());

    operator.restart();
    let ended = operator.ends_within(PATIENCE).expect("it has acted");
    assert!(!ended.success(), "the intent was there already");
    let lives = proxy.lives();
    assert_eq!(
        lives["configmaps/intent"],
        Lives {
            created: 1,
            deleted: 0
        }
    );
    assert_eq!(
        lives["configmaps/effect"],
        Lives {
            created: 1,
            deleted: 0
        }
    );
}
