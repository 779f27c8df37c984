//! Deliberate bugs, each of which the explorer must find: an explorer that finds nothing proves nothing.

use evenkeel_runtime::{Observed, Plan, Presence, SimpleReconciler};
use killernewdb::facts::{Deed, Facts};
use killernewdb::operator::Operator;

/// What is wrong with the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Whoever does not answer is taken to have lost its data.
    SilenceIsLoss,
    /// Who is to leave loses its volume before it is removed from the list.
    VolumeGoesFirst,
    /// Whoever is not listed is swept away, those on their way in, too.
    SweepsNewcomers,
    /// An empty first member is always told to found the database.
    FoundsAgain,
}

type Decided = Plan<SimpleReconciler<Operator>>;

impl Bug {
    /// What an operator with this bug decides.
    pub(crate) fn tamper(self, facts: &Facts, decide: fn(&Facts) -> Decided) -> Decided {
        let mut seen = facts.clone();
        let latest = facts
            .members
            .values()
            .filter_map(|member| member.list.present());
        let latest = latest.max_by_key(|list| list.version);
        match self {
            Self::None | Self::VolumeGoesFirst => {}
            Self::SilenceIsLoss => {
                for member in seen
                    .members
                    .values_mut()
                    .filter(|member| member.list.is_unknown())
                {
                    member.list = Observed::Absent;
                }
            }
            Self::SweepsNewcomers => {
                let settled = latest.is_some_and(|list| list.settled);
                if let Some(ledger) = seen
                    .ledger
                    .as_mut()
                    .filter(|ledger| ledger.founded && settled)
                {
                    ledger.joining = None;
                }
            }
            Self::FoundsAgain => {
                if let Some(ledger) = seen.ledger.as_mut().filter(|_| latest.is_none()) {
                    ledger.founded = false;
                    ledger.joining = ledger
                        .joining
                        .take()
                        .or_else(|| Some(format!("{}-0", facts.name)));
                }
            }
        }
        let mut plan = decide(&seen);
        if self == Self::VolumeGoesFirst
            && let Some(Deed::Change { members, .. }) = &plan.disruption
            && let Some(goes) =
                latest.and_then(|list| list.members.iter().find(|name| !members.contains(name)))
            && facts
                .members
                .get(goes)
                .is_some_and(|member| member.claim == Presence::Present)
        {
            plan.disruption = Some(Deed::DeleteClaim(goes.clone()));
        }
        plan
    }
}
