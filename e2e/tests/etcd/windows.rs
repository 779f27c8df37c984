//! Maintenance windows: what disturbs members waits for one, and the status says until when; what heals them never waits. A window
//! that closes in the middle leaves the others as they are.

mod full;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_lab::command::Cmd;
use serde_json::{Value, json};

use crate::look::{follower, formed, ids, until_right};
use crate::middle::{Stops, comes_to_rest, ends_well};
use crate::rolls::{
    STILL, changed, how_many_ask, memory, never_happens, nobody_is_touched, until_all_ask,
    whose_turn,
};
use crate::upgrade::{spec, uids};

/// Seconds since 1970, to the full minute: windows begin with one.
fn this_minute() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    now / 60 * 60
}

/// A time in UTC, as `date` writes it.
fn written(at: u64, format: &str) -> String {
    let (at, format) = (format!("@{at}"), format!("+{format}"));
    let said = Cmd::new("date")
        .env("LC_ALL", "C")
        .args(["--utc", "--date", &at, &format])
        .run();
    said.unwrap().trim().to_owned()
}

/// A window of three hours, once a week.
fn window(opens: u64) -> Value {
    let window = json!({ "days": [written(opens, "%a")], "start": written(opens, "%H:%M"), "duration": "3h" });
    json!({ "maintenance": { "windows": [window] } })
}

/// A window that is not open, and when it will be.
fn closed() -> (Value, String) {
    let opens = this_minute() + 2 * 3600;
    (window(opens), written(opens, "%Y-%m-%dT%H:%M:%SZ"))
}

/// A window that is open, for two hours more.
fn open() -> Value {
    window(this_minute() - 3600)
}

/// Whether the status says that members wait for a window, and until when.
fn is_told(cluster: &Cluster<'_>, opens: &str) -> Result<(), String> {
    let status = cluster.status();
    let until = format!("the next maintenance window, which opens at {opens}");
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let says_so = |one: &Value| {
        one["type"] == "Progressing"
            && one["status"] == "False"
            && one["reason"] == "Waiting"
            && one["message"]
                .as_str()
                .is_some_and(|message| message.contains(&until))
    };
    let told = status["waitingFor"].to_string().contains(&until) && conditions.iter().any(says_so);
    // Nobody is worse off for it.
    let well = cluster.condition("Ready").0 == "True" && cluster.condition("Degraded").0 == "False";
    if told && well {
        Ok(())
    } else {
        Err(format!("it is to say {until:?}: {status:#}"))
    }
}

/// An edit that comes while no window is open waits for it; a pod that is lost meanwhile does not, and is made as is wanted now.
fn waits_and_heals(story: &Story, cluster: &Cluster<'_>) {
    let (closed, opens) = closed();
    cluster.patch(&closed);
    cluster.patch(&memory("96Mi"));
    until_right("it is told until when it waits", || {
        is_told(cluster, &opens)
    });
    nobody_is_touched(cluster, STILL);
    assert_eq!(
        how_many_ask(story, "64Mi"),
        3,
        "nobody has what was wanted outside of a window"
    );

    let lost = follower(story, cluster);
    story.kubectl(&["delete", "pod", &lost.name]);
    until_right("somebody is in its place", || {
        let (pods, status) = (cluster.pods(), cluster.status());
        let there = pods.len() == 3 && pods.iter().all(|pod| pod.ready && pod.uid != lost.uid);
        if there && status["ready"] == "3/3" {
            Ok(())
        } else {
            Err(format!("{pods:?}: {status:#}"))
        }
    });
    until_right("the others wait on", || is_told(cluster, &opens));
    nobody_is_touched(cluster, STILL / 2);
    assert_eq!(
        how_many_ask(story, "96Mi"),
        1,
        "only who had to be made good is as wanted"
    );
}

#[test]
fn a_roll_waits_for_its_window_and_stops_when_that_closes_and_healing_waits_for_none() {
    let story = Story::begin("windows");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members) = (cluster.workload(), ids(&cluster));
    waits_and_heals(&story, &cluster);
    let healed = uids(&cluster);

    // One of the two others has its turn while a window is open. It closes when the last one is about to have it.
    let stops = Stops::before(operator.proxy(), whose_turn);
    cluster.patch(&open());
    let (first, stopped) = stops.next();
    stops.let_go(&first);
    stopped.go_on();
    let (last, stopped) = stops.next();
    assert_ne!(first, last);
    let (closed, opens) = closed();
    cluster.patch(&closed);
    never_happens(&operator, stopped);
    until_right("it is told until when the last one waits", || {
        is_told(&cluster, &opens)
    });
    nobody_is_touched(&cluster, STILL);
    assert_eq!(how_many_ask(&story, "64Mi"), 1, "{last} is as it was");

    // Without windows nothing waits.
    cluster.patch(&json!({ "maintenance": null }));
    until_all_ask(&story, "96Mi", 3);
    ends_well(&story, &cluster, 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    let restarted = changed(&cluster, &healed);
    assert_eq!(
        restarted,
        BTreeSet::from([first, last]),
        "who was made good was not restarted once more"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
