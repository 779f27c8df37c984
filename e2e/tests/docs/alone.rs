//! The pages that hurt nodes, or take the operator away: each runs alone, in `make test-all`.

pages! {
    it_is_installed_and_taken_away_as_told: "docs/install.md",
    a_node_is_drained_as_told: "docs/tasks/drain.md",
    a_lost_node_looks_as_told: "docs/failures/node-lost.md",
}
