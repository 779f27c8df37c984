//! Compares previews with the explorer's model.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod comparison;
#[path = "../leaves/objects.rs"]
mod objects;
mod edits;
mod run;
mod states;

use std::collections::BTreeMap;

use crate::states::{Events, State, converged_clusters, new_clusters, on_the_way};

fn report(name: &str, states: &[State]) {
    let began = std::time::Instant::now();
    let mut by: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for state in states {
        if let Some(difference) = state.difference() {
            by.entry(difference).or_default().push(state.path.clone());
        }
    }
    println!("##### {name}: {} states, {:?}, {} differences", states.len(), began.elapsed(), by.len());
    let mut by: Vec<_> = by.into_iter().filter(|(_, p)| !p.iter().any(|p| p.contains("Broken") || p.contains("DiskWiped"))).collect();
    by.sort_by_key(|(_, paths)| std::cmp::Reverse(paths.len()));
    for (difference, paths) in by {
        println!("=== {} times, such as {:?}{difference}", paths.len(), &paths[..paths.len().min(3)]);
    }
}

#[test]
fn explore_differences() {
    for members in [1, 2, 3, 5] {
        let mut states = new_clusters(members);
        states.extend(converged_clusters(members));
        let after: Vec<_> = states.iter().flat_map(|s| s.after(Events::All)).collect();
        let later: Vec<_> = after.iter().map(State::later).collect();
        states.extend(after);
        states.extend(later);
        report(&format!("one of {members}"), &states);
    }
    for members in [1, 3] {
        let way: Vec<_> = new_clusters(members).iter().flat_map(on_the_way).collect();
        report("on the way", &way);
        let after: Vec<_> = way.iter().flat_map(|s| s.after(Events::Faults)).collect();
        report("on the way, fault", &after);
        let after: Vec<_> = way.iter().flat_map(|s| s.after(Events::Edits)).collect();
        report("on the way, edit", &after);
    }
    let states = converged_clusters(3);
    let one: Vec<_> = states.iter().flat_map(|s| s.after(Events::Faults)).collect();
    let one: Vec<_> = one.iter().flat_map(|s| s.after(Events::All)).collect();
    report("two", &one);
}
