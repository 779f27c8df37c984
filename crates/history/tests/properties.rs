//! The checkers against thousands of histories: those that are right pass, those that are tampered with do not, and
//! the general checker agrees with trying everything.

use std::collections::BTreeMap;

use evenkeel_history::check::{self, general, ordered};
use evenkeel_history::simulate::{self, Shape};
use evenkeel_history::{
    Answer, By, Call, Client, History, Key, Lane, Op, Outcome, Snapshot, Time, Value, Versioned,
    Write,
};
use proptest::prelude::*;

fn shape() -> impl Strategy<Value = Shape> {
    (60..400usize, 1..16u16, 1..6u32, 0..12u64).prop_map(|(ops, clients, keys, unknown)| Shape {
        ops,
        clients,
        keys,
        ops_per_key: 90,
        unknown,
    })
}

/// Ways to tamper with a history that must be noticed by the revisions.
#[derive(Clone, Copy, Debug)]
enum Tamper {
    DropWrite,
    RepeatWrite,
    ForeignWrite,
    OtherValueRead,
    NothingRead,
    OtherRevisionAcknowledged,
    RefusedThoughWritten,
    WrittenThoughRefused,
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
        RefusedThoughWritten,
        WrittenThoughRefused,
        FailedThoughWritten,
        EndWithoutKey,
        EndAtOtherValue,
    ])
}

/// The chosen one of those operations that fit, changed.
fn change(
    history: &mut History,
    pick: usize,
    fits: fn(&Op) -> bool,
    to: impl FnOnce(&Op) -> Outcome,
) -> Option<()> {
    let count = history.ops.iter().filter(|op| fits(op)).count();
    let op = history
        .ops
        .iter_mut()
        .filter(|op| fits(op))
        .nth(pick.checked_rem(count)?)?;
    op.outcome = to(op);
    Some(())
}

