//! What is to be done, as plain data.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};

use crate::{Engine, Time};

/// What `decide` returns: what to create, mark and apply, at most one step, and when to look again.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Plan<E: Engine + ?Sized> {
    /// What must never exist twice: created, and "already there" means look again.
    pub create: Vec<E::Create>,
    /// Changes that disturb nobody, each pinned to the object it was decided on.
    pub mark: Vec<E::Mark>,
    /// What should exist as described. Comes before the step: a step may rest on it.
    pub apply: Vec<E::Apply>,
    /// At most one thing that may disturb, pinned likewise.
    pub step: Option<E::Step>,
    /// What to tell people.
    pub status: E::Status,
    /// When to look again.
    pub wake: Wake,
}

impl<E: Engine + ?Sized> Plan<E> {
    /// Nothing is to be done, and people are told this.
    pub fn nothing(status: E::Status) -> Self {
        let (create, mark, apply, wake) = (Vec::new(), Vec::new(), Vec::new(), Wake::OnChange);
        Self { create, mark, apply, step: None, status, wake }
    }

    /// Whether carrying it out changes anything; a converged application's plan does not.
    pub fn is_quiet(&self) -> bool {
        self.create.is_empty() && self.mark.is_empty() && self.apply.is_empty() && self.step.is_none()
    }

    /// Whether carrying it out does what carrying out the other does.
    pub fn does_as(&self, other: &Self) -> bool {
        self.create == other.create
            && self.mark == other.mark
            && self.apply == other.apply
            && self.step == other.step
    }
}

// Written out, because derived they would ask the same of the engine, which is no data.
impl<E: Engine + ?Sized> Clone for Plan<E> {
    fn clone(&self) -> Self {
        let Self { create, mark, apply, step, status, wake } = self;
        let (create, mark, apply) = (create.clone(), mark.clone(), apply.clone());
        Self { create, mark, apply, step: step.clone(), status: status.clone(), wake: *wake }
    }
}

impl<E: Engine + ?Sized> PartialEq for Plan<E> {
    fn eq(&self, other: &Self) -> bool {
        self.does_as(other) && self.status == other.status && self.wake == other.wake
    }
}

impl<E: Engine + ?Sized> Eq for Plan<E> {}

impl<E: Engine + ?Sized> Debug for Plan<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { create, mark, apply, step, status, wake } = self;
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
pub enum Wake {
    /// Something changes.
    OnChange,
    /// Something changes, or this time comes.
    At(Time),
    /// The application is about to change by itself, which Kubernetes does not tell: it is asked at short intervals.
    Soon,
}

impl Wake {
    /// Whichever comes first.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Soon, _) | (_, Self::Soon) => Self::Soon,
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
        let (early, late) = (Wake::At(Time(1)), Wake::At(Time(2)));
        assert_eq!(late.or(early), early);
        assert_eq!(Wake::OnChange.or(late), late);
        assert_eq!(Wake::OnChange.or(Wake::OnChange), Wake::OnChange);
        assert_eq!(early.or(Wake::Soon), Wake::Soon);
    }
}
