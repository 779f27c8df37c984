//! What a cluster is beyond its pods: the object `<cluster>-identity`, changed only by compare-and-swap.

use std::collections::BTreeSet;

use evenkeel::Time;
use serde::{Deserialize, Serialize};

use crate::names::{Epoch, Lineage, Serial};

/// The uid of a Kubernetes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uid(pub u64);

/// The identity of a member as etcd knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// The identity of an etcd cluster as etcd knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

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
    pub seed_on: Option<SeedOn>,
    /// What etcd calls the epoch's cluster, once the seed has formed it.
    pub cluster: Option<ClusterId>,
    /// Whether clients may be routed. Afterwards no member is started as a new cluster in this epoch.
    pub sealed: bool,
    /// The first serial that was never used.
    pub next: Serial,
    /// A change of the membership that was begun.
    pub intent: Option<Intent>,
    /// The resource that this belongs to.
    pub resource: Uid,
}

/// What a seed is started on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SeedOn {
    /// This claim.
    Claim(Uid),
    /// This pod: its data goes with it, so there is no second one.
    Pod(Uid),
}

/// A change of the membership, written down before etcd is asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// What etcd is asked for.
    pub change: Change,
    /// The voters when it was decided; a call that finds others is not sent.
    pub voters: BTreeSet<Serial>,
    /// When it was written down.
    pub since: Time,
}

/// What can be asked of etcd's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// Add a learner.
    Add(Serial),
    /// Make a learner a voter.
    Promote(Serial),
    /// Remove a member.
    Remove(Serial),
}

impl Change {
    /// The member that it is about.
    pub fn member(self) -> Serial {
        match self {
            Self::Add(serial) | Self::Promote(serial) | Self::Remove(serial) => serial,
        }
    }
}
