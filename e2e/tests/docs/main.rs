//! The docs for users, run as they stand: every block of commands of every page, in order, on the lab, and what a page shows
//! must be what is seen. A page has a namespace of its own, and runs beside the others unless it hurts nodes.
//!
//! `make screens` runs the same with `EVENKEEL_SCREENS=write`, which puts what is seen into the pages.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "stories fail by panicking"
)]

mod run;
mod shell;

use evenkeel_docs::{Page, files};
use evenkeel_e2e::checkout;

/// Declares a story for each page, and lists them.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages that have commands to run.
        const PAGES: &[&str] = &[$($path),*];

        $(#[test]
        fn $name() {
            run::page($path);
        })*
    };
}

pages! {
    what_the_readme_says_is_so: "README.md",
    it_can_be_tried_as_told: "docs/try-it.md",
    it_is_installed_and_taken_away_as_told: "docs/install.md",
    the_plugin_is_as_told: "docs/kubectl-evenkeel.md",
    a_cluster_is_created_as_told: "docs/tasks/create.md",
    applications_connect_as_told: "docs/tasks/connect.md",
    a_cluster_is_scaled_as_told: "docs/tasks/scale.md",
    etcd_is_upgraded_as_told: "docs/tasks/upgrade.md",
    a_running_cluster_is_changed_as_told: "docs/tasks/edit.md",
    a_stopped_rollout_looks_as_told: "docs/failures/rollout-stopped.md",
    a_node_is_drained_as_told: "docs/tasks/drain.md",
    a_cluster_is_paused_as_told: "docs/tasks/pause.md",
    the_lead_is_moved_as_told: "docs/tasks/move-leader.md",
    clusters_are_deleted_and_recreated_as_told: "docs/tasks/delete.md",
    an_operator_for_one_namespace_is_installed_as_told: "docs/tasks/one-namespace.md",
    argo_cd_is_told_as_told: "docs/tasks/argocd.md",
    a_failure_is_asked_about_as_told: "docs/failures/README.md",
    a_lost_pod_looks_as_told: "docs/failures/pod-lost.md",
    a_lost_volume_looks_as_told: "docs/failures/volume-lost.md",
    a_lost_node_looks_as_told: "docs/failures/node-lost.md",
    a_lost_quorum_looks_as_told: "docs/failures/quorum-lost.md",
    lost_data_looks_as_told: "docs/failures/data-lost.md",
    a_crashing_member_looks_as_told: "docs/failures/crash-loop.md",
    an_unknown_member_looks_as_told: "docs/failures/unknown-member.md",
    a_taken_name_looks_as_told: "docs/failures/name-taken.md",
    a_refused_spec_looks_as_told: "docs/failures/spec-refused.md",
    a_member_without_a_node_looks_as_told: "docs/failures/unschedulable.md",
    a_blocked_drain_looks_as_told: "docs/failures/drain-blocked.md",
    a_lost_authority_looks_as_told: "docs/failures/authority-lost.md",
    an_operator_that_is_down_looks_as_told: "docs/failures/operator-down.md",
    want_of_space_looks_as_told: "docs/failures/no-space.md",
    a_refused_write_looks_as_told: "docs/failures/write-refused.md",
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
    let mut listed = PAGES.to_vec();
    listed.sort_unstable();
    assert_eq!(
        listed, with_commands,
        "each page is listed in e2e/tests/docs/main.rs"
    );
}
