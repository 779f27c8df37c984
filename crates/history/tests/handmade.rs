//! Handmade histories, each for one rule of the checkers.

use std::collections::BTreeMap;

use evenkeel_history::check::{self, AnomalyKind, ProofError};
use evenkeel_history::simulate::{self, HistoryShape};
use evenkeel_history::{
    ClientId, ClientKind, CompareBy, History, Key, KeyState, Lane, Operation, OperationOutcome,
    Request, Response, RunTime, Snapshot, Value, WatchedWrite,
};

const KEY: Key = Key(0);

/// Returns an operation between two times in milliseconds.
fn op(client: u32, from: u64, to: u64, request: Request, outcome: OperationOutcome) -> Operation {
    let at = |ms: u64| RunTime(ms * 1_000_000);
    Operation {
        client: ClientId(client),
        lane: Lane(0),
        key: KEY,
        request,
        invoked: at(from),
        ended: at(to),
        outcome,
    }
}

fn put(client: u32, from: u64, to: u64, value: u64, revision: i64) -> Operation {
    op(
        client,
        from,
        to,
        Request::Put(Value(value)),
        OperationOutcome::Ok(Response::Written(revision)),
    )
}

fn lost_reply(client: u32, from: u64, to: u64, value: u64) -> Operation {
    op(
        client,
        from,
        to,
        Request::Put(Value(value)),
        OperationOutcome::Unknown("no response within the timeout".into()),
    )
}

fn read(client: u32, from: u64, to: u64, at: i64, observed: Option<KeyState>) -> Operation {
    op(
        client,
        from,
        to,
        Request::Read,
        OperationOutcome::Ok(Response::Read(at, observed)),
    )
}

fn swap(
    client: u32,
    from: u64,
    to: u64,
    expect: Option<(u64, i64)>,
    value: u64,
    response: Response,
) -> Operation {
    let expect = expect.map(|(value, revision)| (Value(value), revision));
    let by = if expect.is_some() {
        CompareBy::Value
    } else {
        CompareBy::Revision
    };
    op(
        client,
        from,
        to,
        Request::CompareAndSwap {
            by,
            expect,
            value: Value(value),
        },
        OperationOutcome::Ok(response),
    )
}

fn state(value: u64, revision: i64, version: i64) -> Option<KeyState> {
    Some(KeyState {
        value: Value(value),
        revision,
        version,
    })
}

/// Returns a history of one key whose writes have this order, from revision 2 on.
fn history(ops: Vec<Operation>, order: &[u64]) -> History {
    let log: Vec<WatchedWrite> = (1..)
        .zip(order)
        .map(|(n, value)| WatchedWrite {
            revision: n + 1,
            key: KEY,
            value: Some(Value(*value)),
            version: n,
        })
        .collect();
    let end = log.last().and_then(WatchedWrite::state);
    let state = end.map(|state| (KEY, state)).into_iter().collect();
    let end = Snapshot {
        invoked: RunTime(u64::MAX - 1),
        ended: RunTime(u64::MAX),
        revision: 1 + log.len() as i64,
        state,
    };
    let start = Snapshot {
        revision: 1,
        ..Snapshot::default()
    };
    History {
        lanes: vec![ClientKind::Pinned],
        start,
        operations: ops,
        writes: log,
        end: Some(end),
    }
}

fn kinds(history: &History) -> Vec<AnomalyKind> {
    let mut kinds: Vec<AnomalyKind> = check::check(history)
        .anomalies
        .listed()
        .iter()
        .map(|anomaly| anomaly.kind)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn a_plain_history_passes() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        read(1, 20, 30, 2, state(7, 2, 1)),
        swap(2, 40, 50, Some((7, 2)), 8, Response::Written(3)),
        swap(1, 60, 70, None, 9, Response::Mismatch(3, state(8, 3, 2))),
    ];
    let history = history(ops, &[7, 8]);
    assert_eq!(kinds(&history), []);
    assert!(check::check(&history).to_string().contains("nothing lost"));
}

#[test]
fn an_acknowledged_write_that_is_missing_is_lost() {
    let ops = vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)];
    let result = check::check(&history(ops, &[7]));
    assert!(
        result.anomalies.contains(AnomalyKind::LostWrite)
            && result.anomalies.contains(AnomalyKind::NotLinearizable),
        "{result}"
    );
    let text = result.to_string();
    assert!(
        text.contains("put value 8 to key 0") && text.contains("0.020000 s"),
        "{text}"
    );
}

