//! The plan: what is to be done, as plain data.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};

use crate::{Engine, UnixTime};

/// The result of `decide`: what to create, patch and apply, at most one disruption, the waits, and when to reconcile again.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Plan<E: Engine + ?Sized> {
    /// Objects that must never exist twice. "Already exists" means: observe again.
    pub create: Vec<E::Create>,
    /// Changes that disturb nothing, each with preconditions on the object that it was decided on.
    pub patch: Vec<E::Patch>,
    /// Objects that should exist as described. They come before the disruption, which may depend on them.
    pub apply: Vec<E::Apply>,
    /// At most one action that may disturb clients, with the same preconditions.
    pub disruption: Option<E::Disruption>,
    /// The reasons why the plan does less than the spec asks for, most important first.
    pub waits: Vec<E::Wait>,
    /// When to reconcile again.
    pub requeue: Requeue,
}

// Written by hand: derived impls would require the same traits of the engine, which is not data.
impl<E: Engine + ?Sized> Default for Plan<E> {
    fn default() -> Self {
        Self {
            create: Vec::new(),
            patch: Vec::new(),
            apply: Vec::new(),
            disruption: None,
            waits: Vec::new(),
            requeue: Requeue::OnChange,
        }
    }
}

impl<E: Engine + ?Sized> Plan<E> {
    /// Returns true if executing the plan changes nothing. The plan of a converged application is a no-op.
    pub fn is_noop(&self) -> bool {
        self.create.is_empty()
            && self.patch.is_empty()
            && self.apply.is_empty()
            && self.disruption.is_none()
    }

    /// Returns true if both plans have the same actions, whatever their waits are.
    pub fn same_actions(&self, other: &Self) -> bool {
        self.create == other.create
            && self.patch == other.patch
            && self.apply == other.apply
            && self.disruption == other.disruption
    }
}

impl<E: Engine + ?Sized> Clone for Plan<E> {
    fn clone(&self) -> Self {
        Self {
            create: self.create.clone(),
            patch: self.patch.clone(),
            apply: self.apply.clone(),
            disruption: self.disruption.clone(),
            waits: self.waits.clone(),
            requeue: self.requeue,
        }
    }
}

impl<E: Engine + ?Sized> PartialEq for Plan<E> {
    fn eq(&self, other: &Self) -> bool {
        self.same_actions(other) && self.waits == other.waits && self.requeue == other.requeue
    }
}

impl<E: Engine + ?Sized> Eq for Plan<E> {}

impl<E: Engine + ?Sized> Debug for Plan<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("create", &self.create)
            .field("patch", &self.patch)
            .field("apply", &self.apply)
            .field("disruption", &self.disruption)
            .field("waits", &self.waits)
            .field("requeue", &self.requeue)
            .finish()
    }
}

/// What ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Requeue {
    /// Something changes.
    OnChange,
    /// Something changes, or this time comes.
    At(UnixTime),
    /// The application is about to change by itself, which Kubernetes does not tell: it is asked at short intervals.
    Poll,
}

impl Requeue {
    /// Whichever comes first.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Poll, _) | (_, Self::Poll) => Self::Poll,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
            (Self::At(time), Self::OnChange) | (Self::OnChange, Self::At(time)) => Self::At(time),
            (Self::OnChange, Self::OnChange) => Self::OnChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_times_the_earlier_wakes_and_a_time_beats_none() {
        let (early, late) = (Requeue::At(UnixTime(1)), Requeue::At(UnixTime(2)));
        assert_eq!(late.or(early), early);
        assert_eq!(Requeue::OnChange.or(late), late);
        assert_eq!(Requeue::OnChange.or(Requeue::OnChange), Requeue::OnChange);
        assert_eq!(early.or(Requeue::Poll), Requeue::Poll);
    }
}
