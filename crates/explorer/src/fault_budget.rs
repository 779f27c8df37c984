//! Numbers for fault budgets, and the coverage relation between them.
//!
//! A run that is possible with a smaller budget is possible with a larger one, with the same effect, and leaves the
//! larger budget still larger. So a state that was visited with some budget need not be visited with a smaller one:
//! every run from there was already explored, and not at a greater depth, since the search is breadth first. Whether
//! a state converges without faults does not depend on the budget.

use crate::model::FaultBudget;

/// A set of budgets, one bit each.
pub type BudgetSet = u32;

/// All budgets up to the initial one.
#[derive(Clone, Copy, Debug)]
pub struct BudgetIndex(FaultBudget);

impl BudgetIndex {
    /// Creates the index; `None` if there are more budgets than a set holds.
    pub fn up_to(most: FaultBudget) -> Option<Self> {
        let kinds = [most.faults, most.crashes, most.edits, most.delays];
        let count: u32 = kinds.iter().map(|most| u32::from(*most) + 1).product();
        (count <= BudgetSet::BITS).then_some(Self(most))
    }

    /// Returns the number of a budget.
    pub fn number(self, budget: FaultBudget) -> u8 {
        let Self(most) = self;
        let mut number = budget.faults;
        number = number * (most.crashes + 1) + budget.crashes;
        number = number * (most.edits + 1) + budget.edits;
        number * (most.delays + 1) + budget.delays
    }

    /// Returns the budget of a number.
    pub fn budget(self, mut number: u8) -> FaultBudget {
        let Self(most) = self;
        let mut digit = |most: u8| {
            let digit = number % (most + 1);
            number /= most + 1;
            digit
        };
        let (delays, edits, crashes) = (digit(most.delays), digit(most.edits), digit(most.crashes));
        FaultBudget {
            faults: number,
            crashes,
            edits,
            delays,
        }
    }

    /// Returns a budget and all smaller ones.
    pub fn covered_by(self, by: FaultBudget) -> BudgetSet {
        let Self(most) = self;
        let count = self.number(most);
        let is_smaller = |one: FaultBudget| {
            one.faults <= by.faults
                && one.crashes <= by.crashes
                && one.edits <= by.edits
                && one.delays <= by.delays
        };
        (0..=count)
            .filter(|number| is_smaller(self.budget(*number)))
            .fold(0, |set, number| set | 1 << number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_covers_those_that_are_smaller_in_every_class() {
        let most = FaultBudget {
            faults: 2,
            crashes: 1,
            edits: 1,
            delays: 0,
        };
        let budgets = BudgetIndex::up_to(most).unwrap();
        assert_eq!(budgets.covered_by(most).count_ones(), 12);
        assert_eq!(budgets.covered_by(FaultBudget::NONE), 1);
        for number in 0..12 {
            assert_eq!(budgets.number(budgets.budget(number)), number);
        }
        let fault = FaultBudget {
            faults: 1,
            ..FaultBudget::NONE
        };
        let crash = FaultBudget {
            crashes: 1,
            ..FaultBudget::NONE
        };
        assert_eq!(budgets.covered_by(fault) & 1 << budgets.number(crash), 0);
    }
}
