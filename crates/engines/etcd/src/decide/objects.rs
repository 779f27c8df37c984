//! Services, certificates, the PodDisruptionBudget, the BackupSchedule and owner references. They disturb no client and
//! wait for no other rule; but without DNS names and certificates no member can start.

use super::{Actions, RuleResult};
use crate::facts::{Drift, OwnedBy, OwnedObject, StartMode, StorageKind};
use crate::identity::MembershipChange;
use crate::plan::{EtcdApply, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange, OwnerTarget};
use crate::view::{ClusterView, quorum};

/// Creates the objects that members need before any member starts. An object of that name with
/// another owner is never taken over.
pub(super) fn create_missing(view: &ClusterView<'_>) -> RuleResult {
    if let Some(ca) = missing_ca(view) {
        return RuleResult::Wait(EtcdWait::CaMissing(ca));
    }
    let is_bootstrapped = view.identity.bootstrapped;
    match first_with_drift(view, Drift::NotOwned) {
        Some(object) if !is_bootstrapped => RuleResult::Block(EtcdWait::NameConflict(object)),
        // Members that have joined have their Secrets mounted: recovery continues.
        Some(object) => RuleResult::Wait(EtcdWait::NameConflict(object)),
        None if first_with_drift(view, Drift::Missing).is_some()
            && (!is_bootstrapped || !any_member_runs(view)) =>
        {
            RuleResult::apply(objects_to_apply(view))
        }
        None if view.facts.drift.get(&OwnedObject::BackupSchedule) == Some(&Drift::NotOwned) => {
            RuleResult::Wait(EtcdWait::NameConflict(OwnedObject::BackupSchedule))
        }
        None => RuleResult::Pass,
    }
}

/// Returns the first object that members need and that has this drift.
fn first_with_drift(view: &ClusterView<'_>, drift: Drift) -> Option<OwnedObject> {
    let mut objects = view.facts.drift.iter();
    objects
        .find(|(object, actual)| object.is_needed_by_members() && **actual == drift)
        .map(|(object, _)| *object)
}

/// Returns a missing CA while members run with its certificates. A new CA would separate members
/// that start from then on from those that run: etcd reads its certificates for each connection,
/// and the trusted CA only at its start.
fn missing_ca(view: &ClusterView<'_>) -> Option<OwnedObject> {
    if view.identity.cluster_id.is_none() || !any_member_runs(view) {
        return None;
    }
    let mut objects = view.facts.drift.iter();
    objects
        .find(|(object, drift)| object.is_ca() && **drift == Drift::Missing)
        .map(|(object, _)| *object)
}

/// Returns true if a member runs with the existing certificates.
fn any_member_runs(view: &ClusterView<'_>) -> bool {
    let mut pods = view.members.values().filter_map(|member| member.pod);
    pods.any(|pod| !pod.is_terminating && !pod.is_finished && pod.start_mode != StartMode::Held)
}

/// Returns the objects to apply, without those that a missing CA, or a CA of another owner, would
/// have to sign.
fn objects_to_apply(view: &ClusterView<'_>) -> Vec<EtcdApply> {
    let missing_ca = missing_ca(view);
    let is_not_owned =
        |object: OwnedObject| view.facts.drift.get(&object) == Some(&Drift::NotOwned);
    let can_apply = |object: OwnedObject| {
        let signer = object.signed_by();
        let needs_missing_ca =
            missing_ca.is_some() && (missing_ca == Some(object) || missing_ca == signer);
        !is_not_owned(object) && !needs_missing_ca && !signer.is_some_and(is_not_owned)
    };
    let objects = view.facts.drift.keys().copied();
    objects
        .filter(|object| can_apply(*object))
        .map(EtcdApply::Object)
        .collect()
}

/// Adds the actions that keep the objects in their desired state.
pub(super) fn correct_drift(view: &ClusterView<'_>, actions: &mut Actions) {
    if actions.apply.is_empty() {
        actions.apply = objects_to_apply(view);
    }
    let pdb = pod_disruption_budget(view, actions.disruption.as_ref());
    actions.apply.extend(pdb);
    actions.patch.extend(set_owners(view));
    // The accepted spec stays effective when the next one is rejected. A disruption that writes the
    // identity records the spec with it, and would conflict with a separate write.
    if !view.facts.spec_recorded && actions.disruption.is_none() {
        actions.patch.push(EtcdPatch::RecordSpec);
    }
}

