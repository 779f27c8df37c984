//! Explores one world from the command line: `explore MEMBERS FAULTS CRASHES EDITS DELAYS [ephemeral]`.

use evenkeel_etcd::facts::Storage;
use evenkeel_explore::Real;
use evenkeel_explore::explore::explore;
use evenkeel_explore::world::{Budget, World};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(0_u8);
    let budget = Budget { faults: number(1), crashes: number(2), edits: number(3), delays: number(4) };
    let ephemeral = arguments.iter().any(|word| word == "ephemeral");
    let storage = if ephemeral { Storage::Ephemeral } else { Storage::Persistent };
    let report = explore(&World::new(number(0), storage, 2, budget), &Real);
    println!("{} states, {} transitions, {:.1?}", report.states, report.transitions, report.took);
    println!("{:#?}", report.decided);
    if let Some(story) = report.story {
        println!("{story}");
    }
}
