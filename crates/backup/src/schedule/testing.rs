//! Facts for tests.

use std::collections::BTreeSet;

use evenkeel_api::BackupPhase;
use evenkeel_runtime::{Observed, UnixTime};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{
    BackedUpCluster, BackupFacts, RecordedTimes, ScheduleFacts, StoreFacts, backup_name,
};

pub(crate) fn at(text: &str) -> UnixTime {
    UnixTime(text.parse::<Timestamp>().unwrap().as_second())
}

/// Facts of a schedule that was created at noon, with a cluster that can be read and a store that is ready.
pub(crate) fn facts(policy: Value) -> ScheduleFacts {
    let mut merged = json!({ "store": "prod", "schedule": "@hourly" });
    for (key, value) in policy.as_object().unwrap() {
        merged[key] = value.clone();
    }
    ScheduleFacts {
        now: at("2026-11-18T12:00:10Z"),
        name: "orders".to_owned(),
        created: at("2026-11-18T12:00:05Z"),
        policy: serde_json::from_value(merged).unwrap(),
        recorded: RecordedTimes::default(),
        backups: Vec::new(),
        store: Observed::Present(StoreFacts {
            is_ready: true,
            message: String::new(),
        }),
        cluster: Observed::Present(BackedUpCluster {
            engine: "etcd".to_owned(),
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            lineage: Some("0000abcd".to_owned()),
            is_readable: true,
        }),
        prune: None,
        drill: None,
        reading: BTreeSet::new(),
    }
}

/// Returns a backup of the schedule `orders`.
pub(crate) fn backup(due: UnixTime, phase: BackupPhase) -> BackupFacts {
    let name = backup_name("orders", due);
    let is_complete = phase == BackupPhase::Complete;
    BackupFacts {
        uid: format!("uid-{name}"),
        is_own: true,
        due: Some(due),
        run: 1,
        phase,
        location: if is_complete {
            location(&name)
        } else {
            String::new()
        },
        finished_at: phase.is_final().then(|| UnixTime(due.0 + 30)),
        size: 1 << 20,
        message: if phase == BackupPhase::Failed {
            "The store failed.".to_owned()
        } else {
            String::new()
        },
        proven: None,
        damaged: None,
        is_terminating: false,
        name,
    }
}

pub(crate) fn location(backup: &str) -> String {
    format!("evenkeel-v1/etcd/shop/orders/0000abcd/epochs/1/bases/{backup}")
}
