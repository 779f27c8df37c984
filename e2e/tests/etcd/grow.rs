//! Growing when something is in the way: no node for the newcomer, or a newcomer that dies just when it gets its vote.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::MemberPod;
use evenkeel_e2e::operator::Operator;
use evenkeel_history::Config;
use serde_json::json;

use crate::look::{LONG, follower, formed, ids, leader, says, until_whole};
use crate::middle::{Stops, comes_to_rest, intent_in, kill_and_restart, member_pod, pod_of, spec};
use crate::noted::take_pod_and_claim;

#[test]
fn a_learner_that_dies_when_it_is_to_get_its_vote_breaks_nothing() {
    let story = Story::begin("dying");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let workload = cluster.workload();
    let stops = Stops::before(operator.proxy(), |write| {
        intent_in(write, "orders")
            .filter(|intent| intent.kind == "Promote")
            .map(|intent| intent.serial.to_string())
    });
    cluster.patch(&json!({"members": 3}));
    // The first dies while the operator is about to ask for its vote. etcd looks at its log only, and would give it: of two
    // votes one would then be left, and nobody could write.
    let (serial, stopped) = stops.next();
    let learner = pod_of(&story, "orders", serial.parse().unwrap());
    let pod = story.lab().pod(story.namespace(), &learner).unwrap();
    pod.freeze(Some("etcd"), None).unwrap();
    // Longer than what was seen counts as seen just now.
    std::thread::sleep(std::time::Duration::from_secs(5));
    stops.let_go(&serial);
    stopped.go_on();
    story.eventually("it is told that the learner must catch up, or join", || {
        let told = cluster.status()["waitingFor"].to_string();
        told.contains(&learner) || cluster.status()["phrase"].to_string().contains(&learner)
    });
    let since = workload.now();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let stats = workload.stats(since);
    println!(
        "with a dead learner: {}",
        evenkeel_e2e::watched::told("orders", &stats)
    );
    let list = cluster.member_list();
    assert!(
        list.iter()
            .any(|member| member.learner && member.name == learner),
        "{list:?}"
    );
    pod.thaw(Some("etcd"), None).unwrap();
    // The second one's vote is asked for by an operator that dies before it can.
    let (next, stopped) = stops.next();
    stops.let_go(&next);
    kill_and_restart(&story, &mut operator, stopped);
    until_whole(&story, &cluster, 3);
    assert!(
        member_pod(&story, "orders", serial.parse().unwrap()).is_some(),
        "it is still a member"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
