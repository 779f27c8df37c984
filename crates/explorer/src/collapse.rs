//! Worlds in a few words each. Every pod, claim, cluster, identity and write that was ever met is kept once and has a
//! number, and a world is the list of its parts' numbers ("collapse", as the model checker SPIN calls it). Numbering loses
//! nothing: a world is got back from its words as it was. So tens of millions wait for their turn in a few gigabytes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_etcd::identity::Identity;
use evenkeel_etcd::names::Serial;

use crate::effect::Effect;
use crate::world::{Budget, Claim, Cluster, Inputs, Pod, World};

/// What tells a world from all others: 128 bits of its words. That any two of 10⁹ worlds share them, so that one of them
/// would not be explored, has a chance of 10⁻²⁰.
pub type Print = u128;

/// All parts that were ever met.
#[derive(Debug)]
pub struct Parts {
    /// What all worlds have in common.
    common: World,
    identities: Table<Identity>,
    claims: Table<(Serial, Claim)>,
    pods: Table<(Serial, Pod)>,
    clusters: Table<Cluster>,
    effects: Table<Effect>,
}

impl Parts {
    /// For worlds that come of this one.
    pub fn new(start: &World) -> Self {
        Self {
            common: World {
                meddles: start.meddles,
                rolls: start.rolls,
                moves: start.moves,
                owned: start.owned,
                ..World::new(
                    start.wanted,
                    start.storage,
                    start.max_learners,
                    Budget::NOTHING,
                )
            },
            identities: Table::default(),
            claims: Table::default(),
            pods: Table::default(),
            clusters: Table::default(),
            effects: Table::default(),
        }
    }

    /// The words of a world, its budget apart; `words` is emptied first.
    pub fn collapse(&self, world: &World, words: &mut Vec<u32>) {
        let World {
            wanted,
            resource,
            storage: _,
            max_learners: _,
            inputs,
            identity,
            budget_min,
            claims,
            pods,
            clusters,
            pending,
            late,
            next_uid,
            meddles: _,
            rolls: _,
            moves: _,
            owned: _,
            former,
            budget: _,
        } = world;
        words.clear();
        let wanted = wanted | if *former { FORMER } else { 0 } | (*inputs as u8) << INPUTS;
        words.push(u32::from_le_bytes([
            wanted,
            *resource,
            *next_uid,
            budget_min.unwrap_or(NO_BUDGET),
        ]));
        words.push(u32::from_le_bytes(
            [claims.len(), pods.len(), clusters.len(), pending.len()].map(count),
        ));
        words.push(
            identity
                .as_ref()
                .map_or(u32::MAX, |identity| self.identities.number(identity)),
        );
        words.extend(
            claims
                .iter()
                .map(|(serial, claim)| self.claims.number(&(*serial, claim.clone()))),
        );
        words.extend(
            pods.iter()
                .map(|(serial, pod)| self.pods.number(&(*serial, pod.clone()))),
        );
        words.extend(clusters.iter().map(|cluster| self.clusters.number(cluster)));
        words.extend(
            pending
                .iter()
                .chain(late)
                .map(|effect| self.effects.number(effect)),
        );
    }

    /// The world of these words, with no budget.
    pub fn expand(&self, words: &[u32]) -> World {
        let mut world = self.common.clone();
        let [first, second, identity, parts @ ..] = words else {
            return world;
        };
        let [wanted, resource, next_uid, budget_min] = first.to_le_bytes();
        let [claims, pods, clusters, pending] = second.to_le_bytes().map(usize::from);
        (world.wanted, world.former) = (wanted & WANTED, wanted & FORMER != 0);
        world.inputs = INPUTS_BY_NUMBER[usize::from(wanted >> INPUTS & 3)];
        (world.resource, world.next_uid) = (resource, next_uid);
        world.budget_min = (budget_min != NO_BUDGET).then_some(budget_min);
        world.identity = self.identities.thing(*identity);
        let (claims, parts) = parts.split_at(claims);
        let (pods, parts) = parts.split_at(pods);
        let (clusters, parts) = parts.split_at(clusters);
        let (pending, late) = parts.split_at(pending);
        world.claims = self.claims.things(claims).collect();
        world.pods = self.pods.things(pods).collect();
        world.clusters = self.clusters.things(clusters).collect();
        world.pending = self.effects.things(pending).collect();
        world.late = self.effects.things(late).collect();
        world
    }
}

/// Nobody wants so many members: bits that are free.
const FORMER: u8 = 0x80;
const INPUTS: u8 = 4;
const WANTED: u8 = 0x0f;
const INPUTS_BY_NUMBER: [Inputs; 4] = [Inputs::First, Inputs::Second, Inputs::Bad, Inputs::Bad];

/// No disruption budget asks for so many voters.
const NO_BUDGET: u8 = u8::MAX;

fn count(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// What tells these words from all others.
pub fn print(words: &[u32]) -> Print {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        words.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Things, numbered in the order in which they were met.
#[derive(Debug)]
struct Table<T>(RwLock<Numbered<T>>);

#[derive(Debug)]
struct Numbered<T> {
    numbers: HashMap<Arc<T>, u32>,
    things: Vec<Arc<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RwLock::new(Numbered {
            numbers: HashMap::new(),
            things: Vec::new(),
        }))
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn number(&self, thing: &T) -> u32 {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .numbers
            .get(thing)
            .copied();
        known.unwrap_or_else(|| {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let Numbered { numbers, things } = &mut *table;
            let thing = Arc::new(thing.clone());
            // Another thread may have come first.
            *numbers.entry(Arc::clone(&thing)).or_insert_with(|| {
                things.push(thing);
                u32::try_from(things.len() - 1).unwrap_or(u32::MAX)
            })
        })
    }

    fn thing(&self, number: u32) -> Option<T> {
        self.things(&[number]).next()
    }

    fn things(&self, numbers: &[u32]) -> impl Iterator<Item = T> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let things = numbers
            .iter()
            .filter_map(|number| table.things.get(usize::try_from(*number).ok()?));
        let things: Vec<Arc<T>> = things.map(Arc::clone).collect();
        things.into_iter().map(|thing| T::clone(&thing))
    }
}
