//! A roll that is paused in the middle: it goes no further, nothing is healed, and the status goes on telling the truth.

use std::collections::BTreeSet;
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{follower, formed, ids, until_right};
use crate::middle::{Stops, comes_to_rest, ends_well};
use crate::rolls::{
    STILL, changed, how_many_ask, memory, never_happens, nobody_is_touched, until_all_ask,
    whose_turn,
};
use crate::upgrade::{spec, uids};

/// That it says it is paused, and what ends that.
fn is_paused(cluster: &Cluster<'_>) -> bool {
    let status = cluster.status();
    status["summary"] == "Paused"
        && cluster.condition("Progressing") == ("False".to_owned(), "Paused".to_owned())
        && status["waitingFor"]
            .to_string()
            .contains("nothing is changed until it is false")
}

/// What the status says of a member.
fn told_of(status: &Value, member: &str) -> Value {
    let mut members = status["memberList"].as_array().into_iter().flatten();
    members
        .find(|one| one["name"] == member)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_roll_that_is_paused_touches_nobody_while_the_status_stays_true_and_ends_when_it_goes_on() {
    let story = Story::begin("paused");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members, before) = (cluster.workload(), ids(&cluster), uids(&cluster));
    let stops = Stops::before(operator.proxy(), whose_turn);
    cluster.patch(&memory("96Mi"));
    let (first, stopped) = stops.next();
    stops.let_go(&first);
    stopped.go_on();
    // When the next one is about to go, the first one is back.
    let (_, stopped) = stops.next();
    cluster.patch(&json!({ "paused": true }));
    never_happens(&operator, stopped);
    until_right("it is told that it is paused, and that all serve", || {
        let status = cluster.status();
        let told =
            is_paused(&cluster) && status["ready"] == "3/3" && status["failureTolerance"] == 1;
        if told {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    let paused = Instant::now();
    nobody_is_touched(&cluster, STILL);
    assert_eq!(
        changed(&cluster, &before),
        BTreeSet::from([first]),
        "no other was restarted"
    );
    assert_eq!(how_many_ask(&story, "96Mi"), 1);

    // What happens meanwhile is seen, and left as it is.
    let lost = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &lost.name]);
    until_right(
        "it is told who is missing, and that clients are served",
        || {
            let status = cluster.status();
            let of_it = told_of(&status, &lost.name);
            let missed = of_it["healthy"] == false && of_it["message"] == "it has no pod";
            let counted = status["ready"] == "2/3" && status["failureTolerance"] == 0;
            let says = |kind: &str, reason: &str| {
                cluster.condition(kind) == ("True".to_owned(), reason.to_owned())
            };
            // It is nobody's turn to be away: nobody is brought back.
            let told =
                says("Ready", "Serving") && says("Degraded", "MemberDown") && is_paused(&cluster);
            if missed && counted && told {
                Ok(())
            } else {
                Err(format!("{status:#}"))
            }
        },
    );
    nobody_is_touched(&cluster, STILL / 2);
    assert_eq!(cluster.pods().len(), 2, "nothing is healed");
    let touched: Vec<_> = operator
        .proxy()
        .writes_since(paused)
        .into_iter()
        .filter(|written| {
            written.write.is_to("pods") || written.write.is_to("persistentvolumeclaims")
        })
        .collect();
    assert!(touched.is_empty(), "{touched:#?}");

    cluster.patch(&json!({ "paused": false }));
    until_all_ask(&story, "96Mi", 3);
    ends_well(&story, &cluster, 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(
        changed(&cluster, &before).len(),
        3,
        "the others had their turn"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
