use evenkeel_archive::tasks::TaskFailure;

use super::*;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn facts() -> BackupFacts {
    BackupFacts {
        now: NOW,
        deadline: NOW.after(Duration::from_secs(600)),
        is_import: false,
        is_final: false,
        attempts: 0,
        member: String::new(),
        failed: Vec::new(),
        has_agent_image: true,
        store: StoreState::Ready,
        source: members(&["b", "c", "a"]),
        pod: PodFacts::Absent,
    }
}

fn members(names: &[&str]) -> Option<SourceFacts> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Some(SourceFacts::Members(names))
}

fn not_ready() -> StoreState {
    StoreState::NotReady {
        reason: "AccessDenied".to_owned(),
        message: "denied".to_owned(),
    }
}

fn failed(member: &str, seconds_ago: i64) -> FailedFacts {
    FailedFacts {
        at: UnixTime(NOW.0 - seconds_ago),
        member: member.to_owned(),
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
    }
}

fn pod(attempt: u32, state: AgentState) -> OwnPod {
    OwnPod {
        attempt,
        member: "b".to_owned(),
        inputs: String::new(),
        state,
        created_at: UnixTime(NOW.0 - 5),
        is_terminating: false,
        is_expired: false,
    }
}

fn with_pod(pod: OwnPod) -> BackupFacts {
    BackupFacts {
        attempts: pod.attempt,
        pod: PodFacts::Own(pod),
        ..facts()
    }
}

fn complete() -> AgentState {
    AgentState::Finished {
        outcome: Outcome::Succeeded(TaskResult::Backup {
            location: "here".to_owned(),
            summary: summary(),
        }),
        at: Some(NOW),
    }
}

fn summary() -> BackupSummary {
    BackupSummary {
        position: "revision 7".to_owned(),
        engine_version: "3.6.16".to_owned(),
        cluster_id: "5".to_owned(),
        member: "b".to_owned(),
        size: 1,
        stored_size: 1,
        keys: None,
        started_at: String::new(),
        finished_at: String::new(),
    }
}

fn failure(reason: FailureReason) -> AgentState {
    AgentState::Finished {
        outcome: Outcome::Failed(TaskFailure {
            reason,
            message: "problem".to_owned(),
        }),
        at: Some(NOW),
    }
}

fn start(attempt: u32, member: &str) -> BackupStep {
    BackupStep::Start(BackupCreate {
        attempt,
        member: member.to_owned(),
    })
}

