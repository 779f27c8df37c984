//! Small histories made by hand, each with one thing to say.

use std::collections::BTreeMap;

use evenkeel_history::check::{self, Fault, NotProven};
use evenkeel_history::simulate::{self, Shape};
use evenkeel_history::{
    Answer, By, Call, Client, History, Key, Kind, Lane, Op, Outcome, Snapshot, Time, Value,
    Versioned, Write,
};

const KEY: Key = Key(0);

/// An operation of its own client, from one millisecond to another.
fn op(client: u32, from: u64, to: u64, call: Call, outcome: Outcome) -> Op {
    let at = |ms: u64| Time(ms * 1_000_000);
    Op {
        client: Client(client),
        lane: Lane(0),
        key: KEY,
        call,
        invoked: at(from),
        ended: at(to),
        outcome,
    }
}

fn put(client: u32, from: u64, to: u64, value: u64, revision: i64) -> Op {
    op(
        client,
        from,
        to,
        Call::Put(Value(value)),
        Outcome::Ok(Answer::Written(revision)),
    )
}

fn lost_reply(client: u32, from: u64, to: u64, value: u64) -> Op {
    op(
        client,
        from,
        to,
        Call::Put(Value(value)),
        Outcome::Unknown("no answer in time".into()),
    )
}

fn read(client: u32, from: u64, to: u64, at: i64, seen: Option<Versioned>) -> Op {
    op(
        client,
        from,
        to,
        Call::Read,
        Outcome::Ok(Answer::Read(at, seen)),
    )
}

fn swap(
    client: u32,
    from: u64,
    to: u64,
    expect: Option<(u64, i64)>,
    value: u64,
    answer: Answer,
) -> Op {
    let expect = expect.map(|(value, revision)| (Value(value), revision));
    let by = if expect.is_some() {
        By::Value
    } else {
        By::Revision
    };
    op(
        client,
        from,
        to,
        Call::Cas {
            by,
            expect,
            value: Value(value),
        },
        Outcome::Ok(answer),
    )
}

fn state(value: u64, revision: i64, version: i64) -> Option<Versioned> {
    Some(Versioned {
        value: Value(value),
        revision,
        version,
    })
}

/// A history of one key whose writes happened in this order, from revision 2 on.
fn history(ops: Vec<Op>, order: &[u64]) -> History {
    let log: Vec<Write> = (1..)
        .zip(order)
        .map(|(n, value)| Write {
            revision: n + 1,
            key: KEY,
            value: Some(Value(*value)),
            version: n,
        })
        .collect();
    let end = log.last().and_then(Write::state);
    let state = end.map(|state| (KEY, state)).into_iter().collect();
    let end = Snapshot {
        invoked: Time(u64::MAX - 1),
        ended: Time(u64::MAX),
        revision: 1 + log.len() as i64,
        state,
    };
    let start = Snapshot {
        revision: 1,
        ..Snapshot::default()
    };
    History {
        lanes: vec![Kind::Pinned],
        start,
        ops,
        log,
        end: Some(end),
    }
}

fn faults(history: &History) -> Vec<Fault> {
    let mut faults: Vec<Fault> = check::check(history)
        .violations
        .listed()
        .iter()
        .map(|violation| violation.fault)
        .collect();
    faults.sort_unstable();
    faults.dedup();
    faults
}

#[test]
fn a_plain_history_passes() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        read(1, 20, 30, 2, state(7, 2, 1)),
        swap(2, 40, 50, Some((7, 2)), 8, Answer::Written(3)),
        swap(1, 60, 70, None, 9, Answer::Refused(3, state(8, 3, 2))),
    ];
    let history = history(ops, &[7, 8]);
    assert_eq!(faults(&history), []);
    assert!(check::check(&history).to_string().contains("nothing lost"));
}

#[test]
fn an_acknowledged_write_that_is_nowhere_is_lost() {
    let ops = vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)];
    let verdict = check::check(&history(ops, &[7]));
    assert!(
        verdict.violations.has(Fault::Lost) && verdict.violations.has(Fault::NotLinearizable),
        "{verdict}"
    );
    let text = verdict.to_string();
    assert!(
        text.contains("put value 8 to key 0") && text.contains("0.020000 s"),
        "{text}"
    );
}

#[test]
fn a_value_that_nobody_wrote_is_invented() {
    let faults = faults(&history(vec![put(1, 0, 10, 7, 2)], &[7, 99]));
    assert_eq!(faults, [Fault::Invented, Fault::NotLinearizable]);
}

