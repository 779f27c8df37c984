//! A table of all ends of a pass: each row has a name.

use super::*;

/// An execution and its conditions, and the expected end.
struct Row {
    name: &'static str,
    state: PassState,
    execution: Execution,
    conditions: PassConditions,
    expected: Expected,
}

/// The expected end, as text: the next step, the errors for events and status, and the result for the decision log.
#[derive(Debug, PartialEq)]
struct Expected {
    next: &'static str,
    event_error: Option<&'static str>,
    status_error: Option<&'static str>,
    result: DecisionResult,
}

const CONDITIONS: PassConditions = PassConditions {
    is_same_plan: false,
    is_leader: true,
    disruption: "restart",
    declined_attempts: 0,
    is_failing_persistently: false,
    reports_progress: false,
};

fn transient(action: &str) -> Error {
    Error::other(action, "timeout")
}

fn rejected(action: &str) -> Error {
    let status = kube::core::Status {
        code: 403,
        message: "exceeded quota".to_owned(),
        ..kube::core::Status::default()
    };
    Error::kubernetes(action)(kube::Error::Api(Box::new(status)))
}

fn executed(done: usize, end: ExecutionEnd) -> Execution {
    Execution {
        done,
        end,
        ..Execution::default()
    }
}

fn row(
    name: &'static str,
    execution: Execution,
    conditions: PassConditions,
    expected: Expected,
) -> Row {
    Row {
        name,
        state: PassState::default(),
        execution,
        conditions,
        expected,
    }
}

fn expect(
    next: &'static str,
    result: DecisionResult,
    event_error: Option<&'static str>,
    status_error: Option<&'static str>,
) -> Expected {
    Expected {
        next,
        event_error,
        status_error,
        result,
    }
}

fn rows() -> Vec<Row> {
    let (persistent, declined) = (
        PassConditions {
            is_failing_persistently: true,
            ..CONDITIONS
        },
        |declined_attempts| PassConditions {
            declined_attempts,
            ..CONDITIONS
        },
    );
    let with_rejection = |execution: Execution, error: Error| Execution {
        rejected: Some(error),
        ..execution
    };
    let quota = "failed to create Pod a: exceeded quota";
    let timeout = "failed to create Pod a: timeout";
    let lasting =
        "failed to create Pod a repeatedly: see the events of this resource for the latest error";
    let exhausted = "restart was declined at least 20 times in a row: not now";
    let not_now = || ExecutionEnd::RetryLater("not now".to_owned());
    let half = || ExecutionEnd::InProgress("half".to_owned());
    vec![
        row(
            "completed",
            executed(2, ExecutionEnd::Completed),
            CONDITIONS,
            expect("continue", DecisionResult::Completed, None, None),
        ),
        row(
            "conflict",
            executed(1, ExecutionEnd::Conflict),
            CONDITIONS,
            expect("continue", DecisionResult::Conflict, None, None),
        ),
        row(
            "completed except a rejected action",
            with_rejection(
                executed(1, ExecutionEnd::Completed),
                rejected("create Pod a"),
            ),
            CONDITIONS,
            expect("continue", DecisionResult::Partial, None, None),
        ),
        row(
            "nothing left but a rejected action",
            with_rejection(
                executed(0, ExecutionEnd::Completed),
                rejected("create Pod a"),
            ),
            CONDITIONS,
            expect(quota, DecisionResult::Partial, Some(quota), Some(quota)),
        ),
        row(
            "nothing left but an action that failed for the first time",
            with_rejection(
                executed(0, ExecutionEnd::Completed),
                transient("create Pod a"),
            ),
            CONDITIONS,
            expect(timeout, DecisionResult::Partial, Some(timeout), None),
        ),
        row(
            "nothing left but an action that keeps failing",
            with_rejection(
                executed(0, ExecutionEnd::Completed),
                transient("create Pod a"),
            ),
            persistent,
            expect(
                timeout,
                DecisionResult::Partial,
                Some(timeout),
                Some(lasting),
            ),
        ),
        row(
            "declined",
            executed(0, not_now()),
            declined(1),
            expect("requeue 500ms", DecisionResult::Declined, None, None),
        ),
        row(
            "declined, with a rejected action",
            with_rejection(executed(0, not_now()), rejected("create Pod a")),
            declined(1),
            expect(
                "requeue 500ms",
                DecisionResult::Declined,
                Some(quota),
                Some(quota),
            ),
        ),
        row(
            "declined for long",
            executed(0, not_now()),
            declined(20),
            expect(
                "requeue 10s",
                DecisionResult::Declined,
                None,
                Some(exhausted),
            ),
        ),
        row(
            "declined long after that: the text of the status stays the same",
            executed(0, not_now()),
            declined(2107),
            expect(
                "requeue 10s",
                DecisionResult::Declined,
                None,
                Some(exhausted),
            ),
        ),
        row(
            "declined for long, with a rejected action",
            with_rejection(executed(0, not_now()), rejected("create Pod a")),
            declined(20),
            expect(
                "requeue 10s",
                DecisionResult::Declined,
                Some(quota),
                Some(exhausted),
            ),
        ),
        row(
            "in progress",
            executed(0, half()),
            CONDITIONS,
            expect("requeue 20ms", DecisionResult::InProgress, None, None),
        ),
        row(
            "in progress, with a rejected action",
            with_rejection(executed(0, half()), rejected("create Pod a")),
            CONDITIONS,
            expect(
                "requeue 20ms",
                DecisionResult::InProgress,
                Some(quota),
                Some(quota),
            ),
        ),
        row(
            "failed",
            executed(1, ExecutionEnd::Failed(rejected("create Pod a"))),
            CONDITIONS,
            expect(quota, DecisionResult::Failed, Some(quota), Some(quota)),
        ),
        row(
            "a rejection is reported rather than a failure that may pass",
            with_rejection(
                executed(0, ExecutionEnd::Failed(transient("evict Pod b"))),
                rejected("create Pod a"),
            ),
            CONDITIONS,
            expect(quota, DecisionResult::Failed, Some(quota), Some(quota)),
        ),
        row(
            "the failure is reported if both may pass",
            with_rejection(
                executed(0, ExecutionEnd::Failed(transient("create Pod a"))),
                transient("patch Pod b"),
            ),
            CONDITIONS,
            expect(timeout, DecisionResult::Failed, Some(timeout), None),
        ),
        row(
            "failed without the lease",
            executed(0, ExecutionEnd::Failed(transient("create Pod a"))),
            PassConditions {
                is_leader: false,
                ..CONDITIONS
            },
            expect(timeout, DecisionResult::Failed, None, None),
        ),
        Row {
            state: PassState {
                no_progress: MAX_NO_PROGRESS - 1,
                ..PassState::default()
            },
            ..row(
                "conflicts without progress",
                executed(0, ExecutionEnd::Conflict),
                CONDITIONS,
                expect(
                    "no progress: 3 plans in a row changed nothing",
                    DecisionResult::Conflict,
                    None,
                    None,
                ),
            )
        },
        Row {
            state: PassState {
                no_progress: MAX_NO_PROGRESS - 1,
                rejected: Some(rejected("create Pod a")),
                ..PassState::default()
            },
            ..row(
                "the same plan without effect, after a rejected action",
                executed(1, ExecutionEnd::Completed),
                PassConditions {
                    is_same_plan: true,
                    ..CONDITIONS
                },
                expect(quota, DecisionResult::Partial, Some(quota), Some(quota)),
            )
        },
    ]
}

