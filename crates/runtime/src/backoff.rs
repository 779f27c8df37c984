//! How long a resource that failed waits before it is tried again: per resource, longer each time, and from the start
//! again once it succeeded. kube's `error_policy` never hears of success, so it cannot know.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::random::{SharedRandom, jitter};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// How often each resource has failed in a row. Let the uid be part of the key: a resource created again under its old
/// name is another one.
#[derive(Debug)]
pub struct Backoff<K> {
    failures: Mutex<HashMap<K, u32>>,
    random: SharedRandom,
}

impl<K: Clone + Eq + Hash> Backoff<K> {
    /// Nothing has failed yet.
    pub fn new(random: SharedRandom) -> Self {
        Self {
            failures: Mutex::new(HashMap::new()),
            random,
        }
    }

    /// It failed (again): how long to wait. Half a second, then twice as long each time, up to a minute; give or take
    /// a tenth.
    pub fn failed(&self, key: &K) -> Duration {
        let mut failures = self.failures();
        let count = failures.entry(key.clone()).or_default();
        let wait = FIRST
            .saturating_mul(2u32.saturating_pow(*count))
            .min(LONGEST);
        *count = count.saturating_add(1);
        jitter(wait, &*self.random)
    }

    /// How often it has failed in a row.
    pub fn failures_of(&self, key: &K) -> u32 {
        self.failures().get(key).copied().unwrap_or_default()
    }

    /// It succeeded: the next failure is the first again.
    pub fn succeeded(&self, key: &K) {
        self.failures().remove(key);
    }

    /// Those that are gone are forgotten: all that `stays` does not want to keep.
    pub fn retain(&self, stays: impl Fn(&K) -> bool) {
        self.failures().retain(|key, _| stays(key));
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::TestRandom;

    fn about(wait: Duration, seconds: f64) -> bool {
        (wait.as_secs_f64() / seconds - 1.0).abs() <= 0.1
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let backoff = Backoff::new(TestRandom::shared(1));
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let wait = backoff.failed(&"a");
            assert!(about(wait, expected), "{wait:?} is not about {expected} s");
        }
        (0..100).for_each(|_| assert!(about(backoff.failed(&"a"), 60.0)));
    }

    #[test]
    fn success_and_deletion_start_anew_and_others_are_not_concerned() {
        let backoff = Backoff::new(TestRandom::shared(2));
        for _ in 0..5 {
            backoff.failed(&"a");
            backoff.failed(&"b");
        }
        backoff.succeeded(&"a");
        assert!(about(backoff.failed(&"a"), 0.5));
        assert!(about(backoff.failed(&"b"), 16.0));
        backoff.retain(|key| *key != "b");
        assert!(about(backoff.failed(&"b"), 0.5));
    }
}