fn tamper(history: &mut History, tamper: Tamper, pick: usize) -> Option<()> {
    let is_write = |op: &Op| op.written().is_some();
    let saw = |op: &Op| matches!(op.answer(), Some(Answer::Read(_, Some(_))));
    let refused = |op: &Op| matches!(op.answer(), Some(Answer::Refused(..)));
    match tamper {
        Tamper::DropWrite => {
            let at = pick.checked_rem(history.log.len())?;
            history.log.remove(at);
        }
        Tamper::RepeatWrite => {
            let at = pick.checked_rem(history.log.len())?;
            let write = *history.log.get(at)?;
            history.log.insert(at, write);
        }
        Tamper::ForeignWrite => {
            let at = pick.checked_rem(history.log.len())?;
            history.log.get_mut(at)?.value = Some(Value::FOREIGN);
        }
        Tamper::OtherValueRead => {
            change(history, pick, saw, |op| match op.answer() {
                Some(Answer::Read(revision, Some(seen))) => {
                    let value = Value(seen.value.0 + 1);
                    Outcome::Ok(Answer::Read(*revision, Some(Versioned { value, ..*seen })))
                }
                _ => op.outcome.clone(),
            })?;
        }
        Tamper::NothingRead => change(history, pick, saw, |op| {
            Outcome::Ok(Answer::Read(op.answer().map_or(0, Answer::revision), None))
        })?,
        Tamper::OtherRevisionAcknowledged => {
            change(history, pick, is_write, |op| {
                Outcome::Ok(Answer::Written(op.written().unwrap_or(0) + 1))
            })?;
        }
        Tamper::RefusedThoughWritten => change(history, pick, is_write, |op| {
            Outcome::Ok(Answer::Refused(op.written().unwrap_or(0), None))
        })?,
        Tamper::WrittenThoughRefused => change(history, pick, refused, |op| {
            Outcome::Ok(Answer::Written(op.answer().map_or(0, Answer::revision)))
        })?,
        Tamper::FailedThoughWritten => {
            change(history, pick, is_write, |_| {
                Outcome::Failed("told so".into())
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
    fn a_linearizable_history_passes_whatever_its_shape(seed: u64, shape in shape()) {
        let verdict = check::check(&simulate::history(seed, &shape));
        prop_assert!(verdict.is_ok(), "{verdict}");
    }

    #[test]
    fn a_single_change_is_noticed(seed: u64, shape in shape(), kind in tampers(), pick: usize) {
        let mut history = simulate::history(seed, &shape);
        prop_assume!(tamper(&mut history, kind, pick).is_some());
        prop_assert!(ordered::check(&history).count() > 0);
    }

    #[test]
    fn a_value_at_the_end_that_nobody_wrote_is_noticed_without_the_revisions(seed: u64, shape in shape(), pick: usize) {
        let mut history = simulate::history(seed, &shape);
        prop_assume!(tamper(&mut history, Tamper::EndAtOtherValue, pick).is_some());
        prop_assert!(general::check(&history).1.count() > 0);
    }

    #[test]
    fn every_forgery_is_found_in_a_history_of_some_length(seed: u64) {
        let history = simulate::history(seed, &Shape { ops: 1_500, ..Shape::default() });
        let proof = check::check_and_prove(&history);
        prop_assert!(proof.is_ok(), "{}", proof.err().map(|error| error.to_string()).unwrap_or_default());
    }
}

/// A few operations on one key with any answers at all, most of them impossible.
fn any_history() -> impl Strategy<Value = History> {
    let op = (0..4u8, 0..20u64, 0..8u64, 0..7u64, 0..7u64);
    (prop::collection::vec(op, 1..7), 0..7u64).prop_map(|(raw, end)| {
        let versioned = |n: u64| {
            (n > 0).then_some(Versioned {
                value: Value(n),
                revision: 0,
                version: 0,
            })
        };
        let ops = (0..).zip(raw).map(|(n, (what, from, length, a, b))| {
            let value = Value(u64::from(n) + 1);
            let expect = versioned(a).map(|state| (state.value, 0));
            let swap = Call::Cas {
                by: By::Value,
                expect,
                value,
            };
            let unknown = || Outcome::Unknown("not known".into());
            let (call, outcome) = match (what, b) {
                (0, 0) => (Call::Put(value), unknown()),
                (0, _) => (Call::Put(value), Outcome::Ok(Answer::Written(0))),
                (1, 0) => (swap, unknown()),
                (1, 1..4) => (swap, Outcome::Ok(Answer::Written(0))),
                (1, _) => (swap, Outcome::Ok(Answer::Refused(0, versioned(b)))),
                _ => (Call::Read, Outcome::Ok(Answer::Read(0, versioned(b)))),
            };
            let (invoked, ended) = (Time(from), Time(from + length));
            Op {
                client: Client(n),
                lane: Lane(0),
                key: Key(0),
                call,
                invoked,
                ended,
                outcome,
            }
        });
        let state: BTreeMap<Key, Versioned> = versioned(end)
            .map(|state| (Key(0), state))
            .into_iter()
            .collect();
        let end = Snapshot {
            invoked: Time(100),
            ended: Time(101),
            revision: 0,
            state,
        };
        History {
            ops: ops.collect(),
            log: Vec::<Write>::new(),
            end: Some(end),
            ..History::default()
        }
    })
}

/// Tries every order.
fn explained(open: &[&Op], state: Option<Value>, end: Option<Value>) -> bool {
    let answered = |op: &&&Op| op.answer().is_some();
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
        let after = match (&op.outcome, op.call) {
            (Outcome::Ok(Answer::Read(_, seen)), _) if seen.map(|seen| seen.value) == state => {
                state
            }
            (Outcome::Ok(Answer::Refused(_, seen)), Call::Cas { expect, .. })
                if seen.map(|seen| seen.value) == state && !expected(expect) =>
            {
                state
            }
            (Outcome::Ok(Answer::Written(_)) | Outcome::Unknown(_), Call::Put(value)) => {
                Some(value)
            }
            (
                Outcome::Ok(Answer::Written(_)) | Outcome::Unknown(_),
                Call::Cas { expect, value, .. },
            ) if expected(expect) => Some(value),
            _ => return false,
        };
        let rest: Vec<&Op> = open
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
    fn the_general_checker_agrees_with_trying_every_order(history in any_history()) {
        let ops: Vec<&Op> = history.ops.iter().collect();
        let end = history.end.as_ref().and_then(|end| end.state.get(&Key(0))).map(|state| state.value);
        let found = general::check_key(&history, Key(0));
        prop_assert_eq!(found.count() == 0, explained(&ops, None, end), "{:?}", found.listed());
    }
}
