//! Explores one model from the command line:
//! `explore MEMBERS FAULTS CRASHES EDITS DELAYS [ephemeral] [one-learner] [rolling | moving]`.

use std::time::Instant;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::RealDecider;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_explorer::search::explore_with_progress;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| {
        arguments
            .get(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0_u8)
    };
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let budget = FaultBudget {
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
    let (began, mut last_report) = (Instant::now(), Instant::now());
    let mut progress = |layers: usize, next: usize, states: usize| {
        if last_report.elapsed().as_secs() >= 10 {
            last_report = Instant::now();
            eprintln!(
                "{:.0?}: {layers} layers, {states} states, {next} in the next layer",
                began.elapsed()
            );
        }
    };
    let model = ClusterModel::new(number(0), storage, learners, budget);
    let model = match (has("rolling"), has("moving")) {
        (_, true) => model.with_volume_edits(),
        (true, _) => model.with_template_edits(),
        _ => model,
    };
    let report = explore_with_progress(&model, &RealDecider, threads, &mut progress);
    println!(
        "{} members, {storage:?}, {learners} learners at once, {budget:?}",
        number(0)
    );
    println!(
        "{} states of {} configurations, {} transitions, {} layers, {:.1?}, {threads} threads, {}",
        report.states,
        report.configurations,
        report.transitions,
        report.layers,
        report.elapsed,
        memory()
    );
    println!("{:#?}", report.decided);
    match report.counterexample {
        Some(counterexample) => println!("{counterexample}"),
        None => println!("no rule was broken, and every state converges"),
    }
}

/// Returns the peak memory of this process.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .unwrap_or_default()
}
