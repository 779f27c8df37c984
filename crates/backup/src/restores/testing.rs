//! Restores and facts for tests.

use evenkeel_api::{Restore, RestorePhase};
use evenkeel_runtime::{Observed, UnixTime};
use serde_json::{Value, json};

use super::facts::{RestoreBackup, RestoreCluster, RestoreFacts, RestoreProgressFacts};

pub(super) const NOW: UnixTime = UnixTime(1_800_000_000);
/// The ID that the Restore gives up.
pub(super) const OLD_ID: &str = "9c1f";
/// The ID of the restored cluster.
pub(super) const NEW_ID: &str = "77aa";

pub(super) fn later(seconds: i64) -> UnixTime {
    UnixTime(NOW.0 + seconds)
}

/// Returns the Restore `back` of the cluster `orders` from the Backup `nightly`.
pub(super) fn restore(change: impl FnOnce(&mut Value)) -> Restore {
    let mut restore = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "Restore",
        "metadata": { "name": "back", "namespace": "shop", "uid": "r", "generation": 2,
            "creationTimestamp": "2027-01-15T08:00:00Z" },
        "spec": { "cluster": { "kind": "EtcdCluster", "name": "orders" }, "from": { "backup": "nightly" },
            "replaces": OLD_ID, "keepOldDataFor": "72h" },
    });
    change(&mut restore);
    serde_json::from_value(restore).unwrap()
}

/// Facts of a Restore that could begin.
pub(super) fn facts(phase: RestorePhase) -> RestoreFacts {
    RestoreFacts {
        now: NOW,
        name: "back".to_owned(),
        replaces: OLD_ID.to_owned(),
        is_undo_requested: false,
        phase,
        older: None,
        backup: RestoreBackup::Usable,
        cluster: Observed::Present(cluster(OLD_ID)),
    }
}

pub(super) fn cluster(id: &str) -> RestoreCluster {
    RestoreCluster {
        id: Some(id.to_owned()),
        version: "3.6.16".to_owned(),
        is_paused: false,
        is_ephemeral: false,
        progress: None,
    }
}

/// Returns the progress of the Restore `back`.
pub(super) fn own(phase: RestorePhase) -> RestoreProgressFacts {
    RestoreProgressFacts {
        name: "back".to_owned(),
        replaces: OLD_ID.to_owned(),
        phase,
        message: String::new(),
        undo_until: (phase >= RestorePhase::Complete).then(|| later(3600)),
    }
}

/// Returns the progress of another Restore, which replaces the cluster of `back`.
pub(super) fn other(phase: RestorePhase) -> RestoreProgressFacts {
    RestoreProgressFacts {
        name: "other".to_owned(),
        ..own(phase)
    }
}

/// Sets the ID of the cluster and its progress.
pub(super) fn with(
    mut facts: RestoreFacts,
    id: &str,
    progress: RestoreProgressFacts,
) -> RestoreFacts {
    facts.cluster = Observed::Present(RestoreCluster {
        progress: Some(progress),
        ..cluster(id)
    });
    facts
}
