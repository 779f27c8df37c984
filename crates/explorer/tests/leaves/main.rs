//! Edits every leaf of the spec: set, change, unset, set to invalid values, restore. Each edit passes through the
//! schema and its CEL rules, the checks in Rust and `decide` on the explorer's model, with the real objects.
//! Afterwards the cluster must equal a new cluster with the same spec, and as many pods must have been touched as the
//! case says.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod cases;
mod known_differences;
mod objects;
mod schema;
mod simulation;
mod walk;

use std::collections::BTreeSet;

use evenkeel_api::EtcdCluster;
use serde_json::json;

use crate::cases::{ChangeKind, LeafCase};
use crate::schema::{ApiServerAnswer, Schema};
use crate::simulation::Rollout;
use crate::walk::{Harness, edited, manifest};

#[test]
fn every_leaf_of_the_spec_has_a_case() {
    let leaves = Schema::from_crd().leaves();
    assert!(leaves.len() > 30, "only {leaves:?}");
    let cases: BTreeSet<&str> = cases::all().iter().map(|case| case.leaf).collect();
    let without: Vec<_> = leaves
        .iter()
        .filter(|leaf| !cases.contains(leaf.as_str()) && *leaf != BACKUP)
        .collect();
    assert!(
        without.is_empty(),
        "no case for {without:?}: add one to cases.rs"
    );
    let within = |case: &&&str| leaves.iter().any(|leaf| leaf.starts_with(**case));
    let unknown: Vec<_> = cases.iter().filter(|case| !within(case)).collect();
    assert!(unknown.is_empty(), "no such leaf: {unknown:?}");
}

/// The backup that a new cluster begins with. It has no effect on a cluster that exists, which therefore differs from a new
/// one with the same spec.
const BACKUP: &str = "spec.bootstrap.from.backup";

#[test]
fn the_backup_of_a_cluster_that_exists_can_be_set_changed_and_removed_without_effect() {
    let mut harness = Harness::new();
    let base = manifest(&json!({}));
    let mut cluster = harness.fresh(&base).unwrap();
    let before = cluster.state();
    let from = |backup: &str| edited(&base, BACKUP, Some(&json!(backup)));
    for edit in [from("nightly"), from("orders-2026-11-14"), base.clone()] {
        harness.edit(&mut cluster, &edit);
        assert_eq!(cluster.converge().unwrap().rollout(), Rollout::Unchanged);
    }
    assert!(cluster.state() == before);
    let long = "a".repeat(64);
    for backup in ["", "Nightly", "-nightly", "a.b", "a/b", &long] {
        let answer = harness
            .schema
            .api_answer(&harness.schema.defaulted(&from(backup)), None);
        assert!(!matches!(answer, ApiServerAnswer::Stored), "{backup:?}");
        let resource = serde_json::from_value::<EtcdCluster>(from(backup)).unwrap();
        assert!(resource.spec.validate().is_err(), "{backup:?}");
    }
    let ephemeral = edited(
        &from("nightly"),
        "spec.storage.ephemeral",
        Some(&json!(true)),
    );
    let ephemeral = harness.schema.defaulted(&ephemeral);
    let answer = harness.schema.api_answer(&ephemeral, None);
    assert!(
        matches!(&answer, ApiServerAnswer::Rejected(why) if why[0].contains("restored onto a volume")),
        "{answer:?}"
    );
}

#[test]
fn every_edited_leaf_leads_to_the_state_of_a_new_cluster() {
    let mut harness = Harness::new();
    let mut wrong = Vec::new();
    for case in cases::all() {
        let LeafCase { leaf, kind, .. } = &case;
        for ephemeral in [false, true]
            .into_iter()
            .filter(|ephemeral| case.applies_to(*ephemeral))
        {
            let data = if ephemeral { "in pods" } else { "on volumes" };
            let problems = harness.walk(&case, ephemeral);
            println!(
                "{leaf} ({kind:?}, data {data}): {}",
                if problems.is_empty() {
                    "ok"
                } else {
                    "problems"
                }
            );
            wrong.extend(
                problems
                    .into_iter()
                    .map(|it| format!("{leaf}, data {data}: {it}")),
            );
        }
    }
    known_differences::check(known_differences::EDITS, &wrong);
}

