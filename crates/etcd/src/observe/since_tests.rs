use evenkeel::Seen;

use super::*;
use crate::testing::{NOW, Scene};

fn key() -> Key {
    Key { namespace: "shop".to_owned(), name: "orders".to_owned() }
}

fn later(seconds: i64) -> Time {
    Time(NOW.0 + seconds)
}

/// What is told of a member that neither the operator nor the leader hears at this time.
fn silent(since: &Since, at: Time) -> Time {
    let mut answers = Scene::converged(3).answers;
    answers.heard = [Serial(0), Serial(1)].into();
    answers.silent.insert(Serial(2), at);
    since.tell(&key(), &mut answers);
    answers.silent[&Serial(2)]
}

#[test]
fn silence_counts_from_when_it_was_first_noticed_until_somebody_hears_the_member() {
    let since = Since::default();
    assert_eq!(silent(&since, NOW), NOW);
    assert_eq!(silent(&since, later(30)), NOW);
    assert_eq!(silent(&since, later(60)), NOW);
    let mut heard = Scene::converged(3).answers;
    heard.heard = [Serial(0), Serial(1), Serial(2)].into();
    since.tell(&key(), &mut heard);
    assert_eq!(silent(&since, later(90)), later(90), "it was heard meanwhile");
    since.forget(&key());
    assert_eq!(silent(&since, later(120)), later(120));
}

#[test]
fn while_the_leader_does_not_say_nothing_is_told_and_nothing_forgotten() {
    let since = Since::default();
    silent(&since, NOW);
    let mut unknown = Scene::converged(3).answers;
    unknown.heard = [Serial(0), Serial(1)].into();
    since.tell(&key(), &mut unknown);
    assert!(unknown.silent.is_empty());
    assert_eq!(silent(&since, later(60)), NOW);
}

#[test]
fn silence_that_nobody_looked_at_for_long_counts_anew() {
    let since = Since::default();
    silent(&since, NOW);
    assert_eq!(silent(&since, later(600)), later(600));
}

#[test]
fn a_stranger_counts_from_when_it_was_first_seen_and_anew_when_it_was_gone() {
    let since = Since::default();
    let seen = |at: Time, there: bool| {
        let mut scene = Scene::converged(3);
        if there {
            scene.has_stranger(0xabc, false);
        }
        let Seen::Present(told) = &mut scene.answers.membership else { panic!("they are known") };
        told.strangers.iter_mut().for_each(|stranger| stranger.since = at);
        since.tell(&key(), &mut scene.answers);
        let Seen::Present(told) = &scene.answers.membership else { panic!("they are known") };
        told.strangers.first().map(|stranger| stranger.since)
    };
    assert_eq!(seen(NOW, true), Some(NOW));
    assert_eq!(seen(later(60), true), Some(NOW));
    assert_eq!(seen(later(70), false), None);
    assert_eq!(seen(later(80), true), Some(later(80)));
}
