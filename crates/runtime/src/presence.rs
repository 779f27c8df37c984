//! An object of Kubernetes as a fact: whether it is there, and whether it is on its way out.

use kube::Resource;
use serde::{Deserialize, Serialize};

/// What a complete look shows of an object. What could not be looked at is an error, and no fact.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Presence {
    /// There is none.
    #[default]
    Absent,
    /// It is there, to stay.
    Present,
    /// It is on its way out: somebody has deleted it, and something still holds it.
    Terminating,
}

impl Presence {
    /// From what was found.
    pub fn of<K: Resource>(found: Option<&K>) -> Self {
        match found.map(|object| object.meta().deletion_timestamp.is_some()) {
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
    fn what_is_deleted_is_there_until_nothing_holds_it_any_more() {
        let mut pod = Pod::default();
        assert_eq!(Presence::of(Some(&pod)), Presence::Present);
        pod.metadata.deletion_timestamp = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        assert_eq!(Presence::of(Some(&pod)), Presence::Terminating);
        assert_eq!(Presence::of::<Pod>(None), Presence::Absent);
    }
}
