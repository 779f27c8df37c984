//! Writes that the proxy stops or answers with an error: what the API server has, and what the sender was told.

use std::time::Duration;

use evenkeel_e2e::proxy::Verdict;
use evenkeel_e2e::{PATIENCE, Story};

use crate::through::{Through, creates};

#[test]
fn a_create_stopped_before_the_api_server_saw_it_never_happened_when_it_is_dropped() {
    let story = Story::begin("stop-before");
    let through = Through::new(&story);
    through.proxy.once(Verdict::StopBefore, creates("never"));
    let mut sender = through.creating("never");
    let stopped = through.proxy.stopped(PATIENCE);
    assert_eq!(
        (stopped.write.name(), stopped.answered),
        (Some("never"), None)
    );
    assert!(sender.0.try_wait().unwrap().is_none(), "the sender waits");
    assert!(!through.exists("never"));
    drop(stopped);
    assert!(!sender.succeeds(), "it was told nothing");
    assert!(!through.exists("never"));
    let written = &through.proxy.writes()[0];
    assert_eq!((written.answered, written.told), (None, None), "{written}");
    // The others pass.
    assert!(through.creating("other").succeeds());
}

#[test]
fn a_create_stopped_before_the_api_server_saw_it_goes_on_when_it_is_told_to() {
    let story = Story::begin("stop-go-on");
    let through = Through::new(&story);
    through.proxy.once(Verdict::StopBefore, creates("held"));
    let sender = through.creating("held");
    let stopped = through.proxy.stopped(PATIENCE);
    assert!(!through.exists("held"));
    stopped.go_on();
    assert!(sender.succeeds());
    assert!(through.exists("held"));
}

#[test]
fn a_create_stopped_after_it_was_applied_is_there_and_its_killed_sender_never_knew() {
    let story = Story::begin("stop-after");
    let through = Through::new(&story);
    through.proxy.once(Verdict::StopAfter, creates("done"));
    let sender = through.creating("done");
    let stopped = through.proxy.stopped(PATIENCE);
    assert_eq!(stopped.answered, Some(201));
    assert!(
        through.exists("done"),
        "at the very moment that the story is told"
    );
    drop(sender);
    drop(stopped);
    let written = &through.proxy.writes()[0];
    assert_eq!(
        (written.answered, written.told),
        (Some(201), None),
        "{written}"
    );
    assert!(through.proxy.try_stopped().is_none(), "once is once");
}

#[test]
fn a_held_write_lands_even_when_its_sender_has_been_killed() {
    let story = Story::begin("stop-lands");
    let through = Through::new(&story);
    through.proxy.once(Verdict::StopBefore, creates("ghost"));
    let sender = through.creating("ghost");
    let stopped = through.proxy.stopped(PATIENCE);
    drop(sender);
    assert!(!through.exists("ghost"));
    stopped.go_on();
    story.eventually("the dead one's write lands", || through.exists("ghost"));
}

#[test]
fn an_error_is_told_without_or_with_the_write_being_done() {
    let story = Story::begin("proxy-errors");
    let through = Through::new(&story);
    let told = |name: &str| through.create(name).unwrap_err();
    through.proxy.once(Verdict::Fail(409), creates("refused"));
    let said = told("refused");
    assert!(said.contains("AlreadyExists"), "{said}");
    assert!(!through.exists("refused"));

    through
        .proxy
        .once(Verdict::FailAfter(500), creates("applied"));
    let said = told("applied");
    assert!(said.contains("InternalError"), "{said}");
    assert!(through.exists("applied"));
    let writes = through.proxy.writes();
    let codes: Vec<_> = writes.iter().map(|it| (it.answered, it.told)).collect();
    assert_eq!(codes, [(None, Some(409)), (Some(201), Some(500))]);

    through.proxy.rule(|write| {
        if write.deed == Some(4) {
            Verdict::Fail(503)
        } else {
            Verdict::Pass
        }
    });
    through.create("third").unwrap();
    let said = told("fourth");
    assert!(said.contains("ServiceUnavailable"), "{said}");
    through.proxy.pass();
    through.create("fourth").unwrap();
}

#[test]
#[should_panic(expected = "no write was stopped within 1 s")]
fn a_story_whose_write_never_comes_fails_and_tells_what_came() {
    let story = Story::begin("stop-none");
    let through = Through::new(&story);
    through.create("unstopped").unwrap();
    through.proxy.stopped(Duration::from_secs(1));
}
