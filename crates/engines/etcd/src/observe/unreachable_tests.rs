//! Times of unreachable and unknown members across observations of etcd.

use evenkeel_runtime::UnixTime;

use super::*;
use crate::testing::{NOW, Scene};

fn later(seconds: i64) -> UnixTime {
    UnixTime(NOW.0 + seconds)
}

/// Records an observation in which member 2 is unreachable; returns since when it is.
fn unreachable_at(times: &mut MemberTimes, at: UnixTime) -> UnixTime {
    let mut state = Scene::converged(3).state;
    state.reachable = [Serial(0), Serial(1)].into();
    state.unreachable_since.insert(Serial(2), at);
    times.record(&mut state, BTreeSet::new());
    state.unreachable_since[&Serial(2)]
}

#[test]
fn unreachable_time_counts_until_the_member_answers() {
    let mut times = MemberTimes::default();
    assert_eq!(unreachable_at(&mut times, NOW), NOW);
    assert_eq!(unreachable_at(&mut times, later(60)), NOW);
    let mut reachable = Scene::converged(3).state;
    reachable.reachable = [Serial(0), Serial(1), Serial(2)].into();
    times.record(&mut reachable, BTreeSet::new());
    assert_eq!(unreachable_at(&mut times, later(90)), later(90));
}

#[test]
fn unreachable_time_begins_anew_when_the_node_is_uncordoned() {
    let mut times = MemberTimes::default();
    let mut since_at = |at: UnixTime, cordoned: &[u16]| {
        let mut state = Scene::converged(3).state;
        state.reachable = [Serial(0), Serial(1)].into();
        state.unreachable_since.insert(Serial(2), at);
        times.record(&mut state, cordoned.iter().copied().map(Serial).collect());
        state.unreachable_since[&Serial(2)]
    };
    assert_eq!(since_at(NOW, &[]), NOW);
    assert_eq!(since_at(later(10), &[2]), NOW, "the node is cordoned");
    assert_eq!(since_at(later(60), &[2]), NOW);
    assert_eq!(since_at(later(90), &[]), later(90));
    assert_eq!(since_at(later(120), &[]), later(90));
}

#[test]
fn without_an_answer_of_the_leader_the_time_is_kept_and_not_reported() {
    let mut times = MemberTimes::default();
    unreachable_at(&mut times, NOW);
    let mut state = Scene::converged(3).state;
    state.reachable = [Serial(0), Serial(1)].into();
    times.record(&mut state, BTreeSet::new());
    assert!(state.unreachable_since.is_empty());
    assert_eq!(unreachable_at(&mut times, later(60)), NOW);
}

#[test]
fn an_unknown_member_counts_from_its_first_observation() {
    let mut times = MemberTimes::default();
    let mut first_seen = |at: UnixTime, is_listed: bool| {
        let mut scene = Scene::converged(3);
        if is_listed {
            scene.add_unknown_member(0xabc, false);
        }
        let membership = scene.state.membership.present_mut().unwrap();
        for unknown in &mut membership.unknown {
            unknown.first_seen = at;
        }
        times.record(&mut scene.state, BTreeSet::new());
        let unknown = &scene.state.membership.present().unwrap().unknown;
        unknown.first().map(|unknown| unknown.first_seen)
    };
    assert_eq!(first_seen(NOW, true), Some(NOW));
    assert_eq!(first_seen(later(60), true), Some(NOW));
    assert_eq!(first_seen(later(70), false), None);
    assert_eq!(first_seen(later(80), true), Some(later(80)));
}
