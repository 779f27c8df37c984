//! Measures the run time of the checkers: `cargo run -p evenkeel-history --release --example scale [operations]`.

use std::time::Instant;

use evenkeel_history::check::{general, ordered};
use evenkeel_history::simulate::{self, HistoryShape};

fn main() {
    let ops = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(5_000_000);
    let shape = HistoryShape {
        operations: ops,
        clients: 10,
        keys: 12,
        operations_per_key: 300,
        unknown_percent: 1,
    };
    let began = Instant::now();
    let history = simulate::history(1, &shape);
    println!(
        "{} operations, {} writes: made in {:.1} s",
        history.operations.len(),
        history.writes.len(),
        seconds(began)
    );

    let began = Instant::now();
    let anomalies = ordered::check(&history).count();
    println!(
        "revision-ordered checker: {anomalies} anomalies in {:.1} s",
        seconds(began)
    );

    let began = Instant::now();
    let (keys, anomalies) = general::check(&history);
    println!(
        "general checker: {} anomalies over {keys} keys in {:.1} s",
        anomalies.count(),
        seconds(began)
    );
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}