/// The seconds until the maintenance window on Saturday.
const SECONDS_UNTIL_WINDOW: i64 = 18 * 3600;

#[test]
fn only_disruptive_edits_wait_for_the_maintenance_window() {
    let mut harness = Harness::new();
    let window = json!([{ "days": ["Sat"], "start": "02:00", "duration": "3h" }]);
    let leaves = ["spec.maintenance.windows", "spec.paused"];
    for case in cases::all()
        .into_iter()
        .filter(|case| !leaves.iter().any(|leaf| case.leaf.starts_with(leaf)))
    {
        let LeafCase {
            leaf,
            kind,
            set,
            base,
            ..
        } = &case;
        let base = edited(&manifest(base), "spec.maintenance.windows", Some(&window));
        if *kind == ChangeKind::FixedOnceCreated {
            continue;
        }
        let mut cluster = harness.fresh(&base).unwrap();
        harness.edit(&mut cluster, &edited(&base, leaf, Some(set)));
        let result = cluster.converge().unwrap();
        let restarted = matches!(result.rollout(), Rollout::Restarted | Rollout::Replaced);
        assert!(
            restarted || !matches!(kind, ChangeKind::Restart | ChangeKind::Replace),
            "{leaf}: {result}"
        );
        // The volumes of replaced members are retained for a day.
        let waits = SECONDS_UNTIL_WINDOW
            + if *kind == ChangeKind::Replace {
                24 * 3600
            } else {
                0
            };
        assert_eq!(
            result.waited,
            if restarted { waits } else { 0 },
            "{leaf}: {result}"
        );
    }
}

#[test]
fn edits_of_a_paused_resource_are_rolled_out_when_it_is_resumed() {
    let mut harness = Harness::new();
    let base = manifest(&json!({}));
    let mut cluster = harness.fresh(&base).unwrap();
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
    harness.edit(&mut cluster, &all);
    assert_eq!(cluster.converge().unwrap().writes, 0);
    let all = edited(&all, "spec.paused", Some(&json!(false)));
    harness.edit(&mut cluster, &all);
    assert_eq!(cluster.converge().unwrap().rollout(), Rollout::Restarted);
    assert!(cluster.state() == harness.fresh(&all).unwrap().state());
}

#[test]
fn a_recreated_resource_keeps_the_storage_choices_of_its_retained_volumes() {
    let mut harness = Harness::new();
    let mut wrong = Vec::new();
    for case in cases::all()
        .into_iter()
        .filter(|case| case.kind == ChangeKind::FixedOnceCreated)
    {
        let LeafCase { leaf, set, .. } = &case;
        let mut cluster = harness.fresh(&manifest(&json!({}))).unwrap();
        let before = cluster.observe().unwrap().0.desired;
        let mut again = edited(&manifest(&json!({})), leaf, Some(set));
        again["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000002");
        let again = harness.schema.defaulted(&again);
        assert!(
            matches!(
                harness.schema.api_answer(&again, None),
                ApiServerAnswer::Stored
            ),
            "{leaf} can be chosen at creation"
        );
        cluster.recreate(serde_json::from_value(again).unwrap());
        if let Err(why) = cluster.converge() {
            wrong.push(format!("{leaf}, recreated: {why}"));
            continue;
        }
        wrong.extend(
            cluster
                .problem()
                .map(|why| format!("{leaf}, recreated: {why}")),
        );
        let after = cluster.observe().unwrap().0;
        let (was, is) = (
            (before.data, before.quota),
            (after.desired.data, after.desired.quota),
        );
        if was != is {
            wrong.push(format!(
                "{leaf}, recreated: {was:?} becomes {is:?}, on the retained volumes"
            ));
        }
    }
    known_differences::check(known_differences::RECREATIONS, &wrong);
}
