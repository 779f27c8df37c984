//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn kubectl_works_through_the_proxy_and_every_request_is_counted_and_every_write_recorded() {
    let story = Story::begin("proxy-record");
    let through = Through::new(&story);
    let began = Instant::now();
    through.create("one").unwrap();
    through
        .kubectl(&[
            "patch",
            "configmap",
            "one",
            "--type=merge",
            "--patch={\"data\":{\"key\":\"second\"}}",
        ])
        .unwrap();
    assert_eq!(
        through
            .kubectl(&["get", "configmap", "one", "-o=jsonpath={.data.key}"])
            .unwrap(),
        "second"
    );
    let twice = through.create("one").unwrap_err();
    assert!(twice.contains("already exists"), "{twice}");
    through
        .kubectl(&["delete", "configmap", "one", "--wait=false"])
        .unwrap();
    through.create("two").unwrap();
    // Rights are asked for by POST, which changes nothing.
    assert_eq!(
        through
            .kubectl(&["auth", "can-i", "list", "pods"])
            .unwrap()
            .trim(),
        "yes"
    );

    let writes = through.proxy.writes();
    let told: Vec<_> = writes
        .iter()
        .map(|it| (it.write.verb.as_str(), it.object(), it.answered, it.told))
        .collect();
    let one = || "configmaps/one".to_owned();
    let expected = vec![
        ("POST", one(), Some(201), Some(201)),
        ("PATCH", one(), Some(200), Some(200)),
        ("POST", one(), Some(409), Some(409)),
        ("DELETE", one(), Some(200), Some(200)),
        ("POST", "configmaps/two".to_owned(), Some(201), Some(201)),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        writes[1].write.body["data"]["key"], "second",
        "what was sent is kept"
    );
    assert_eq!(
        writes.iter().map(|it| it.write.number).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(through.proxy.writes_since(began).len(), 5);
    assert!(through.proxy.writes_since(Instant::now()).is_empty());

    assert!(
        through
            .proxy
            .read_since("configmaps", began)
            .contains("one")
    );
    assert!(
        through
            .proxy
            .read_since("configmaps", Instant::now())
            .is_empty()
    );

    let lives = through.proxy.lives();
    assert_eq!(
        lives["configmaps/one"],
        Lives {
            created: 1,
            deleted: 1
        },
        "{lives:?}"
    );
    assert_eq!(
        lives["configmaps/two"],
        Lives {
            created: 1,
            deleted: 0
        },
        "{lives:?}"
    );

    let requests = through.proxy.requests();
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
fn leases_and_events_are_no_deeds_and_a_quiet_time_may_have_leases() {
    let story = Story::begin("proxy-deeds");
    let through = Through::new(&story);
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": "leader-"}}"#;
    let create = ["create", "--validate=false", "--filename=-"];
    through.create("one").unwrap();
    through.command(&create).input(lease).run().unwrap();
    through.create("two").unwrap();
    let deeds: Vec<_> = through
        .proxy
        .writes()
        .iter()
        .map(|it| it.write.deed)
        .collect();
    assert_eq!(deeds, [Some(1), None, Some(2)]);
    let writes = through.proxy.writes();
    assert!(
        writes[1].object().starts_with("leases/leader-"),
        "the name comes from the answer: {}",
        writes[1]
    );

    through
        .proxy
        .becomes_quiet(Duration::from_secs(1), PATIENCE);
    std::thread::scope(|scope| {
        scope.spawn(|| through.command(&create).input(lease).run().unwrap());
        through.proxy.stays_quiet(Duration::from_secs(2));
    });
    assert_eq!(
        through.proxy.writes().len(),
        4,
        "there was another lease meanwhile"
    );
    let noisy = std::thread::scope(|scope| {
        scope.spawn(|| through.create("three").unwrap());
        scope.spawn(|| through.proxy.stays_quiet(PATIENCE)).join()
    });
    let said = noisy.unwrap_err();
    let said = said.downcast_ref::<String>().unwrap();
    assert!(
        said.contains("POST") && said.contains("configmaps"),
        "{said}"
    );
}

#[test]
fn a_watch_streams_until_the_api_server_is_gone_and_works_again_when_it_is_back() {
    let story = Story::begin("proxy-watch");
    let through = Through::new(&story);
    let watch = |through: &Through<'_>| {
        let mut watch = through.running(&["get", "configmaps", "--watch", "--output=name"]);
        let (said, heard) = mpsc::channel();
        let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        (watch, heard)
    };
    let hears = |heard: &mpsc::Receiver<String>, name: &str| {
        while heard.recv_timeout(PATIENCE).expect("the watch goes on")
            != format!("configmap/{name}")
        {}
    };
    let (watching, heard) = watch(&through);
    // It lists first: what is there by then is told too.
    hears(&heard, "kube-root-ca.crt");
    story.eventually("it watches", || {
        through
            .proxy
            .requests()
            .keys()
            .any(|(verb, path)| verb == "WATCH" && path.ends_with("/configmaps"))
    });
    story.kubectl(&["create", "configmap", "fresh"]);
    // An event is not kept back until there is more to send.
    hears(&heard, "fresh");

    through.proxy.cut();
    assert!(
        heard.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Disconnected),
        "the watch has ended"
    );
    drop(watching);
    let gone = through.kubectl(&["get", "configmaps", "--request-timeout=5s"]);
    assert!(gone.is_err(), "nobody answers: {gone:?}");
    through.proxy.mend();
    let (_watching, heard) = watch(&through);
    hears(&heard, "fresh");
}

#[test]
fn a_write_may_hang_and_is_done_nevertheless_when_its_sender_has_given_up() {
    let story = Story::begin("proxy-hang");
    let through = Through::new(&story);
    // Longer than it takes to kill the sender and to look, however busy the machine is.
    through
        .proxy
        .once(Verdict::Hang(Duration::from_secs(20)), creates("late"));
    let sender = through.creating("late");
    story.eventually("it is under way", || !through.proxy.writes().is_empty());
    drop::<Running>(sender);
    assert!(!through.exists("late"));
    story.eventually("it is done", || through.exists("late"));
    // That it is there is seen before the proxy has heard of it.
    story.eventually("it is answered", || {
        through.proxy.writes()[0].answered == Some(201)
    });
    let written = &through.proxy.writes()[0];
    assert_eq!(written.told, None, "{written}");
}
