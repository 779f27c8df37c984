//! What is to be done, as plain data.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};

use crate::{Engine, UnixTime};

/// What `decide` returns: what to create, mark and apply, at most one step, and when to look again.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Plan<E: Engine + ?Sized> {
    /// What must never exist twice: created, and "already there" means look again.
    pub create: Vec<E::Create>,
    /// Changes that disturb nobody, each pinned to the object it was decided on.
    pub patch: Vec<E::Patch>,
    /// What should exist as described. Comes before the step: a step may rest on it.
    pub apply: Vec<E::Apply>,
    /// At most one thing that may disturb, pinned likewise.
    pub disruption: Option<E::Disruption>,
    /// What to tell people.
    pub status: E::Status,
    /// When to look again.
    pub requeue: Requeue,
}

impl<E: Engine + ?Sized> Plan<E> {
    /// Nothing is to be done, and people are told this.
    pub fn noop(status: E::Status) -> Self {
        let (create, mark, apply, wake) = (Vec::new(), Vec::new(), Vec::new(), Requeue::OnChange);
        Self {
            create,
            patch: mark,
            apply,
            disruption: None,
            status,
            requeue: wake,
        }
    }

    /// Whether carrying it out changes anything; a converged application's plan does not.
    pub fn is_noop(&self) -> bool {
        self.create.is_empty()
            && self.patch.is_empty()
            && self.apply.is_empty()
            && self.disruption.is_none()
    }

    /// Whether carrying it out does what carrying out the other does.
    pub fn same_actions(&self, other: &Self) -> bool {
        self.create == other.create
            && self.patch == other.patch
            && self.apply == other.apply
            && self.disruption == other.disruption
    }
}

// Written out, because derived they would ask the same of the engine, which is no data.
impl<E: Engine + ?Sized> Clone for Plan<E> {
    fn clone(&self) -> Self {
        let Self {
            create,
            patch: mark,
            apply,
            disruption: step,
            status,
            requeue: wake,
        } = self;
        let (create, mark, apply) = (create.clone(), mark.clone(), apply.clone());
        Self {
            create,
            patch: mark,
            apply,
            disruption: step.clone(),
            status: status.clone(),
            requeue: *wake,
        }
    }
}

impl<E: Engine + ?Sized> PartialEq for Plan<E> {
    fn eq(&self, other: &Self) -> bool {
        self.same_actions(other) && self.status == other.status && self.requeue == other.requeue
    }
}

impl<E: Engine + ?Sized> Eq for Plan<E> {}

impl<E: Engine + ?Sized> Debug for Plan<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            create,
            patch: mark,
            apply,
            disruption: step,
            status,
            requeue: wake,
        } = self;
        f.debug_struct("Plan")
            .field("create", create)
            .field("mark", mark)
            .field("apply", apply)
            .field("step", step)
            .field("status", status)
            .field("wake", wake)
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
