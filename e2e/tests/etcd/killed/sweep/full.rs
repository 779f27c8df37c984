//! The stories of this topic that `make test-all` runs.

use super::*;

/// At how many of its writes of the status the operator dies in a chain: after each death it may have something new to
/// say, without end.
const AT_STATUS: u64 = 2;

/// Whether a write is for this cluster; there may be others on their way out.
fn is_for(write: &Write, cluster: &str) -> bool {
    let deed = write.deed.is_some();
    let name = write.name().unwrap_or_default();
    deed && name
        .strip_prefix(cluster)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whatever was disturbed, nothing was made twice, and nothing deleted twice.
fn nothing_was_made_twice(writes: &[Written]) {
    for (object, lives) in lives(writes) {
        let by_the_clock = object.starts_with("leases/") || object.starts_with("events/");
        assert!(
            by_the_clock || (lives.created <= 1 && lives.deleted <= 1),
            "{object}: {lives:?}"
        );
    }
}

/// Has the operator die at each of its writes, before it is applied and then after, until the cluster is whole. Says at how
/// many.
fn dies_at_each_write(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    members: usize,
    begin: impl FnOnce(),
) -> u64 {
    let (deaths, at_status) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let (turn, name) = (Arc::clone(&deaths), cluster.name().to_owned());
    operator.proxy().rule(move |write| {
        let spared = is_status(write) && at_status.fetch_add(1, Ordering::SeqCst) >= AT_STATUS;
        if !is_for(write, &name) || spared {
            return Verdict::Pass;
        }
        if turn.load(Ordering::SeqCst).is_multiple_of(2) {
            Verdict::StopBefore
        } else {
            Verdict::StopAfter
        }
    });
    begin();
    until_whole_through(operator, cluster, members, |operator, stopped| {
        deaths.fetch_add(1, Ordering::SeqCst);
        kill_and_restart(story, operator, stopped);
    });
    operator.proxy().pass();
    deaths.load(Ordering::SeqCst)
}

/// Takes a member's pod and claim away, and waits until the pod is gone: else all is whole before anybody has noticed.
fn take_away(story: &Story, cluster: &Cluster<'_>, taken: &MemberPod) {
    let (pod, claim) = (format!("pod/{}", taken.name), format!("pvc/{}", taken.name));
    story.kubectl(&["delete", &pod, &claim, "--wait=false"]);
    story.eventually("its pod is gone", || {
        cluster.pods().iter().all(|pod| pod.uid != taken.uid)
    });
}

#[test]
fn a_bootstrap_of_one_ends_well_though_the_operator_dies_at_every_write() {
    let story = Story::begin("chain-one");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::named(&story, "a");
    let deaths = dies_at_each_write(&story, &mut operator, &cluster, 1, || {
        cluster.set(&spec(1));
    });
    println!("chain: {deaths} deaths in a bootstrap of one");
    // Identity, services, certificates, claim, pod and what is written on them: each twice.
    assert!(
        deaths >= 30,
        "{deaths} deaths are too few to have been at every write"
    );
    ends_well(&story, &cluster, 1);
    comes_to_rest(&operator);
    let writes = operator.proxy().writes();
    nothing_was_made_twice(&writes);
    assert!(
        lives(&writes).values().all(|lives| lives.deleted == 0),
        "nothing was to be deleted"
    );
    let workload = cluster.workload();
    std::thread::sleep(Duration::from_secs(3));
    workload.finish();
}

#[test]
fn a_member_whose_claim_was_deleted_is_replaced_though_the_operator_dies_at_every_write() {
    let story = Story::begin("chain-replace");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let formed = ends_well(&story, &cluster, 3);
    comes_to_rest(&operator);
    let workload = cluster.workload();
    let (taken, since) = (cluster.pods().remove(1), Instant::now());
    let deaths = dies_at_each_write(&story, &mut operator, &cluster, 3, || {
        take_away(&story, &cluster, &taken)
    });
    println!("chain: {deaths} deaths in the replacement of a member");
    assert!(
        deaths >= 14,
        "{deaths} deaths are too few to have been at every write"
    );
    assert_eq!(ends_well(&story, &cluster, 3), formed);
    assert!(
        cluster.pods().iter().all(|pod| pod.name != taken.name),
        "a name is never used again"
    );
    nothing_was_made_twice(&operator.proxy().writes_since(since));
    workload.finish();
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}

/// Where a single death may be: at the nth write to the cluster, before it is applied or after.
fn points(writes: u64) -> Vec<(u64, Verdict)> {
    let all: Vec<_> = (1..=writes)
        .flat_map(|n| [(n, Verdict::StopBefore), (n, Verdict::StopAfter)])
        .collect();
    // In leaps, so that however many are tried, they are from all over.
    let mut leap = (all.len() * 5 / 13).max(1);
    while gcd(leap, all.len()) != 1 {
        leap += 1;
    }
    (0..all.len()).map(|i| all[i * leap % all.len()]).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Tries a single death at each of those points. Says how many there were.
fn sweeps(what: &str, writes: u64, mut run: impl FnMut(u64, Verdict) -> bool) {
    let points = points(writes);
    let (mut tried, mut died) = (0, 0);
    for (n, verdict) in &points {
        tried += 1;
        let dead = run(*n, *verdict);
        died += u32::from(dead);
        println!(
            "sweep: {what}: {verdict:?} {n}{}",
            if dead { "" } else { ", which never came" }
        );
    }
    println!(
        "sweep: {what}: {died} deaths at {tried} of {} points",
        points.len()
    );
    // Status is not written equally often each time, so the last writes may not come.
    assert!(died * 2 > tried, "of {tried} deaths only {died} came to be");
}

/// Has the operator die at the nth write to a cluster, if it comes to that, and waits until the cluster is whole.
fn dies_once(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    (nth, verdict): (u64, Verdict),
    members: usize,
    begin: impl FnOnce(),
) -> bool {
    let (count, name) = (AtomicU64::new(0), cluster.name().to_owned());
    operator.proxy().rule(move |write| {
        let it = is_for(write, &name) && count.fetch_add(1, Ordering::SeqCst) + 1 == nth;
        if it { verdict } else { Verdict::Pass }
    });
    let mut died = false;
    begin();
    until_whole_through(operator, cluster, members, |operator, stopped| {
        kill_and_restart(story, operator, stopped);
        died = true;
    });
    operator.proxy().pass();
    died
}

/// How many writes to a cluster there were since a time.
fn writes_for(operator: &Operator, cluster: &str, since: Instant) -> u64 {
    operator
        .proxy()
        .writes_since(since)
        .iter()
        .filter(|written| is_for(&written.write, cluster))
        .count() as u64
}

#[test]
fn a_bootstrap_of_one_ends_well_whichever_write_the_operator_dies_at() {
    let story = Story::begin("sweep-one");
    let mut operator = Operator::start(&story);
    let spec = "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi, onDelete: Delete}";
    // Undisturbed, to know how many writes there are.
    let (first, since) = (Cluster::apply(&story, "k0", spec), Instant::now());
    ends_well(&story, &first, 1);
    comes_to_rest(&operator);
    let (writes, mut number) = (writes_for(&operator, "k0", since), 0);
    story.kubectl(&["delete", "etcd", "k0"]);
    sweeps("a bootstrap of one", writes, |nth, verdict| {
        number += 1;
        let (cluster, since) = (
            Cluster::named(&story, &format!("k{number}")),
            Instant::now(),
        );
        let died = dies_once(&story, &mut operator, &cluster, (nth, verdict), 1, || {
            cluster.set(spec)
        });
        ends_well(&story, &cluster, 1);
        nothing_was_made_twice(&operator.proxy().writes_since(since));
        story.kubectl(&["delete", "etcd", cluster.name()]);
        died
    });
}

#[test]
fn a_member_whose_claim_was_deleted_is_replaced_whichever_write_the_operator_dies_at() {
    let story = Story::begin("sweep-replace");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let formed = ends_well(&story, &cluster, 3);
    comes_to_rest(&operator);
    let workload = cluster.workload();
    let (taken, since) = (cluster.pods().remove(1), Instant::now());
    take_away(&story, &cluster, &taken);
    ends_well(&story, &cluster, 3);
    comes_to_rest(&operator);
    let writes = writes_for(&operator, "a", since);
    sweeps("the replacement of a member", writes, |nth, verdict| {
        let (taken, since) = (cluster.pods().remove(1), Instant::now());
        let died = dies_once(&story, &mut operator, &cluster, (nth, verdict), 3, || {
            take_away(&story, &cluster, &taken);
        });
        assert_eq!(ends_well(&story, &cluster, 3), formed);
        assert!(
            cluster.pods().iter().all(|pod| pod.name != taken.name),
            "a name is never used again"
        );
        nothing_was_made_twice(&operator.proxy().writes_since(since));
        died
    });
    workload.finish();
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}

#[test]
fn errors_in_place_of_answers_delay_and_change_nothing() {
    let story = Story::begin("errors");
    let operator = Operator::start(&story);
    // Told or not, done or not: each in turn, with a write that passes after each.
    let errors = [
        Verdict::Fail(409),
        Verdict::FailAfter(500),
        Verdict::Fail(500),
        Verdict::FailAfter(409),
        Verdict::Fail(429),
        Verdict::FailAfter(504),
    ];
    let count = Arc::new(AtomicU64::new(0));
    let failed = Arc::clone(&count);
    operator.proxy().rule(move |write| {
        let Some(deed) = write.deed.filter(|deed| deed.is_multiple_of(3)) else {
            return Verdict::Pass;
        };
        failed.fetch_add(1, Ordering::SeqCst);
        usize::try_from(deed / 3).map_or(Verdict::Pass, |nth| errors[nth % errors.len()])
    });
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let formed = ends_well(&story, &cluster, 3);
    let workload = cluster.workload();
    take_away(&story, &cluster, &cluster.pods().remove(1));
    assert_eq!(ends_well(&story, &cluster, 3), formed);
    println!(
        "errors: {} writes were answered with one",
        count.load(Ordering::SeqCst)
    );
    // One more may be prepared than is needed, and is then taken away: see the story of an intent that is noted and not done.
    for (object, lives) in lives(&operator.proxy().writes()) {
        let by_the_clock = object.starts_with("leases/") || object.starts_with("events/");
        assert!(
            by_the_clock || lives.created <= 1 + lives.deleted,
            "{object}: {lives:?}"
        );
    }
    workload.finish();
    operator.proxy().pass();
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_status_that_was_refused_is_written_again_though_nobody_has_changed_anything() {
    let story = Story::begin("refused");
    let operator = Operator::start(&story);
    // The last that there is to write: nothing happens after it that would bring the operator back to it.
    operator.proxy().once(Verdict::Fail(409), |write| {
        let told = write
            .body
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        is_status(write) && told.is_some_and(|all| all.iter().any(ready))
    });
    let cluster = Cluster::apply(&story, "a", &spec(1));
    ends_well(&story, &cluster, 1);
    let refused = operator
        .proxy()
        .writes()
        .into_iter()
        .filter(|it| it.told == Some(409) && it.answered.is_none());
    assert_eq!(
        refused.count(),
        1,
        "else nothing was refused without reason"
    );
}
