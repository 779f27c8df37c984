//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_create_held_before_the_api_server_is_applied_when_resumed() {
    let story = Story::begin("stop-go-on");
    let proxied = ProxiedKubectl::new(&story);
    proxied.proxy.once(Verdict::HoldBefore, creates("held"));
    let sender = proxied.start_create("held");
    let held = proxied.proxy.wait_held(WAIT_LIMIT);
    assert!(!proxied.exists("held"));
    held.resume();
    assert!(sender.succeeds());
    assert!(proxied.exists("held"));
}

#[test]
fn a_create_held_after_it_was_applied_exists_without_an_answer() {
    let story = Story::begin("stop-after");
    let proxied = ProxiedKubectl::new(&story);
    proxied.proxy.once(Verdict::HoldAfter, creates("done"));
    let sender = proxied.start_create("done");
    let held = proxied.proxy.wait_held(WAIT_LIMIT);
    assert_eq!(held.answered, Some(201));
    assert!(
        proxied.exists("done"),
        "the write is held before it is applied"
    );
    drop(sender);
    drop(held);
    let written = &proxied.proxy.writes()[0];
    assert_eq!(
        (written.answered, written.returned),
        (Some(201), None),
        "{written}"
    );
    assert!(
        proxied.proxy.try_held().is_none(),
        "a second write was held"
    );
}

#[test]
fn an_error_is_returned_with_or_without_applying_the_write() {
    let story = Story::begin("proxy-errors");
    let proxied = ProxiedKubectl::new(&story);
    let returned = |name: &str| proxied.create(name).unwrap_err();
    proxied.proxy.once(Verdict::Fail(409), creates("rejected"));
    let output = returned("rejected");
    assert!(output.contains("AlreadyExists"), "{output}");
    assert!(!proxied.exists("rejected"));

    proxied
        .proxy
        .once(Verdict::FailAfter(500), creates("applied"));
    let output = returned("applied");
    assert!(output.contains("InternalError"), "{output}");
    assert!(proxied.exists("applied"));
    let writes = proxied.proxy.writes();
    let codes: Vec<_> = writes.iter().map(|it| (it.answered, it.returned)).collect();
    assert_eq!(codes, [(None, Some(409)), (Some(201), Some(500))]);

    proxied.proxy.rule(|write| {
        if write.ordinal == Some(4) {
            Verdict::Fail(503)
        } else {
            Verdict::Pass
        }
    });
    proxied.create("third").unwrap();
    let output = returned("fourth");
    assert!(output.contains("ServiceUnavailable"), "{output}");
    proxied.proxy.pass();
    proxied.create("fourth").unwrap();
}

#[test]
#[should_panic(expected = "no write was held within 1 s")]
fn a_story_whose_write_is_never_held_fails_with_the_other_writes() {
    let story = Story::begin("stop-none");
    let proxied = ProxiedKubectl::new(&story);
    proxied.create("unstopped").unwrap();
    proxied.proxy.wait_held(Duration::from_secs(1));
}
