use evenkeel_archive::tasks::{Outcome, TaskResult};

use super::*;
use crate::pod_facts::OwnPod;
use crate::store::MissingInput;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn facts(request: Option<&str>, answered: &str, pod: PodFacts) -> StoreFacts {
    StoreFacts {
        now: NOW,
        has_agent_image: true,
        missing: None,
        inputs: "a".to_owned(),
        last_check: None,
        pod: PodFacts::Absent,
        listing: ListingFacts {
            request: request.map(str::to_owned),
            answered: answered.to_owned(),
            pod,
        },
    }
}

fn own(request: &str, state: AgentState, seconds_ago: i64) -> OwnPod {
    OwnPod {
        attempt: 1,
        member: String::new(),
        inputs: request.to_owned(),
        state,
        created_at: UnixTime(NOW.0 - seconds_ago),
        is_terminating: false,
        is_expired: false,
    }
}

fn finished() -> AgentState {
    AgentState::Finished {
        outcome: Outcome::Succeeded(TaskResult::Done),
        at: Some(NOW),
    }
}

#[test]
fn a_request_is_answered_once() {
    let create = ListingStep::Create("1".to_owned());
    assert_eq!(step(&facts(Some("1"), "", PodFacts::Absent)), create);
    assert_eq!(step(&facts(Some("1"), "0", PodFacts::Absent)), create);
    assert_eq!(
        step(&facts(Some("1"), "1", PodFacts::Absent)),
        ListingStep::None
    );
    assert_eq!(step(&facts(None, "", PodFacts::Absent)), ListingStep::None);
}

#[test]
fn a_request_waits_for_the_image_and_the_referenced_objects() {
    let without_image = StoreFacts {
        has_agent_image: false,
        ..facts(Some("1"), "", PodFacts::Absent)
    };
    let without_secret = StoreFacts {
        missing: Some(MissingInput::Secret("keys".to_owned())),
        ..facts(Some("1"), "", PodFacts::Absent)
    };
    for waiting in [without_image, without_secret] {
        assert_eq!(step(&waiting), ListingStep::None);
    }
}

#[test]
fn the_pod_stays_until_its_log_could_be_read_and_the_answer_is_recorded() {
    let pod = |seconds_ago| PodFacts::Own(own("1", finished(), seconds_ago));
    let unrecorded = facts(Some("1"), "", pod(700));
    assert_eq!(step(&unrecorded), ListingStep::None);
    assert_eq!(answered(&unrecorded), "1");
    let until = UnixTime(NOW.0 - 100).after(LOG_RETENTION);
    assert_eq!(
        step(&facts(Some("1"), "1", pod(100))),
        ListingStep::KeepUntil(until)
    );
    assert_eq!(
        step(&facts(Some("1"), "1", pod(700))),
        ListingStep::DeletePod { by_force: false }
    );
}

#[test]
fn the_pod_of_an_earlier_request_is_deleted_even_while_it_runs() {
    for state in [AgentState::Running, finished()] {
        let pod = PodFacts::Own(own("1", state, 5));
        assert_eq!(
            step(&facts(Some("2"), "", pod)),
            ListingStep::DeletePod { by_force: false }
        );
    }
    let running = PodFacts::Own(own("2", AgentState::Running, 5));
    assert_eq!(step(&facts(Some("2"), "", running)), ListingStep::None);
}

#[test]
fn a_terminating_pod_is_removed_by_force_only_after_its_deadline() {
    for (is_expired, expected) in [
        (false, ListingStep::None),
        (true, ListingStep::DeletePod { by_force: true }),
    ] {
        let pod = OwnPod {
            is_terminating: true,
            is_expired,
            ..own("1", AgentState::Running, 5)
        };
        assert_eq!(step(&facts(Some("1"), "", PodFacts::Own(pod))), expected);
    }
}
