//! What may go wrong in the middle of a roll, at each member's turn: somebody deletes pods, the edit is taken back, the operator
//! dies between an intent and its effect, a node is lost. It ends with what is wanted, and clients were promised nothing else.

mod alone;

use std::collections::BTreeSet;
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Lives, Stopped, Verdict};
use evenkeel_e2e::watched::told;
use serde_json::json;

use crate::full::lost::{Healed, until_lost};
use crate::look::{LONG, formed, ids, leader, says, until_right};
use crate::middle::{
    Stops, comes_to_rest, ends_well, intent_in, kill_and_restart, until_whole_through,
};
use crate::plugin::evenkeel;
use crate::rolls::{asked, changed, how_many_ask, memory, never_happens, pods_lives, whose_turn};
use crate::upgrade::{claims, runs, spec, uids};

/// When somebody deletes the pod of the member whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// When it is about to be evicted.
    Before,
    /// As soon as it has been created again.
    Coming,
    /// When it is Ready again.
    Back,
}

/// The next member whose turn it is, while everybody is well. Held up here, the operator cannot know what was deleted meanwhile: what
/// it had decided before that is not let through so late, and it decides anew.
fn next_turn(
    stops: &Stops<'_>,
    cluster: &Cluster<'_>,
    deleted: &BTreeSet<String>,
) -> (MemberPod, Stopped) {
    loop {
        let (name, stopped) = stops.next();
        let pods = cluster.pods();
        if pods.len() == 3
            && pods
                .iter()
                .all(|pod| pod.ready && !deleted.contains(&pod.uid))
        {
            return (cluster.pod(&name), stopped);
        }
    }
}

/// Deletes the pod of the member whose turn it is, in its time. Says which pod that was.
fn deletes(
    story: &Story,
    cluster: &Cluster<'_>,
    stage: Stage,
    (turn, stopped): (&MemberPod, Stopped),
) -> String {
    let delete = || story.kubectl(&["delete", "pod", &turn.name, "--wait=false"]);
    if stage == Stage::Before {
        delete();
        // Comes too late, for another state of that pod.
        stopped.go_on();
        return turn.uid.clone();
    }
    stopped.go_on();
    let mut new: Option<MemberPod> = None;
    story.within(LONG, &format!("{} is there again", turn.name), || {
        let is_new = |pod: &MemberPod| pod.name == turn.name && pod.uid != turn.uid;
        let far_enough = |pod: &MemberPod| pod.ready || stage == Stage::Coming;
        new = cluster
            .pods()
            .into_iter()
            .find(|pod| is_new(pod) && far_enough(pod));
        new.is_some()
    });
    delete();
    new.map(|pod| pod.uid).unwrap_or_default()
}