fn reason(step: BackupStep) -> String {
    match step {
        BackupStep::Fail { reason, .. } => reason,
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn a_backup_waits_until_everything_that_it_needs_is_there() {
    use BackupWait as Wait;
    let cases = [
        (
            BackupFacts {
                has_agent_image: false,
                ..facts()
            },
            Wait::AgentImage,
        ),
        (
            BackupFacts {
                store: StoreState::Absent,
                ..facts()
            },
            Wait::StoreNotFound,
        ),
        (
            BackupFacts {
                store: not_ready(),
                ..facts()
            },
            Wait::StoreNotReady,
        ),
        (
            BackupFacts {
                source: Some(SourceFacts::NotFound),
                ..facts()
            },
            Wait::ClusterNotFound,
        ),
        (
            BackupFacts {
                source: Some(SourceFacts::NotReady {
                    problem: String::new(),
                }),
                ..facts()
            },
            Wait::ClusterNotReady,
        ),
        (
            BackupFacts {
                source: members(&[]),
                ..facts()
            },
            Wait::ClusterNotReady,
        ),
        (
            BackupFacts {
                pod: PodFacts::Foreign {
                    backup: Some("other".to_owned()),
                    is_expired: false,
                },
                ..facts()
            },
            Wait::AnotherBackup("other".to_owned()),
        ),
        (
            BackupFacts {
                pod: PodFacts::Foreign {
                    backup: None,
                    is_expired: false,
                },
                ..facts()
            },
            Wait::PodName,
        ),
        (
            BackupFacts {
                deadline: NOW.after(Duration::from_secs(10)),
                ..facts()
            },
            Wait::Deadline,
        ),
    ];
    for (facts, wait) in cases {
        assert_eq!(step(&facts), BackupStep::Wait(wait));
        let plan = BackupControl::decide(&facts);
        assert!(plan.is_noop());
        assert!(matches!(plan.requeue, Requeue::At(at) if at > NOW && at <= facts.deadline));
    }
    assert_eq!(step(&facts()), start(1, "b"));
}

#[test]
fn the_cluster_is_read_only_when_an_attempt_could_start() {
    let unread = BackupFacts {
        source: None,
        ..facts()
    };
    assert_eq!(step(&unread), BackupStep::ReadSource);
    let cases = [
        BackupFacts {
            store: StoreState::Absent,
            ..unread.clone()
        },
        BackupFacts {
            is_import: true,
            ..unread.clone()
        },
        BackupFacts {
            is_final: true,
            ..unread.clone()
        },
        BackupFacts {
            pod: PodFacts::Own(pod(1, AgentState::Running)),
            ..unread
        },
    ];
    for facts in cases {
        assert_ne!(step(&facts), BackupStep::ReadSource);
    }
}

#[test]
fn an_import_needs_the_store_and_no_cluster() {
    let import = BackupFacts {
        is_import: true,
        source: None,
        ..facts()
    };
    assert_eq!(step(&import), start(1, ""));
    let without = BackupFacts {
        store: not_ready(),
        ..import
    };
    assert_eq!(step(&without), BackupStep::Wait(BackupWait::StoreNotReady));
}

#[test]
fn an_outcome_is_recorded_before_the_pod_is_deleted() {
    let done = with_pod(pod(1, complete()));
    assert!(matches!(step(&done), BackupStep::Complete { .. }));
    assert!(BackupControl::decide(&done).is_noop());
    let recorded = BackupFacts {
        is_final: true,
        ..done
    };
    assert_eq!(step(&recorded), BackupStep::DeletePod { by_force: false });
    let gone = BackupFacts {
        pod: PodFacts::Absent,
        ..recorded
    };
    assert_eq!(step(&gone), BackupStep::Finished);
    assert_eq!(BackupControl::decide(&gone), Plan::default());
}

#[test]
fn only_the_outcome_of_a_backup_completes_a_backup() {
    for result in [
        TaskResult::Done,
        TaskResult::StoreChecked {
            conditional_writes: true,
        },
    ] {
        let state = AgentState::Finished {
            outcome: Outcome::Succeeded(result),
            at: Some(NOW),
        };
        assert_eq!(reason(step(&with_pod(pod(1, state)))), "InvalidRequest");
    }
}

#[test]
fn transient_failures_are_retried_twice_and_others_are_not() {
    for transient in [
        FailureReason::Unreachable,
        FailureReason::StoreFailed,
        FailureReason::NoProgress,
        FailureReason::SourceFailed,
        FailureReason::Other,
    ] {
        let first = with_pod(pod(1, failure(transient)));
        assert!(matches!(step(&first), BackupStep::RecordFailure(_)));
        let recorded = BackupFacts {
            failed: vec![failed("b", 0)],
            ..first
        };
        assert_eq!(step(&recorded), BackupStep::DeletePod { by_force: false });
        let last = BackupFacts {
            failed: vec![failed("b", 90), failed("c", 80)],
            ..with_pod(pod(3, failure(transient)))
        };
        assert_eq!(reason(step(&last)), word(transient));
    }
    for lasting in [
        FailureReason::AccessDenied,
        FailureReason::StoreFull,
        FailureReason::MemberTooFull,
        FailureReason::DeadlineExceeded,
        FailureReason::BackupNotFound,
    ] {
        let first = with_pod(pod(1, failure(lasting)));
        assert_eq!(reason(step(&first)), word(lasting));
    }
}

#[test]
fn a_retry_waits_and_reads_a_member_that_has_not_failed() {
    let retry = |failed: Vec<FailedFacts>| BackupFacts {
        attempts: u32::try_from(failed.len()).unwrap(),
        failed,
        ..facts()
    };
    let next = UnixTime(NOW.0 + 6);
    assert_eq!(
        step(&retry(vec![failed("b", 4)])),
        BackupStep::Wait(BackupWait::Retry(next))
    );
    assert_eq!(step(&retry(vec![failed("b", 10)])), start(2, "c"));
    let twice = || vec![failed("b", 100), failed("c", 60)];
    assert_eq!(step(&retry(twice())), start(3, "a"));
    let two_members = BackupFacts {
        source: members(&["c", "b"]),
        ..retry(twice())
    };
    assert_eq!(step(&two_members), start(3, "c"), "both have failed");
    let all = vec![failed("b", 100), failed("c", 60), failed("a", 1)];
    assert_eq!(reason(step(&retry(all))), "Unreachable");
}

#[test]
fn a_pod_that_disappeared_counts_as_a_failed_attempt() {
    let lost = BackupFacts {
        attempts: 1,
        member: "b".to_owned(),
        ..facts()
    };
    let BackupStep::RecordFailure(failed) = step(&lost) else {
        panic!("not recorded")
    };
    assert_eq!((&*failed.member, &*failed.reason), ("b", "PodDeleted"));
}

#[test]
fn every_backup_ends_at_its_deadline() {
    let pods = [
        PodFacts::Absent,
        PodFacts::Foreign {
            backup: None,
            is_expired: false,
        },
        PodFacts::Foreign {
            backup: Some("other".to_owned()),
            is_expired: true,
        },
        PodFacts::Own(pod(1, AgentState::Running)),
        PodFacts::Own(pod(1, AgentState::Pending { problem: None })),
        PodFacts::Own(OwnPod {
            is_terminating: true,
            ..pod(1, AgentState::Running)
        }),
    ];
    let stores = [StoreState::Absent, not_ready(), StoreState::Ready];
    let sources = [
        Some(SourceFacts::NotFound),
        Some(SourceFacts::NotReady {
            problem: "no quorum".to_owned(),
        }),
        members(&["a"]),
    ];
    for pod in &pods {
        for store in &stores {
            for source in &sources {
                for failed in [Vec::new(), vec![failed("b", 1)]] {
                    let late = BackupFacts {
                        deadline: NOW,
                        attempts: 1,
                        pod: pod.clone(),
                        store: store.clone(),
                        source: source.clone(),
                        failed,
                        ..facts()
                    };
                    assert_eq!(reason(step(&late)), "DeadlineExceeded", "{late:?}");
                }
            }
        }
    }
    let transient = BackupFacts {
        deadline: NOW,
        ..with_pod(pod(1, failure(FailureReason::Unreachable)))
    };
    assert_eq!(reason(step(&transient)), "Unreachable");
    let in_time = BackupFacts {
        deadline: NOW,
        ..with_pod(pod(1, complete()))
    };
    assert!(matches!(step(&in_time), BackupStep::Complete { .. }));
}

#[test]
fn the_failure_at_the_deadline_names_what_was_missing() {
    let late = BackupFacts {
        deadline: NOW,
        source: None,
        ..facts()
    };
    assert_eq!(step(&late), BackupStep::ReadSource);
    let no_quorum = BackupFacts {
        source: Some(SourceFacts::NotReady {
            problem: "Fewer voters than a quorum respond.".to_owned(),
        }),
        ..late
    };
    let BackupStep::Fail { message, .. } = step(&no_quorum) else {
        panic!("not failed")
    };
    assert!(message.contains("Fewer voters than a quorum"), "{message}");
}

#[test]
fn a_pod_on_a_lost_node_is_removed_by_force_only_after_its_deadline() {
    let terminating = |is_expired| BackupFacts {
        is_final: true,
        ..with_pod(OwnPod {
            is_terminating: true,
            is_expired,
            ..pod(1, AgentState::Running)
        })
    };
    assert_eq!(step(&terminating(false)), BackupStep::Finished);
    assert_eq!(
        step(&terminating(true)),
        BackupStep::DeletePod { by_force: true }
    );
    // The Backup of the pod may have been deleted.
    let foreign = BackupFacts {
        pod: PodFacts::Foreign {
            backup: Some("other".to_owned()),
            is_expired: true,
        },
        ..facts()
    };
    assert_eq!(step(&foreign), BackupStep::DeletePod { by_force: true });
}