#[test]
fn a_write_without_a_reply_may_be_there_or_not_but_once_only() {
    let ops = || vec![put(1, 0, 10, 7, 2), lost_reply(2, 20, 30, 8)];
    assert_eq!(faults(&history(ops(), &[7])), []);
    assert_eq!(faults(&history(ops(), &[7, 8])), []);
    assert_eq!(faults(&history(ops(), &[7, 8, 8])), [Fault::Misreported]);
}

#[test]
fn a_write_without_a_reply_may_come_late_but_never_early() {
    let late = vec![lost_reply(2, 0, 5, 8), put(1, 20, 30, 7, 2)];
    assert_eq!(faults(&history(late, &[7, 8])), []);
    let early = vec![put(1, 0, 10, 7, 3), lost_reply(2, 20, 30, 8)];
    assert_eq!(faults(&history(early, &[8, 7])), [Fault::OutOfOrder]);
}

#[test]
fn a_write_that_certainly_failed_may_not_be_there() {
    let failed = op(
        2,
        20,
        30,
        Call::Put(Value(8)),
        Outcome::Failed("etcdserver: no leader".into()),
    );
    let faults = faults(&history(vec![put(1, 0, 10, 7, 2), failed], &[7, 8]));
    assert_eq!(faults, [Fault::Misreported, Fault::NotLinearizable]);
}

#[test]
fn a_read_of_what_was_overwritten_before_it_began_is_stale() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        put(1, 20, 30, 8, 3),
        read(2, 40, 50, 2, state(7, 2, 1)),
    ];
    assert_eq!(
        faults(&history(ops, &[7, 8])),
        [Fault::OutOfOrder, Fault::NotLinearizable]
    );
}

#[test]
fn a_read_beside_a_write_may_see_either() {
    for (at, seen) in [(2, state(7, 2, 1)), (3, state(8, 3, 2))] {
        let ops = vec![
            put(1, 0, 10, 7, 2),
            put(1, 20, 60, 8, 3),
            read(2, 40, 50, at, seen),
        ];
        assert_eq!(faults(&history(ops, &[7, 8])), []);
    }
}

#[test]
fn two_reads_in_a_row_may_not_go_back_in_time() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        put(1, 20, 90, 8, 3),
        read(2, 30, 40, 3, state(8, 3, 2)),
        read(3, 50, 60, 2, state(7, 2, 1)),
    ];
    assert_eq!(
        faults(&history(ops, &[7, 8])),
        [Fault::OutOfOrder, Fault::NotLinearizable]
    );
}

#[test]
fn a_swap_over_another_value_than_expected_is_wrong() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        swap(2, 20, 30, Some((6, 1)), 8, Answer::Written(3)),
    ];
    assert_eq!(
        faults(&history(ops, &[7, 8])),
        [Fault::WrongSwap, Fault::NotLinearizable]
    );
}

#[test]
fn a_swap_refused_although_all_was_as_expected_is_wrong() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        swap(
            2,
            20,
            30,
            Some((7, 2)),
            8,
            Answer::Refused(2, state(7, 2, 1)),
        ),
    ];
    assert_eq!(
        faults(&history(ops, &[7])),
        [Fault::WrongSwap, Fault::NotLinearizable]
    );
}

#[test]
fn what_an_unanswered_swap_must_have_replaced_counts_as_seen() {
    // Neither the put nor the swap was answered; a read shows the swap's value, so both happened.
    let mut swapped = swap(2, 20, 30, Some((7, 2)), 8, Answer::Written(3));
    swapped.outcome = Outcome::Unknown("no answer in time".into());
    let ops = vec![
        lost_reply(1, 0, 10, 7),
        swapped,
        read(3, 40, 50, 3, state(8, 3, 2)),
    ];
    assert_eq!(faults(&history(ops, &[7, 8])), []);
}

#[test]
fn an_end_that_is_not_the_sum_of_the_writes_is_wrong() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    history.end.as_mut().unwrap().state = BTreeMap::from([(KEY, state(7, 2, 1).unwrap())]);
    assert_eq!(faults(&history), [Fault::WrongEnd, Fault::NotLinearizable]);
}

#[test]
fn a_history_without_its_end_does_not_pass() {
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.end = None;
    assert_eq!(faults(&history), [Fault::Malformed]);
}

#[test]
fn a_client_that_goes_on_after_it_did_not_know_is_a_fault_of_the_recording() {
    let ops = vec![lost_reply(1, 0, 10, 7), put(1, 20, 30, 8, 2)];
    assert_eq!(faults(&history(ops, &[8])), [Fault::Malformed]);
}

#[test]
fn a_deletion_that_nobody_asked_for_is_found() {
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.log.push(Write {
        revision: 3,
        key: KEY,
        value: None,
        version: 0,
    });
    let end = history.end.as_mut().unwrap();
    end.revision = 3;
    end.state.clear();
    assert_eq!(faults(&history), [Fault::Invented, Fault::NotLinearizable]);
}

