//! How many failures the cluster of a preview tolerates.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::facts::EtcdFacts;
use crate::identity::Uid;
use crate::view::{ClusterView, MemberView, quorum};

/// The number of further failures with which clients can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tolerance {
    /// Whether clients can write at all.
    pub can_write: bool,
    /// The number of member failures.
    pub members: usize,
    /// The number of node failures; `None` if the node of a member is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
}

impl Tolerance {
    const NO_QUORUM: Self = Self {
        can_write: false,
        members: 0,
        nodes: Some(0),
    };

    /// Returns the tolerance in a state; `None` before bootstrap is finished. `is_known` returns
    /// false for nodes that the preview made up.
    pub(super) fn of(facts: &EtcdFacts, is_known: impl Fn(Uid) -> bool) -> Option<Self> {
        let view = ClusterView::from_facts(facts)?;
        if !view.identity.bootstrapped {
            return None;
        }
        let voters = || view.voters().filter(|voter| voter.is_serving());
        let needed = quorum(view.votes());
        let Some(spare) = voters().count().checked_sub(needed) else {
            return Some(Self::NO_QUORUM);
        };
        if !view.membership_known {
            return Some(Self::NO_QUORUM);
        }
        Some(Self {
            can_write: true,
            members: spare,
            nodes: members_by_node(voters(), is_known).map(|counts| tolerated(&counts, spare)),
        })
    }

    /// Returns the lower of two tolerances.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            can_write: self.can_write && other.can_write,
            members: self.members.min(other.members),
            nodes: self
                .nodes
                .zip(other.nodes)
                .map(|(nodes, other)| nodes.min(other)),
        }
    }
}

/// Returns how many of the voters each node runs, largest first; `None` if a node is not known.
fn members_by_node<'v, 'f: 'v>(
    voters: impl Iterator<Item = &'v MemberView<'f>>,
    is_known: impl Fn(Uid) -> bool,
) -> Option<Vec<usize>> {
    let mut counts = BTreeMap::<Uid, usize>::new();
    for voter in voters {
        let node = voter.pod?.node.filter(|node| is_known(*node))?;
        *counts.entry(node).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    Some(counts)
}

/// Returns how many nodes may fail, in the worst order, before more than `spare` voters are lost.
fn tolerated(counts: &[usize], spare: usize) -> usize {
    let lost = counts.iter().scan(0, |lost, count| {
        *lost += count;
        Some(*lost)
    });
    lost.take_while(|lost| *lost <= spare).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Scene, change};

    fn tolerance(scene: &Scene) -> Option<Tolerance> {
        Tolerance::of(&scene.facts(), |_| true)
    }

    fn move_to_node(scene: &mut Scene, serial: u16, node: &str) {
        change(scene.pod(serial), json!({ "spec": { "nodeName": node } }));
    }

    #[test]
    fn members_that_share_a_node_fail_together() {
        let tolerated = |scene: &Scene| {
            let tolerance = tolerance(scene).unwrap();
            (tolerance.members, tolerance.nodes)
        };
        let mut scene = Scene::converged(5);
        assert_eq!(tolerated(&scene), (2, Some(2)));
        move_to_node(&mut scene, 4, "node-0");
        assert_eq!(tolerated(&scene), (2, Some(1)));
        move_to_node(&mut scene, 3, "node-0");
        assert_eq!(tolerated(&scene), (2, Some(0)));
        assert_eq!(tolerated(&Scene::converged(2)), (0, Some(0)));
    }

    #[test]
    fn a_node_that_is_not_known_is_not_counted() {
        let scene = Scene::converged(3);
        let made_up = Uid::of_name("node-2");
        let tolerance = Tolerance::of(&scene.facts(), |node| node != made_up).unwrap();
        assert_eq!((tolerance.members, tolerance.nodes), (1, None));
    }

    #[test]
    fn without_a_quorum_nothing_is_tolerated() {
        let mut scene = Scene::converged(3);
        scene.lose_quorum(&[1, 2]);
        assert_eq!(tolerance(&scene), Some(Tolerance::NO_QUORUM));
        scene.make_bootstrap_unfinished();
        assert_eq!(tolerance(&scene), None);
    }
}
