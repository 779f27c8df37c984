use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure, TaskResult};

use super::*;
use crate::store::ListingFacts;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn before(seconds: i64) -> UnixTime {
    UnixTime(NOW.0 - seconds)
}

fn facts() -> StoreFacts {
    StoreFacts {
        now: NOW,
        has_agent_image: true,
        missing: None,
        inputs: "a".to_owned(),
        last_check: None,
        pod: PodFacts::Absent,
        listing: ListingFacts::default(),
    }
}

fn checked(inputs: &str, seconds_ago: i64, failing_for: Option<i64>) -> Option<LastCheck> {
    Some(LastCheck {
        inputs: inputs.to_owned(),
        at: before(seconds_ago),
        failing_since: failing_for.map(|seconds| before(seconds_ago + seconds)),
    })
}

fn pod(inputs: &str, state: AgentState) -> OwnPod {
    OwnPod {
        attempt: 1,
        member: String::new(),
        inputs: inputs.to_owned(),
        state,
        created_at: before(5),
        is_terminating: false,
        is_expired: false,
    }
}

fn ended() -> AgentState {
    AgentState::Finished {
        outcome: Outcome::Succeeded(TaskResult::StoreChecked {
            conditional_writes: true,
        }),
        at: Some(before(1)),
    }
}

fn failed() -> AgentState {
    AgentState::Finished {
        outcome: Outcome::Failed(TaskFailure {
            reason: FailureReason::AccessDenied,
            message: "denied".to_owned(),
        }),
        at: Some(before(1)),
    }
}

const HOUR: i64 = 3600;

#[test]
fn a_store_is_checked_when_its_inputs_changed_or_the_last_check_is_old() {
    let cases = [
        ("never checked", None, None),
        ("other inputs", checked("b", 1, None), None),
        ("a recent success", checked("a", HOUR, None), Some(5 * HOUR)),
        ("an old success", checked("a", 6 * HOUR, None), None),
        ("the first failure", checked("a", 10, Some(0)), Some(20)),
        (
            "the first failure, 30 s ago",
            checked("a", 30, Some(0)),
            None,
        ),
        (
            "failures for ten minutes",
            checked("a", 300, Some(600)),
            Some(300),
        ),
        (
            "failures for ten minutes, ten minutes ago",
            checked("a", 600, Some(600)),
            None,
        ),
        (
            "failures for a week",
            checked("a", HOUR - 1, Some(168 * HOUR)),
            Some(1),
        ),
        (
            "failures for a week, an hour ago",
            checked("a", HOUR, Some(168 * HOUR)),
            None,
        ),
    ];
    for (case, last_check, next) in cases {
        let expected = next.map_or(StoreStep::Check, |seconds| {
            StoreStep::Checked(UnixTime(NOW.0 + seconds))
        });
        assert_eq!(
            step(&StoreFacts {
                last_check,
                ..facts()
            }),
            expected,
            "{case}"
        );
    }
}

#[test]
fn a_check_runs_once_is_recorded_and_then_its_pod_is_deleted() {
    let own = |pod| StoreFacts {
        pod: PodFacts::Own(pod),
        ..facts()
    };
    assert_eq!(
        step(&own(pod("a", AgentState::Running))),
        StoreStep::Checking(None)
    );
    let done = pod("a", ended());
    assert_eq!(step(&own(done.clone())), StoreStep::Record(done.clone()));
    // The status names an earlier check of the same inputs.
    let earlier = StoreFacts {
        last_check: checked("a", 6 * HOUR, None),
        ..own(done.clone())
    };
    assert_eq!(step(&earlier), StoreStep::Record(done.clone()));
    let recorded = StoreFacts {
        last_check: checked("a", 1, None),
        ..own(done)
    };
    assert_eq!(step(&recorded), StoreStep::DeletePod { by_force: false });
    let failure = pod("a", failed());
    assert_eq!(step(&own(failure.clone())), StoreStep::Record(failure));
}

#[test]
fn the_check_of_earlier_inputs_is_never_recorded() {
    for state in [
        ended(),
        failed(),
        AgentState::Running,
        AgentState::Pending { problem: None },
    ] {
        let stale = StoreFacts {
            pod: PodFacts::Own(pod("b", state)),
            ..facts()
        };
        assert_eq!(step(&stale), StoreStep::DeletePod { by_force: false });
    }
}

#[test]
fn a_store_with_a_missing_input_is_not_checked() {
    let missing = MissingInput::Secret("s3-keys".to_owned());
    let without = StoreFacts {
        missing: Some(missing.clone()),
        ..facts()
    };
    assert_eq!(
        step(&without),
        StoreStep::Wait(StoreWait::Input(missing.clone()))
    );
    let running = StoreFacts {
        pod: PodFacts::Own(pod("a", AgentState::Running)),
        ..without
    };
    assert_eq!(step(&running), StoreStep::DeletePod { by_force: false });
    let image = StoreFacts {
        has_agent_image: false,
        ..facts()
    };
    assert_eq!(step(&image), StoreStep::Wait(StoreWait::AgentImage));
}

#[test]
fn a_pod_is_removed_by_force_only_after_its_deadline() {
    let terminating = |is_expired| StoreFacts {
        pod: PodFacts::Own(OwnPod {
            is_terminating: true,
            is_expired,
            ..pod("a", AgentState::Running)
        }),
        ..facts()
    };
    assert_eq!(
        step(&terminating(false)),
        StoreStep::Wait(StoreWait::Deletion)
    );
    assert_eq!(
        step(&terminating(true)),
        StoreStep::DeletePod { by_force: true }
    );
    let foreign = |is_expired| StoreFacts {
        pod: PodFacts::Foreign {
            backup: None,
            is_expired,
        },
        ..facts()
    };
    assert_eq!(step(&foreign(false)), StoreStep::Wait(StoreWait::PodName));
    assert_eq!(
        step(&foreign(true)),
        StoreStep::DeletePod { by_force: true }
    );
}

#[test]
fn every_plan_has_at_most_one_action_and_a_plan_without_one_is_looked_at_again() {
    let pods = [
        PodFacts::Absent,
        PodFacts::Own(pod("a", ended())),
        PodFacts::Own(pod("a", AgentState::Running)),
    ];
    for pod in pods {
        let plan = StoreEngine::decide(&StoreFacts { pod, ..facts() });
        assert!(plan.create.len() + plan.patch.len() <= 1);
        assert!(!plan.is_noop() || matches!(plan.requeue, Requeue::At(at) if at > NOW));
    }
}
