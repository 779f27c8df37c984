//! Since when an operator has been seeing what etcd tells without a date: members of somebody else's, and members that nobody
//! hears. No object of Kubernetes says that, and nobody but who has looked all the time can know that it lasted: an
//! operator that is started anew counts anew, and what rests on it comes later, never too early.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel::{Key, Time};

use super::ask::Answers;
use crate::identity::MemberId;
use crate::names::Serial;

/// What is remembered of all clusters.
#[derive(Debug, Default)]
pub struct Since {
    remembered: Mutex<HashMap<Key, Remembered>>,
}

#[derive(Debug, Default)]
struct Remembered {
    strangers: BTreeMap<MemberId, Time>,
    /// Since when, and when that was last seen to be so.
    silent: BTreeMap<Serial, (Time, Time)>,
}

/// How long nobody may look for a silence to count as one.
const UNSEEN: Duration = Duration::from_secs(60);

impl Since {
    /// Puts into answers since when it has been so, and remembers what they say.
    pub fn tell(&self, key: &Key, answers: &mut Answers) {
        let mut all = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = all.entry(key.clone()).or_default();
        if let evenkeel::Seen::Present(told) = &mut answers.membership {
            remembered.strangers.retain(|id, _| told.strangers.iter().any(|stranger| stranger.id == *id));
            for stranger in &mut told.strangers {
                stranger.since = *remembered.strangers.entry(stranger.id).or_insert(stranger.since);
            }
        }
        // Who was heard is not silent, whoever heard it; of the others nothing is known while the leader does not say.
        remembered.silent.retain(|serial, _| !answers.heard.contains(serial));
        for (serial, since) in &mut answers.silent {
            let now = *since;
            let (first, last) = remembered.silent.entry(*serial).or_insert((now, now));
            if now.since(*last) > UNSEEN {
                *first = now;
            }
            (*since, *last) = (*first, now);
        }
    }

    /// What was remembered of a cluster is forgotten.
    pub fn forget(&self, key: &Key) {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
#[path = "since_tests.rs"]
mod tests;
