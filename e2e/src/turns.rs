//! Whose turn it is: how many stories run at once, and which wait for which.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// How many stories run side by side on one lab: more only wait for each other, on two cores.
const AT_ONCE: usize = 5;

static ALONE: RwLock<()> = RwLock::new(());
static APART: Mutex<()> = Mutex::new(());
static FREE: (Mutex<usize>, Condvar) = (Mutex::new(AT_ONCE), Condvar::new());

/// A story's turn, for as long as it is held.
pub(crate) enum Turn {
    /// Beside others, on the same lab.
    Beside(
        Place,
        #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>,
    ),
    /// Beside others, on a lab of its own.
    Apart(
        #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>,
        #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>,
    ),
    /// With nobody else.
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

impl Turn {
    pub(crate) fn beside_others() -> Self {
        // The place first: one who holds the lock and waits for a place would have whoever is to run alone wait as well.
        let place = Place::take();
        Self::Beside(place, ALONE.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn apart() -> Self {
        let apart = APART.lock().unwrap_or_else(PoisonError::into_inner);
        Self::Apart(apart, ALONE.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn alone() -> Self {
        Self::Alone(ALONE.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is one of a story that hurts the lab.
    pub(crate) fn hurts(&self) -> bool {
        !matches!(self, Self::Beside(..))
    }
}

/// One of the places for stories that run side by side.
pub(crate) struct Place(());

impl Place {
    fn take() -> Self {
        let (free, changed) = &FREE;
        let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Self(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (free, changed) = &FREE;
        *free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        changed.notify_one();
    }
}
