//! Maintenance windows: disruptive edits wait for one, and the status reports until when; recovery never waits. A window that closes
//! during a rollout stops it.

mod full;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_lab::command::Cmd;
use serde_json::{Value, json};

use crate::assertions::{create_orders, follower, member_ids, wait_until_ok};
use crate::interrupts::{HeldWrites, wait_converged, wait_idle};
use crate::rollouts::{
    QUIET_TIME, assert_no_pod_changes, changed_pods, count_with_memory, drop_held, evicted_pod,
    memory_request, wait_all_have_memory,
};
use crate::upgrade::{spec, uids};

/// Returns seconds since 1970, to the full minute: windows begin at one.
fn this_minute() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    now / 60 * 60
}

/// Formats a time in UTC with `date`.
fn format_time(at: u64, format: &str) -> String {
    let (at, format) = (format!("@{at}"), format!("+{format}"));
    let output = Cmd::new("date")
        .env("LC_ALL", "C")
        .args(["--utc", "--date", &at, &format])
        .run();
    output.unwrap().trim().to_owned()
}

/// Returns a window of three hours, once a week.
fn window(opens: u64) -> Value {
    let window = json!({ "days": [format_time(opens, "%a")], "start": format_time(opens, "%H:%M"), "duration": "3h" });
    json!({ "maintenance": { "windows": [window] } })
}

/// Returns a window that is closed, and the time at which it opens.
fn closed() -> (Value, String) {
    let opens = this_minute() + 2 * 3600;
    (window(opens), format_time(opens, "%Y-%m-%dT%H:%M:%SZ"))
}

/// Returns a window that is open for two more hours.
fn open() -> Value {
    window(this_minute() - 3600)
}

/// Returns an error unless the status reports that members wait for a window, and until when.
fn check_waiting(cluster: &Cluster<'_>, opens: &str) -> Result<(), String> {
    let status = cluster.status();
    let until = format!("the maintenance window that opens at {opens}");
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let says_so = |one: &Value| {
        one["type"] == "Progressing"
            && one["status"] == "False"
            && one["reason"] == "Waiting"
            && one["message"]
                .as_str()
                .is_some_and(|message| message.contains(&until))
    };
    let reported =
        status["waitingFor"].to_string().contains(&until) && conditions.iter().any(says_so);
    // The cluster stays healthy.
    let well = cluster.condition("Ready").0 == "True" && cluster.condition("Degraded").0 == "False";
    if reported && well {
        Ok(())
    } else {
        Err(format!("expected {until:?}: {status:#}"))
    }
}

/// Edits outside of a window, which waits; then deletes a pod, which is recovered at once with the new template.
fn assert_waits_and_recovers(story: &Story, cluster: &Cluster<'_>) {
    let (closed, opens) = closed();
    cluster.patch(&closed);
    cluster.patch(&memory_request("96Mi"));
    wait_until_ok("the status reports the window", || {
        check_waiting(cluster, &opens)
    });
    assert_no_pod_changes(cluster, QUIET_TIME);
    assert_eq!(
        count_with_memory(story, "64Mi"),
        3,
        "a member was restarted outside of a window"
    );

    let lost = follower(story, cluster);
    story.kubectl(&["delete", "pod", &lost.name]);
    wait_until_ok("the lost member is back or replaced", || {
        let (pods, status) = (cluster.pods(), cluster.status());
        let there = pods.len() == 3 && pods.iter().all(|pod| pod.ready && pod.uid != lost.uid);
        if there && status["ready"] == "3/3" {
            Ok(())
        } else {
            Err(format!("{pods:?}: {status:#}"))
        }
    });
    wait_until_ok("the status still reports the window", || {
        check_waiting(cluster, &opens)
    });
    assert_no_pod_changes(cluster, QUIET_TIME / 2);
    assert_eq!(
        count_with_memory(story, "96Mi"),
        1,
        "another member than the recovered one has the edit"
    );
}

#[test]
fn a_rollout_waits_for_its_window_and_recovery_does_not() {
    let story = Story::begin("windows");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, members) = (cluster.workload(), member_ids(&cluster));
    assert_waits_and_recovers(&story, &cluster);
    let restored = uids(&cluster);

    // One of the other two is restarted while a window is open. The window closes when the last one is about to be restarted.
    let held_writes = HeldWrites::before(operator.proxy(), evicted_pod);
    cluster.patch(&open());
    let (first, held) = held_writes.next();
    held_writes.release(&first);
    held.resume();
    let (last, held) = held_writes.next();
    assert_ne!(first, last);
    let (closed, opens) = closed();
    cluster.patch(&closed);
    drop_held(&operator, held);
    wait_until_ok("the status reports the window for the last member", || {
        check_waiting(&cluster, &opens)
    });
    assert_no_pod_changes(&cluster, QUIET_TIME);
    assert_eq!(
        count_with_memory(&story, "64Mi"),
        1,
        "{last} was restarted outside of a window"
    );

    // Without windows the rollout continues.
    cluster.patch(&json!({ "maintenance": null }));
    wait_all_have_memory(&story, "96Mi", 3);
    wait_converged(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    let restarted = changed_pods(&cluster, &restored);
    assert_eq!(
        restarted,
        BTreeSet::from([first, last]),
        "the recovered member was restarted again"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
