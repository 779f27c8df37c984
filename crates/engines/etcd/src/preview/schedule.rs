//! The nodes that the pods of a preview are scheduled to.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_kit::nodes::{NodeState, ZONE};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::desired::DesiredCluster;
use crate::facts::{ClaimFacts, PodFacts, VolumeTopology};
use crate::identity::Uid;
use crate::names::Serial;

/// A node on which a pod of the cluster can be scheduled: its labels, taints and state allow that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableNode {
    /// The hash of its hostname label.
    pub id: Uid,
    /// Its zone label.
    pub zone: Option<String>,
}

/// Returns the states of nodes by name, as an observation has them.
pub fn node_states(nodes: &[Node]) -> BTreeMap<String, NodeState> {
    let states = nodes.iter();
    states
        .map(|node| (node.name_any(), NodeState::of(node)))
        .collect()
}

/// How members are spread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    /// Over zones instead of nodes.
    over_zones: bool,
    /// Whether a pod stays Pending rather than share a node or a zone.
    is_required: bool,
}

impl Spread {
    pub(super) fn of(desired: &DesiredCluster) -> Self {
        Self {
            over_zones: desired.spread_across == ZONE,
            is_required: desired.spread_required,
        }
    }
}

/// A scheduler that spreads members as the pods ask for.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// The nodes; `None` if they are not known.
    nodes: Option<Vec<AvailableNode>>,
    spread: Spread,
    /// The last node of each member.
    last: BTreeMap<Serial, Uid>,
    /// The nodes that were made up because the nodes are not known.
    made_up: BTreeSet<Uid>,
}

impl Scheduler {
    pub(super) fn new(nodes: Option<Vec<AvailableNode>>, spread: Spread) -> Self {
        Self {
            nodes,
            spread,
            last: BTreeMap::new(),
            made_up: BTreeSet::new(),
        }
    }

    /// Remembers the node of a pod that is about to be deleted.
    pub(super) fn remember(&mut self, pod: &PodFacts) {
        if let Some(node) = pod.node {
            self.last.insert(pod.serial, node);
        }
    }

    /// Returns whether a node exists.
    pub(super) fn is_known(&self, node: Uid) -> bool {
        !self.made_up.contains(&node)
    }

    /// Returns the node for a pod; `None` if it stays Pending. If the nodes are not known, a
    /// member stays where it was, and a new one gets the node `made_up`.
    pub(super) fn choose(
        &mut self,
        pod: &PodFacts,
        claim: Option<&ClaimFacts>,
        pods: &[PodFacts],
        made_up: Uid,
    ) -> Option<Uid> {
        let volume_node = claim.and_then(|claim| match claim.topology {
            VolumeTopology::Node(node) => Some(node),
            VolumeTopology::Anywhere | VolumeTopology::Unknown => None,
        });
        let last = self.last.get(&pod.serial).copied();
        let Some(nodes) = &self.nodes else {
            let known = volume_node.or(last);
            if known.is_none() {
                self.made_up.insert(made_up);
            }
            return known.or(Some(made_up));
        };
        if let Some(node) = volume_node {
            return nodes.iter().any(|other| other.id == node).then_some(node);
        }
        let zone_of = |id: Uid| {
            let node = nodes.iter().find(|node| node.id == id);
            node.and_then(|node| node.zone.as_ref())
        };
        let others = || {
            let others = pods.iter().filter(|other| other.uid != pod.uid);
            others.filter_map(|other| other.node)
        };
        let on_node = |node: &AvailableNode| others().filter(|other| *other == node.id).count();
        let in_zone = |node: &AvailableNode| match &node.zone {
            Some(zone) => others()
                .filter(|other| zone_of(*other) == Some(zone))
                .count(),
            None => usize::MAX,
        };
        let in_domain = |node: &AvailableNode| {
            if self.spread.over_zones {
                in_zone(node)
            } else {
                on_node(node)
            }
        };
        nodes
            .iter()
            .filter(|node| !self.spread.is_required || in_domain(node) == 0)
            .min_by_key(|node| (in_domain(node), on_node(node), Some(node.id) != last))
            .map(|node| node.id)
    }
}
