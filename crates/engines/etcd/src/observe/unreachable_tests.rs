use evenkeel_runtime::Observed;

use super::*;
use crate::testing::{NOW, Scene};

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    }
}

fn later(seconds: i64) -> UnixTime {
    UnixTime(NOW.0 + seconds)
}

/// What is told of a member that neither the operator nor the leader hears at this time.
fn silent(since: &UnreachableTracker, at: UnixTime) -> UnixTime {
    let mut state = Scene::converged(3).state;
    state.reachable = [Serial(0), Serial(1)].into();
    state.unreachable_since.insert(Serial(2), at);
    since.record(&key(), &mut state);
    state.unreachable_since[&Serial(2)]
}

#[test]
fn silence_counts_from_when_it_was_first_noticed_until_somebody_hears_the_member() {
    let since = UnreachableTracker::default();
    assert_eq!(silent(&since, NOW), NOW);
    assert_eq!(silent(&since, later(30)), NOW);
    assert_eq!(silent(&since, later(60)), NOW);
    let mut heard = Scene::converged(3).state;
    heard.reachable = [Serial(0), Serial(1), Serial(2)].into();
    since.record(&key(), &mut heard);
    assert_eq!(
        silent(&since, later(90)),
        later(90),
        "it was heard meanwhile"
    );
    since.forget(&key());
    assert_eq!(silent(&since, later(120)), later(120));
}

#[test]
fn while_the_leader_does_not_say_nothing_is_told_and_nothing_forgotten() {
    let since = UnreachableTracker::default();
    silent(&since, NOW);
    let mut unknown = Scene::converged(3).state;
    unknown.reachable = [Serial(0), Serial(1)].into();
    since.record(&key(), &mut unknown);
    assert!(unknown.unreachable_since.is_empty());
    assert_eq!(silent(&since, later(60)), NOW);
}

#[test]
fn silence_that_nobody_looked_at_for_long_counts_anew() {
    let since = UnreachableTracker::default();
    silent(&since, NOW);
    assert_eq!(silent(&since, later(600)), later(600));
}

#[test]
fn a_stranger_counts_from_when_it_was_first_seen_and_anew_when_it_was_gone() {
    let since = UnreachableTracker::default();
    let seen = |at: UnixTime, there: bool| {
        let mut scene = Scene::converged(3);
        if there {
            scene.has_stranger(0xabc, false);
        }
        let Observed::Present(told) = &mut scene.state.membership else {
            panic!("they are known")
        };
        told.unknown
            .iter_mut()
            .for_each(|unknown| unknown.first_seen = at);
        since.record(&key(), &mut scene.state);
        let Observed::Present(told) = &scene.state.membership else {
            panic!("they are known")
        };
        told.unknown.first().map(|unknown| unknown.first_seen)
    };
    assert_eq!(seen(NOW, true), Some(NOW));
    assert_eq!(seen(later(60), true), Some(NOW));
    assert_eq!(seen(later(70), false), None);
    assert_eq!(seen(later(80), true), Some(later(80)));
}
