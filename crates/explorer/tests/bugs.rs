//! Every deliberate bug is found: an explorer that finds nothing proves nothing.

use evenkeel_explorer::bugs::BUGS;
use evenkeel_explorer::explore::explore;

#[test]
fn every_deliberate_bug_is_found() {
    for bug in BUGS {
        let report = explore(&bug.world(), &bug);
        let story = report
            .story
            .map(|story| story.to_string())
            .unwrap_or_default();
        println!("{} ({} states):\n{story}\n", bug.name, report.states);
        assert!(
            !story.is_empty(),
            "{} does no harm in any of {} states",
            bug.name,
            report.states
        );
    }
}

#[test]
fn bugs_have_names_of_their_own() {
    let mut names: Vec<_> = BUGS.iter().map(|bug| bug.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), BUGS.len());
}
