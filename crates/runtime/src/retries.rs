//! How often in a row an application has declined the same: what it declines for long, people should know.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::reconciler::ResourceKey;

/// What each resource was last declined, by the name of that step, and how often in a row.
#[derive(Debug, Default)]
pub(crate) struct RetryCounter(Mutex<HashMap<ResourceKey, (&'static str, u32)>>);

impl RetryCounter {
    /// It was declined (again): how often that is. Something else than before is declined for the first time.
    pub(crate) fn increment(&self, key: &ResourceKey, step: &'static str) -> u32 {
        let mut all = self.lock();
        let (last, times) = all.entry(key.clone()).or_insert((step, 0));
        *times = if *last == step {
            times.saturating_add(1)
        } else {
            1
        };
        *last = step;
        *times
    }

    /// It was not declined, or is gone.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, (&'static str, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_of_the_same_resource_is_counted_in_a_row() {
        let (declined, key) = (
            RetryCounter::default(),
            ResourceKey {
                namespace: "n".into(),
                name: "a".into(),
            },
        );
        assert_eq!(
            (
                declined.increment(&key, "evict"),
                declined.increment(&key, "evict")
            ),
            (1, 2)
        );
        assert_eq!(declined.increment(&key, "promote"), 1, "something else");
        assert_eq!(
            declined.increment(
                &ResourceKey {
                    name: "b".into(),
                    ..key.clone()
                },
                "promote"
            ),
            1,
            "somebody else"
        );
        assert_eq!(declined.increment(&key, "promote"), 2);
        declined.forget(&key);
        assert_eq!(
            declined.increment(&key, "promote"),
            1,
            "it went well in between"
        );
    }
}
