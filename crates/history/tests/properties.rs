//! Property tests of the checkers: correct histories pass, tampered ones do not, and the general checker agrees with
//! an exhaustive search.

use std::collections::BTreeMap;

use evenkeel_history::check::{self, general, ordered};
use evenkeel_history::simulate::{self, HistoryShape};
use evenkeel_history::{
    ClientId, CompareBy, History, Key, KeyState, Lane, Operation, OperationOutcome, Request,
    Response, RunTime, Snapshot, Value, WatchedWrite,
};
use proptest::prelude::*;

fn shape() -> impl Strategy<Value = HistoryShape> {
    (60..400usize, 1..16u16, 1..6u32, 0..12u64).prop_map(|(ops, clients, keys, unknown)| {
        HistoryShape {
            operations: ops,
            clients,
            keys,
            operations_per_key: 90,
            unknown_percent: unknown,
        }
    })
}

/// Ways to tamper with a history that the revision-ordered checker must detect.
#[derive(Clone, Copy, Debug)]
enum Tamper {
    DropWrite,
    RepeatWrite,
    ForeignWrite,
    OtherValueRead,
    NothingRead,
    OtherRevisionAcknowledged,
    MismatchThoughWritten,
    WrittenThoughMismatch,
    FailedThoughWritten,
    EndWithoutKey,
    EndAtOtherValue,
}

fn tampers() -> impl Strategy<Value = Tamper> {
    use Tamper::*;
    prop::sample::select(vec![
        DropWrite,
        RepeatWrite,
        ForeignWrite,
        OtherValueRead,
        NothingRead,
        OtherRevisionAcknowledged,
        MismatchThoughWritten,
        WrittenThoughMismatch,
        FailedThoughWritten,
        EndWithoutKey,
        EndAtOtherValue,
    ])
}

/// Changes the outcome of one of the matching operations.
fn change(
    history: &mut History,
    pick: usize,
    fits: fn(&Operation) -> bool,
    to: impl FnOnce(&Operation) -> OperationOutcome,
) -> Option<()> {
    let count = history.operations.iter().filter(|op| fits(op)).count();
    let op = history
        .operations
        .iter_mut()
        .filter(|op| fits(op))
        .nth(pick.checked_rem(count)?)?;
    op.outcome = to(op);
    Some(())
}

