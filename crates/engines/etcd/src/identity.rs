//! The identity of a cluster, stored in the ConfigMap `<cluster>-etcd-identity` and changed only by compare-and-swap. It
//! holds the facts that no other object shows.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_kit::replacement::ReplacementLimit;
use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};

use crate::names::{Epoch, Lineage, Serial};

pub use evenkeel_kit::Uid;

/// The ID that etcd gives a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// The ID that etcd gives a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

/// How many members that might have come back are replaced within an hour.
pub const REPLACEMENT_LIMIT: ReplacementLimit = ReplacementLimit {
    max: 3,
    window: Duration::from_secs(3600),
};

/// The identity of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The lineage of the cluster.
    pub lineage: Lineage,
    /// The current epoch.
    pub epoch: Epoch,
    /// The only member that may start as a new cluster, and only until bootstrap is finished.
    pub seed: Serial,
    /// The storage that the seed starts on, recorded before it may start: a seed on another volume would be a second cluster
    /// under the same identity.
    pub seed_storage: Option<SeedStorage>,
    /// The cluster ID of the epoch, once the seed has formed the cluster.
    pub cluster_id: Option<ClusterId>,
    /// Whether bootstrap is finished: clients are routed, and no member starts as a new cluster in this epoch again.
    pub bootstrapped: bool,
    /// The lowest serial that was never used.
    pub next_serial: Serial,
    /// The membership change in progress.
    pub intent: Option<Intent>,
    /// The times of recent replacements of members that might have come back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub replacements: BTreeSet<UnixTime>,
    /// The version that all members ran when a snapshot was last forced. No member reads log entries of an earlier version at
    /// a start since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshotted_version: Option<Version>,
    /// The restore that the epoch starts from; `None` for an epoch that starts with an empty cluster. It is constant within
    /// an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreOrigin>,
    /// The highest epoch that was ever used, if it is above the current one: an epoch is prepared, or was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_epoch: Option<Epoch>,
    /// The epoch that is being prepared to replace the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_epoch: Option<Box<NextEpoch>>,
    /// The epoch that the current one has replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Box<ReplacedEpoch>>,
    /// The uid of the resource.
    pub resource_uid: Uid,
}

/// An epoch in preparation: the volume of its seed is filled while the current epoch serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NextEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// The seed of the epoch.
    pub seed: Serial,
    /// The restore that the epoch starts from.
    pub restore: RestoreOrigin,
}

/// An epoch whose bootstrap was finished and that another epoch has replaced. Its volumes are kept for a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplacedEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// Its seed.
    pub seed: Serial,
    /// The storage that its seed started on.
    pub seed_storage: Option<SeedStorage>,
    /// Its cluster ID.
    pub cluster_id: Option<ClusterId>,
    /// The restore that it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreOrigin>,
    /// The in-place restore that replaced it, or that was undone.
    pub replaced_by: RestoreOrigin,
    /// The number of its voters, as far as it was known.
    pub voters: u8,
    /// How long its volumes are kept, in seconds.
    pub keep_seconds: u64,
}

impl ReplacedEpoch {
    /// Returns true if the current epoch is an earlier one: the restore was undone.
    pub fn is_undone(&self, current: Epoch) -> bool {
        self.epoch > current
    }
}

/// The restore that an epoch starts from: the volume of the seed is filled with the data of a backup before the seed starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RestoreOrigin {
    /// The identifier of the restore, which restore pods and filled volumes carry. It does not change when the resource is
    /// applied again.
    pub id: Uid,
    /// The name of the `Backup`.
    pub backup: String,
    /// The name of the `Restore` that asks for it, for a cluster that exists; `None` if `spec.bootstrap.from` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<String>,
}

impl RestoreOrigin {
    /// Returns the restore that `spec.bootstrap.from` asks for.
    pub fn bootstrap(backup: &str) -> Self {
        Self {
            id: Uid::of_name(&format!("bootstrap/{backup}")),
            backup: backup.to_owned(),
            in_place: None,
        }
    }

    /// Returns the restore that a `Restore` asks for. A `Restore` that is deleted and created again is the same restore.
    pub fn in_place(restore: &str, backup: &str, replaces: ClusterId) -> Self {
        Self {
            id: Uid::of_name(&format!("restore/{:x}/{restore}/{backup}", replaces.0)),
            backup: backup.to_owned(),
            in_place: Some(restore.to_owned()),
        }
    }

    /// Returns true if the restore replaces the data of a cluster that exists.
    pub fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }
}

