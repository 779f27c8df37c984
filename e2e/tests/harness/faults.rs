//! Writes that the proxy stops or answers with an error: what the API server has, and what the sender was told.

mod full;

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
