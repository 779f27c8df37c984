//! What an application's administrator knows, behind one function.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Plan;

/// What a part of a plan must be: plain data, so that it can be compared, kept, shown and explored.
pub trait PlainData:
    Clone + Debug + PartialEq + Eq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<T: Clone + Debug + PartialEq + Eq + Serialize + DeserializeOwned + Send + Sync + 'static>
    PlainData for T
{
}

/// The knowledge of how to run one kind of application.
pub trait Engine: 'static {
    /// All that is known, what is *not* known, and the time.
    type Facts: PlainData;
    /// Something that must never exist twice.
    type Create: PlainData;
    /// Something that should exist as described, whatever was there.
    type Apply: PlainData;
    /// A change that disturbs nobody.
    type Patch: PlainData;
    /// A change that may disturb.
    type Disruption: PlainData;
    /// A reason why a plan does less than the spec asks for.
    type Wait: PlainData;

    /// What is to be done now, from the facts alone: no clock, no randomness, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<Self>;
}