fn tamper(history: &mut History, tamper: Tamper, pick: usize) -> Option<()> {
    let is_write = |op: &Operation| op.acknowledged_revision().is_some();
    let saw = |op: &Operation| matches!(op.response(), Some(Response::Read(_, Some(_))));
    let refused = |op: &Operation| matches!(op.response(), Some(Response::Mismatch(..)));
    match tamper {
        Tamper::DropWrite => {
            let at = pick.checked_rem(history.writes.len())?;
            history.writes.remove(at);
        }
        Tamper::RepeatWrite => {
            let at = pick.checked_rem(history.writes.len())?;
            let write = *history.writes.get(at)?;
            history.writes.insert(at, write);
        }
        Tamper::ForeignWrite => {
            let at = pick.checked_rem(history.writes.len())?;
            history.writes.get_mut(at)?.value = Some(Value::FOREIGN);
        }
        Tamper::OtherValueRead => {
            change(history, pick, saw, |op| match op.response() {
                Some(Response::Read(revision, Some(observed))) => {
                    let value = Value(observed.value.0 + 1);
                    OperationOutcome::Ok(Response::Read(
                        *revision,
                        Some(KeyState { value, ..*observed }),
                    ))
                }
                _ => op.outcome.clone(),
            })?;
        }
        Tamper::NothingRead => change(history, pick, saw, |op| {
            OperationOutcome::Ok(Response::Read(
                op.response().map_or(0, Response::revision),
                None,
            ))
        })?,
        Tamper::OtherRevisionAcknowledged => {
            change(history, pick, is_write, |op| {
                OperationOutcome::Ok(Response::Written(
                    op.acknowledged_revision().unwrap_or(0) + 1,
                ))
            })?;
        }
        Tamper::MismatchThoughWritten => change(history, pick, is_write, |op| {
            OperationOutcome::Ok(Response::Mismatch(
                op.acknowledged_revision().unwrap_or(0),
                None,
            ))
        })?,
        Tamper::WrittenThoughMismatch => change(history, pick, refused, |op| {
            OperationOutcome::Ok(Response::Written(
                op.response().map_or(0, Response::revision),
            ))
        })?,
        Tamper::FailedThoughWritten => {
            change(history, pick, is_write, |_| {
                OperationOutcome::Failed("tampered".into())
            })?;
        }
        Tamper::EndWithoutKey => {
            history.end.as_mut()?.state.pop_first()?;
        }
        Tamper::EndAtOtherValue => {
            let mut last = history.end.as_mut()?.state.last_entry()?;
            last.get_mut().value.0 += 1_000_000;
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_linearizable_history_of_any_shape_passes(seed: u64, shape in shape()) {
        let result = check::check(&simulate::history(seed, &shape));
        prop_assert!(result.is_ok(), "{result}");
    }

    #[test]
    fn a_single_change_is_detected(seed: u64, shape in shape(), kind in tampers(), pick: usize) {
        let mut history = simulate::history(seed, &shape);
        prop_assume!(tamper(&mut history, kind, pick).is_some());
        prop_assert!(ordered::check(&history).count() > 0);
    }

    #[test]
    fn an_invented_final_value_is_detected_without_revisions(seed: u64, shape in shape(), pick: usize) {
        let mut history = simulate::history(seed, &shape);
        prop_assume!(tamper(&mut history, Tamper::EndAtOtherValue, pick).is_some());
        prop_assert!(general::check(&history).1.count() > 0);
    }

    #[test]
    fn every_forgery_is_detected_in_a_long_history(seed: u64) {
        let history = simulate::history(seed, &HistoryShape { operations: 1_500, ..HistoryShape::default() });
        let proof = check::check_and_prove(&history);
        prop_assert!(proof.is_ok(), "{}", proof.err().map(|error| error.to_string()).unwrap_or_default());
    }
}

/// Returns a few operations on one key with arbitrary responses, most of them impossible.
fn any_history() -> impl Strategy<Value = History> {
    let op = (0..4u8, 0..20u64, 0..8u64, 0..7u64, 0..7u64);
    (prop::collection::vec(op, 1..7), 0..7u64).prop_map(|(raw, end)| {
        let versioned = |n: u64| {
            (n > 0).then_some(KeyState {
                value: Value(n),
                revision: 0,
                version: 0,
            })
        };
        let ops = (0..).zip(raw).map(|(n, (what, from, length, a, b))| {
            let value = Value(u64::from(n) + 1);
            let expect = versioned(a).map(|state| (state.value, 0));
            let swap = Request::CompareAndSwap {
                by: CompareBy::Value,
                expect,
                value,
            };
            let unknown = || OperationOutcome::Unknown("not known".into());
            let (request, outcome) = match (what, b) {
                (0, 0) => (Request::Put(value), unknown()),
                (0, _) => (
                    Request::Put(value),
                    OperationOutcome::Ok(Response::Written(0)),
                ),
                (1, 0) => (swap, unknown()),
                (1, 1..4) => (swap, OperationOutcome::Ok(Response::Written(0))),
                (1, _) => (
                    swap,
                    OperationOutcome::Ok(Response::Mismatch(0, versioned(b))),
                ),
                _ => (
                    Request::Read,
                    OperationOutcome::Ok(Response::Read(0, versioned(b))),
                ),
            };
            let (invoked, ended) = (RunTime(from), RunTime(from + length));
            Operation {
                client: ClientId(n),
                lane: Lane(0),
                key: Key(0),
                request,
                invoked,
                ended,
                outcome,
            }
        });
        let state: BTreeMap<Key, KeyState> = versioned(end)
            .map(|state| (Key(0), state))
            .into_iter()
            .collect();
        let end = Snapshot {
            invoked: RunTime(100),
            ended: RunTime(101),
            revision: 0,
            state,
        };
        History {
            operations: ops.collect(),
            writes: Vec::<WatchedWrite>::new(),
            end: Some(end),
            ..History::default()
        }
    })
}

/// Tries every order of the operations.
fn explained(open: &[&Operation], state: Option<Value>, end: Option<Value>) -> bool {
    let answered = |op: &&&Operation| op.response().is_some();
    if open.iter().filter(answered).count() == 0 && state == end {
        return true;
    }
    open.iter().enumerate().any(|(index, op)| {
        if open
            .iter()
            .filter(answered)
            .any(|other| other.ended < op.invoked)
        {
            return false;
        }
        let expected = |expect: Option<(Value, i64)>| expect.map(|(value, _)| value) == state;
        let after = match (&op.outcome, op.request) {
            (OperationOutcome::Ok(Response::Read(_, observed)), _)
                if observed.map(|observed| observed.value) == state =>
            {
                state
            }
            (
                OperationOutcome::Ok(Response::Mismatch(_, observed)),
                Request::CompareAndSwap { expect, .. },
            ) if observed.map(|observed| observed.value) == state && !expected(expect) => state,
            (
                OperationOutcome::Ok(Response::Written(_)) | OperationOutcome::Unknown(_),
                Request::Put(value),
            ) => Some(value),
            (
                OperationOutcome::Ok(Response::Written(_)) | OperationOutcome::Unknown(_),
                Request::CompareAndSwap { expect, value, .. },
            ) if expected(expect) => Some(value),
            _ => return false,
        };
        let rest: Vec<&Operation> = open
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != index)
            .map(|(_, op)| *op)
            .collect();
        explained(&rest, after, end)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_general_checker_agrees_with_an_exhaustive_search(history in any_history()) {
        let ops: Vec<&Operation> = history.operations.iter().collect();
        let end = history.end.as_ref().and_then(|end| end.state.get(&Key(0))).map(|state| state.value);
        let found = general::check_key(&history, Key(0));
        prop_assert_eq!(found.count() == 0, explained(&ops, None, end), "{:?}", found.listed());
    }
}
