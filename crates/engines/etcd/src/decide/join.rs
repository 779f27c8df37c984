//! Joins: every listed member gets its claim, its pod and the current member list, and, once it has
//! joined, a start mode with which it can only start on its existing data.

use std::collections::BTreeSet;

use super::{Actions, RuleResult};
use crate::facts::{StartMode, StorageKind};
use crate::names::Serial;
use crate::plan::{EtcdPatch, EtcdWait};
use crate::view::{ClusterView, DataState, MemberView};

/// Takes the next action for every listed member that has not joined.
pub(super) fn resume_joins(view: &ClusterView<'_>) -> RuleResult {
    let mut actions = Actions::default();
    let mut joining = BTreeSet::new();
    let unjoined = view
        .listed()
        .filter(|member| !member.is_joined() && member.data != DataState::Lost);
    for member in unjoined {
        joining.insert(member.serial);
        if member.has_joined() {
            mark_joined(view, member, &mut actions);
        } else {
            start_member(view, member, &mut actions);
        }
    }
    if !actions.patch.is_empty() {
        RuleResult::Act(Box::new(actions))
    } else if !actions.create.is_empty() {
        RuleResult::CreateAndContinue(actions.create)
    } else if joining.is_empty() {
        RuleResult::Pass
    } else {
        RuleResult::Wait(EtcdWait::MemberJoin(joining))
    }
}

/// Creates the claim, then the pod of a member that has not joined, and keeps its member list
/// current: etcd rejects an outdated list for ever (tried).
fn start_member(view: &ClusterView<'_>, member: &MemberView<'_>, actions: &mut Actions) {
    let claim = member.claim.map(|claim| claim.uid);
    if view.facts.cluster.storage == StorageKind::Persistent && claim.is_none() {
        // The pod follows once the claim is observed.
        actions.create.push(view.claim(member.serial));
        return;
    }
    if member.is_voter() && member.serial != view.identity.seed {
        // A voter has joined before and never joins again: on an empty directory it would lack
        // writes that it acknowledged. It waits until its data is back or known to be lost.
        return;
    }
    let Some(pod) = member.pod else {
        // Kubernetes deletes the claim of a resource that was deleted; a member that starts on it
        // would lose its data then.
        if member.claim.is_some_and(|claim| claim.is_terminating) {
            return;
        }
        // The pod is created held, and its start mode is set by a patch with a precondition on its
        // uid: an operator that was frozen while the member became a voter and lost its data cannot
        // create a joining pod late.
        if !view.any_voter_needs_node() {
            actions
                .create
                .push(view.pod(member.serial, claim, StartMode::Held));
        }
        return;
    };
    let start_mode = StartMode::Join(view.listed_serials());
    if may_rewrite(view, member.serial, &pod.start_mode) && pod.start_mode != start_mode {
        actions.patch.push(EtcdPatch::SetStartMode {
            pod: pod.uid,
            from: pod.start_mode.clone(),
            to: start_mode,
        });
    }
}

/// Returns true if the start mode is that of a joining member. A seed and a member with existing
/// data keep theirs.
fn may_rewrite(view: &ClusterView<'_>, serial: Serial, start_mode: &StartMode) -> bool {
    serial != view.identity.seed && matches!(start_mode, StartMode::Held | StartMode::Join(_))
}

/// Records the volume that a member has joined on, then limits its start mode to existing data.
fn mark_joined(view: &ClusterView<'_>, member: &MemberView<'_>, actions: &mut Actions) {
    let Some(pod) = member.pod else { return };
    if let Some(claim) = member.claim.filter(|claim| claim.joined_on.is_none()) {
        let Some(volume) = claim.volume else { return };
        actions.patch.push(EtcdPatch::RecordJoinedVolume {
            claim: claim.uid,
            volume,
        });
    }
    let needs_claim = view.facts.cluster.storage == StorageKind::Persistent;
    if pod.start_mode != StartMode::ExistingData && (member.claim.is_some() || !needs_claim) {
        actions.patch.push(EtcdPatch::MarkJoined {
            pod: pod.uid,
            from: pod.start_mode.clone(),
        });
    }
}

/// Records the current template hash on pods of earlier operators, which have none. They were built
/// from the effective spec: no other spec becomes effective before all pods have a hash.
pub(super) fn record_template_hashes(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| pod.template_hash.is_none() && !pod.is_terminating && !pod.is_finished)
        .map(|pod| EtcdPatch::RecordTemplateHash {
            pod: pod.uid,
            template_hash: view.facts.cluster.pod_template_hash,
            version: view.facts.cluster.version,
        })
        .collect()
}

/// Sets the gate of pods that were created to start on existing data, so that they are Ready as
/// soon as their etcd is.
pub(super) fn set_joined_gates(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| {
        pod.start_mode == StartMode::ExistingData
            && !pod.joined_gate
            && !pod.is_terminating
            && !pod.is_finished
    })
    .map(|pod| EtcdPatch::MarkJoined {
        pod: pod.uid,
        from: StartMode::ExistingData,
    })
    .collect()
}

/// Records on each claim the version that its member runs: the version that wrote the volume stays
/// known without a running member. Only members that answer count: a version that never started has
/// not rewritten the data.
pub(super) fn record_versions(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let joined = view.listed().filter(|member| member.has_joined());
    let patches = joined.filter_map(|member| {
        let claim = member.claim?;
        // etcd's own report comes first: an image named by its digest may contain another version
        // than the spec says.
        let version = member.health?.version.or(member.pod?.version)?;
        if claim.last_version == Some(version) || claim.is_terminating {
            return None;
        }
        Some(EtcdPatch::RecordVersion {
            claim: claim.uid,
            version,
        })
    });
    patches.collect()
}
