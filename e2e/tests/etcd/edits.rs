//! Edits of a cluster that runs, one of each kind: what is beside the members changes at once, and nobody is restarted; what members
//! are made of restarts each of them once; what would harm them is refused with what to do instead. Taken back, each leaves
//! everything as it was.

mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{formed, ids, until_right, until_whole};
use crate::middle::{comes_to_rest, ends_well};
use crate::rolls::{each_was_restarted_once, name_of, nobody_is_touched, pods, pods_lives};
use crate::upgrade::{claims, spec, uids};

/// What each member's etcd is started with. In its first life the pod of the first member is told elsewhere whether to found a
/// cluster, and later as the others are: that flag is left out.
fn flags(story: &Story) -> BTreeMap<String, Vec<String>> {
    let flags = |pod: &Value| {
        let all = pod["spec"]["containers"][0]["args"]
            .as_array()
            .into_iter()
            .flatten();
        let all = all.filter_map(|flag| flag.as_str().map(str::to_owned));
        all.filter(|flag| !flag.starts_with("--initial-cluster-state="))
            .collect::<Vec<_>>()
    };
    pods(story)
        .iter()
        .map(|pod| (name_of(pod), flags(pod)))
        .collect()
}

/// Edits that are refused, and what is advised.
fn refused() -> [(Value, &'static str); 6] {
    let options = |name: &str, value: &str| json!({ "etcd": { "options": { name: value } } });
    [
        (
            options("quota-backend-bytes", "1000000"),
            "use spec.etcd.quota",
        ),
        (
            options("force-new-cluster", "true"),
            "it makes two clusters of one, and both take writes",
        ),
        (
            options("heartbeat-interval", "300"),
            "Raise the one, or lower the other",
        ),
        (
            options("max-txn-ops", "many"),
            "a whole number from 1 to 65536",
        ),
        (options("frobnicate", "1"), "docs/tasks/options.md lists it"),
        (
            json!({ "maintenance": { "windows": [{ "start": "2:00", "duration": "1h" }] } }),
            "with all four digits",
        ),
    ]
}

#[test]
fn an_option_of_etcd_restarts_each_member_once_and_so_does_taking_it_back_and_a_bad_one_none() {
    let story = Story::begin("edits-option");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), ids(&cluster), claims(&cluster));
    comes_to_rest(&operator);
    let (before, untouched) = (flags(&story), uids(&cluster));
    let resource = || story.get(&["etcd/orders"]);
    let was = resource();
    for (edit, advice) in refused() {
        let patch = json!({ "spec": edit }).to_string();
        let said = story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
        let said = said.expect_err("it is refused");
        assert!(said.contains(advice), "{edit}: {said}");
    }
    let is = resource();
    assert_eq!(
        (&is["spec"], &is["metadata"]["generation"]),
        (&was["spec"], &was["metadata"]["generation"])
    );
    nobody_is_touched(&cluster, Duration::from_secs(3));
    assert_eq!(
        uids(&cluster),
        untouched,
        "of what is refused nothing is done"
    );

    let option = "--max-txn-ops=256".to_owned();
    let mut with_it = before.clone();
    with_it
        .values_mut()
        .for_each(|flags| flags.push(option.clone()));
    let edits = [
        (
            json!({ "etcd": { "options": { "max-txn-ops": "256" } } }),
            with_it,
        ),
        (json!({ "etcd": { "options": null } }), before),
    ];
    for (edit, wanted) in edits {
        let began = Instant::now();
        cluster.patch(&edit);
        until_right(&format!("all are started as {edit} says"), || {
            let sorted = |flags: &BTreeMap<String, Vec<String>>| {
                let mut flags = flags.clone();
                flags.values_mut().for_each(|flags| flags.sort());
                flags
            };
            let now = flags(&story);
            if sorted(&now) == sorted(&wanted) {
                Ok(())
            } else {
                Err(format!("{now:#?}"))
            }
        });
        ends_well(&story, &cluster, 3);
        comes_to_rest(&operator);
        each_was_restarted_once(&operator.proxy().writes_since(began), 3);
    }
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    workload.finish();
    cluster.holds_the_same_everywhere();
}
