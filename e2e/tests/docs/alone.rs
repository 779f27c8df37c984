//! The pages that harm nodes or remove the operator: `create test-all` runs each alone.

pages! {
    installation_and_removal_match_the_page: "docs/install.md",
    a_drain_matches_the_page: "docs/tasks/drain.md",
    a_lost_node_matches_the_page: "docs/failures/node-lost.md",
}
