//! The visited set, about 40 bytes per entry. It stores the fingerprint of each configuration (a state without its
//! fault budget), the budgets it was reached with and its fault-free successor, and for each visit the previous
//! visit, so that a trace can be reconstructed by replaying it.

use crate::compress::Fingerprint;
use crate::fault_budget::BudgetSet;

/// The number of shards. Threads add to different shards without waiting for each other.
pub const SHARDS: usize = 64;

/// The id of a configuration or of a visit: its shard and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId(u32);

impl EntryId {
    /// No entry: the predecessor of the start, or the successor of a quiescent state.
    pub const NONE: Self = Self(u32::MAX);

    fn new(shard: usize, at: usize) -> Self {
        Self(u32::try_from(at * SHARDS + shard).unwrap_or(u32::MAX))
    }

    fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn at(self) -> usize {
        self.0 as usize / SHARDS
    }
}

/// Returns the shard of a fingerprint.
pub fn shard_of(fingerprint: Fingerprint) -> usize {
    (fingerprint % SHARDS as u128) as usize
}

/// All configurations and visits.
#[derive(Debug)]
pub struct Visited {
    /// The shards.
    pub shards: Vec<Shard>,
}

/// One shard.
#[derive(Debug)]
pub struct Shard {
    number: usize,
    fingerprints: Vec<Fingerprint>,
    covered_budgets: Vec<BudgetSet>,
    next: Vec<EntryId>,
    /// The hash table: positions of fingerprints by their upper half, open addressing, at most three quarters full.
    /// `u32::MAX` is an empty slot.
    slots: Vec<u32>,
    visit_from: Vec<EntryId>,
    visit_configuration: Vec<EntryId>,
    visit_budget: Vec<u8>,
}

/// A visit of a configuration with a budget that no earlier visit covers.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The previous visit.
    pub from: EntryId,
    /// The configuration.
    pub configuration: EntryId,
    /// The number of the fault budget.
    pub budget: u8,
}

impl Default for Visited {
    fn default() -> Self {
        let shard = |number| Shard {
            number,
            fingerprints: Vec::new(),
            covered_budgets: Vec::new(),
            next: Vec::new(),
            slots: vec![u32::MAX; 16],
            visit_from: Vec::new(),
            visit_configuration: Vec::new(),
            visit_budget: Vec::new(),
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
        }
    }
}

impl Visited {
    /// Returns the number of configurations.
    pub fn configurations(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.fingerprints.len())
            .sum()
    }

    /// Returns the number of visits.
    pub fn visits(&self) -> usize {
        self.shards.iter().map(|shard| shard.visit_from.len()).sum()
    }

    /// Returns the configuration with this fingerprint and the budgets that its visits cover.
    pub fn find(&self, fingerprint: Fingerprint) -> Option<(EntryId, BudgetSet)> {
        let shard = &self.shards[shard_of(fingerprint)];
        shard
            .find(fingerprint)
            .map(|at| (EntryId::new(shard.number, at), shard.covered_budgets[at]))
    }

    /// Returns the fingerprint of a configuration.
    pub fn fingerprint(&self, model: EntryId) -> Fingerprint {
        self.shards[model.shard()].fingerprints[model.at()]
    }

    /// Returns a visit.
    pub fn visit(&self, visit: EntryId) -> Visit {
        let (shard, at) = (&self.shards[visit.shard()], visit.at());
        Visit {
            from: shard.visit_from[at],
            configuration: shard.visit_configuration[at],
            budget: shard.visit_budget[at],
        }
    }

    /// Returns the fault-free successor of a configuration.
    pub fn next(&self, model: EntryId) -> EntryId {
        self.shards[model.shard()].next[model.at()]
    }

    /// Records the fault-free successor of a configuration.
    pub fn set_next(&mut self, model: EntryId, next: EntryId) {
        self.shards[model.shard()].next[model.at()] = next;
    }

    /// Returns all configurations.
    pub fn all_configurations(&self) -> impl Iterator<Item = EntryId> {
        self.shards.iter().flat_map(|shard| {
            (0..shard.fingerprints.len()).map(|at| EntryId::new(shard.number, at))
        })
    }

    /// Returns all visits.
    pub fn all_visits(&self) -> impl Iterator<Item = EntryId> {
        self.shards
            .iter()
            .flat_map(|shard| (0..shard.visit_from.len()).map(|at| EntryId::new(shard.number, at)))
    }

    /// Returns an empty set of configurations.
    pub fn empty_set(&self) -> ConfigurationSet {
        ConfigurationSet(
            self.shards
                .iter()
                .map(|shard| vec![0; shard.fingerprints.len() / 64 + 1])
                .collect(),
        )
    }
}

impl Shard {
    fn slot(&self, fingerprint: Fingerprint) -> usize {
        ((fingerprint >> 64) as usize) & (self.slots.len() - 1)
    }

    fn find(&self, fingerprint: Fingerprint) -> Option<usize> {
        let mut slot = self.slot(fingerprint);
        while let Some(found) = self.fingerprints.get(self.slots[slot] as usize) {
            if *found == fingerprint {
                return Some(self.slots[slot] as usize);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Adds a visit. Returns the configuration, and the visit unless an earlier one covers its budget.
    pub fn reach(
        &mut self,
        fingerprint: Fingerprint,
        from: EntryId,
        budget: u8,
        covers: BudgetSet,
    ) -> (EntryId, Option<EntryId>) {
        let at = self
            .find(fingerprint)
            .unwrap_or_else(|| self.add(fingerprint));
        let model = EntryId::new(self.number, at);
        if self.covered_budgets[at] >> budget & 1 == 1 {
            return (model, None);
        }
        self.covered_budgets[at] |= covers;
        push(&mut self.visit_from, from);
        push(&mut self.visit_configuration, model);
        push(&mut self.visit_budget, budget);
        (
            model,
            Some(EntryId::new(self.number, self.visit_from.len() - 1)),
        )
    }

    fn add(&mut self, fingerprint: Fingerprint) -> usize {
        let at = self.fingerprints.len();
        push(&mut self.fingerprints, fingerprint);
        push(&mut self.covered_budgets, 0);
        push(&mut self.next, EntryId::new(self.number, at));
        if self.fingerprints.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![u32::MAX; self.slots.len() * 2];
            (0..=at).for_each(|at| self.take_slot(at));
        } else {
            self.take_slot(at);
        }
        at
    }

    fn take_slot(&mut self, at: usize) {
        let mut slot = self.slot(self.fingerprints[at]);
        while self.slots[slot] != u32::MAX {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = u32::try_from(at).unwrap_or(u32::MAX);
    }
}

/// Appends to a list that grows by an eighth: doubling would leave it half empty.
fn push<T>(list: &mut Vec<T>, one: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 64);
    }
    list.push(one);
}

/// A set of configurations, one bit each.
#[derive(Debug)]
pub struct ConfigurationSet(Vec<Vec<u64>>);

impl ConfigurationSet {
    /// Returns true if the set contains the configuration.
    pub fn contains(&self, model: EntryId) -> bool {
        self.0[model.shard()][model.at() / 64] >> (model.at() % 64) & 1 == 1
    }

    /// Adds a configuration.
    pub fn insert(&mut self, model: EntryId) {
        self.0[model.shard()][model.at() / 64] |= 1 << (model.at() % 64);
    }
}
