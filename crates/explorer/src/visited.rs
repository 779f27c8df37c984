//! What was reached: some 40 bytes for each. Only the prints of worlds are kept, with the budgets they were reached with and
//! what follows when nothing goes wrong; and for each visit where it came from, so that its story can be told by living it
//! again.

use crate::budgets::Set;
use crate::collapse::Print;

/// How many parts the set has; threads add to different ones without waiting for each other.
pub const SHARDS: usize = 64;

/// The number of a world, or of a visit: its part of the set, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// Of nothing: before the first, or after the last.
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

/// In which part a print belongs.
pub fn shard_of(print: Print) -> usize {
    (print % SHARDS as u128) as usize
}

/// All worlds and visits.
#[derive(Debug)]
pub struct Visited {
    /// Its parts.
    pub shards: Vec<Shard>,
}

/// A part of the set.
#[derive(Debug)]
pub struct Shard {
    number: usize,
    prints: Vec<Print>,
    covered: Vec<Set>,
    next: Vec<Number>,
    /// Where the prints are, by their upper half: open addressing, less than three quarters full. Nothing is `u32::MAX`.
    slots: Vec<u32>,
    from: Vec<Number>,
    of: Vec<Number>,
    budgets: Vec<u8>,
}

/// A world visited with a budget that no earlier visit's covers.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The visit it came from.
    pub from: Number,
    /// The world.
    pub world: Number,
    /// The number of the budget.
    pub budget: u8,
}

impl Default for Visited {
    fn default() -> Self {
        let shard = |number| Shard {
            number,
            prints: Vec::new(),
            covered: Vec::new(),
            next: Vec::new(),
            slots: vec![u32::MAX; 16],
            from: Vec::new(),
            of: Vec::new(),
            budgets: Vec::new(),
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
        }
    }
}

impl Visited {
    /// How many worlds there are.
    pub fn worlds(&self) -> usize {
        self.shards.iter().map(|shard| shard.prints.len()).sum()
    }

    /// How many visits there were.
    pub fn visits(&self) -> usize {
        self.shards.iter().map(|shard| shard.from.len()).sum()
    }

    /// The world of this print, if it was visited, and the budgets that its visits cover.
    pub fn find(&self, print: Print) -> Option<(Number, Set)> {
        let shard = &self.shards[shard_of(print)];
        shard
            .find(print)
            .map(|at| (Number::new(shard.number, at), shard.covered[at]))
    }

    /// The print of a world.
    pub fn print(&self, world: Number) -> Print {
        self.shards[world.shard()].prints[world.at()]
    }

    /// A visit.
    pub fn visit(&self, visit: Number) -> Visit {
        let (shard, at) = (&self.shards[visit.shard()], visit.at());
        Visit {
            from: shard.from[at],
            world: shard.of[at],
            budget: shard.budgets[at],
        }
    }

    /// What follows a world when nothing goes wrong.
    pub fn next(&self, world: Number) -> Number {
        self.shards[world.shard()].next[world.at()]
    }

    /// Notes what follows a world when nothing goes wrong.
    pub fn set_next(&mut self, world: Number, next: Number) {
        self.shards[world.shard()].next[world.at()] = next;
    }

    /// All worlds.
    pub fn all_worlds(&self) -> impl Iterator<Item = Number> {
        self.shards
            .iter()
            .flat_map(|shard| (0..shard.prints.len()).map(|at| Number::new(shard.number, at)))
    }

    /// All visits.
    pub fn all_visits(&self) -> impl Iterator<Item = Number> {
        self.shards
            .iter()
            .flat_map(|shard| (0..shard.from.len()).map(|at| Number::new(shard.number, at)))
    }

    /// A mark for each world.
    pub fn marks(&self) -> Marks {
        Marks(
            self.shards
                .iter()
                .map(|shard| vec![0; shard.prints.len() / 64 + 1])
                .collect(),
        )
    }
}

impl Shard {
    fn slot(&self, print: Print) -> usize {
        ((print >> 64) as usize) & (self.slots.len() - 1)
    }

    fn find(&self, print: Print) -> Option<usize> {
        let mut slot = self.slot(print);
        while let Some(found) = self.prints.get(self.slots[slot] as usize) {
            if *found == print {
                return Some(self.slots[slot] as usize);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// The world of this print, and the number of this visit to it, unless an earlier one covers its budget.
    pub fn reach(
        &mut self,
        print: Print,
        from: Number,
        budget: u8,
        covers: Set,
    ) -> (Number, Option<Number>) {
        let at = self.find(print).unwrap_or_else(|| self.add(print));
        let world = Number::new(self.number, at);
        if self.covered[at] >> budget & 1 == 1 {
            return (world, None);
        }
        self.covered[at] |= covers;
        push(&mut self.from, from);
        push(&mut self.of, world);
        push(&mut self.budgets, budget);
        (world, Some(Number::new(self.number, self.from.len() - 1)))
    }

    fn add(&mut self, print: Print) -> usize {
        let at = self.prints.len();
        push(&mut self.prints, print);
        push(&mut self.covered, 0);
        push(&mut self.next, Number::new(self.number, at));
        if self.prints.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![u32::MAX; self.slots.len() * 2];
            (0..=at).for_each(|at| self.take_slot(at));
        } else {
            self.take_slot(at);
        }
        at
    }

    fn take_slot(&mut self, at: usize) {
        let mut slot = self.slot(self.prints[at]);
        while self.slots[slot] != u32::MAX {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = u32::try_from(at).unwrap_or(u32::MAX);
    }
}

/// Adds to a list that grows by an eighth at a time: doubled, it would be half empty.
fn push<T>(list: &mut Vec<T>, one: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 64);
    }
    list.push(one);
}

/// A bit for each world.
#[derive(Debug)]
pub struct Marks(Vec<Vec<u64>>);

impl Marks {
    /// Whether a world is marked.
    pub fn has(&self, world: Number) -> bool {
        self.0[world.shard()][world.at() / 64] >> (world.at() % 64) & 1 == 1
    }

    /// Marks a world.
    pub fn set(&mut self, world: Number) {
        self.0[world.shard()][world.at() / 64] |= 1 << (world.at() % 64);
    }
}