#[test]
fn a_value_that_no_client_wrote_is_invented() {
    let kinds = kinds(&history(vec![put(1, 0, 10, 7, 2)], &[7, 99]));
    assert_eq!(
        kinds,
        [AnomalyKind::InventedValue, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_write_without_a_response_may_exist_at_most_once() {
    let ops = || vec![put(1, 0, 10, 7, 2), lost_reply(2, 20, 30, 8)];
    assert_eq!(kinds(&history(ops(), &[7])), []);
    assert_eq!(kinds(&history(ops(), &[7, 8])), []);
    assert_eq!(
        kinds(&history(ops(), &[7, 8, 8])),
        [AnomalyKind::MisreportedWrite]
    );
}

#[test]
fn a_write_without_a_response_may_take_effect_late_but_not_early() {
    let late = vec![lost_reply(2, 0, 5, 8), put(1, 20, 30, 7, 2)];
    assert_eq!(kinds(&history(late, &[7, 8])), []);
    let early = vec![put(1, 0, 10, 7, 3), lost_reply(2, 20, 30, 8)];
    assert_eq!(kinds(&history(early, &[8, 7])), [AnomalyKind::OutOfOrder]);
}

#[test]
fn a_failed_write_must_not_exist() {
    let failed = op(
        2,
        20,
        30,
        Request::Put(Value(8)),
        OperationOutcome::Failed("etcdserver: no leader".into()),
    );
    let kinds = kinds(&history(vec![put(1, 0, 10, 7, 2), failed], &[7, 8]));
    assert_eq!(
        kinds,
        [AnomalyKind::MisreportedWrite, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_read_of_a_value_overwritten_before_its_start_is_stale() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        put(1, 20, 30, 8, 3),
        read(2, 40, 50, 2, state(7, 2, 1)),
    ];
    assert_eq!(
        kinds(&history(ops, &[7, 8])),
        [AnomalyKind::OutOfOrder, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_read_concurrent_with_a_write_may_return_either_value() {
    for (at, observed) in [(2, state(7, 2, 1)), (3, state(8, 3, 2))] {
        let ops = vec![
            put(1, 0, 10, 7, 2),
            put(1, 20, 60, 8, 3),
            read(2, 40, 50, at, observed),
        ];
        assert_eq!(kinds(&history(ops, &[7, 8])), []);
    }
}

#[test]
fn consecutive_reads_must_not_go_back_in_time() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        put(1, 20, 90, 8, 3),
        read(2, 30, 40, 3, state(8, 3, 2)),
        read(3, 50, 60, 2, state(7, 2, 1)),
    ];
    assert_eq!(
        kinds(&history(ops, &[7, 8])),
        [AnomalyKind::OutOfOrder, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_swap_that_replaces_an_unexpected_value_is_wrong() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        swap(2, 20, 30, Some((6, 1)), 8, Response::Written(3)),
    ];
    assert_eq!(
        kinds(&history(ops, &[7, 8])),
        [
            AnomalyKind::WrongCompareAndSwap,
            AnomalyKind::NotLinearizable
        ]
    );
}

#[test]
fn a_swap_rejected_on_the_expected_value_is_wrong() {
    let ops = vec![
        put(1, 0, 10, 7, 2),
        swap(
            2,
            20,
            30,
            Some((7, 2)),
            8,
            Response::Mismatch(2, state(7, 2, 1)),
        ),
    ];
    assert_eq!(
        kinds(&history(ops, &[7])),
        [
            AnomalyKind::WrongCompareAndSwap,
            AnomalyKind::NotLinearizable
        ]
    );
}

#[test]
fn a_value_replaced_by_a_swap_without_a_response_counts_as_observed() {
    // Neither the put nor the compare-and-swap has a response; a read shows the second value, so both took effect.
    let mut swapped = swap(2, 20, 30, Some((7, 2)), 8, Response::Written(3));
    swapped.outcome = OperationOutcome::Unknown("no response within the timeout".into());
    let ops = vec![
        lost_reply(1, 0, 10, 7),
        swapped,
        read(3, 40, 50, 3, state(8, 3, 2)),
    ];
    assert_eq!(kinds(&history(ops, &[7, 8])), []);
}

#[test]
fn a_final_state_that_contradicts_the_writes_is_wrong() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    history.end.as_mut().unwrap().state = BTreeMap::from([(KEY, state(7, 2, 1).unwrap())]);
    assert_eq!(
        kinds(&history),
        [AnomalyKind::WrongFinalState, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_history_without_a_final_state_does_not_pass() {
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.end = None;
    assert_eq!(kinds(&history), [AnomalyKind::MalformedRecording]);
}

#[test]
fn a_client_that_continues_after_an_unknown_outcome_is_malformed() {
    let ops = vec![lost_reply(1, 0, 10, 7), put(1, 20, 30, 8, 2)];
    assert_eq!(
        kinds(&history(ops, &[8])),
        [AnomalyKind::MalformedRecording]
    );
}

#[test]
fn a_deletion_that_no_client_requested_is_detected() {
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.writes.push(WatchedWrite {
        revision: 3,
        key: KEY,
        value: None,
        version: 0,
    });
    let end = history.end.as_mut().unwrap();
    end.revision = 3;
    end.state.clear();
    assert_eq!(
        kinds(&history),
        [AnomalyKind::InventedValue, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_key_with_too_many_operations_is_undecided() {
    let shape = HistoryShape {
        operations: 1_500,
        keys: 1,
        operations_per_key: 10_000,
        ..HistoryShape::default()
    };
    assert_eq!(
        kinds(&simulate::history(1, &shape)),
        [AnomalyKind::Undecided]
    );
}

#[test]
fn a_restored_cluster_has_exactly_the_state_of_the_snapshot() {
    let before = simulate::history(3, &HistoryShape::default());
    let at = before.writes.get(before.writes.len() / 2).unwrap().revision;
    let mut after = History::default();
    after.start.state = before.state_at(at);
    assert_eq!(check::check_restore(&before, at, &after).count(), 0);

    after.start.state = before.state_at(at - 1);
    assert!(check::check_restore(&before, at, &after).contains(AnomalyKind::LostWrite));
    after.start.state = before.state_at(at);
    after
        .start
        .state
        .insert(Key(77_777), state(1, 1, 1).unwrap());
    assert!(check::check_restore(&before, at, &after).contains(AnomalyKind::InventedValue));
}

#[test]
fn a_history_too_small_for_forgeries_is_an_error() {
    let error = check::check_and_prove(&history(vec![put(1, 0, 10, 7, 2)], &[7])).unwrap_err();
    assert!(
        matches!(error, ProofError::TooSmall("a lost write", 1)),
        "{error}"
    );
}

#[test]
fn a_history_with_anomalies_is_an_error() {
    let error = check::check_and_prove(&history(vec![put(1, 0, 10, 7, 2)], &[])).unwrap_err();
    assert!(matches!(error, ProofError::Anomalous(_)), "{error}");
}

#[test]
fn a_client_with_two_concurrent_operations_is_malformed() {
    let ops = vec![put(1, 0, 20, 7, 2), put(1, 10, 30, 8, 3)];
    assert_eq!(
        kinds(&history(ops, &[7, 8])),
        [AnomalyKind::MalformedRecording]
    );
}

#[test]
fn an_operation_that_ends_before_its_start_is_malformed() {
    let ops = vec![put(1, 20, 10, 7, 2)];
    assert!(kinds(&history(ops, &[7])).contains(&AnomalyKind::MalformedRecording));
}

#[test]
fn a_watch_that_repeats_a_revision_is_malformed() {
    let mut history = history(vec![put(1, 0, 20, 7, 2), lost_reply(2, 0, 20, 8)], &[7, 8]);
    history.writes.last_mut().unwrap().revision = 2;
    assert!(kinds(&history).contains(&AnomalyKind::MalformedRecording));
}

#[test]
fn a_skipped_version_reveals_a_write_missing_from_the_watch() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    history.writes.last_mut().unwrap().version = 3;
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(8, 3, 3).unwrap());
    assert_eq!(kinds(&history), [AnomalyKind::LostWrite]);
}

#[test]
fn a_write_to_another_key_is_detected() {
    let other = Key(5);
    let mut history = history(vec![put(1, 0, 10, 7, 2)], &[7]);
    history.writes.first_mut().unwrap().key = other;
    history.end.as_mut().unwrap().state = BTreeMap::from([(other, state(7, 2, 1).unwrap())]);
    assert_eq!(
        kinds(&history),
        [AnomalyKind::InventedValue, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_write_must_not_have_a_revision_that_was_already_read() {
    // The read of another key saw the store at revision 2, before the write of revision 2 started.
    let mut early = read(1, 0, 10, 2, None);
    early.key = Key(5);
    assert_eq!(
        kinds(&history(vec![early, put(2, 20, 30, 7, 2)], &[7])),
        [AnomalyKind::OutOfOrder]
    );
}

#[test]
fn operations_that_touch_in_time_count_as_concurrent() {
    let ops = vec![put(1, 0, 10, 7, 3), put(2, 10, 20, 8, 2)];
    assert_eq!(kinds(&history(ops, &[8, 7])), []);
}

#[test]
fn a_final_read_older_than_an_acknowledged_write_is_stale() {
    let mut history = history(vec![put(1, 0, 10, 7, 2), put(1, 20, 30, 8, 3)], &[7, 8]);
    let end = history.end.as_mut().unwrap();
    end.revision = 2;
    end.state.insert(KEY, state(7, 2, 1).unwrap());
    assert_eq!(
        kinds(&history),
        [AnomalyKind::OutOfOrder, AnomalyKind::NotLinearizable]
    );
}

#[test]
fn a_key_of_the_initial_state_must_be_in_the_final_state() {
    let mut history = history(Vec::new(), &[]);
    history.start.state.insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(
        kinds(&history),
        [AnomalyKind::WrongFinalState, AnomalyKind::NotLinearizable]
    );
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(kinds(&history), []);
}

#[test]
fn a_key_in_the_final_state_that_was_never_written_is_detected() {
    let mut history = history(Vec::new(), &[]);
    history
        .end
        .as_mut()
        .unwrap()
        .state
        .insert(KEY, state(7, 1, 1).unwrap());
    assert_eq!(
        kinds(&history),
        [AnomalyKind::WrongFinalState, AnomalyKind::NotLinearizable]
    );
}
