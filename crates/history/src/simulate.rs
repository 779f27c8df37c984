//! Simulated histories that are correct by construction: an in-memory store applies each operation at one moment
//! between its start and its end. Used to test and to measure the checkers.

use std::collections::BTreeMap;

use crate::history::{
    ClientId, ClientKind, CompareBy, History, Key, KeyState, Lane, Operation, OperationOutcome,
    Request, Response, RunTime, Snapshot, Value, WatchedWrite,
};
use crate::random::Random;

/// The parameters of a simulated history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryShape {
    /// The number of operations.
    pub operations: usize,
    /// The number of clients.
    pub clients: u16,
    /// The number of keys in use at a time.
    pub keys: u32,
    /// The number of operations after which a key is replaced by a new one.
    pub operations_per_key: u32,
    /// The percentage of operations without a response.
    pub unknown_percent: u64,
}

impl Default for HistoryShape {
    fn default() -> Self {
        Self {
            operations: 2_000,
            clients: 10,
            keys: 8,
            operations_per_key: 200,
            unknown_percent: 3,
        }
    }
}

/// Returns a linearizable history, the same for the same seed.
pub fn history(seed: u64, shape: &HistoryShape) -> History {
    let mut random = Random::new(seed);
    let mut plans = plan_operations(&mut random, shape);
    plans.sort_by_key(|plan| plan.effect);
    let lanes = (0..shape.clients).map(client_kind).collect();
    let mut history = History {
        lanes,
        ..History::default()
    };
    history.start.revision = 1;
    let mut store = SimulatedStore {
        revision: 1,
        state: BTreeMap::new(),
        log: Vec::new(),
    };
    for plan in plans {
        let op = execute(&mut random, plan, &mut store);
        history.operations.push(op);
    }
    let last = history
        .operations
        .iter()
        .map(|op| op.ended.0)
        .max()
        .unwrap_or(0);
    history.writes = store.log;
    history.end = Some(Snapshot {
        invoked: RunTime(last + 1),
        ended: RunTime(last + 2),
        revision: store.revision,
        state: store.state,
    });
    history
}

fn client_kind(lane: u16) -> ClientKind {
    match lane % 5 {
        0 => ClientKind::AllMembers,
        1 => ClientKind::Service,
        _ => ClientKind::Pinned,
    }
}

struct PlannedOperation {
    op: Operation,
    effect: u64,
    ending: PlannedOutcome,
}

enum PlannedOutcome {
    Answered,
    Failed,
    LostReply,
    LostRequest,
}

struct SimulatedStore {
    revision: i64,
    state: BTreeMap<Key, KeyState>,
    log: Vec<WatchedWrite>,
}

/// Plans when each operation starts, takes effect and ends, and its request except for the parts that depend on the
/// store.
fn plan_operations(random: &mut Random, shape: &HistoryShape) -> Vec<PlannedOperation> {
    let mut free_at: Vec<u64> = vec![0; usize::from(shape.clients)];
    let mut ids: Vec<u32> = (0..u32::from(shape.clients)).collect();
    let mut fresh = u32::from(shape.clients);
    let mut used: BTreeMap<u32, u32> = BTreeMap::new();
    let mut plans = Vec::with_capacity(shape.operations);
    for number in 0..shape.operations {
        let lane = number % free_at.len().max(1);
        let slot = u32::try_from(random.below(shape.keys.into())).unwrap_or(0);
        let count = used.entry(slot).or_default();
        let key = Key(slot + shape.keys * (*count / shape.operations_per_key.max(1)));
        *count += 1;
        let (Some(free), Some(id)) = (free_at.get_mut(lane), ids.get_mut(lane)) else {
            break;
        };
        let invoked = *free + random.below(1_000);
        let mut effect = invoked + random.below(3_000);
        let ended = effect + random.below(3_000);
        let ending = match random.below(100) {
            dice if dice < shape.unknown_percent => PlannedOutcome::LostRequest,
            dice if dice < 2 * shape.unknown_percent => PlannedOutcome::LostReply,
            dice if dice < 3 * shape.unknown_percent => PlannedOutcome::Failed,
            _ => PlannedOutcome::Answered,
        };
        if matches!(ending, PlannedOutcome::LostReply) {
            effect += random.below(20_000);
        }
        let value = Value(number as u64 + 1);
        let request = match random.below(10) {
            0..4 => Request::Put(value),
            4..7 => Request::CompareAndSwap {
                by: CompareBy::Revision,
                expect: None,
                value,
            },
            _ => Request::Read,
        };
        let lane = Lane(u16::try_from(lane).unwrap_or(0));
        let outcome = OperationOutcome::Failed("simulated".into());
        let op = Operation {
            client: ClientId(*id),
            lane,
            key,
            request,
            invoked: RunTime(invoked),
            ended: RunTime(ended),
            outcome,
        };
        *free = ended + 1;
        if matches!(
            ending,
            PlannedOutcome::LostReply | PlannedOutcome::LostRequest
        ) {
            *id = fresh;
            fresh += 1;
        }
        plans.push(PlannedOperation { op, effect, ending });
    }
    plans
}

fn execute(random: &mut Random, plan: PlannedOperation, store: &mut SimulatedStore) -> Operation {
    let PlannedOperation { mut op, ending, .. } = plan;
    let now = store.state.get(&op.key).copied();
    if let Request::CompareAndSwap { by, expect, .. } = &mut op.request {
        // Mostly the current state, sometimes a missing key, sometimes an outdated state.
        *expect = match random.below(10) {
            0 => None,
            1 => now.map(|now| (Value(now.value.0.saturating_sub(1)), now.revision - 1)),
            _ => now.map(|now| (now.value, now.revision)),
        };
        *by = if expect.is_some() && random.percent(50) {
            CompareBy::Value
        } else {
            CompareBy::Revision
        };
    }
    match ending {
        PlannedOutcome::Failed => {}
        PlannedOutcome::LostRequest => op.outcome = OperationOutcome::Unknown("simulated".into()),
        PlannedOutcome::LostReply => {
            store.execute(op.key, op.request, random);
            op.outcome = OperationOutcome::Unknown("simulated".into());
        }
        PlannedOutcome::Answered => {
            op.outcome = OperationOutcome::Ok(store.execute(op.key, op.request, random))
        }
    }
    op
}

impl SimulatedStore {
    fn execute(&mut self, key: Key, request: Request, random: &mut Random) -> Response {
        // Sometimes another client writes elsewhere in the store.
        self.revision += i64::from(random.percent(5));
        let now = self.state.get(&key).copied();
        match request {
            Request::Read => Response::Read(self.revision, now),
            Request::CompareAndSwap { by, expect, .. } if !matches_expectation(by, expect, now) => {
                Response::Mismatch(self.revision, now)
            }
            Request::CompareAndSwap { value, .. } | Request::Put(value) => {
                self.revision += 1;
                let version = now.map_or(0, |now| now.version) + 1;
                let state = KeyState {
                    value,
                    revision: self.revision,
                    version,
                };
                self.state.insert(key, state);
                self.log.push(WatchedWrite {
                    revision: self.revision,
                    key,
                    value: Some(value),
                    version,
                });
                Response::Written(self.revision)
            }
        }
    }
}

fn matches_expectation(by: CompareBy, expect: Option<(Value, i64)>, now: Option<KeyState>) -> bool {
    match (by, expect, now) {
        (_, None, None) => true,
        (CompareBy::Revision, Some((_, revision)), Some(now)) => revision == now.revision,
        (CompareBy::Value, Some((value, _)), Some(now)) => value == now.value,
        _ => false,
    }
}
