//! The stories of this topic for `make test-all`.

use super::*;

/// Counts the requests during a function, by verb and path, without watches and Leases.
fn count_requests(proxy: &Proxy, meanwhile: impl FnOnce()) -> BTreeMap<(String, String), usize> {
    let before = proxy.requests();
    meanwhile();
    let counts = proxy.requests().into_iter().map(|(what, count)| {
        let earlier_checkout = before.get(&what).copied().unwrap_or_default();
        (what, count - earlier_checkout)
    });
    counts
        .filter(|((verb, path), count)| *count > 0 && verb != "WATCH" && !path.contains("/leases"))
        .collect()
}

/// How long nothing must be written, and the limit for all attempts.
const WINDOW: Duration = Duration::from_secs(120);

const ATTEMPTS_LIMIT: Duration = Duration::from_secs(600);

/// Returns the requests in a time without writes, if there was at most one per minute and cluster; otherwise the first write or the
/// requests.
fn requests_while_idle(proxy: &Proxy) -> Result<BTreeMap<(String, String), usize>, String> {
    let (began, mut writes) = (Instant::now(), Vec::new());
    let memory_requests = count_requests(proxy, || {
        while began.elapsed() < WINDOW && writes.is_empty() {
            std::thread::sleep(Duration::from_millis(100));
            writes = proxy.writes_since(began);
        }
    });
    let few = memory_requests.values().sum::<usize>() as u64 <= 2 * WINDOW.as_secs() / 60;
    match writes.as_slice() {
        [] if few => Ok(memory_requests),
        [] => Err(format!(
            "more than one request per minute and cluster: {memory_requests:?}"
        )),
        [first, ..] => Err(format!(
            "after {:.0} s the operator wrote {first}",
            began.elapsed().as_secs_f64()
        )),
    }
}

#[test]
fn nothing_is_written_and_little_is_read_while_nothing_happens() {
    let story = Story::begin("quiet");
    let operator = Operator::start(&story);
    let kept = Cluster::apply(
        &story,
        "kept",
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
    );
    let ephemeral = Cluster::apply(
        &story,
        "ephemeral",
        "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
    );
    for cluster in [&kept, &ephemeral] {
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, cluster, 3);
    }
    operator
        .proxy()
        .wait_idle(Duration::from_secs(10), Duration::from_secs(90));
    // On a busy machine something happens at times: an election, a late answer, an update of a pod by the kubelet. So any two minutes
    // count, not the first two.
    let (began, mut disturbed) = (Instant::now(), Vec::new());
    let memory_requests = loop {
        match requests_while_idle(operator.proxy()) {
            Ok(memory_requests) => break memory_requests,
            Err(by) => disturbed.push(by),
        }
        assert!(
            began.elapsed() + WINDOW < ATTEMPTS_LIMIT,
            "no two minutes without writes: {disturbed:#?}"
        );
        println!("disturbed: {:?}", disturbed.last());
    };
    println!(
        "requests for two clusters in {} s without writes: {memory_requests:?}",
        WINDOW.as_secs()
    );
    for cluster in [&kept, &ephemeral] {
        wait_healthy(&story, cluster, 3);
    }
}

/// Asserts how often each of these reasons occurs. Other events may occur, too: on a busy machine a member may not answer for a moment.
///
/// A call that etcd answers too late is executed without an event, so calls have a range, and the member list decides. An event for an
/// action that did not happen is always wrong.
fn assert_event_counts(events: &[(String, String)], expected: &[(&str, RangeInclusive<usize>)]) {
    for (reason, often) in expected {
        let reported = events
            .iter()
            .filter(|(reported, _)| reported == reason)
            .count();
        assert!(
            often.contains(&reported),
            "{reason} occurs {reported} times, not {often:?}: {events:#?}"
        );
    }
}

#[test]
fn status_and_events_report_members_actions_and_waits() {
    let story = Story::begin("reported");
    let _operator = Operator::start(&story);
    let status_watch = StatusWatch::begin(&story);
    let cluster = create_orders(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
        3,
    );
    assert_members_reported(&story, &cluster);
    let expected = [
        ("ClaimCreated", 3..=3),
        ("PodCreated", 3..=3),
        ("MemberAdded", 1..=2),
        ("MemberPromoted", 1..=2),
        ("MemberRemoved", 0..=0),
        ("BootstrapFinished", 1..=1),
        ("MemberAddedToService", 3..=3),
    ];
    assert_event_counts(&events(&story, &cluster), &expected);

    let clients = cluster.workload();
    let victim = follower(&story, &cluster).name;
    story.kubectl(&[
        "delete",
        &format!("pvc/{victim}"),
        &format!("pod/{victim}"),
        "--timeout=120s",
    ]);
    wait_healthy(&story, &cluster, 3);
    assert_members_reported(&story, &cluster);
    clients.finish();
    let expected = [
        ("MemberRemoved", 0..=1),
        ("ClaimCreated", 4..=4),
        ("PodCreated", 4..=4),
        ("MemberAdded", 1..=3),
        ("MemberPromoted", 1..=3),
        ("BootstrapFinished", 1..=1),
        ("MemberAddedToService", 4..=4),
    ];
    assert_event_counts(&events(&story, &cluster), &expected);
    assert!(
        cluster
            .member_list()
            .iter()
            .all(|member| member.name != victim),
        "{victim} is still listed"
    );
    assert_statuses(&status_watch.end(), &victim);
}

/// Asserts on all statuses: never Ready before clients are routed, and never progressing without an operation.
fn assert_statuses(statuses: &[Value], replaced: &str) {
    let condition = |status: &Value, kind: &str| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter()
            .find(|it| it["type"] == kind)
            .unwrap_or_default()
    };
    let summaries: Vec<_> = statuses
        .iter()
        .map(|it| it["summary"].as_str().unwrap_or_default())
        .collect();
    for status in statuses {
        let busy = [&status["operation"]["message"], &status["waitingFor"][0]]
            .map(|it| it.as_str().unwrap_or("-"));
        println!(
            "status: {} | {} | action: {} | wait: {}",
            status["ready"], status["summary"], busy[0], busy[1]
        );
        let (ready, progressing) = (condition(status, "Ready"), condition(status, "Progressing"));
        if status["summary"]
            .as_str()
            .unwrap()
            .starts_with("Bootstrapping")
        {
            assert_eq!(
                (&ready["status"], &ready["reason"]),
                (&"False".into(), &"Bootstrapping".into()),
                "{status:#}"
            );
        }
        assert!(
            progressing["status"] == "False" || !status["operation"].is_null(),
            "Progressing without an operation: {status:#}"
        );
        let all_are_well = status["ready"] == "3/3";
        assert!(
            progressing["reason"] != "Converged" || all_are_well,
            "Converged before all members are ready: {status:#}"
        );
        // The kubelet's message about a held pod is expected, and must not be reported.
        assert!(!status.to_string().contains("absolute path"), "{status:#}");
    }
    assert!(
        summaries
            .iter()
            .any(|summary| summary.starts_with("Bootstrapping")),
        "{summaries:#?}"
    );
    let healing: Vec<_> = summaries
        .iter()
        .skip_while(|summary| **summary != "Healthy")
        .collect();
    assert!(
        healing.iter().any(|summary| summary.contains(replaced)),
        "{replaced} is never reported: {summaries:#?}"
    );
    assert!(
        healing.iter().any(|summary| summary.starts_with("Joining")),
        "{summaries:#?}"
    );
}
