//! The states that were reached: 32 bytes each. Only their prints are kept, with where each was first reached from, so that
//! its story can be told by living it again, and what follows it when nothing goes wrong.

use crate::collapse::Print;

/// How many parts the set has; threads add to different ones without waiting for each other.
pub const SHARDS: usize = 64;

/// A state that was reached, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(u32);

impl State {
    /// No state: before the first, or after one at rest.
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

/// All of them.
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
    parents: Vec<State>,
    next: Vec<State>,
    /// Where the prints are, by their upper half: open addressing, less than three quarters full. Nothing is `u32::MAX`.
    slots: Vec<u32>,
}

impl Default for Visited {
    fn default() -> Self {
        let shard = |number| Shard {
            number,
            prints: Vec::new(),
            parents: Vec::new(),
            next: Vec::new(),
            slots: vec![u32::MAX; 16],
        };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }
}

impl Visited {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.prints.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The state of this print, if it was reached.
    pub fn find(&self, print: Print) -> Option<State> {
        self.shards[shard_of(print)].find(print)
    }

    /// The print of a state.
    pub fn print(&self, state: State) -> Print {
        self.shards[state.shard()].prints[state.at()]
    }

    /// The state it was first reached from.
    pub fn parent(&self, state: State) -> State {
        self.shards[state.shard()].parents[state.at()]
    }

    /// What follows a state when nothing goes wrong; itself, if that is not known.
    pub fn next(&self, state: State) -> State {
        self.shards[state.shard()].next[state.at()]
    }

    /// Notes what follows a state when nothing goes wrong.
    pub fn set_next(&mut self, state: State, next: State) {
        self.shards[state.shard()].next[state.at()] = next;
    }

    /// All states.
    pub fn states(&self) -> impl Iterator<Item = State> {
        self.shards.iter().flat_map(|shard| (0..shard.prints.len()).map(|at| State::new(shard.number, at)))
    }

    /// A mark for each state.
    pub fn marks(&self) -> Marks {
        Marks(self.shards.iter().map(|shard| vec![0; shard.prints.len() / 64 + 1]).collect())
    }
}

impl Shard {
    fn slot(&self, print: Print) -> usize {
        ((print >> 64) as usize) & (self.slots.len() - 1)
    }

    fn find(&self, print: Print) -> Option<State> {
        let mut slot = self.slot(print);
        while let Some(found) = self.prints.get(self.slots[slot] as usize) {
            if *found == print {
                return Some(State::new(self.number, self.slots[slot] as usize));
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// The state of this print, and whether it is reached for the first time.
    pub fn reach(&mut self, print: Print, parent: State) -> (State, bool) {
        if let Some(state) = self.find(print) {
            return (state, false);
        }
        let state = State::new(self.number, self.prints.len());
        self.prints.push(print);
        self.parents.push(parent);
        self.next.push(state);
        if self.prints.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![u32::MAX; self.slots.len() * 2];
            (0..self.prints.len()).for_each(|at| self.take_slot(at));
        } else {
            self.take_slot(self.prints.len() - 1);
        }
        (state, true)
    }

    fn take_slot(&mut self, at: usize) {
        let mut slot = self.slot(self.prints[at]);
        while self.slots[slot] != u32::MAX {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = u32::try_from(at).unwrap_or(u32::MAX);
    }
}

/// A bit for each state.
#[derive(Debug)]
pub struct Marks(Vec<Vec<u64>>);

impl Marks {
    /// Whether a state is marked.
    pub fn has(&self, state: State) -> bool {
        self.0[state.shard()][state.at() / 64] >> (state.at() % 64) & 1 == 1
    }

    /// Marks a state.
    pub fn set(&mut self, state: State) {
        self.0[state.shard()][state.at() / 64] |= 1 << (state.at() % 64);
    }
}
