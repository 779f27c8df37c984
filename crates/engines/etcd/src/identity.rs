//! What a cluster is beyond its pods: the object `<cluster>-identity`, changed only by compare-and-swap.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::names::{Epoch, Lineage, Serial};

/// The uid of a Kubernetes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Uid(pub u128);

impl Uid {
    /// A stand-in for what has a name and no uid that could be read: a volume, in a namespace's eyes.
    pub fn of_name(name: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        Self(
            digest
                .iter()
                .take(16)
                .fold(0, |number, byte| number << 8 | u128::from(*byte)),
        )
    }
}

impl fmt::Display for Uid {
    /// As Kubernetes writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }
}

/// What is no uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no uid: 32 hexadecimal digits are expected")]
pub struct InvalidUid(String);

impl FromStr for Uid {
    type Err = InvalidUid;

    fn from_str(text: &str) -> Result<Self, InvalidUid> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).map_err(|_| InvalidUid(text.to_owned()))?;
        if digits.len() == 32 {
            Ok(Self(number))
        } else {
            Err(InvalidUid(text.to_owned()))
        }
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.to_string()
    }
}

impl TryFrom<String> for Uid {
    type Error = InvalidUid;

    fn try_from(text: String) -> Result<Self, InvalidUid> {
        text.parse()
    }
}

/// The identity of a member as etcd knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// The identity of an etcd cluster as etcd knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

/// For how long a replacement counts.
pub const REPLACEMENT_WINDOW: Duration = Duration::from_secs(3600);

/// What must be remembered about a cluster, and nothing that can be seen elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Which cluster's history this is.
    pub lineage: Lineage,
    /// Which bootstrap or restore of it.
    pub epoch: Epoch,
    /// The one member that may be started as a new cluster, while the epoch is not sealed.
    pub seed: Serial,
    /// What the seed is started on. Set before it may start: from then on a seed on anything else would be a
    /// second cluster under the same identity.
    pub seed_storage: Option<SeedStorage>,
    /// What etcd calls the epoch's cluster, once the seed has formed it.
    pub cluster_id: Option<ClusterId>,
    /// Whether clients may be routed. Afterwards no member is started as a new cluster in this epoch.
    pub bootstrapped: bool,
    /// The first serial that was never used.
    pub next_serial: Serial,
    /// A change of the membership that was begun.
    pub intent: Option<Intent>,
    /// When members that might have come back were replaced, of late.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub replacements: BTreeSet<UnixTime>,
    /// The version that all members ran when their logs were renewed, last: nothing that an earlier one wrote is read at a start
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshotted_version: Option<Version>,
    /// The resource that this belongs to.
    pub resource_uid: Uid,
}

impl Identity {
    /// The same with an intent written down; the serial of a member to be added is used up by it, and a replacement is
    /// counted.
    #[must_use]
    pub fn with_intent(&self, intent: &Intent) -> Self {
        let mut noted = Self {
            intent: Some(intent.clone()),
            ..self.clone()
        };
        if let MembershipChange::Add(serial) = intent.change {
            noted.next_serial = noted.next_serial.max(serial.next());
        }
        if intent.is_replacement {
            noted
                .replacements
                .retain(|when| intent.recorded_at.since(*when) < REPLACEMENT_WINDOW);
            noted.replacements.insert(intent.recorded_at);
        }
        noted
    }

    /// When members were replaced that might have come back, as far as that counts now.
    pub fn recent_replacements(&self, now: UnixTime) -> impl DoubleEndedIterator<Item = UnixTime> {
        // Of an operator whose clock ran ahead nothing is known.
        self.replacements
            .iter()
            .copied()
            .filter(move |when| *when <= now && now.since(*when) < REPLACEMENT_WINDOW)
    }
}

/// What a seed is started on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SeedStorage {
    /// This claim.
    Claim(Uid),
    /// This pod: its data goes with it, so there is no second one.
    Pod(Uid),
}

/// A change of the membership, written down before etcd is asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// What etcd is asked for.
    pub change: MembershipChange,
    /// The voters when it was decided; a call that finds others is not sent.
    pub voters: BTreeSet<Serial>,
    /// Voters at that time that were none of ours.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_voters: BTreeSet<MemberId>,
    /// Whether a member is removed that might have come back: not many are within an hour.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replacement: bool,
    /// When it was written down.
    pub recorded_at: UnixTime,
}

impl Intent {
    /// To change the membership of these voters, all of them ours.
    pub fn new(change: MembershipChange, voters: BTreeSet<Serial>, since: UnixTime) -> Self {
        Self {
            change,
            voters,
            unknown_voters: BTreeSet::new(),
            is_replacement: false,
            recorded_at: since,
        }
    }
}

/// What can be asked of etcd's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Add a learner.
    Add(Serial),
    /// Make a learner a voter.
    Promote(Serial),
    /// Remove a member.
    Remove(Serial),
    /// Remove a member that is none of ours.
    RemoveUnknown(MemberId),
}

impl MembershipChange {
    /// The member of ours that it is about.
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
    fn a_uid_is_written_as_kubernetes_writes_it() {
        let text = "0c9e8a1f-33aa-4bcd-9e01-0123456789ab";
        assert_eq!(text.parse::<Uid>().unwrap().to_string(), text);
        assert!("0c9e8a1f".parse::<Uid>().is_err() && "no uid".parse::<Uid>().is_err());
    }

    #[test]
    fn what_is_on_disk_can_be_read_tomorrow() {
        // The identity outlives every operator: its form may grow, and must never change.
        let kept = r#"{"lineage":7,"epoch":1,"seed":0,"seed_on":{"Claim":"0c9e8a1f-33aa-4bcd-9e01-0123456789ab"},
            "cluster":5,"sealed":true,"next":3,"intent":{"change":{"Add":2},"voters":[0,1],"since":1000},
            "resource":"1c9e8a1f-33aa-4bcd-9e01-0123456789ab"}"#;
        let identity: Identity = serde_json::from_str(kept).unwrap();
        assert_eq!(
            identity.intent.as_ref().unwrap().change,
            MembershipChange::Add(Serial(2))
        );
        let again: serde_json::Value = serde_json::to_value(&identity).unwrap();
        assert_eq!(
            again,
            serde_json::from_str::<serde_json::Value>(kept).unwrap()
        );
    }
}
