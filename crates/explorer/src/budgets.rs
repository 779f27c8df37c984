//! Budgets by number, and which are covered by which.
//!
//! Whatever can happen with a smaller budget can happen with a larger one, with the same effect, and leaves the larger one
//! still larger. So a world that was visited with some budget need not be visited with a smaller one: every story that begins
//! there was begun already, and no later, for the search is breadth first. Whether a world comes to rest when nothing goes
//! wrong does not depend on the budget at all.

use crate::world::Budget;

/// A set of budgets, a bit each.
pub type Set = u32;

/// All budgets up to the one at the start.
#[derive(Clone, Copy, Debug)]
pub struct Budgets(Budget);

impl Budgets {
    /// Up to this one; nothing if there are more than a set holds.
    pub fn up_to(most: Budget) -> Option<Self> {
        let kinds = [most.faults, most.crashes, most.edits, most.delays];
        let count: u32 = kinds.iter().map(|most| u32::from(*most) + 1).product();
        (count <= Set::BITS).then_some(Self(most))
    }

    /// The number of a budget.
    pub fn number(self, budget: Budget) -> u8 {
        let Self(most) = self;
        let mut number = budget.faults;
        number = number * (most.crashes + 1) + budget.crashes;
        number = number * (most.edits + 1) + budget.edits;
        number * (most.delays + 1) + budget.delays
    }

    /// The budget of a number.
    pub fn budget(self, mut number: u8) -> Budget {
        let Self(most) = self;
        let mut digit = |most: u8| {
            let digit = number % (most + 1);
            number /= most + 1;
            digit
        };
        let (delays, edits, crashes) = (digit(most.delays), digit(most.edits), digit(most.crashes));
        Budget {
            faults: number,
            crashes,
            edits,
            delays,
        }
    }

    /// A budget and all smaller ones.
    pub fn covered(self, by: Budget) -> Set {
        let Self(most) = self;
        let count = self.number(most);
        let is_smaller = |one: Budget| {
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
    fn a_budget_covers_those_that_are_smaller_in_everything() {
        let most = Budget {
            faults: 2,
            crashes: 1,
            edits: 1,
            delays: 0,
        };
        let budgets = Budgets::up_to(most).unwrap();
        assert_eq!(budgets.covered(most).count_ones(), 12);
        assert_eq!(budgets.covered(Budget::NOTHING), 1);
        for number in 0..12 {
            assert_eq!(budgets.number(budgets.budget(number)), number);
        }
        let fault = Budget {
            faults: 1,
            ..Budget::NOTHING
        };
        let crash = Budget {
            crashes: 1,
            ..Budget::NOTHING
        };
        assert_eq!(budgets.covered(fault) & 1 << budgets.number(crash), 0);
    }
}
