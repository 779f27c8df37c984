//! The stories of this topic that `make test-all` runs.

use super::*;

/// Requests by verb and path that came in a time, watches and the Lease apart.
fn asked_of(proxy: &Proxy, meanwhile: impl FnOnce()) -> BTreeMap<(String, String), usize> {
    let before = proxy.requests();
    meanwhile();
    let counts = proxy.requests().into_iter().map(|(what, count)| {
        let earlier = before.get(&what).copied().unwrap_or_default();
        (what, count - earlier)
    });
    counts
        .filter(|((verb, path), count)| *count > 0 && verb != "WATCH" && !path.contains("/leases"))
        .collect()
}

/// For how long nothing is to be written; and how long there may be tries, in all.
const WINDOW: Duration = Duration::from_secs(120);

const TRIES: Duration = Duration::from_secs(600);

/// What was asked for in a time in which nothing was written, and no more asked than once a minute and cluster; else what
/// was.
fn asked_in_quiet(proxy: &Proxy) -> Result<BTreeMap<(String, String), usize>, String> {
    let (began, mut writes) = (Instant::now(), Vec::new());
    let asked = asked_of(proxy, || {
        while began.elapsed() < WINDOW && writes.is_empty() {
            std::thread::sleep(Duration::from_millis(100));
            writes = proxy.writes_since(began);
        }
    });
    let few = asked.values().sum::<usize>() as u64 <= 2 * WINDOW.as_secs() / 60;
    match writes.as_slice() {
        [] if few => Ok(asked),
        [] => Err(format!(
            "more was asked than once a minute and cluster: {asked:?}"
        )),
        [first, ..] => Err(format!(
            "after {:.0} s was written {first}",
            began.elapsed().as_secs_f64()
        )),
    }
}

#[test]
fn once_all_is_well_nothing_is_written_for_two_minutes_and_next_to_nothing_asked() {
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
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 3);
    }
    operator
        .proxy()
        .becomes_quiet(Duration::from_secs(10), Duration::from_secs(90));
    // Something does happen now and then on a busy machine: an election, an answer that takes too long, a kubelet that has
    // news of a pod. So not the first two minutes have to be quiet, but some two minutes.
    let (began, mut disturbed) = (Instant::now(), Vec::new());
    let asked = loop {
        match asked_in_quiet(operator.proxy()) {
            Ok(asked) => break asked,
            Err(by) => disturbed.push(by),
        }
        assert!(
            began.elapsed() + WINDOW < TRIES,
            "it was never quiet: {disturbed:#?}"
        );
        println!("not quiet: {:?}", disturbed.last());
    };
    println!(
        "in {} quiet s the API server was asked, for two clusters: {asked:?}",
        WINDOW.as_secs()
    );
    for cluster in [&kept, &ephemeral] {
        until_whole(&story, cluster, 3);
    }
}

/// That each of these reasons was told so often. Others may be, too: on a busy machine a member is silent for a moment, say.
///
/// What etcd answers too late is done and yet not told, so for calls to it there is a range, and the list of members has the
/// last word. What is never right is to tell more than was done.
fn are_told(events: &[(String, String)], expected: &[(&str, RangeInclusive<usize>)]) {
    for (reason, often) in expected {
        let told = events.iter().filter(|(told, _)| told == reason).count();
        assert!(
            often.contains(&told),
            "{reason} was told {told} times and not {often:?}: {events:#?}"
        );
    }
}

#[test]
fn status_and_events_tell_who_is_who_what_is_done_and_what_is_waited_for() {
    let story = Story::begin("told");
    let _operator = Operator::start(&story);
    let followed = Followed::begin(&story);
    let cluster = formed(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
        3,
    );
    members_are_named_as_they_are(&story, &cluster);
    let expected = [
        ("ClaimCreated", 3..=3),
        ("PodCreated", 3..=3),
        ("MemberAdded", 1..=2),
        ("MemberPromoted", 1..=2),
        ("MemberRemoved", 0..=0),
        ("BootstrapFinished", 1..=1),
        ("MemberAddedToService", 3..=3),
    ];
    are_told(&events(&story, &cluster), &expected);

    let clients = cluster.workload();
    let victim = follower(&story, &cluster).name;
    story.kubectl(&[
        "delete",
        &format!("pvc/{victim}"),
        &format!("pod/{victim}"),
        "--timeout=120s",
    ]);
    until_whole(&story, &cluster, 3);
    members_are_named_as_they_are(&story, &cluster);
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
    are_told(&events(&story, &cluster), &expected);
    assert!(
        cluster
            .member_list()
            .iter()
            .all(|member| member.name != victim),
        "{victim} is listed still"
    );
    told_while_it_happened(&followed.end(), &victim);
}

/// What the status said on the way: never ready before clients were let in, and never busy without a word about it.
fn told_while_it_happened(statuses: &[Value], replaced: &str) {
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
        let busy = [&status["currentAction"], &status["waitingFor"][0]]
            .map(|it| it.as_str().unwrap_or("-"));
        println!(
            "told: {} | {} | doing: {} | waiting: {}",
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
        let says_what = ["currentAction", "waitingFor"]
            .iter()
            .any(|field| !status[field].is_null());
        assert!(
            progressing["status"] == "False" || says_what,
            "it is busy and does not say with what: {status:#}"
        );
        let all_are_well = status["ready"] == "3/3";
        assert!(
            progressing["reason"] != "Converged" || all_are_well,
            "it is not over yet: {status:#}"
        );
        // Kubernetes' complaint about a pod that waits, as it should, is nobody's business.
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
        "nothing was said of {replaced}: {summaries:#?}"
    );
    assert!(
        healing.iter().any(|summary| summary.starts_with("Joining")),
        "{summaries:#?}"
    );
}