#[test]
fn a_key_with_too_many_operations_is_said_to_be_undecided() {
    let shape = Shape {
        ops: 1_500,
        keys: 1,
        ops_per_key: 10_000,
        ..Shape::default()
    };
    assert_eq!(faults(&simulate::history(1, &shape)), [Fault::Undecided]);
}

#[test]
fn a_restore_brings_back_exactly_what_was_there_at_the_snapshot() {
    let before = simulate::history(3, &Shape::default());
    let at = before.log.get(before.log.len() / 2).unwrap().revision;
    let mut after = History::default();
    after.start.state = before.prefix(at);
    assert_eq!(check::check_restore(&before, at, &after).count(), 0);

    after.start.state = before.prefix(at - 1);
    assert!(check::check_restore(&before, at, &after).has(Fault::Lost));
    after.start.state = before.prefix(at);
    after
        .start
        .state
        .insert(Key(77_777), state(1, 1, 1).unwrap());
    assert!(check::check_restore(&before, at, &after).has(Fault::Invented));
}

#[test]
fn a_history_too_small_to_forge_anything_into_proves_nothing() {
    let error = check::check_and_prove(&history(vec![put(1, 0, 10, 7, 2)], &[7])).unwrap_err();
    assert!(
        matches!(error, NotProven::TooSmall("a lost write", 1)),
        "{error}"
    );
}

#[test]
fn a_broken_history_proves_nothing() {
    let error = check::check_and_prove(&history(vec![put(1, 0, 10, 7, 2)], &[])).unwrap_err();
    assert!(matches!(error, NotProven::Violated(_)), "{error}");
}

#[test]
fn a_client_that_does_two_things_at_once_is_a_fault_of_the_recording() {
    let ops = vec![put(1, 0, 20, 7, 2), put(1, 10, 30, 8, 3)];
    assert_eq!(faults(&history(ops, &[7, 8])), [Fault::Malformed]);
}

#[test]
fn an_operation_that_ends_before_it_begins_is_a_fault_of_the_recording() {
    let ops = vec![put(1, 20, 10, 7, 2)];
    assert!(faults(&history(ops, &[7])).contains(&Fault::Malformed));
}

#[test]
fn a_watch_that_repeats_a_revision_is_a_fault_of_the_recording() {
    let mut history = history(vec![put(1, 0, 20, 7, 2), lost_reply(2, 0, 20, 8)], &[7, 8]);
    history.log.last_mut().unwrap().revision = 2;
    assert!(faults(&history).contains(&Fault::Malformed));
}

#[test]
fn a_version_left_out_betrays_a_write_that_the_watch_did_not_show() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    history.log.last_mut().unwrap().version = 3;
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(8, 3, 3).unwrap());
    assert_eq!(faults(&history), [Fault::Lost]);
}

#[test]
fn a_write_that_went_to_another_key_is_found() {
    let other = Key(5);
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.log.first_mut().unwrap().key = other;
    history.end.as_mut().unwrap().state = BTreeMap::from([(other, state(7, 2, 1).unwrap())]);
    assert_eq!(faults(&history), [Fault::Invented, Fault::NotLinearizable]);
}

#[test]
fn a_write_may_not_have_the_revision_that_somebody_had_already_read() {
    // The read saw the store at revision 2, of another key as it were, before the write of revision 2 began.
    let mut early = read(1, 0, 10, 2, None);
    early.key = Key(5);
    assert_eq!(
        faults(&history(vec![early, put(2, 20, 30, 7, 2)], &[7])),
        [Fault::OutOfOrder]
    );
}

#[test]
fn what_ends_when_something_else_begins_may_have_been_beside_it() {
    let ops = vec![put(1, 0, 10, 7, 3), put(2, 10, 20, 8, 2)];
    assert_eq!(faults(&history(ops, &[8, 7])), []);
}

#[test]
fn a_last_read_that_is_older_than_an_acknowledged_write_is_stale() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    let end = history.end.as_mut().unwrap();
    end.revision = 2;
    end.state.insert(KEY, state(7, 2, 1).unwrap());
    assert_eq!(
        faults(&history),
        [Fault::OutOfOrder, Fault::NotLinearizable]
    );
}

#[test]
fn a_key_that_was_there_at_the_start_must_be_there_at_the_end() {
    let mut history = history(Vec::new(), &[]);
    history.start.state.insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(faults(&history), [Fault::WrongEnd, Fault::NotLinearizable]);
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(faults(&history), []);
}

#[test]
fn a_key_at_the_end_that_was_never_written_is_found() {
    let mut history = history(Vec::new(), &[]);
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(faults(&history), [Fault::WrongEnd, Fault::NotLinearizable]);
}
