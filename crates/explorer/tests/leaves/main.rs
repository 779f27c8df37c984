//! Every leaf of the resource is set, changed, left out, made what it cannot be, and put back. Each step goes through the schema
//! and its rules, through the checks in Rust, and through `decide` in the explorer's world, with the objects as they are built; at
//! its end the cluster is what a new one with that very spec would be, and as many pods were touched as its row says.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod known;
mod kube_side;
mod lived;
mod rows;
mod schema;
mod walk;

use std::collections::BTreeSet;

use serde_json::json;

use crate::lived::Rollout;
use crate::rows::{Kind, Row};
use crate::schema::{Answer, Schema};
use crate::walk::{Lab, edited, manifest};

#[test]
fn every_leaf_of_the_spec_has_a_row() {
    let leaves = Schema::of_the_types().leaves();
    assert!(leaves.len() > 30, "only {leaves:?}");
    let rows: BTreeSet<&str> = rows::all().iter().map(|row| row.leaf).collect();
    let without: Vec<_> = leaves
        .iter()
        .filter(|leaf| !rows.contains(leaf.as_str()))
        .collect();
    assert!(
        without.is_empty(),
        "no case for {without:?}: say in rows.rs what each can be, and how it is rolled out"
    );
    let within = |row: &&&str| leaves.iter().any(|leaf| leaf.starts_with(**row));
    let unknown: Vec<_> = rows.iter().filter(|row| !within(row)).collect();
    assert!(unknown.is_empty(), "no such leaf: {unknown:?}");
}

#[test]
fn every_leaf_comes_to_what_a_new_cluster_would_be() {
    let mut lab = Lab::new();
    let mut wrong = Vec::new();
    for row in rows::all() {
        let Row { leaf, kind, .. } = &row;
        for ephemeral in [false, true]
            .into_iter()
            .filter(|ephemeral| row.is_walked(*ephemeral))
        {
            let data = if ephemeral { "in pods" } else { "on volumes" };
            let found = lab.walk(&row, ephemeral);
            println!(
                "{leaf} ({kind:?}, data {data}): {}",
                if found.is_empty() { "well" } else { "wrong" }
            );
            wrong.extend(
                found
                    .into_iter()
                    .map(|it| format!("{leaf}, data {data}: {it}")),
            );
        }
    }
    known::mend(known::WALKED, &wrong);
}

/// From here until Saturday night.
const EIGHTEEN_HOURS: i64 = 18 * 3600;

#[test]
fn what_disturbs_members_waits_for_a_window_and_nothing_else_does() {
    let mut lab = Lab::new();
    let window = json!([{ "days": ["Sat"], "start": "02:00", "duration": "3h" }]);
    let leaves = ["spec.maintenance.windows", "spec.paused"];
    for row in rows::all()
        .into_iter()
        .filter(|row| !leaves.iter().any(|leaf| row.leaf.starts_with(leaf)))
    {
        let Row {
            leaf,
            kind,
            set,
            base,
            ..
        } = &row;
        let base = edited(&manifest(base), "spec.maintenance.windows", Some(&window));
        if matches!(kind, Kind::Kept | Kind::Never) {
            continue;
        }
        let mut lived = lab.fresh(&base).unwrap();
        lab.edit(&mut lived, &edited(&base, leaf, Some(set)));
        let came = lived.rest().unwrap();
        let restarted = matches!(came.rollout(), Rollout::Restarted | Rollout::Replaced);
        assert!(
            restarted || !matches!(kind, Kind::Rolled | Kind::Moved),
            "{leaf}: {came}"
        );
        // The volumes of those that went are kept for a day.
        let waits = EIGHTEEN_HOURS + if *kind == Kind::Moved { 24 * 3600 } else { 0 };
        assert_eq!(
            came.waited,
            if restarted { waits } else { 0 },
            "{leaf}: {came}"
        );
    }
}

#[test]
fn while_it_is_paused_nothing_is_written_and_then_all_that_was_edited_meanwhile_is_rolled_out() {
    let mut lab = Lab::new();
    let base = manifest(&json!({}));
    let mut lived = lab.fresh(&base).unwrap();
    let paused = edited(&base, "spec.paused", Some(&json!(true)));
    let edits = [
        ("spec.resources.requests.cpu", json!("500m")),
        ("spec.service.type", json!("NodePort")),
        ("spec.storage.onDelete", json!("Delete")),
        ("spec.tls.client.extraNames", json!(["etcd.corp.example"])),
    ];
    let all = edits.iter().fold(paused, |manifest, (leaf, value)| {
        edited(&manifest, leaf, Some(value))
    });
    lab.edit(&mut lived, &all);
    assert_eq!(lived.rest().unwrap().writes, 0);
    let all = edited(&all, "spec.paused", Some(&json!(false)));
    lab.edit(&mut lived, &all);
    assert_eq!(lived.rest().unwrap().rollout(), Rollout::Restarted);
    assert!(lived.state() == lab.fresh(&all).unwrap().state());
}

#[test]
fn a_resource_created_again_over_kept_volumes_keeps_what_was_chosen_for_them() {
    let mut lab = Lab::new();
    let mut wrong = Vec::new();
    for row in rows::all().into_iter().filter(|row| row.kind == Kind::Kept) {
        let Row { leaf, set, .. } = &row;
        let mut lived = lab.fresh(&manifest(&json!({}))).unwrap();
        let before = lived.look().unwrap().0.desired;
        let mut again = edited(&manifest(&json!({})), leaf, Some(set));
        again["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000002");
        let again = lab.schema.defaulted(&again);
        assert!(
            matches!(lab.schema.answer(&again, None), Answer::Stored),
            "{leaf} is a choice"
        );
        lived.is_created_again(serde_json::from_value(again).unwrap());
        if let Err(why) = lived.rest() {
            wrong.push(format!("{leaf}, created again: {why}"));
            continue;
        }
        wrong.extend(
            lived
                .is_unwell()
                .map(|why| format!("{leaf}, created again: {why}")),
        );
        let after = lived.look().unwrap().0;
        let (was, is) = (
            (before.data, before.quota),
            (after.desired.data, after.desired.quota),
        );
        if was != is {
            wrong.push(format!(
                "{leaf}, created again: {was:?} becomes {is:?}, on the volumes of before"
            ));
        }
    }
    known::mend(known::CREATED_AGAIN, &wrong);
}
