//! Mutants of the operator, each of which the explorer must find.

use evenkeel_runtime::{Observed, Plan, Presence, SimpleReconciler};
use killernewdb::facts::{DbAction, DbFacts};
use killernewdb::operator::KillerNewDbEngine;

/// A bug of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bug {
    /// No bug.
    None,
    /// An unreachable member counts as lost.
    UnreachableIsLost,
    /// The volume of a surplus member is deleted before the member is removed from the list.
    VolumeDeletedFirst,
    /// Members that are not listed are deleted, even a joining one.
    JoiningMemberDeleted,
    /// A first member without data is always bootstrapped.
    BootstrapsAgain,
}

type Decided = Plan<SimpleReconciler<KillerNewDbEngine>>;

impl Bug {
    /// Returns the decision of an operator with this bug.
    pub(crate) fn tamper(self, facts: &DbFacts, decide: fn(&DbFacts) -> Decided) -> Decided {
        let mut tampered = facts.clone();
        let latest = facts
            .members
            .values()
            .filter_map(|member| member.list.present());
        let latest = latest.max_by_key(|list| list.version);
        match self {
            Self::None | Self::VolumeDeletedFirst => {}
            Self::UnreachableIsLost => {
                for member in tampered
                    .members
                    .values_mut()
                    .filter(|member| member.list.is_unknown())
                {
                    member.list = Observed::Absent;
                }
            }
            Self::JoiningMemberDeleted => {
                let settled = latest.is_some_and(|list| list.settled);
                if let Some(ledger) = tampered
                    .ledger
                    .as_mut()
                    .filter(|ledger| ledger.bootstrapped && settled)
                {
                    ledger.joining = None;
                }
            }
            Self::BootstrapsAgain => {
                if let Some(ledger) = tampered.ledger.as_mut().filter(|_| latest.is_none()) {
                    ledger.bootstrapped = false;
                    ledger.joining = ledger
                        .joining
                        .take()
                        .or_else(|| Some(format!("{}-0", facts.name)));
                }
            }
        }
        let mut plan = decide(&tampered);
        if self == Self::VolumeDeletedFirst
            && let Some(DbAction::ChangeMembers { members, .. }) = &plan.disruption
            && let Some(surplus) =
                latest.and_then(|list| list.members.iter().find(|name| !members.contains(name)))
            && facts
                .members
                .get(surplus)
                .is_some_and(|member| member.claim == Presence::Present)
        {
            plan.disruption = Some(DbAction::DeleteClaim(surplus.clone()));
        }
        plan
    }
}
