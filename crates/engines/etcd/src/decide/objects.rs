//! What a cluster has beside its members: services, certificates, the disruption budget, and what goes with the resource.
//! Keeping these disturbs nobody and waits for nobody; but without names and certificates no member can start.

use super::{Actions, RuleResult};
use crate::facts::{Drift, OwnedBy, OwnedObject, StartMode, StorageKind};
use crate::identity::{Intent, MembershipChange};
use crate::plan::{EtcdApply, EtcdDisruption, EtcdPatch, EtcdWait, OwnerTarget};
use crate::view::{ClusterView, quorum};

/// Before anything starts: what members need is there, and is ours. An object of our name that is not ours is never
/// taken over.
pub(super) fn create_missing(view: &ClusterView<'_>) -> RuleResult {
    let missing = view
        .facts
        .drift
        .iter()
        .any(|(_, amiss)| *amiss == Drift::Missing);
    if let Some(authority) = missing_ca(view) {
        return RuleResult::Wait(EtcdWait::CaMissing(authority));
    }
    match name_conflict(view) {
        Some(object) if !view.identity.bootstrapped => {
            RuleResult::Block(EtcdWait::NameConflict(object))
        }
        // What has joined already has what it needs mounted: healing goes on, and what is missing is made beside it.
        Some(object) => RuleResult::Wait(EtcdWait::NameConflict(object)),
        None if missing && (!view.identity.bootstrapped || !any_member_runs(view)) => {
            RuleResult::Act(Box::new(Actions {
                apply: to_apply(view),
                ..Actions::default()
            }))
        }
        None => RuleResult::Pass,
    }
}

/// An authority that is gone. A new one at a stroke would part those who start from now on from those who run: etcd reads
/// certificates anew for each connection, and whom it trusts only when it starts.
fn missing_ca(view: &ClusterView<'_>) -> Option<OwnedObject> {
    let mut missing = view
        .facts
        .drift
        .iter()
        .filter(|(_, amiss)| **amiss == Drift::Missing);
    let authority = missing
        .find(|(object, _)| object.is_ca())
        .map(|(object, _)| *object);
    authority.filter(|_| view.identity.cluster_id.is_some() && any_member_runs(view))
}

/// Whether some member runs on the certificates that there were.
fn any_member_runs(view: &ClusterView<'_>) -> bool {
    let mut pods = view.members.values().filter_map(|member| member.pod);
    pods.any(|pod| !pod.is_terminating && !pod.is_finished && pod.start_mode != StartMode::Held)
}

fn name_conflict(view: &ClusterView<'_>) -> Option<OwnedObject> {
    view.facts
        .drift
        .iter()
        .find(|(_, amiss)| **amiss == Drift::NotOwned)
        .map(|(object, _)| *object)
}

fn to_apply(view: &ClusterView<'_>) -> Vec<EtcdApply> {
    let lost = missing_ca(view);
    // What a lost authority has signed cannot be made, nor what one that is somebody else's would have to sign.
    let not_ours = |object: OwnedObject| view.facts.drift.get(&object) == Some(&Drift::NotOwned);
    let made = |object: OwnedObject| {
        let signed = object.signed_by();
        (lost.is_none() || (lost != Some(object) && lost != signed))
            && !signed.is_some_and(not_ours)
    };
    let ours = view
        .facts
        .drift
        .iter()
        .filter(|(object, amiss)| **amiss != Drift::NotOwned && made(**object));
    ours.map(|(object, _)| EtcdApply::Object(*object)).collect()
}

/// Adds what keeps the objects as they should be to whatever else is to be done.
pub(super) fn correct_drift(view: &ClusterView<'_>, want: &mut Actions) {
    if want.apply.is_empty() {
        want.apply = to_apply(view);
    }
    want.apply
        .extend(pod_disruption_budget(view, want.disruption.as_ref()));
    want.patch.extend(set_owners(view));
    // What was accepted once stays in force when somebody writes what cannot be: by an older schema, or for a newer operator.
    // A step that writes the identity notes it along, and would be overtaken by a write of its own before it.
    want.patch.extend(
        (!view.facts.spec_recorded && want.disruption.is_none()).then_some(EtcdPatch::RecordSpec),
    );
}

/// Evictions must leave the quorum of the larger of the voters now and after what was begun: raised before, lowered
/// after. (Counting in percent, or by the wanted members, an edit 5→3 allowed three evictions at once; tried.)
fn pod_disruption_budget(
    view: &ClusterView<'_>,
    step: Option<&EtcdDisruption>,
) -> Option<EtcdApply> {
    let is_taken = view
        .facts
        .drift
        .contains_key(&OwnedObject::PodDisruptionBudget);
    if !view.membership_known || is_taken || view.facts.pdb_min_available.is_unknown() {
        return None;
    }
    let begun = view.identity.intent.as_ref();
    let now = match step {
        Some(EtcdDisruption::ChangeMembership { intent, .. }) => Some(intent),
        _ => None,
    };
    let gains = |intent: &&Intent| {
        let is_voter = |serial| view.voters().any(|voter| voter.serial == serial);
        matches!(intent.change, MembershipChange::Promote(serial) if !is_voter(serial))
    };
    let gained = begun
        .iter()
        .chain(now.iter())
        .copied()
        .any(|intent| gains(&intent));
    let voters = view.votes() + usize::from(gained);
    let min = u8::try_from(quorum(voters)).unwrap_or(u8::MAX);
    let from = view.facts.pdb_min_available;
    (from.present() != Some(&Some(min))).then_some(EtcdApply::PodDisruptionBudget { from, min })
}

/// Pods belong to the resource always, else `kubectl drain` refuses them; identity and claims where the user wants it.
fn set_owners(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let owned = view.facts.cluster.owns_data;
    let mut marks = Vec::new();
    if (view.facts.identity_owner == OwnedBy::Resource) != owned {
        marks.push(EtcdPatch::SetOwner {
            what: OwnerTarget::Identity,
            owned,
        });
    }
    // Claims of a cluster that has none by its spec are somebody's data from before, and stay.
    let keeps = view.facts.cluster.storage == StorageKind::Persistent;
    let claims = view
        .members
        .values()
        .filter_map(|member| member.claim)
        .chain(view.retained_claims.iter().copied());
    let claims = claims.filter(|claim| keeps && claim.is_owned != owned && !claim.is_terminating);
    marks.extend(claims.map(|claim| EtcdPatch::SetOwner {
        what: OwnerTarget::Claim(claim.uid),
        owned,
    }));
    let pods = view.members.values().filter_map(|member| member.pod);
    let pods = pods.filter(|pod| !pod.is_owned && !pod.is_terminating);
    marks.extend(pods.map(|pod| EtcdPatch::SetOwner {
        what: OwnerTarget::Pod(pod.uid),
        owned: true,
    }));
    marks
}
