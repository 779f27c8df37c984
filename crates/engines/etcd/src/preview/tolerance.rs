//! How many failures the cluster of a preview tolerates.

use schemars::JsonSchema;
use serde::Serialize;

use crate::availability::{FailureTolerance, Voter};
use crate::facts::EtcdFacts;
use crate::identity::Uid;
use crate::view::{ClusterView, MemberView};

/// The number of further failures with which clients can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tolerance {
    /// Whether clients can write now: the voters have a quorum, and etcd has raised no alarm.
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
        if !view.membership_known {
            return Some(Self::NO_QUORUM);
        }
        let voter = |member: &MemberView<'_>| {
            let node = member.pod.and_then(|pod| pod.node);
            Voter {
                is_serving: member.is_serving(),
                node: node
                    .filter(|node| is_known(*node))
                    .map(|node| node.to_string()),
                zone: None,
            }
        };
        let voters: Vec<_> = view.voters().map(voter).collect();
        let Some(tolerance) = FailureTolerance::of(&voters, view.unknown_voters().len()) else {
            return Some(Self::NO_QUORUM);
        };
        Some(Self {
            can_write: facts.alarms.is_empty(),
            members: tolerance.members,
            nodes: tolerance.nodes.map(|nodes| nodes.failures),
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
