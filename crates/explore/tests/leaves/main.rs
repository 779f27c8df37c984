//! Every leaf of the resource is set, changed, left out, made what it cannot be, and put back. Each step goes through the schema
//! and its rules, through the checks in Rust, and through `decide` in the explorer's world, with the objects as they are built; at
//! its end the cluster is what a new one with that very spec would be, and as many pods were touched as its row says.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod kube_side;
mod lived;
mod rows;
mod schema;
mod walk;

use std::collections::BTreeSet;

use crate::rows::Row;
use crate::schema::Schema;
use crate::walk::Lab;

#[test]
fn every_leaf_of_the_spec_has_a_row() {
    let leaves = Schema::of_the_types().leaves();
    assert!(leaves.len() > 30, "only {leaves:?}");
    let rows: BTreeSet<&str> = rows::all().iter().map(|row| row.leaf).collect();
    let without: Vec<_> = leaves.iter().filter(|leaf| !rows.contains(leaf.as_str())).collect();
    assert!(without.is_empty(), "no case for {without:?}: say in rows.rs what each can be, and how it is rolled out");
    let within = |row: &&&str| leaves.iter().any(|leaf| leaf.starts_with(**row));
    let unknown: Vec<_> = rows.iter().filter(|row| !within(row)).collect();
    assert!(unknown.is_empty(), "no such leaf: {unknown:?}");
}

#[test]
fn every_leaf_comes_to_what_a_new_cluster_would_be() {
    let mut lab = Lab::new();
    let mut wrong = Vec::new();
    for row in rows::all() {
        let Row { leaf, kind, .. } = &row;
        for ephemeral in [false, true] {
            let data = if ephemeral { "in pods" } else { "on volumes" };
            let found = lab.walk(&row, ephemeral);
            println!("{leaf} ({kind:?}, data {data}): {}", if found.is_empty() { "well" } else { "wrong" });
            wrong.extend(found.into_iter().map(|it| format!("{leaf}, data {data}: {it}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
