//! Details of members for the status: node, zone, and the problem of the pod with its kind. Pure; no decision depends on
//! them.

use std::collections::BTreeMap;

use evenkeel_api::NodeProblem;
use evenkeel_kit::nodes::NodeState;
use evenkeel_kit::volumes::VolumeLocation;
use evenkeel_kit::{claims, pods};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;

use super::ObservedCluster;
use super::crash::CrashReason;
use super::etcd::EtcdState;
use crate::facts::{MemberDetails, NodeTrouble, PodProblemKind};
use crate::names::{ENGINE, Serial};

/// A problem of a pod.
struct PodProblem {
    kind: PodProblemKind,
    message: String,
}

impl ObservedCluster {
    pub(super) fn member_details(&self, state: &EtcdState) -> BTreeMap<Serial, MemberDetails> {
        let membership = state.membership.present();
        let mut listed = membership
            .into_iter()
            .flat_map(|membership| &membership.members);
        let leader = listed
            .find(|member| Some(member.id) == state.leader)
            .map(|member| member.serial);
        let details = self.pods.values().filter_map(|pod| {
            let serial = self.member_of(&pod.metadata)?.serial;
            let claim = self.claim_of(serial);
            let problem = self.pod_problem(pod, claim);
            let node = pods::node(pod);
            let volume_node = claim
                .filter(|_| node.is_none())
                .and_then(|claim| self.local_node(claim));
            let needed_node = node.or(volume_node);
            let is_drained = volume_node.is_some_and(|node| {
                let message = problem.as_ref().map(|problem| problem.message.as_str());
                self.is_drained(node, message.unwrap_or_default())
            });
            let details = MemberDetails {
                node: node.map(str::to_owned),
                zone: self.node(needed_node).and_then(|node| node.zone.clone()),
                node_problem: self.node_problem(needed_node),
                volume_node: volume_node.map(str::to_owned),
                is_drained,
                terminating_since: pods::terminating_since(pod),
                scheduled_at: pods::scheduled_at(pod),
                has_been_ready: pods::has_been_ready(pod, ENGINE.engine, self.now),
                version: state.versions.get(&serial).cloned(),
                is_leader: leader == Some(serial),
                pod_problem_kind: problem
                    .as_ref()
                    .map(|problem| problem.kind)
                    .unwrap_or_default(),
                pod_problem: problem.map(|problem| problem.message),
            };
            Some((serial, details))
        });
        details.collect()
    }

    fn claim_of(&self, serial: Serial) -> Option<&PersistentVolumeClaim> {
        let mut claims = self.claims.values();
        claims.find(|claim| {
            let member = self.member_of(&claim.metadata);
            member.is_some_and(|member| member.serial == serial)
        })
    }

    fn node(&self, name: Option<&str>) -> Option<&NodeState> {
        self.nodes.as_ref()?.get(name?)
    }

    /// Returns the name of the node whose own disk a claim's volume is on.
    fn local_node(&self, claim: &PersistentVolumeClaim) -> Option<&str> {
        let Some(VolumeLocation::Node(hostname)) = self.volume_locations.get(&claim.name_any())
        else {
            return None;
        };
        let mut nodes = self.nodes.as_ref()?.values();
        let node = nodes.find(|node| node.hostname.as_ref() == Some(hostname))?;
        Some(&node.name)
    }

    /// Returns the problem of a node; `None` if it has none, or if nodes cannot be read.
    fn node_problem(&self, name: Option<&str>) -> Option<NodeTrouble> {
        let (nodes, name) = (self.nodes.as_ref()?, name?);
        let Some(node) = nodes.get(name) else {
            return Some(NodeTrouble {
                problem: NodeProblem::Missing,
                since: None,
            });
        };
        if !node.is_ready {
            return Some(NodeTrouble {
                problem: NodeProblem::NotReady,
                since: node.unready_since,
            });
        }
        node.is_cordoned.then_some(NodeTrouble {
            problem: NodeProblem::Cordoned,
            since: None,
        })
    }

    /// Returns true if a pod that needs this node waits for the end of a drain. When the node is uncordoned, the message of
    /// the scheduler is outdated until it tries again.
    fn is_drained(&self, node: &str, scheduler_message: &str) -> bool {
        let Some(node) = self.node(Some(node)).filter(|node| node.is_ready) else {
            return false;
        };
        let reasons = ["were unschedulable", "untolerated taint"];
        let is_outdated = !node.is_tainted
            && reasons
                .iter()
                .any(|reason| scheduler_message.contains(reason));
        !scheduler_message.is_empty() && (node.is_cordoned || is_outdated)
    }

    fn pod_problem(&self, pod: &Pod, claim: Option<&PersistentVolumeClaim>) -> Option<PodProblem> {
        let of_volume = claim.and_then(|claim| self.volume_problem(claim));
        if of_volume.is_some() {
            return of_volume;
        }
        let message = pods::problem(pod, ENGINE.engine)?;
        if pods::node(pod).is_none() {
            return Some(PodProblem {
                kind: PodProblemKind::Unschedulable,
                message,
            });
        }
        if pods::is_image_missing(pod) {
            return Some(PodProblem {
                kind: PodProblemKind::ImagePull,
                message,
            });
        }
        if !pods::is_crash_looping(pod, ENGINE.engine) {
            return Some(PodProblem {
                kind: PodProblemKind::Other,
                message,
            });
        }
        let log = pods::termination_message(pod, ENGINE.engine);
        Some(match log.and_then(CrashReason::of) {
            Some(CrashReason::VolumeFull) => PodProblem {
                kind: PodProblemKind::VolumeFull,
                message: "etcd keeps crashing because its volume is full (no space left on device)"
                    .to_owned(),
            },
            Some(CrashReason::Error(error)) => PodProblem {
                kind: PodProblemKind::Crashing,
                message: format!("etcd keeps crashing (CrashLoopBackOff): {error}"),
            },
            None => PodProblem {
                kind: PodProblemKind::Crashing,
                message,
            },
        })
    }

    /// Returns the problem of a PVC that is not bound. The message of the scheduler ("unbound immediate
    /// PersistentVolumeClaims") names neither cause nor remedy.
    fn volume_problem(&self, claim: &PersistentVolumeClaim) -> Option<PodProblem> {
        if claims::volume_name(claim).is_some() {
            return None;
        }
        let class = claim.spec.as_ref()?.storage_class_name.as_ref();
        let Some(class) = class else {
            return Some(PodProblem {
                kind: PodProblemKind::StorageClassNotFound,
                message:
                    "its PersistentVolumeClaim has no StorageClass, and there is no default one"
                        .to_owned(),
            });
        };
        if self.missing_class.as_ref() == Some(class) {
            return Some(PodProblem {
                kind: PodProblemKind::StorageClassNotFound,
                message: format!("StorageClass {class} does not exist"),
            });
        }
        let problem = self.volume_problems.get(&claim.name_any())?;
        Some(PodProblem {
            kind: PodProblemKind::VolumeNotProvisioned,
            message: format!("its volume is not provisioned: {problem}"),
        })
    }
}
