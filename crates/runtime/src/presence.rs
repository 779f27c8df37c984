//! The presence of a Kubernetes object, as a fact.

use kube::Resource;
use serde::{Deserialize, Serialize};

/// The presence of an object in a complete observation. A failed observation is an error, not a fact.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Presence {
    /// The object does not exist.
    #[default]
    Absent,
    /// The object exists and is not being deleted.
    Present,
    /// The object has a deletionTimestamp: its deletion waits for a finalizer or a grace period.
    Terminating,
}

impl Presence {
    /// Returns the presence of an observed object.
    pub fn of<K: Resource>(object: Option<&K>) -> Self {
        match object.map(|object| object.meta().deletion_timestamp.is_some()) {
            None => Self::Absent,
            Some(false) => Self::Present,
            Some(true) => Self::Terminating,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn an_object_with_a_deletion_timestamp_is_terminating() {
        let mut pod = Pod::default();
        assert_eq!(Presence::of(Some(&pod)), Presence::Present);
        pod.metadata.deletion_timestamp = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        assert_eq!(Presence::of(Some(&pod)), Presence::Terminating);
        assert_eq!(Presence::of::<Pod>(None), Presence::Absent);
    }
}
