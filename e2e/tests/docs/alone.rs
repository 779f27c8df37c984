//! The pages that harm nodes or remove the operator: `make test-all` runs each alone.

pages! {
    installation_and_removal_match_the_page: "docs/installation/install.md",
    the_quick_start_matches_the_page: "docs/getting-started/quick-start.md",
    an_operator_upgrade_matches_the_page: "docs/installation/upgrade-operator.md",
    an_uninstallation_matches_the_page: "docs/installation/uninstall.md",
    node_maintenance_matches_the_page: "docs/operations/node-maintenance.md",
    a_lost_node_matches_the_page: "docs/troubleshooting/node-lost.md",
}
