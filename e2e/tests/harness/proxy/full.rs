//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn the_proxy_counts_every_request_and_records_every_write() {
    let story = Story::begin("proxy-record");
    let proxied = ProxiedKubectl::new(&story);
    let began = Instant::now();
    proxied.create("one").unwrap();
    proxied
        .kubectl(&[
            "patch",
            "configmap",
            "one",
            "--type=merge",
            "--patch={\"data\":{\"key\":\"second\"}}",
        ])
        .unwrap();
    assert_eq!(
        proxied
            .kubectl(&["get", "configmap", "one", "-o=jsonpath={.data.key}"])
            .unwrap(),
        "second"
    );
    let twice = proxied.create("one").unwrap_err();
    assert!(twice.contains("already exists"), "{twice}");
    proxied
        .kubectl(&["delete", "configmap", "one", "--wait=false"])
        .unwrap();
    proxied.create("two").unwrap();
    // Permissions are reviewed by POST, which changes nothing.
    assert_eq!(
        proxied
            .kubectl(&["auth", "can-i", "list", "pods"])
            .unwrap()
            .trim(),
        "yes"
    );

    let writes = proxied.proxy.writes();
    let returned: Vec<_> = writes
        .iter()
        .map(|it| {
            (
                it.write.verb.as_str(),
                it.object(),
                it.answered,
                it.returned,
            )
        })
        .collect();
    let one = || "configmaps/one".to_owned();
    let expected = vec![
        ("POST", one(), Some(201), Some(201)),
        ("PATCH", one(), Some(200), Some(200)),
        ("POST", one(), Some(409), Some(409)),
        ("DELETE", one(), Some(200), Some(200)),
        ("POST", "configmaps/two".to_owned(), Some(201), Some(201)),
    ];
    assert_eq!(returned, expected);
    assert_eq!(
        writes[1].write.body["data"]["key"], "second",
        "the body is not recorded"
    );
    assert_eq!(
        writes.iter().map(|it| it.write.number).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(proxied.proxy.writes_since(began).len(), 5);
    assert!(proxied.proxy.writes_since(Instant::now()).is_empty());

    assert!(
        proxied
            .proxy
            .read_since("configmaps", began)
            .contains("one")
    );
    assert!(
        proxied
            .proxy
            .read_since("configmaps", Instant::now())
            .is_empty()
    );

    let counts = proxied.proxy.object_counts();
    assert_eq!(
        counts["configmaps/one"],
        ObjectCounts {
            created: 1,
            deleted: 1
        },
        "{counts:?}"
    );
    assert_eq!(
        counts["configmaps/two"],
        ObjectCounts {
            created: 1,
            deleted: 0
        },
        "{counts:?}"
    );

    let requests = proxied.proxy.requests();
    let count = |verb: &str, pattern: &str| {
        requests
            .get(&(verb.to_owned(), pattern.to_owned()))
            .copied()
    };
    assert_eq!(
        count("POST", "/api/v1/namespaces/{namespace}/configmaps"),
        Some(3),
        "{requests:?}"
    );
    assert_eq!(
        count("DELETE", "/api/v1/namespaces/{namespace}/configmaps/{name}"),
        Some(1),
        "{requests:?}"
    );
    assert_eq!(
        count(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        ),
        Some(1),
        "{requests:?}"
    );
}

#[test]
fn leases_and_events_have_no_ordinal_and_leases_are_ignored_when_idle() {
    let story = Story::begin("proxy-ordinals");
    let proxied = ProxiedKubectl::new(&story);
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": "leader-"}}"#;
    let create = ["create", "--validate=false", "--filename=-"];
    proxied.create("one").unwrap();
    proxied.command(&create).input(lease).run().unwrap();
    proxied.create("two").unwrap();
    let ordinals: Vec<_> = proxied
        .proxy
        .writes()
        .iter()
        .map(|it| it.write.ordinal)
        .collect();
    assert_eq!(ordinals, [Some(1), None, Some(2)]);
    let writes = proxied.proxy.writes();
    assert!(
        writes[1].object().starts_with("leases/leader-"),
        "the generated name is not recorded: {}",
        writes[1]
    );

    proxied.proxy.wait_idle(Duration::from_secs(1), WAIT_LIMIT);
    std::thread::scope(|scope| {
        scope.spawn(|| proxied.command(&create).input(lease).run().unwrap());
        proxied.proxy.assert_idle(Duration::from_secs(2));
    });
    assert_eq!(
        proxied.proxy.writes().len(),
        4,
        "no lease was written meanwhile"
    );
    let noisy = std::thread::scope(|scope| {
        scope.spawn(|| proxied.create("three").unwrap());
        scope.spawn(|| proxied.proxy.assert_idle(WAIT_LIMIT)).join()
    });
    let sender = noisy.unwrap_err();
    let sender = sender.downcast_ref::<String>().unwrap();
    assert!(
        sender.contains("POST") && sender.contains("configmaps"),
        "{sender}"
    );
}

#[test]
fn a_watch_streams_until_the_proxy_is_cut_and_works_again_afterwards() {
    let story = Story::begin("proxy-watch");
    let proxied = ProxiedKubectl::new(&story);
    let watch = |proxied: &ProxiedKubectl<'_>| {
        let mut watch = proxied.start(&["get", "configmaps", "--watch", "--output=name"]);
        let (sender, received) = mpsc::channel();
        let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        (watch, received)
    };
    let wait_line = |lines: &mpsc::Receiver<String>, name: &str| {
        while lines
            .recv_timeout(WAIT_LIMIT)
            .expect("the watch sends lines")
            != format!("configmap/{name}")
        {}
    };
    let (watching, lines) = watch(&proxied);
    // The watch lists first: existing objects are sent, too.
    wait_line(&lines, "kube-root-ca.crt");
    story.eventually("the watch has begun", || {
        proxied
            .proxy
            .requests()
            .keys()
            .any(|(verb, path)| verb == "WATCH" && path.ends_with("/configmaps"))
    });
    story.kubectl(&["create", "configmap", "fresh"]);
    // An event is sent at once, without waiting for more data.
    wait_line(&lines, "fresh");

    proxied.proxy.cut();
    assert!(
        lines.recv_timeout(WAIT_LIMIT) == Err(mpsc::RecvTimeoutError::Disconnected),
        "the watch has not ended"
    );
    drop(watching);
    let gone = proxied.kubectl(&["get", "configmaps", "--request-timeout=5s"]);
    assert!(gone.is_err(), "the API server answers: {gone:?}");
    proxied.proxy.restore();
    let (_watching, lines) = watch(&proxied);
    wait_line(&lines, "fresh");
}

#[test]
fn a_delayed_write_is_applied_although_its_sender_was_killed() {
    let story = Story::begin("proxy-hang");
    let proxied = ProxiedKubectl::new(&story);
    // Longer than it takes to kill the sender and to check, on a busy machine.
    proxied
        .proxy
        .once(Verdict::Delay(Duration::from_secs(20)), creates("late"));
    let sender = proxied.start_create("late");
    story.eventually("the write has reached the proxy", || {
        !proxied.proxy.writes().is_empty()
    });
    drop::<Running>(sender);
    assert!(!proxied.exists("late"));
    story.eventually("the write is applied", || proxied.exists("late"));
    // The object may be visible before the proxy has the answer.
    story.eventually("the write is answered", || {
        proxied.proxy.writes()[0].answered == Some(201)
    });
    let written = &proxied.proxy.writes()[0];
    assert_eq!(written.returned, None, "{written}");
}
