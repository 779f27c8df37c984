//! Notes about the result of a preview that users may not expect.

use std::collections::BTreeMap;

use evenkeel_api::releases;

use super::effects::Effects;
use super::step_texts::join_words;
use super::template_changes::format_size;
use crate::actions::member_display_name;
use crate::availability::count;
use crate::facts::EtcdFacts;
use crate::identity::Uid;
use crate::observe::ObservedCluster;

/// The size of the data from which on its copy takes longer than the rest of a join, in bytes.
const LARGE_DATA_BYTES: u64 = 512 << 20;

/// Returns the notes; `first` and `last` are the facts at the beginning and the end.
pub(super) fn notes(
    observed: &ObservedCluster,
    first: &EtcdFacts,
    last: &EtcdFacts,
    effects: &Effects,
) -> Vec<String> {
    let desired = last.cluster.next_version.unwrap_or(last.cluster.version);
    let changes_members = effects.members_added != effects.members_removed;
    // The warnings about the spec do not mention a version that was edited before.
    let starts_version = effects.creates_cluster || effects.restarts + effects.members_added > 0;
    let mut notes = Vec::new();
    if starts_version {
        notes.extend(releases::unknown_patch(desired));
    }
    notes.extend(pending_pods(observed, last));
    notes.extend(shared_nodes(first, last));
    if changes_members {
        notes.extend(member_count(last.cluster.members));
    }
    if effects.members_added > 0 {
        notes.extend(large_data(first));
    }
    notes
}

/// Returns a note about pods that find no node.
fn pending_pods(observed: &ObservedCluster, last: &EtcdFacts) -> Option<String> {
    let pods = last.pods.present().into_iter().flatten();
    let pending = pods.filter(|pod| pod.node.is_none() && pod.unschedulable_since.is_some());
    let names = pending.map(|pod| member_display_name(observed, pod.serial));
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return None;
    }
    let (noun, verb) = match names.len() {
        1 => ("the pod", "stays"),
        _ => ("the pods", "stay"),
    };
    let cause = if observed.desired.spread_required {
        "no free node matches spec.scheduling, and spec.scheduling.spread.require is true"
    } else {
        "no node that is schedulable matches spec.scheduling and its volume"
    };
    let names = join_words(&names);
    Some(format!("{noun} of {names} {verb} Pending: {cause}"))
}

/// Returns a note if more members share a node at the end than at the beginning.
fn shared_nodes(first: &EtcdFacts, last: &EtcdFacts) -> Option<String> {
    let (before, after) = (members_per_node(first), members_per_node(last));
    let largest = |nodes: &BTreeMap<Uid, usize>| nodes.values().copied().max().unwrap_or(0);
    if largest(&after) <= largest(&before).max(1) {
        return None;
    }
    let members = after.values().sum();
    Some(format!(
        "{} share {}: the failure of one node can stop {}",
        count(members, "member"),
        count(after.len(), "node"),
        count(largest(&after), "member")
    ))
}

fn members_per_node(facts: &EtcdFacts) -> BTreeMap<Uid, usize> {
    let pods = facts.pods.present().into_iter().flatten();
    let mut nodes = BTreeMap::new();
    for node in pods.filter_map(|pod| pod.node) {
        *nodes.entry(node).or_default() += 1;
    }
    nodes
}

/// Returns a note about a number of members that blocks drains.
fn member_count(members: u8) -> Option<String> {
    match members {
        1 => Some(
            "with 1 member, node drains are blocked: clients cannot write without it".to_owned(),
        ),
        2 => Some(
            "with 2 members, node drains are blocked: the quorum needs both of them".to_owned(),
        ),
        _ => None,
    }
}

fn large_data(first: &EtcdFacts) -> Option<String> {
    let health = first.health.values().filter_map(|health| health.present());
    let size = health.map(|health| health.db_size).max()?;
    (size >= LARGE_DATA_BYTES).then(|| {
        format!(
            "each new member copies up to {} of data; the expected time does not include that",
            format_size(size)
        )
    })
}
