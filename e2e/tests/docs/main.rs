//! The docs pages as stories: every block of commands of every page runs on the lab in order, and its output must be the one on
//! the page. Each page has its own namespace and runs beside others, unless it harms nodes (module `alone`).
//!
//! `make screens` runs the same with `EVENKEEL_SCREENS=write`, which writes the output into the pages.
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
    the_readme_is_correct: "README.md",
    creation_matches_the_page: "docs/configuration/create.md",
    connecting_matches_the_page: "docs/configuration/connect.md",
    a_lost_pod_matches_the_page: "docs/troubleshooting/pod-lost.md",
}

#[test]
fn every_page_with_commands_has_a_story() {
    let mut with_commands = Vec::new();
    for path in files::user_pages(checkout()).unwrap() {
        let page = Page::parse(
            &path,
            &std::fs::read_to_string(checkout().join(&path)).unwrap(),
        )
        .unwrap();
        for (line, why) in &page.skipped {
            println!("not run: {path}:{line}: {why}");
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
