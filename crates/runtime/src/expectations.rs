//! Expectations: the operator's writes that the caches do not show yet. A decision from a cache that lags behind the
//! last write would repeat or undo it, so the reconciler observes live until the caches have caught up.
//!
//! resourceVersions are compared as numbers: guaranteed since Kubernetes 1.35, and true before with etcd as storage. A
//! version that is not a number counts as not shown until the expectation expires.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use parking_lot::Mutex;

use crate::clock::SharedClock;

/// The age at which an expectation is dropped: by then the cache has caught up, or is being listed again.
const EXPIRES_AFTER: Duration = Duration::from_secs(30);

/// The key of an object among those of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: String,
    /// The name, in the namespace of the owner.
    pub name: String,
}

/// The expected effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object was created or changed. Satisfied when the cache has this version or a later one.
    Stored {
        /// The resourceVersion in the answer of the API server.
        version: String,
    },
    /// The object was deleted. Satisfied when the cache does not have the object, has another one of the same name, or
    /// has a later version (Terminating, with a deletionTimestamp).
    Deleted {
        /// The uid of the object.
        uid: String,
        /// The resourceVersion of the object before its deletion.
        version: String,
    },
}

/// The version of an object in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedVersion {
    /// The uid.
    pub uid: String,
    /// The resourceVersion.
    pub version: String,
}

/// The writes that the caches have yet to show, by owner.
#[derive(Debug)]
pub struct Expectations<O> {
    writes: Mutex<HashMap<O, HashMap<ObjectKey, Write>>>,
    clock: SharedClock,
}

#[derive(Debug)]
struct Write {
    expected: Expected,
    /// The uptime of the write.
    at: Duration,
}

impl<O: Clone + Eq + Hash> Expectations<O> {
    /// Returns expectations without any write.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            writes: Mutex::default(),
            clock,
        }
    }

    /// Adds a write of an object of this owner. It replaces an earlier write of the same object.
    pub fn expect(&self, owner: &O, object: ObjectKey, expected: Expected) {
        let write = Write {
            expected,
            at: self.clock.uptime(),
        };
        let mut writes = self.writes.lock();
        writes
            .entry(owner.clone())
            .or_default()
            .insert(object, write);
    }

    /// Adds a write of an object, as the API server returned it.
    pub(crate) fn expect_stored<K: Resource<DynamicType = ()>>(&self, owner: &O, written: &K) {
        let object = ObjectKey {
            kind: K::kind(&()).into_owned(),
            name: written.name_any(),
        };
        let version = written.resource_version().unwrap_or_default();
        self.expect(owner, object, Expected::Stored { version });
    }

    /// Returns true if the caches show all writes of this owner; `lookup` returns the cached version of an object.
    pub fn satisfied(
        &self,
        owner: &O,
        lookup: impl Fn(&ObjectKey) -> Option<CachedVersion>,
    ) -> bool {
        let now = self.clock.uptime();
        let mut writes = self.writes.lock();
        let Some(pending) = writes.get_mut(owner) else {
            return true;
        };
        pending.retain(|object, write| {
            let is_expired = now.saturating_sub(write.at) >= EXPIRES_AFTER;
            !is_expired && !write.expected.is_shown_by(lookup(object).as_ref())
        });
        let is_satisfied = pending.is_empty();
        if is_satisfied {
            writes.remove(owner);
        }
        is_satisfied
    }

    /// Drops the writes of a deleted owner.
    pub fn forget(&self, owner: &O) {
        self.writes.lock().remove(owner);
    }
}

impl Expected {
    fn is_shown_by(&self, cached: Option<&CachedVersion>) -> bool {
        match (self, cached) {
            (Self::Stored { version }, Some(cached)) => {
                is_number(version) && number(&cached.version) >= number(version)
            }
            (Self::Stored { .. }, None) => false,
            (Self::Deleted { .. }, None) => true,
            (Self::Deleted { uid, version }, Some(cached)) => {
                cached.uid != *uid
                    || is_number(version) && number(&cached.version) > number(version)
            }
        }
    }
}

/// Returns the version as a number. `None` is less than every number.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

fn is_number(version: &str) -> bool {
    number(version).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const OWNER: &str = "shop/orders";

    fn pod() -> ObjectKey {
        ObjectKey {
            kind: "Pod".into(),
            name: "orders-a".into(),
        }
    }

    fn stored(version: &str) -> Expected {
        Expected::Stored {
            version: version.into(),
        }
    }

    fn cached(uid: &str, version: &str) -> impl Fn(&ObjectKey) -> Option<CachedVersion> {
        let cached = CachedVersion {
            uid: uid.into(),
            version: version.into(),
        };
        move |_| Some(cached.clone())
    }

    #[test]
    fn a_write_is_expected_until_the_cache_has_its_version_or_a_later_one() {
        let expectations = Expectations::new(TestClock::default().shared());
        assert!(expectations.satisfied(&OWNER, |_| None), "no write");
        expectations.expect(&OWNER, pod(), stored("100"));
        assert!(!expectations.satisfied(&OWNER, |_| None));
        assert!(
            !expectations.satisfied(&OWNER, cached("a", "99")),
            "99 is older, although \"99\" sorts after \"100\""
        );
        assert!(expectations.satisfied(&OWNER, cached("a", "100")));
        assert!(
            expectations.satisfied(&OWNER, |_| None),
            "a satisfied expectation is dropped"
        );
        expectations.expect(&OWNER, pod(), stored("100"));
        assert!(expectations.satisfied(&OWNER, cached("a", "1000")));
    }

    #[test]
    fn the_later_of_two_writes_is_expected() {
        let expectations = Expectations::new(TestClock::default().shared());
        expectations.expect(&OWNER, pod(), stored("100"));
        expectations.expect(&OWNER, pod(), stored("110"));
        assert!(!expectations.satisfied(&OWNER, cached("a", "100")));
        assert!(expectations.satisfied(&OWNER, cached("a", "110")));
    }

    #[test]
    fn a_deletion_is_shown_when_the_object_is_gone_or_terminating() {
        let deleted = Expected::Deleted {
            uid: "a".into(),
            version: "100".into(),
        };
        assert!(!deleted.is_shown_by(cached("a", "100")(&pod()).as_ref()));
        assert!(deleted.is_shown_by(cached("a", "101")(&pod()).as_ref()));
        assert!(deleted.is_shown_by(cached("b", "90")(&pod()).as_ref()));
        assert!(deleted.is_shown_by(None));
    }

    #[test]
    fn a_version_that_is_not_a_number_is_not_shown_until_the_expectation_expires() {
        let clock = TestClock::default();
        let expectations = Expectations::new(clock.shared());
        expectations.expect(&OWNER, pod(), stored("abc"));
        assert!(!expectations.satisfied(&OWNER, cached("a", "abc")));
        expectations.expect(&OWNER, pod(), stored("100"));
        assert!(!expectations.satisfied(&OWNER, cached("a", "abc")));
        clock.advance(Duration::from_secs(30));
        assert!(expectations.satisfied(&OWNER, cached("a", "abc")));
    }

    #[test]
    fn the_expectations_of_a_deleted_owner_are_dropped() {
        let expectations = Expectations::new(TestClock::default().shared());
        expectations.expect(&OWNER, pod(), stored("100"));
        expectations.forget(&OWNER);
        assert!(expectations.satisfied(&OWNER, |_| None));
    }
}