fn text(error: Option<&Error>) -> Option<String> {
    error.map(ToString::to_string)
}

#[test]
fn every_end_has_its_next_step_and_its_report() {
    for row in rows() {
        let end = next(row.state, &row.execution, &row.conditions);
        let next = match &end.next {
            Next::Continue(_) => "continue".to_owned(),
            Next::Requeue(delay) => format!("requeue {delay:?}"),
            Next::Fail(error) => error.to_string(),
        };
        let (event_error, status_error) = match &end.report {
            Report::Nothing | Report::Events | Report::Progress => (None, None),
            Report::Status {
                event_error,
                status_error,
            } => (text(event_error.as_ref()), text(status_error.as_ref())),
        };
        assert_eq!(next, row.expected.next, "{}", row.name);
        assert_eq!(
            event_error.as_deref(),
            row.expected.event_error,
            "{}",
            row.name
        );
        assert_eq!(
            status_error.as_deref(),
            row.expected.status_error,
            "{}",
            row.name
        );
        assert_eq!(end.outcome.result, row.expected.result, "{}", row.name);
    }
}

#[test]
fn a_late_disruption_comes_first_in_the_next_pass() {
    let late = Execution {
        is_late: true,
        rejected: Some(transient("create Pod a")),
        ..executed(0, ExecutionEnd::Completed)
    };
    let Next::Continue(state) = next(PassState::default(), &late, &CONDITIONS).next else {
        panic!("the reconcile must continue");
    };
    assert_eq!(state.scope, PlanScope::DisruptionOnly);
    assert!(state.is_live && state.rejected.is_some());
    let done = executed(1, ExecutionEnd::Completed);
    let Next::Continue(state) = next(state, &done, &CONDITIONS).next else {
        panic!("the reconcile must continue");
    };
    assert_eq!((state.scope, state.no_progress), (PlanScope::Full, 0));
}
