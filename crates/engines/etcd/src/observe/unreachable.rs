//! Since when an operator has been seeing what etcd tells without a date: members of somebody else's, and members that nobody
//! hears. No object of Kubernetes says that, and nobody but who has looked all the time can know that it lasted: an
//! operator that is started anew counts anew, and what rests on it comes later, never too early.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_runtime::{ResourceKey, UnixTime};

use super::etcd::EtcdState;
use crate::identity::MemberId;
use crate::names::Serial;

/// What is remembered of all clusters.
#[derive(Debug, Default)]
pub struct UnreachableTracker {
    remembered: Mutex<HashMap<ResourceKey, Remembered>>,
}

#[derive(Debug, Default)]
struct Remembered {
    unknown_members: BTreeMap<MemberId, UnixTime>,
    /// Since when, and when that was last seen to be so.
    silent: BTreeMap<Serial, (UnixTime, UnixTime)>,
}

/// How long nobody may look for a silence to count as one.
const MAX_GAP: Duration = Duration::from_secs(60);

impl UnreachableTracker {
    /// Puts into answers since when it has been so, and remembers what they say.
    pub fn record(&self, key: &ResourceKey, state: &mut EtcdState) {
        let mut all = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let remembered = all.entry(key.clone()).or_default();
        if let evenkeel_runtime::Observed::Present(told) = &mut state.membership {
            remembered
                .unknown_members
                .retain(|id, _| told.unknown.iter().any(|unknown| unknown.id == *id));
            for unknown in &mut told.unknown {
                unknown.first_seen = *remembered
                    .unknown_members
                    .entry(unknown.id)
                    .or_insert(unknown.first_seen);
            }
        }
        // Who was heard is not silent, whoever heard it; of the others nothing is known while the leader does not say.
        remembered
            .silent
            .retain(|serial, _| !state.reachable.contains(serial));
        for (serial, since) in &mut state.unreachable_since {
            let now = *since;
            let (first, last) = remembered.silent.entry(*serial).or_insert((now, now));
            if now.since(*last) > MAX_GAP {
                *first = now;
            }
            (*since, *last) = (*first, now);
        }
    }

    /// What was remembered of a cluster is forgotten.
    pub fn forget(&self, key: &ResourceKey) {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

#[cfg(test)]
#[path = "unreachable_tests.rs"]
mod tests;
