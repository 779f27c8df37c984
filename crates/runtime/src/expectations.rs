//! Read your own writes. Stores lag behind; a decision from a store that has not seen our last write would repeat or
//! undo it. So each write is noted, and nothing is decided before the stores have caught up with it.
//!
//! Versions are compared as numbers: promised since Kubernetes 1.35, and true before with etcd below. One that is no
//! number counts as not seen, until the note is too old to matter.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::SharedClock;

/// By then the store has moved on, or is being listed anew.
const EXPIRES_AFTER: Duration = Duration::from_secs(30);

/// Which object was written, among those of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: String,
    /// Its name, in the owner's namespace.
    pub name: String,
}

/// What was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It was created or changed, and has had this resourceVersion since. Seen when the store has it or a later one.
    Stored {
        /// The resourceVersion in the API server's answer.
        version: String,
    },
    /// It was deleted. Seen when it is not in the store any more, or another of its name is, or a later version of it
    /// is (on its way out, with a deletionTimestamp).
    Deleted {
        /// The uid it had.
        uid: String,
        /// The resourceVersion it had before.
        version: String,
    },
}

/// An object as it is in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedVersion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
}

/// The writes that stores have yet to show, by their owner.
#[derive(Debug)]
pub struct Expectations<K> {
    notes: Mutex<HashMap<K, HashMap<ObjectKey, Note>>>,
    clock: SharedClock,
}

#[derive(Debug)]
struct Note {
    change: Expected,
    at: Duration,
}

impl<K: Clone + Eq + Hash> Expectations<K> {
    /// Nothing has been written yet.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            notes: Mutex::new(HashMap::new()),
            clock,
        }
    }

    /// Something of this owner was written. The latest write of an object is the one to wait for.
    pub fn expect(&self, owner: &K, what: ObjectKey, change: Expected) {
        let note = Note {
            change,
            at: self.clock.uptime(),
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.entry(owner.clone()).or_default().insert(what, note);
    }

    /// Whether the stores show everything that was written for this owner; `lookup` says what they have.
    pub fn satisfied(
        &self,
        owner: &K,
        lookup: impl Fn(&ObjectKey) -> Option<CachedVersion>,
    ) -> bool {
        let now = self.clock.uptime();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = notes.get_mut(owner) else {
            return true;
        };
        own.retain(|what, note| {
            now.saturating_sub(note.at) < EXPIRES_AFTER && !note.change.shows(lookup(what).as_ref())
        });
        let seen = own.is_empty();
        if seen {
            notes.remove(owner);
        }
        seen
    }

    /// Those that are gone are forgotten: all that `stays` does not want to keep.
    pub fn retain(&self, stays: impl Fn(&K) -> bool) {
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|owner, _| stays(owner));
    }
}

impl Expected {
    fn shows(&self, found: Option<&CachedVersion>) -> bool {
        match (self, found) {
            (Self::Stored { version }, Some(found)) => {
                number(&found.version) >= number(version) && known(version)
            }
            (Self::Stored { .. }, None) => false,
            (Self::Deleted { .. }, None) => true,
            (Self::Deleted { uid, version }, Some(found)) => {
                found.uid != *uid || number(&found.version) > number(version) && known(version)
            }
        }
    }
}

fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// `None` is less than every number, so only what is compared *against* has to be looked at.
fn known(version: &str) -> bool {
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

    fn has(uid: &str, version: &str) -> impl Fn(&ObjectKey) -> Option<CachedVersion> {
        let found = CachedVersion {
            uid: uid.into(),
            version: version.into(),
        };
        move |_| Some(found.clone())
    }

    #[test]
    fn a_write_is_waited_for_until_the_store_has_it_or_something_later() {
        let written = Expectations::new(TestClock::default().shared());
        assert!(written.satisfied(&OWNER, |_| None), "nothing was written");
        written.expect(&OWNER, pod(), stored("100"));
        assert!(!written.satisfied(&OWNER, |_| None));
        assert!(
            !written.satisfied(&OWNER, has("a", "99")),
            "99 is older, though \"99\" sorts after \"100\""
        );
        assert!(written.satisfied(&OWNER, has("a", "100")));
        assert!(
            written.satisfied(&OWNER, |_| None),
            "what was seen once is not waited for again"
        );
        written.expect(&OWNER, pod(), stored("100"));
        assert!(written.satisfied(&OWNER, has("a", "1000")));
    }

    #[test]
    fn of_two_writes_the_later_one_counts() {
        let written = Expectations::new(TestClock::default().shared());
        written.expect(&OWNER, pod(), stored("100"));
        written.expect(&OWNER, pod(), stored("110"));
        assert!(!written.satisfied(&OWNER, has("a", "100")));
        assert!(written.satisfied(&OWNER, has("a", "110")));
    }

    #[test]
    fn a_deletion_is_seen_when_that_very_object_is_gone_or_on_its_way_out() {
        let deleted = Expected::Deleted {
            uid: "a".into(),
            version: "100".into(),
        };
        assert!(!deleted.shows(has("a", "100")(&pod()).as_ref()));
        assert!(deleted.shows(has("a", "101")(&pod()).as_ref()));
        assert!(deleted.shows(has("b", "90")(&pod()).as_ref()));
        assert!(deleted.shows(None));
    }

    #[test]
    fn a_version_that_is_no_number_is_not_seen_until_the_note_is_old() {
        let clock = TestClock::default();
        let written = Expectations::new(clock.shared());
        written.expect(&OWNER, pod(), stored("abc"));
        assert!(!written.satisfied(&OWNER, has("a", "abc")));
        written.expect(&OWNER, pod(), stored("100"));
        assert!(!written.satisfied(&OWNER, has("a", "abc")));
        clock.advance(Duration::from_secs(30));
        assert!(written.satisfied(&OWNER, has("a", "abc")));
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let written = Expectations::new(TestClock::default().shared());
        written.expect(&OWNER, pod(), stored("100"));
        written.retain(|owner| *owner != OWNER);
        assert!(written.satisfied(&OWNER, |_| None));
    }
}
