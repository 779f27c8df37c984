//! The delay before a failed resource is reconciled again: per resource, doubled at each failure, reset by success.
//! kube's `error_policy` is not called after success, so it cannot reset a delay itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

use crate::random::{SharedRandom, jitter};

const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The number of consecutive failures of each resource. The controller resets the entry of a deleted resource.
#[derive(Debug)]
pub(crate) struct Backoff<K> {
    failures: Mutex<HashMap<K, u32>>,
    random: SharedRandom,
}

impl<K: Clone + Eq + Hash> Backoff<K> {
    pub(crate) fn new(random: SharedRandom) -> Self {
        Self {
            failures: Mutex::default(),
            random,
        }
    }

    /// Counts a failure and returns the delay: 500 ms, doubled each time up to 60 s, with a jitter of 10 %.
    pub(crate) fn failed(&self, key: &K) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY
            .saturating_mul(2u32.saturating_pow(*count))
            .min(MAX_DELAY);
        *count = count.saturating_add(1);
        jitter(delay, &*self.random)
    }

    /// Returns the number of consecutive failures.
    pub(crate) fn failures_of(&self, key: &K) -> u32 {
        self.failures.lock().get(key).copied().unwrap_or_default()
    }

    /// Resets the failures of a resource that succeeded or was deleted.
    pub(crate) fn succeeded(&self, key: &K) {
        self.failures.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::TestRandom;

    fn is_about(delay: Duration, seconds: f64) -> bool {
        (delay.as_secs_f64() / seconds - 1.0).abs() <= 0.1
    }

    #[test]
    fn delays_double_up_to_a_minute() {
        let backoff = Backoff::new(TestRandom::shared(1));
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let delay = backoff.failed(&"a");
            assert!(is_about(delay, expected), "{delay:?}, not {expected} s");
        }
        (0..100).for_each(|_| assert!(is_about(backoff.failed(&"a"), 60.0)));
    }

    #[test]
    fn success_resets_the_delay_of_one_resource_only() {
        let backoff = Backoff::new(TestRandom::shared(2));
        for _ in 0..5 {
            backoff.failed(&"a");
            backoff.failed(&"b");
        }
        backoff.succeeded(&"a");
        assert!(is_about(backoff.failed(&"a"), 0.5));
        assert!(is_about(backoff.failed(&"b"), 16.0));
        assert_eq!(
            (backoff.failures_of(&"a"), backoff.failures_of(&"b")),
            (1, 6)
        );
    }
}
