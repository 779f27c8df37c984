//! How long the checkers take: `cargo run -p evenkeel-history --release --example scale [operations]`.

use std::time::Instant;

use evenkeel_history::check::{general, ordered};
use evenkeel_history::simulate::{self, Shape};

fn main() {
    let ops = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(5_000_000);
    let shape = Shape {
        ops,
        clients: 10,
        keys: 12,
        ops_per_key: 300,
        unknown: 1,
    };
    let began = Instant::now();
    let history = simulate::history(1, &shape);
    println!(
        "{} operations, {} writes: made in {:.1} s",
        history.ops.len(),
        history.log.len(),
        seconds(began)
    );

    let began = Instant::now();
    let violations = ordered::check(&history).count();
    println!(
        "revision-ordered checker: {violations} violations in {:.1} s",
        seconds(began)
    );

    let began = Instant::now();
    let (keys, violations) = general::check(&history);
    println!(
        "general checker: {} violations over {keys} keys in {:.1} s",
        violations.count(),
        seconds(began)
    );
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}
