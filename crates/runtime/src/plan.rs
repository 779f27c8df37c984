//! What is to be done, as plain data.

use serde::{Deserialize, Serialize};

use crate::{Engine, Time};

/// What `decide` returns: what to create, mark and apply, at most one step, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
