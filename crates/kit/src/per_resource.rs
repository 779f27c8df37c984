//! Memory that the operator keeps per resource and loses at a restart.

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_runtime::ResourceKey;
use parking_lot::Mutex;

/// One value per resource, created on first use and dropped by [`PerResource::forget`]. An engine
/// keeps all state of a resource in one `T`, so that `forget` cannot miss a part of it.
#[derive(Debug)]
pub struct PerResource<T> {
    values: Mutex<HashMap<ResourceKey, Arc<T>>>,
}

impl<T> Default for PerResource<T> {
    fn default() -> Self {
        Self {
            values: Mutex::default(),
        }
    }
}

impl<T: Default> PerResource<T> {
    /// Returns the value of a resource. The caller may keep it across awaits; a value that was forgotten meanwhile is no
    /// longer shared with later callers.
    pub fn get(&self, key: &ResourceKey) -> Arc<T> {
        self.values.lock().entry(key.clone()).or_default().clone()
    }
}

impl<T> PerResource<T> {
    /// Drops the value of a resource.
    pub fn forget(&self, key: &ResourceKey) {
        self.values.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_until_it_is_forgotten() {
        let key = |name: &str| ResourceKey {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let memory = PerResource::<Mutex<u32>>::default();
        *memory.get(&key("orders")).lock() = 1;
        assert_eq!(*memory.get(&key("orders")).lock(), 1);
        assert_eq!(*memory.get(&key("billing")).lock(), 0);
        memory.forget(&key("orders"));
        assert_eq!(*memory.get(&key("orders")).lock(), 0);
    }
}
