//! Explores one world from the command line: `explore MEMBERS FAULTS CRASHES EDITS DELAYS [ephemeral] [one-learner] [rolling | moving]`.

use std::time::Instant;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::Real;
use evenkeel_explorer::explore::explore_with;
use evenkeel_explorer::world::{Budget, World};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| {
        arguments
            .get(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0_u8)
    };
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let budget = Budget {
        faults: number(1),
        crashes: number(2),
        edits: number(3),
        delays: number(4),
    };
    let storage = if has("ephemeral") {
        StorageKind::Ephemeral
    } else {
        StorageKind::Persistent
    };
    let learners = if has("one-learner") { 1 } else { 2 };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (began, mut told) = (Instant::now(), Instant::now());
    let mut tell = |layers: usize, next: usize, states: usize| {
        if told.elapsed().as_secs() >= 10 {
            told = Instant::now();
            eprintln!(
                "{:.0?}: {layers} layers, {states} states, {next} in the next layer",
                began.elapsed()
            );
        }
    };
    let world = World::new(number(0), storage, learners, budget);
    let world = match (has("rolling"), has("moving")) {
        (_, true) => world.moving(),
        (true, _) => world.rolling(),
        _ => world,
    };
    let report = explore_with(&world, &Real, threads, &mut tell);
    println!(
        "{} members, {storage:?}, {learners} learners at once, {budget:?}",
        number(0)
    );
    println!(
        "{} states of {} worlds, {} transitions, {} layers, {:.1?}, {threads} threads, {}",
        report.states,
        report.worlds,
        report.transitions,
        report.layers,
        report.took,
        memory()
    );
    println!("{:#?}", report.decided);
    match report.story {
        Some(story) => println!("{story}"),
        None => println!("no rule was broken, and every state came to rest"),
    }
}

/// The most memory that this process had.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .unwrap_or_default()
}
