//! Two operators with one lease. The one that leads freezes in the middle of a write, for longer than its lease; the other
//! takes over and finishes; the first wakes up, and nothing that it does late has an effect.

use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::{Verdict, Written};
use evenkeel_e2e::{PATIENCE, Story};

use crate::look::LONG;
use crate::middle::{comes_to_rest, ends_well, intent_in, spec};

#[test]
fn a_leader_frozen_before_its_intent_landed_wakes_up_too_late_for_it() {
    leader_freezes("frozen-before", Verdict::StopBefore);
}

/// How long a sleeper that wakes may take to see that it leads no more.
const AWAKE: Duration = PATIENCE;

/// What became of a write that was held.
fn held(operator: &Operator, number: u64) -> Written {
    let mut writes = operator.proxy().writes().into_iter();
    writes
        .find(|written| written.write.number == number)
        .expect("it was seen to be held")
}

/// A member of three loses its data; the leading operator freezes as it notes that the member is to be removed, `before`
/// or after the note has landed.
fn leader_freezes(name: &str, verdict: Verdict) {
    let story = Story::begin(name);
    let named = |name: &str| Options {
        name: name.to_owned(),
        ..Options::default()
    };
    let mut sleeper = Operator::with(&story, named("sleeper"));
    let cluster = Cluster::apply(&story, "a", &spec(3));
    let formed = ends_well(&story, &cluster, 3);
    let successor = Operator::with(&story, named("successor"));
    story.eventually("the successor stands by", || {
        successor.log_has("waiting for the lease")
    });
    let workload = cluster.workload();

    sleeper
        .proxy()
        .once(verdict, |write| intent_in(write, "a").is_some());
    let taken = cluster.pods().remove(1);
    story.kubectl(&[
        "delete",
        &format!("pod/{}", taken.name),
        &format!("pvc/{}", taken.name),
        "--wait=false",
    ]);
    let stopped = sleeper.proxy().stopped(LONG);
    let noted = intent_in(&stopped.write, "a").unwrap();
    assert_eq!(noted.kind, "Remove", "{noted:?}");
    assert!(
        successor
            .proxy()
            .writes_since(Instant::now() - LONG)
            .is_empty(),
        "it only stood by so far"
    );
    sleeper.freeze();
    ends_well(&story, &cluster, 3);
    assert!(
        successor.log_has("acquired the lease"),
        "who else has finished it?"
    );
    comes_to_rest(&successor);
    let members = cluster.member_list();

    let woken = Instant::now();
    let number = stopped.write.number;
    stopped.go_on();
    sleeper.thaw();
    let ended = sleeper
        .ends_within(AWAKE)
        .expect("it ends when it sees that it leads no more");
    assert!(
        !ended.success(),
        "whoever runs it is to start it anew: {ended}"
    );
    assert!(sleeper.log_has("lost the lease"), "it says why it ended");
    story.eventually("what was held has been answered", || {
        held(&sleeper, number).answered.is_some()
    });
    match verdict {
        // It was on its way all the time, and comes too late.
        Verdict::StopBefore => assert_eq!(held(&sleeper, number).answered, Some(409)),
        _ => assert_eq!(held(&sleeper, number).answered, Some(200)),
    }
    let late: Vec<_> = sleeper
        .proxy()
        .writes_since(woken)
        .into_iter()
        .filter(|it| it.is_applied())
        .collect();
    assert!(late.is_empty(), "it wrote though it led no more: {late:?}");
    assert!(
        !sleeper.log_has("change=Remove") && !sleeper.log_has("\"change\":\"Remove"),
        "nor asked it etcd"
    );
    assert_eq!(
        cluster.member_list(),
        members,
        "nothing has become of what it was about to do"
    );
    assert_eq!(ends_well(&story, &cluster, 3), formed);
    workload.finish();
    comes_to_rest(&successor);
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_leader_frozen_between_its_intent_and_the_call_wakes_up_and_does_not_call() {
    leader_freezes("frozen-between", Verdict::StopAfter);
}
