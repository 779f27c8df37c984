//! The docs for users, run as they stand: every block of commands of every page, in order, on the lab, and what a page shows
//! must be what is seen. A page has a namespace of its own, and runs beside the others unless it hurts nodes (in `alone`).
//!
//! `make screens` runs the same with `EVENKEEL_SCREENS=write`, which puts what is seen into the pages.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "stories fail by panicking"
)]

#[macro_use]
mod pages;

mod alone;
mod full;
mod run;
mod shell;

use evenkeel_docs::{Page, files};
use evenkeel_e2e::checkout;

pages! {
    what_the_readme_says_is_so: "README.md",
    a_cluster_is_created_as_told: "docs/tasks/create.md",
    applications_connect_as_told: "docs/tasks/connect.md",
    a_lost_pod_looks_as_told: "docs/failures/pod-lost.md",
}

#[test]
fn every_page_with_commands_has_its_story_and_what_is_not_run_says_why() {
    let mut with_commands = Vec::new();
    for path in files::user_pages(checkout()).unwrap() {
        let page = Page::parse(
            &path,
            &std::fs::read_to_string(checkout().join(&path)).unwrap(),
        )
        .unwrap();
        for (line, why) in &page.skipped {
            println!("left out: {path}:{line}: {why}");
        }
        if !page.blocks.is_empty() {
            with_commands.push(path);
        }
    }
    let mut listed = [PAGES, full::PAGES, alone::PAGES].concat();
    listed.sort_unstable();
    assert_eq!(
        listed, with_commands,
        "each page is listed in e2e/tests/docs: main.rs, full.rs or alone.rs"
    );
}
