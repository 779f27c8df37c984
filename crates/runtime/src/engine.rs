//! The knowledge of how to run one kind of application, behind one pure function.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Plan;

/// Plain data: parts of a plan can be compared, stored, displayed and explored.
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
    /// The version of the serialized facts. The decision log stores facts; readers check this number.
    const FACTS_VERSION: u32 = 1;
    /// Everything that is known, everything that is *not* known, and the time.
    type Facts: PlainData;
    /// The creation of an object that must never exist twice.
    type Create: PlainData;
    /// An object that should exist as described, whether or not it existed before.
    type Apply: PlainData;
    /// A change without any effect on clients.
    type Patch: PlainData;
    /// A change that may disturb clients.
    type Disruption: PlainData;
    /// A reason why a plan does less than the spec asks for. It contains no text of Kubernetes: such text belongs to the
    /// facts, because a wait that differs is a new decision.
    type Wait: PlainData;

    /// Returns the plan for these facts. Pure: no clock, no randomness, no I/O.
    fn decide(facts: &Self::Facts) -> Plan<Self>;
}
