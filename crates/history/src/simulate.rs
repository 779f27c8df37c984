//! Histories that are right by construction: a store in memory that takes each operation at one moment between its
//! begin and its end. The checkers' tests need them, and so does measuring the checkers.

use std::collections::BTreeMap;

use crate::history::{
    Answer, By, Call, Client, History, Key, Kind, Lane, Op, Outcome, Snapshot, Time, Value,
    Versioned, Write,
};
use crate::random::Random;

/// What a simulated history looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many operations.
    pub ops: usize,
    /// Over how many clients.
    pub clients: u16,
    /// Over how many keys at a time.
    pub keys: u32,
    /// After how many operations a key gives way to a new one.
    pub ops_per_key: u32,
    /// Of a hundred operations, how many end without an answer.
    pub unknown: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            ops: 2_000,
            clients: 10,
            keys: 8,
            ops_per_key: 200,
            unknown: 3,
        }
    }
}

/// A linearizable history, the same for the same seed.
pub fn history(seed: u64, shape: &Shape) -> History {
    let mut random = Random::new(seed);
    let mut plans = plan(&mut random, shape);
    plans.sort_by_key(|plan| plan.effect);
    let lanes = (0..shape.clients).map(kind).collect();
    let mut history = History {
        lanes,
        ..History::default()
    };
    history.start.revision = 1;
    let mut store = Store {
        revision: 1,
        state: BTreeMap::new(),
        log: Vec::new(),
    };
    for plan in plans {
        let op = run(&mut random, plan, &mut store);
        history.ops.push(op);
    }
    let last = history.ops.iter().map(|op| op.ended.0).max().unwrap_or(0);
    history.log = store.log;
    history.end = Some(Snapshot {
        invoked: Time(last + 1),
        ended: Time(last + 2),
        revision: store.revision,
        state: store.state,
    });
    history
}

fn kind(lane: u16) -> Kind {
    match lane % 5 {
        0 => Kind::Everywhere,
        1 => Kind::Service,
        _ => Kind::Pinned,
    }
}

struct Plan {
    op: Op,
    effect: u64,
    ending: Ending,
}

enum Ending {
    Answered,
    Failed,
    LostReply,
    LostRequest,
}

struct Store {
    revision: i64,
    state: BTreeMap<Key, Versioned>,
    log: Vec<Write>,
}

/// When each operation begins, takes effect and ends; what it is, but for what depends on the store.
fn plan(random: &mut Random, shape: &Shape) -> Vec<Plan> {
    let mut free_at: Vec<u64> = vec![0; usize::from(shape.clients)];
    let mut ids: Vec<u32> = (0..u32::from(shape.clients)).collect();
    let mut fresh = u32::from(shape.clients);
    let mut used: BTreeMap<u32, u32> = BTreeMap::new();
    let mut plans = Vec::with_capacity(shape.ops);
    for number in 0..shape.ops {
        let lane = number % free_at.len().max(1);
        let slot = u32::try_from(random.below(shape.keys.into())).unwrap_or(0);
        let count = used.entry(slot).or_default();
        let key = Key(slot + shape.keys * (*count / shape.ops_per_key.max(1)));
        *count += 1;
        let (Some(free), Some(id)) = (free_at.get_mut(lane), ids.get_mut(lane)) else {
            break;
        };
        let invoked = *free + random.below(1_000);
        let mut effect = invoked + random.below(3_000);
        let ended = effect + random.below(3_000);
        let ending = match random.below(100) {
            dice if dice < shape.unknown => Ending::LostRequest,
            dice if dice < 2 * shape.unknown => Ending::LostReply,
            dice if dice < 3 * shape.unknown => Ending::Failed,
            _ => Ending::Answered,
        };
        if matches!(ending, Ending::LostReply) {
            effect += random.below(20_000);
        }
        let value = Value(number as u64 + 1);
        let call = match random.below(10) {
            0..4 => Call::Put(value),
            4..7 => Call::Cas {
                by: By::Revision,
                expect: None,
                value,
            },
            _ => Call::Read,
        };
        let lane = Lane(u16::try_from(lane).unwrap_or(0));
        let outcome = Outcome::Failed("simulated".into());
        let op = Op {
            client: Client(*id),
            lane,
            key,
            call,
            invoked: Time(invoked),
            ended: Time(ended),
            outcome,
        };
        *free = ended + 1;
        if matches!(ending, Ending::LostReply | Ending::LostRequest) {
            *id = fresh;
            fresh += 1;
        }
        plans.push(Plan { op, effect, ending });
    }
    plans
}

fn run(random: &mut Random, plan: Plan, store: &mut Store) -> Op {
    let Plan { mut op, ending, .. } = plan;
    let now = store.state.get(&op.key).copied();
    if let Call::Cas { by, expect, .. } = &mut op.call {
        // Mostly what is there, sometimes the absent key, sometimes an old belief.
        *expect = match random.below(10) {
            0 => None,
            1 => now.map(|now| (Value(now.value.0.saturating_sub(1)), now.revision - 1)),
            _ => now.map(|now| (now.value, now.revision)),
        };
        *by = if expect.is_some() && random.percent(50) {
            By::Value
        } else {
            By::Revision
        };
    }
    match ending {
        Ending::Failed => {}
        Ending::LostRequest => op.outcome = Outcome::Unknown("simulated".into()),
        Ending::LostReply => {
            store.take(op.key, op.call, random);
            op.outcome = Outcome::Unknown("simulated".into());
        }
        Ending::Answered => op.outcome = Outcome::Ok(store.take(op.key, op.call, random)),
    }
    op
}

impl Store {
    fn take(&mut self, key: Key, call: Call, random: &mut Random) -> Answer {
        // Now and then somebody else writes somewhere else.
        self.revision += i64::from(random.percent(5));
        let now = self.state.get(&key).copied();
        match call {
            Call::Read => Answer::Read(self.revision, now),
            Call::Cas { by, expect, .. } if !matches(by, expect, now) => {
                Answer::Refused(self.revision, now)
            }
            Call::Cas { value, .. } | Call::Put(value) => {
                self.revision += 1;
                let version = now.map_or(0, |now| now.version) + 1;
                let state = Versioned {
                    value,
                    revision: self.revision,
                    version,
                };
                self.state.insert(key, state);
                self.log.push(Write {
                    revision: self.revision,
                    key,
                    value: Some(value),
                    version,
                });
                Answer::Written(self.revision)
            }
        }
    }
}

fn matches(by: By, expect: Option<(Value, i64)>, now: Option<Versioned>) -> bool {
    match (by, expect, now) {
        (_, None, None) => true,
        (By::Revision, Some((_, revision)), Some(now)) => revision == now.revision,
        (By::Value, Some((value, _)), Some(now)) => value == now.value,
        _ => false,
    }
}