impl Identity {
    /// Returns the highest epoch that was ever used.
    pub fn highest_epoch(&self) -> Epoch {
        self.highest_epoch.unwrap_or(self.epoch).max(self.epoch)
    }

    /// Makes an epoch that was never used before the current one. Its seed is a serial above every serial in use.
    pub fn begin_epoch(&mut self, epoch: Epoch, seed: Serial, restore: Option<RestoreOrigin>) {
        self.epoch = epoch;
        self.highest_epoch = None;
        self.seed = seed;
        self.next_serial = self.next_serial.max(seed.next());
        self.seed_storage = None;
        self.cluster_id = None;
        self.bootstrapped = false;
        self.intent = None;
        self.snapshotted_version = None;
        self.restore = restore;
        self.next_epoch = None;
    }

    /// Returns the current epoch as one that a restore replaces.
    pub fn as_replaced(
        &self,
        replaced_by: RestoreOrigin,
        voters: usize,
        keep_seconds: u64,
    ) -> Box<ReplacedEpoch> {
        Box::new(ReplacedEpoch {
            epoch: self.epoch,
            seed: self.seed,
            seed_storage: self.seed_storage,
            cluster_id: self.cluster_id,
            restore: self.restore.clone(),
            replaced_by,
            voters: u8::try_from(voters).unwrap_or(u8::MAX),
            keep_seconds,
        })
    }

    /// Returns the identity with this intent. The intent to add a member reserves its serial, and a replacement is counted.
    #[must_use]
    pub fn with_intent(&self, intent: &Intent) -> Self {
        let mut changed = Self {
            intent: Some(intent.clone()),
            ..self.clone()
        };
        if let MembershipChange::Add(serial) = intent.change {
            changed.next_serial = changed.next_serial.max(serial.next());
        }
        if intent.is_replacement {
            REPLACEMENT_LIMIT.record(&mut changed.replacements, intent.recorded_at);
        }
        changed
    }
}

/// The storage that a seed starts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SeedStorage {
    /// A PVC.
    Claim(Uid),
    /// A pod with ephemeral storage: the data is lost with the pod.
    Pod(Uid),
}

/// A membership change, recorded before the call to etcd is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// The change.
    pub change: MembershipChange,
    /// The voters when the change was decided. The call is not sent if they differ.
    pub voters: BTreeSet<Serial>,
    /// The unknown voters when the change was decided.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_voters: BTreeSet<MemberId>,
    /// Whether the change removes a member that might have come back. Such replacements are limited per hour.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replacement: bool,
    /// The time when the intent was recorded.
    pub recorded_at: UnixTime,
}

impl Intent {
    /// Returns an intent for a cluster without unknown voters.
    pub fn new(change: MembershipChange, voters: BTreeSet<Serial>, recorded_at: UnixTime) -> Self {
        Self {
            change,
            voters,
            unknown_voters: BTreeSet::new(),
            is_replacement: false,
            recorded_at,
        }
    }
}

/// A change of etcd's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Adds a learner.
    Add(Serial),
    /// Makes a learner a voter.
    Promote(Serial),
    /// Removes a member.
    Remove(Serial),
    /// Removes an unknown member: one that the operator did not add.
    RemoveUnknown(MemberId),
}

impl MembershipChange {
    /// Returns the serial of the member that changes; `None` for an unknown member.
    pub fn member(self) -> Option<Serial> {
        match self {
            Self::Add(serial) | Self::Promote(serial) | Self::Remove(serial) => Some(serial),
            Self::RemoveUnknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_format_does_not_change() {
        // The identity outlives every operator version: fields may be added, and existing ones never change.
        let stored = r#"{"lineage":7,"epoch":1,"seed":0,"seed_storage":{"Claim":"0c9e8a1f-33aa-4bcd-9e01-0123456789ab"},
            "cluster_id":5,"bootstrapped":true,"next_serial":3,
            "intent":{"change":{"Add":2},"voters":[0,1],"recorded_at":1000},
            "resource_uid":"1c9e8a1f-33aa-4bcd-9e01-0123456789ab"}"#;
        let identity: Identity = serde_json::from_str(stored).unwrap();
        assert_eq!(
            identity.intent.as_ref().unwrap().change,
            MembershipChange::Add(Serial(2))
        );
        let again: serde_json::Value = serde_json::to_value(&identity).unwrap();
        assert_eq!(
            again,
            serde_json::from_str::<serde_json::Value>(stored).unwrap()
        );
    }
}
