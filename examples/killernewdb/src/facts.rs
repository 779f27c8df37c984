//! The facts of a decision and the actions of a plan, as plain data. A member has the name of its Pod and its
//! PersistentVolumeClaim: the name of the database and a number from the ledger that is never used again.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use evenkeel_runtime::{Observed, Presence};
use serde::{Deserialize, Serialize};

use crate::member::MemberList;

/// The state that cannot be observed elsewhere. It is stored in a ConfigMap and changed by compare-and-swap only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DbLedger {
    /// The number of the next member.
    pub next: u16,
    /// Whether the bootstrap of the first member was observed: from then on a member without data has lost its data.
    pub bootstrapped: bool,
    /// The member that joins.
    pub joining: Option<String>,
}

/// The facts about a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberFacts {
    /// The PersistentVolumeClaim.
    pub claim: Presence,
    /// The Pod.
    pub pod: Presence,
    /// Whether the Pod has Failed or Succeeded, and must be deleted before another can be created.
    pub is_finished: bool,
    /// The member list of the member: absent if the member reports that it has no data, unknown if it does not answer.
    pub list: Observed<MemberList>,
}

/// All facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DbFacts {
    /// The name of the database.
    pub name: String,
    /// The desired number of members.
    pub desired: u8,
    /// Whether the Service for the addresses of members exists.
    pub has_service: bool,
    /// The ledger.
    pub ledger: Option<DbLedger>,
    /// Every member with a PersistentVolumeClaim or a Pod.
    pub members: BTreeMap<String, MemberFacts>,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DbAction {
    /// Creates the Service.
    CreateService,
    /// Creates the ledger.
    CreateLedger(DbLedger),
    /// Creates the PersistentVolumeClaim of a member.
    CreateClaim(String),
    /// Creates the Pod of a member.
    CreatePod(String),
    /// Records an intent, or that it is done.
    UpdateLedger {
        /// The observed ledger.
        from: DbLedger,
        /// The new ledger.
        to: DbLedger,
    },
    /// Deletes the Pod of a member.
    DeletePod(String),
    /// Deletes the PersistentVolumeClaim of a member.
    DeleteClaim(String),
    /// Bootstraps the database on the first member.
    Bootstrap(String),
    /// Changes the member list, if it still has this version. The first member becomes the primary.
    ChangeMembers {
        /// The observed version.
        version: u64,
        /// The new list.
        members: Vec<String>,
        /// The members whose data is lost.
        lost: Vec<String>,
    },
}

impl Display for DbAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateService => write!(f, "create the Service"),
            Self::CreateLedger(_) => write!(f, "create the ledger"),
            Self::CreateClaim(name) => write!(f, "create PersistentVolumeClaim {name}"),
            Self::CreatePod(name) => write!(f, "create Pod {name}"),
            Self::UpdateLedger { to, .. } => match &to.joining {
                Some(name) => write!(f, "reserve the name {name}"),
                None => write!(f, "record that the new member has joined"),
            },
            Self::DeletePod(name) => write!(f, "delete Pod {name}"),
            Self::DeleteClaim(name) => write!(f, "delete PersistentVolumeClaim {name}"),
            Self::Bootstrap(name) => write!(f, "bootstrap the database on {name}"),
            Self::ChangeMembers {
                version, members, ..
            } => {
                let members = members.join(", ");
                write!(f, "change member list {version} to {members}")
            }
        }
    }
}
