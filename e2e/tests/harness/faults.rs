//! Writes that the proxy holds or answers with an error: the effect in the API server, and the answer to the sender.

mod full;

use std::time::Duration;

use evenkeel_e2e::proxy::Verdict;
use evenkeel_e2e::{Story, WAIT_LIMIT};

use crate::proxied_kubectl::{ProxiedKubectl, creates};

#[test]
fn a_create_held_before_the_api_server_and_dropped_has_no_effect() {
    let story = Story::begin("stop-before");
    let proxied = ProxiedKubectl::new(&story);
    proxied.proxy.once(Verdict::HoldBefore, creates("never"));
    let mut sender = proxied.start_create("never");
    let held = proxied.proxy.wait_held(WAIT_LIMIT);
    assert_eq!((held.write.name(), held.answered), (Some("never"), None));
    assert!(
        sender.0.try_wait().unwrap().is_none(),
        "the sender has exited"
    );
    assert!(!proxied.exists("never"));
    drop(held);
    assert!(!sender.succeeds(), "the sender got an answer");
    assert!(!proxied.exists("never"));
    let written = &proxied.proxy.writes()[0];
    assert_eq!(
        (written.answered, written.returned),
        (None, None),
        "{written}"
    );
    // Other writes pass.
    assert!(proxied.start_create("other").succeeds());
}

#[test]
fn a_held_write_is_applied_although_its_sender_was_killed() {
    let story = Story::begin("stop-lands");
    let proxied = ProxiedKubectl::new(&story);
    proxied.proxy.once(Verdict::HoldBefore, creates("ghost"));
    let sender = proxied.start_create("ghost");
    let held = proxied.proxy.wait_held(WAIT_LIMIT);
    drop(sender);
    assert!(!proxied.exists("ghost"));
    held.resume();
    story.eventually("the write of the killed sender is applied", || {
        proxied.exists("ghost")
    });
}
