//! All that is known when a decision is made, and all that can be decided, as plain data. A member's name is that of its pod and
//! its claim: the database's, and a number from the ledger that is never used again.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use evenkeel_runtime::{Observed, Presence};
use serde::{Deserialize, Serialize};

use crate::member::List;

/// What must be remembered, and can be read off nothing else: changed by compare-and-swap only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ledger {
    /// The number of the next member.
    pub next: u16,
    /// Whether the first member was seen to have founded the database: from then on an empty one is a lost one.
    pub founded: bool,
    /// The member that is being brought in.
    pub joining: Option<String>,
}

/// What is known of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its claim.
    pub claim: Presence,
    /// Its pod.
    pub pod: Presence,
    /// Whether its pod has ended for good, and is in the way of another.
    pub finished: bool,
    /// The list that it has: absent where it says that it has no data, unknown where it says nothing.
    pub list: Observed<List>,
}

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Facts {
    /// What the database is called.
    pub name: String,
    /// How many members are wanted.
    pub wanted: u8,
    /// Whether there is the service that gives members their addresses.
    pub service: bool,
    /// The ledger.
    pub ledger: Option<Ledger>,
    /// Every member of which there is a claim or a pod.
    pub members: BTreeMap<String, Member>,
}

/// One thing that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Deed {
    /// Creates the service.
    Service,
    /// Creates the ledger.
    Ledger(Ledger),
    /// Creates a member's claim.
    Claim(String),
    /// Creates a member's pod, on its claim.
    Pod(String),
    /// Writes down what is intended, or that it is done.
    Swap {
        /// What the ledger must say.
        from: Ledger,
        /// What it says afterwards.
        to: Ledger,
    },
    /// Deletes a member's pod.
    DeletePod(String),
    /// Deletes a member's claim.
    DeleteClaim(String),
    /// Has the first member found the database.
    Found(String),
    /// Has the first of these be the primary of these, provided that the list is still of this version.
    Change {
        /// The version that was seen.
        version: u64,
        /// The new list.
        members: Vec<String>,
        /// Those whose data is gone for good.
        lost: Vec<String>,
    },
}

impl Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => write!(f, "create the service"),
            Self::Ledger(_) => write!(f, "open the ledger"),
            Self::Claim(name) => write!(f, "create the claim {name}"),
            Self::Pod(name) => write!(f, "create the pod {name}"),
            Self::Swap {
                to:
                    Ledger {
                        joining: Some(name),
                        ..
                    },
                ..
            } => write!(f, "reserve the name {name}"),
            Self::Swap { .. } => write!(f, "note that the new member is there"),
            Self::DeletePod(name) => write!(f, "delete the pod {name}"),
            Self::DeleteClaim(name) => write!(f, "delete the claim {name}"),
            Self::Found(name) => write!(f, "have {name} found the database"),
            Self::Change {
                version, members, ..
            } => {
                write!(
                    f,
                    "have list {version} be followed by one of {}",
                    members.join(", ")
                )
            }
        }
    }
}
