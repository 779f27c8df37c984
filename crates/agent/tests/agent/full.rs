//! Tests that take longer: other versions, keep-alives, and random damage of a real snapshot.

use std::time::{Duration, Instant};

use evenkeel_agent::etcd::contents::SnapshotContents;
use evenkeel_archive::tasks::{FailureReason, FetchTask, Task};

use crate::authentication::drill_without_password;
use crate::faults::{assert_failed, in_mid_stream};
use crate::round_trip::{round_trip, write_history};
use crate::scene::{Scene, random};

#[test]
fn a_snapshot_of_3_5_is_restored_and_proven() {
    round_trip("3.5.35");
}

#[test]
fn a_snapshot_of_3_7_is_restored_and_proven() {
    round_trip("3.7.3");
}

#[test]
fn backups_of_3_5_and_3_7_with_authentication_are_proven() {
    drill_without_password("3.5.35");
    drill_without_password("3.7.3");
}

#[test]
fn a_frozen_member_is_noticed_by_keep_alives() {
    let (scene, mut agent) = in_mid_stream(120);
    scene.etcd.signal("-STOP");
    let begin = Instant::now();
    assert_failed(&scene, &mut agent, FailureReason::SourceFailed);
    scene.etcd.signal("-CONT");
    assert!(
        begin.elapsed() < Duration::from_secs(40),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_damaged_real_snapshot_neither_panics_nor_loops() {
    let scene = Scene::start("3.6.16");
    scene
        .runtime
        .block_on(write_history(&mut scene.client.clone()));
    let (location, _) = scene.snapshot("first");
    let file = scene.path("snapshot.db");
    scene.run(Task::Fetch(FetchTask {
        location,
        file: file.clone(),
        engine: "etcd".to_owned(),
        version: scene.version.clone(),
        space_percent: 100,
        certificates: None,
    }));
    let good = std::fs::read(&file).unwrap();
    let database = good.len() - 32;
    let (mut accepted, mut rejected) = (0, 0);
    for round in 0..300_u64 {
        let mut bytes = good.clone();
        for index in 0..=round % 8 {
            let numbers = random(round * 100 + index, 16);
            let [at @ .., _, _, _, _, _, _, _, byte] = numbers.as_slice() else {
                panic!("too few bytes");
            };
            let at = at.iter().fold(0_usize, |at, byte| {
                at.wrapping_mul(256) + usize::from(*byte)
            });
            // Half of the damage is at the beginning of pages, where headers and elements are.
            let at = if round % 2 == 0 {
                at % database
            } else {
                at % database / 4096 * 4096 + at % 64
            };
            bytes[at] = *byte;
        }
        std::fs::write(&file, &bytes).unwrap();
        let opened = std::fs::File::open(&file).unwrap();
        match SnapshotContents::read(&opened, database as u64) {
            Ok(_) => accepted += 1,
            Err(_) => rejected += 1,
        }
    }
    // Damage of values and of free pages is found by checksums, not by the walk.
    assert!(
        accepted > 0 && rejected > 50,
        "{accepted} accepted, {rejected} rejected"
    );
}
