//! The stories of this topic that `make test-all` runs.

use super::*;

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