/// Keeps `minAvailable` at the quorum of the larger of the voters now and after the open intent:
/// raised before a promotion, lowered after a removal. (With percentages, or with the desired
/// members, an edit 5→3 allowed three evictions at once; tried.)
fn pod_disruption_budget(
    view: &ClusterView<'_>,
    disruption: Option<&EtcdDisruption>,
) -> Option<EtcdApply> {
    let has_name_conflict = view
        .facts
        .drift
        .contains_key(&OwnedObject::PodDisruptionBudget);
    let from = view.facts.pdb_min_available;
    if has_name_conflict || from.is_unknown() {
        return None;
    }
    // The members of the replaced epoch serve again before etcd lists them: raised before, lowered after.
    if let Some(EtcdDisruption::UpdateIdentity {
        why: IdentityChange::UndoRestore,
        ..
    }) = disruption
    {
        let replaced = view.identity.replaced.as_ref()?;
        let min = u8::try_from(quorum(usize::from(replaced.voters))).unwrap_or(u8::MAX);
        let is_enough = from
            .present()
            .is_some_and(|now| now.is_some_and(|now| now >= min));
        return (!is_enough).then_some(EtcdApply::PodDisruptionBudget { from, min });
    }
    if !view.membership_known {
        return None;
    }
    let open_intent = view.identity.intent.as_ref();
    let new_intent = match disruption {
        Some(EtcdDisruption::ChangeMembership { intent, .. }) => Some(intent),
        _ => None,
    };
    let is_voter = |serial| view.voters().any(|voter| voter.serial == serial);
    let adds_vote = |change| match change {
        MembershipChange::Promote(serial) => !is_voter(serial),
        _ => false,
    };
    let mut intents = open_intent.into_iter().chain(new_intent);
    let promotes = intents.any(|intent| adds_vote(intent.change));
    let voters = view.votes() + usize::from(promotes);
    let min = u8::try_from(quorum(voters)).unwrap_or(u8::MAX);
    if from.present() == Some(&Some(min)) {
        return None;
    }
    Some(EtcdApply::PodDisruptionBudget { from, min })
}

/// Sets the owner of pods always, because `kubectl drain` rejects pods without a controller; that
/// of identity and claims by the spec.
fn set_owners(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let owned = view.facts.cluster.owns_data;
    let mut patches = Vec::new();
    // Until bootstrap is finished the resource owns all data. If the spec asks to keep the data,
    // `finish_bootstrap` removes the owner references, and none is added: an operator that was
    // frozen meanwhile could add it late, to the data of clients.
    let follows_spec = owned || view.identity.bootstrapped;
    if follows_spec && (view.facts.identity_owner == OwnedBy::Resource) != owned {
        patches.push(set_identity_owner(owned));
    }
    // Claims of a cluster with ephemeral storage hold data of an earlier cluster, and stay.
    if follows_spec && view.facts.cluster.storage == StorageKind::Persistent {
        patches.extend(set_claim_owners(view, owned));
    }
    let pods = view.members.values().filter_map(|member| member.pod);
    let pods = pods.filter(|pod| !pod.is_owned && !pod.is_terminating);
    patches.extend(pods.map(|pod| EtcdPatch::SetOwner {
        target: OwnerTarget::Pod(pod.uid),
        owned: true,
    }));
    patches
}

/// Adds or removes the owner of the identity.
pub(super) fn set_identity_owner(owned: bool) -> EtcdPatch {
    EtcdPatch::SetOwner {
        target: OwnerTarget::Identity,
        owned,
    }
}

/// Adds or removes the owner of all claims of the epoch that do not have it as desired.
pub(super) fn set_claim_owners(
    view: &ClusterView<'_>,
    owned: bool,
) -> impl Iterator<Item = EtcdPatch> {
    let claims = view.members.values().filter_map(|member| member.claim);
    let claims = claims
        .chain(view.retained_claims.iter().copied())
        .chain(view.replaced_claims.iter().copied());
    claims
        .filter(move |claim| claim.is_owned != owned && !claim.is_terminating)
        .map(move |claim| EtcdPatch::SetOwner {
            target: OwnerTarget::Claim(claim.uid),
            owned,
        })
}
