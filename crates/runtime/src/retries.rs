//! The number of consecutive declined attempts at the same action, per resource.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::reconciler::ResourceKey;

/// Counts declined attempts per resource.
#[derive(Debug, Default)]
pub(crate) struct RetryCounter(Mutex<HashMap<ResourceKey, Attempts>>);

#[derive(Debug)]
struct Attempts {
    action: &'static str,
    count: u32,
}

impl RetryCounter {
    /// Counts a declined attempt and returns the number of consecutive attempts at this action.
    pub(crate) fn increment(&self, key: &ResourceKey, action: &'static str) -> u32 {
        let mut all = self.0.lock();
        let first = Attempts { action, count: 0 };
        let attempts = all.entry(key.clone()).or_insert(first);
        attempts.count = if attempts.action == action {
            attempts.count.saturating_add(1)
        } else {
            1
        };
        attempts.action = action;
        attempts.count
    }

    /// Resets the counter of a resource.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_attempts_at_the_same_action_of_one_resource_are_counted() {
        let retries = RetryCounter::default();
        let a = ResourceKey {
            namespace: "n".into(),
            name: "a".into(),
        };
        let b = ResourceKey {
            name: "b".into(),
            ..a.clone()
        };
        assert_eq!(retries.increment(&a, "evict"), 1);
        assert_eq!(retries.increment(&a, "evict"), 2);
        assert_eq!(retries.increment(&a, "promote"), 1, "another action");
        assert_eq!(retries.increment(&b, "promote"), 1, "another resource");
        assert_eq!(retries.increment(&a, "promote"), 2);
        retries.forget(&a);
        assert_eq!(retries.increment(&a, "promote"), 1, "after a reset");
    }
}