/// A restart of three in which somebody deletes the pod of each member when it has its turn.
fn is_disturbed_at_each_turn(story: &Story, stage: Stage) {
    let operator = Operator::start(story);
    let cluster = formed(story, &spec("3.6.16", 3), 3);
    let (members, volumes, before) = (ids(&cluster), claims(&cluster), uids(&cluster));
    let workload = cluster.workload();
    comes_to_rest(&operator);
    let (began, since) = (Instant::now(), workload.now());
    let stops = Stops::before(operator.proxy(), whose_turn);
    assert_eq!(evenkeel(story, &["restart", "orders"]).code, 0);
    let (mut turns, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..3 {
        let (turn, stopped) = next_turn(&stops, &cluster, &deleted);
        stops.let_go(&turn.name);
        deleted.insert(deletes(story, &cluster, stage, (&turn, stopped)));
        println!("{}: deleted {} {stage:?}", story.namespace(), turn.name);
        turns.insert(turn.name);
    }
    assert_eq!(turns.len(), 3, "each had its turn once: {turns:?}");
    until_right("all were restarted, and are there", || {
        let now = uids(&cluster);
        let anew = now
            .iter()
            .all(|(name, uid)| before.get(name) != Some(uid) && !deleted.contains(uid));
        if now.len() == 3 && anew {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    operator.proxy().pass();
    ends_well(story, &cluster, 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    comes_to_rest(&operator);
    // Whoever comes back from somebody else's hand comes as is wanted, and need not go again.
    let by_us = match stage {
        Stage::Before => Lives {
            created: 1,
            deleted: 0,
        },
        Stage::Coming | Stage::Back => Lives {
            created: 2,
            deleted: 1,
        },
    };
    let lives = pods_lives(&operator.proxy().writes_since(began));
    assert!(
        lives.len() == 3 && lives.values().all(|lives| *lives == by_us),
        "{stage:?}: {lives:?}"
    );
    println!(
        "{}",
        told(&format!("deleted {stage:?}"), &workload.stats(since))
    );
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn pods_deleted_when_they_are_about_to_be_evicted_are_not_restarted_twice() {
    is_disturbed_at_each_turn(&Story::begin("roll-before"), Stage::Before);
}

#[test]
fn pods_deleted_on_their_way_back_are_waited_for_at_each_turn() {
    is_disturbed_at_each_turn(&Story::begin("roll-coming"), Stage::Coming);
}

#[test]
fn pods_deleted_when_they_are_back_are_waited_for_at_each_turn() {
    is_disturbed_at_each_turn(&Story::begin("roll-back"), Stage::Back);
}

/// What members run, by their own word.
fn versions(cluster: &Cluster<'_>) -> Vec<String> {
    let version = |pod: &MemberPod| says(cluster, pod)?["version"].as_str().map(str::to_owned);
    cluster
        .pods()
        .iter()
        .map(|pod| version(pod).unwrap_or_default())
        .collect()
}

/// An upgrade to the next minor that is taken back when so many members run it. etcd lets them go back for as long as one has not
/// left the earlier minor.
fn is_taken_back_after(story: &Story, restarted: usize) {
    let operator = Operator::start(story);
    let cluster = formed(story, &spec("3.5.35", 3), 3);
    let (members, volumes, before) = (ids(&cluster), claims(&cluster), uids(&cluster));
    let workload = cluster.workload();
    let stops = Stops::before(operator.proxy(), whose_turn);
    cluster.patch(&json!({ "version": "3.6.16" }));
    for _ in 0..restarted {
        let (name, stopped) = stops.next();
        stops.let_go(&name);
        stopped.go_on();
    }
    // The next one has its turn only when all those are back.
    let (next, stopped) = stops.next();
    let run = versions(&cluster);
    assert_eq!(
        run.iter().filter(|version| *version == "3.6.16").count(),
        restarted,
        "{run:?}"
    );
    assert_eq!(
        run.iter().filter(|version| *version == "3.5.35").count(),
        3 - restarted,
        "{run:?}"
    );
    let moved = changed(&cluster, &before);
    cluster.patch(&json!({ "version": "3.5.35" }));
    never_happens(&operator, stopped);
    until_right("all run what they ran", || {
        // Asked themselves only when the status says so: a look is three processes.
        let run = if runs(&cluster, "3.5.35") {
            versions(&cluster)
        } else {
            Vec::new()
        };
        let back = run.len() == 3 && run.iter().all(|version| version == "3.5.35");
        if back {
            Ok(())
        } else {
            Err(format!("{run:?}: {:#}", cluster.status()))
        }
    });
    ends_well(story, &cluster, 3);
    assert_eq!(cluster.status()["version"], "3.5.35");
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    assert!(!moved.contains(&next), "it was not its turn yet");
    assert_eq!(
        changed(&cluster, &before),
        moved,
        "nobody else was restarted"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn an_upgrade_that_is_taken_back_after_one_of_three_ends_where_it_began() {
    is_taken_back_after(&Story::begin("back-after-one"), 1);
}

#[test]
fn an_upgrade_that_is_taken_back_after_two_of_three_ends_where_it_began() {
    is_taken_back_after(&Story::begin("back-after-two"), 2);
}

#[test]
fn members_in_memory_are_replaced_one_by_one_though_the_operator_dies_after_each_intent() {
    let story = Story::begin("roll-killed");
    let mut operator = Operator::start(&story);
    let cluster = formed(
        &story,
        &spec("3.6.16", 3).replace("{size: 1Gi}", "{ephemeral: true}"),
        3,
    );
    let (workload, before) = (cluster.workload(), ids(&cluster));
    comes_to_rest(&operator);
    let heard = |operator: &Operator| operator.log().matches("intent recorded").count();
    let (began, heard_before) = (Instant::now(), heard(&operator));
    operator
        .proxy()
        .rule(|write| match intent_in(write, "orders") {
            Some(_) => Verdict::StopAfter,
            None => Verdict::Pass,
        });
    cluster.patch(&memory("96Mi"));
    let mut intents = Vec::new();
    // It is whole for as long as nobody has told of the edit, too.
    while cluster
        .pods()
        .iter()
        .any(|pod| before.contains_key(&pod.name))
    {
        assert!(
            began.elapsed() < 5 * LONG,
            "not all are replaced, after {intents:?}"
        );
        until_whole_through(&mut operator, &cluster, 3, |operator, stopped| {
            let intent = intent_in(&stopped.write, "orders").unwrap();
            assert_eq!(stopped.answered, Some(200), "{intent:?} is noted");
            kill_and_restart(&story, operator, stopped);
            println!("{}: killed after noting {intent:?}", story.namespace());
            intents.push(intent.kind);
        });
    }
    operator.proxy().pass();
    ends_well(&story, &cluster, 3);
    assert_eq!(
        intents,
        ["Add", "Promote", "Remove"].repeat(3),
        "one joins before one goes, each time"
    );
    assert_eq!(
        heard(&operator),
        heard_before,
        "it never lived to hear that an intent was noted"
    );
    assert_eq!(how_many_ask(&story, "96Mi"), 3);
    comes_to_rest(&operator);
    let lives = pods_lives(&operator.proxy().writes_since(began));
    let once = |lives: &Lives| lives.created + lives.deleted == 1;
    assert!(
        lives.len() == 6 && lives.values().all(once),
        "three came and three went: {lives:?}"
    );
    workload.finish();
    cluster.holds_the_same_everywhere();
}
