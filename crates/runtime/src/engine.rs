//! What an application's administrator knows, behind one function.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Plan;

/// What a part of a plan must be: plain data, so that it can be compared, kept, shown and explored.
pub trait Data:
    Clone + Debug + PartialEq + Eq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<T: Clone + Debug + PartialEq + Eq + Serialize + DeserializeOwned + Send + Sync + 'static> Data for T {}

/// The knowledge of how to run one kind of application.
pub trait Engine: 'static {
    /// All that is known, what is *not* known, and the time.
    type Facts: Data;
    /// Something that must never exist twice.
    type Create: Data;
    /// Something that should exist as described, whatever was there.
    type Apply: Data;
    /// A change that disturbs nobody.
    type Mark: Data;
    /// A change that may disturb.
    type Step: Data;
    /// What people are told.
    type Status: Data;

    /// What is to be done now, from the facts alone: no clock, no randomness, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<Self>;
}
