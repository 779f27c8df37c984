//! The plan: the result of a decision, as plain data.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Engine, UnixTime};

/// The result of `decide`: creates, patches, applies, at most one disruption, the waits, and when
/// to reconcile again.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Plan<E: Engine + ?Sized> {
    /// Objects that must never exist twice. "Already exists" means: observe again.
    pub create: Vec<E::Create>,
    /// Changes that disturb no client, each with preconditions on the object that it was decided
    /// on.
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
    /// Returns true if the plan has no actions. The plan of a converged application is a no-op.
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

/// One action of a plan.
#[derive(Debug)]
pub enum Action<'p, E: Engine + ?Sized> {
    /// Creates an object that must never exist twice.
    Create(&'p E::Create),
    /// Changes an object without any effect on clients.
    Patch(&'p E::Patch),
    /// Makes an object exist as described.
    Apply(&'p E::Apply),
    /// May disturb clients.
    Disruption(&'p E::Disruption),
}

impl<E: Engine + ?Sized> Action<'_, E> {
    /// Returns the action as JSON.
    pub fn to_json(&self) -> Value {
        let json = match self {
            Self::Create(create) => serde_json::to_value(create),
            Self::Patch(patch) => serde_json::to_value(patch),
            Self::Apply(apply) => serde_json::to_value(apply),
            Self::Disruption(disruption) => serde_json::to_value(disruption),
        };
        json.unwrap_or_default()
    }
}

impl<E: Engine + ?Sized> Plan<E> {
    /// Returns all actions: create, patch, apply, disruption.
    pub fn actions(&self) -> impl Iterator<Item = Action<'_, E>> {
        let disruption = self.disruption.iter().map(Action::Disruption);
        self.writes().chain(disruption)
    }

    /// Returns the actions except the disruption. Creations and patches come first: they are the repairs.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Action<'_, E>> {
        let create = self.create.iter().map(Action::Create);
        let patch = self.patch.iter().map(Action::Patch);
        let apply = self.apply.iter().map(Action::Apply);
        create.chain(patch).chain(apply)
    }
}

/// When to reconcile again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Requeue {
    /// When an object or the answer of the application changes.
    OnChange,
    /// The same, or at this time.
    At(UnixTime),
    /// At short intervals: the application is about to change without an event in Kubernetes.
    Poll,
}

impl Requeue {
    /// Returns the earlier of both.
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
    fn the_earlier_requeue_wins_and_polling_wins_over_all() {
        let (early, late) = (Requeue::At(UnixTime(1)), Requeue::At(UnixTime(2)));
        assert_eq!(late.or(early), early);
        assert_eq!(Requeue::OnChange.or(late), late);
        assert_eq!(Requeue::OnChange.or(Requeue::OnChange), Requeue::OnChange);
        assert_eq!(early.or(Requeue::Poll), Requeue::Poll);
    }
}
