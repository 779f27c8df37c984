//! Events: what was done, once, in the past tense; and what a person should know.

use evenkeel_runtime::{Action, EventSpec, Plan};

use evenkeel_api::conditions::Reason;
use evenkeel_api::quantity;

use super::conditions::degraded;
use super::messages::Messages;
use super::{member_display_name, reason_for, view};
use crate::decide::Etcd;
use crate::identity::MembershipChange;
use crate::observe::ObservedCluster;
use crate::plan::{DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, IdentityChange};

/// A word for an action, for logs and metrics.
pub fn action_name(action: &Action<'_, Etcd>) -> &'static str {
    match action {
        Action::Create(EtcdCreate::Identity(_)) => "create-identity",
        Action::Create(EtcdCreate::Claim { .. }) => "create-claim",
        Action::Create(EtcdCreate::Pod { .. }) => "create-pod",
        Action::Patch(EtcdPatch::SetStartMode { .. }) => "mark-start",
        Action::Patch(EtcdPatch::RecordJoinedVolume { .. }) => "mark-joined-on",
        Action::Patch(EtcdPatch::MarkJoined { .. }) => "mark-turned",
        Action::Patch(EtcdPatch::AttachClients { .. }) => "mark-route",
        Action::Patch(EtcdPatch::DetachClients { .. }) => "mark-unroute",
        Action::Patch(EtcdPatch::SetOwner { .. }) => "mark-own",
        Action::Patch(EtcdPatch::RecordVersion { .. }) => "mark-version",
        Action::Patch(EtcdPatch::RecordTemplateHash { .. }) => "mark-inputs",
        Action::Patch(EtcdPatch::ResizeVolume { .. }) => "grow-volume",
        Action::Patch(EtcdPatch::RecordSpec) => "mark-accepted",
        Action::Patch(EtcdPatch::RecordRemoval { .. }) => "mark-removed",
        Action::Apply(EtcdApply::Object(_)) => "apply-object",
        Action::Apply(EtcdApply::PodDisruptionBudget { .. }) => "apply-budget",
        Action::Disruption(EtcdDisruption::UpdateIdentity { why, .. }) => match why {
            IdentityChange::StartSeed => "note-seed",
            IdentityChange::RecordCluster(_) => "note-cluster",
            IdentityChange::FinishBootstrap => "seal",
            IdentityChange::SettleIntent => "settle",
            IdentityChange::SeedLost => "begin-again",
            IdentityChange::SeedStorageChanged => "begin-on-other-volumes",
            IdentityChange::ResourceReplaced => "begin-anew",
            IdentityChange::Adopt => "adopt",
            IdentityChange::Repair => "pass-over",
        },
        Action::Disruption(EtcdDisruption::ChangeMembership { intent, .. }) => {
            match intent.change {
                MembershipChange::Add(_) => "add-member",
                MembershipChange::Promote(_) => "promote-member",
                MembershipChange::Remove(_) if intent.is_replacement => "replace-member",
                MembershipChange::Remove(_) => "remove-member",
                MembershipChange::RemoveUnknown(_) => "remove-stranger",
            }
        }
        Action::Disruption(EtcdDisruption::RestartMember { .. }) => "restart-member",
        Action::Disruption(EtcdDisruption::ForceSnapshot { .. }) => "renew-logs",
        Action::Disruption(EtcdDisruption::DeletePod { .. }) => "delete-pod",
        Action::Disruption(EtcdDisruption::DeleteClaim { .. }) => "delete-claim",
    }
}

/// What to tell once an action is done. Small marks are no news.
pub fn event_for(observed: &ObservedCluster, action: &Action<'_, Etcd>) -> Option<EventSpec> {
    let member = |serial| member_display_name(observed, serial);
    let told = |reason: &str, note: String| Some(EventSpec::normal(reason, "Reconcile", note));
    match action {
        Action::Create(EtcdCreate::Identity(identity))
            if identity.next_serial > crate::names::Serial(1) =>
        {
            let note =
                "the identity was gone; it was rebuilt from what is written on volumes and pods";
            Some(EventSpec::warning("IdentityRebuilt", "Reconcile", note))
        }
        Action::Create(EtcdCreate::Identity(_)) | Action::Apply(_) => None,
        Action::Create(EtcdCreate::Claim { serial, .. }) => told(
            "ClaimCreated",
            format!("created the claim of {}", member(*serial)),
        ),
        Action::Create(EtcdCreate::Pod { serial, .. }) => told(
            "PodCreated",
            format!("created the pod of {}", member(*serial)),
        ),
        Action::Patch(EtcdPatch::AttachClients { pod }) => {
            let pod = observed.pods.get(pod)?;
            let name = pod.metadata.name.clone()?;
            told("ClientsRouted", format!("routed clients to {name}"))
        }
        Action::Patch(EtcdPatch::DetachClients { pod }) => {
            let name = observed.pods.get(pod)?.metadata.name.clone()?;
            told(
                "ClientsLed",
                format!("routed clients away from {name}, which goes"),
            )
        }
        Action::Patch(EtcdPatch::RecordRemoval { claim, at: Some(_) }) => {
            let name = observed.claims.get(claim)?.metadata.name.clone()?;
            let kept = super::messages::format_duration(observed.desired.keep_removed_for);
            told(
                "ClaimKept",
                format!("the claim {name} of a member that was removed is kept for {kept}"),
            )
        }
        Action::Patch(EtcdPatch::ResizeVolume { claim, to }) => {
            let (name, size) = (
                observed.claims.get(claim)?.metadata.name.clone()?,
                quantity::binary(*to),
            );
            told(
                "VolumeGrown",
                format!("asked for a volume of {size} for the claim {name}"),
            )
        }
        Action::Patch(_) => None,
        Action::Disruption(step @ EtcdDisruption::UpdateIdentity { why: turn, .. }) => match turn {
            IdentityChange::FinishBootstrap => told(
                "BootstrapDone",
                "the bootstrap was finished; clients were let in".to_owned(),
            ),
            IdentityChange::SeedLost
            | IdentityChange::SeedStorageChanged
            | IdentityChange::ResourceReplaced => Some(EventSpec::warning(
                "BootstrapRestarted",
                "Reconcile",
                reason_for(step),
            )),
            IdentityChange::Adopt => told("Adopted", reason_for(step).to_owned()),
            IdentityChange::Repair => Some(EventSpec::warning(
                "IdentityRebuilt",
                "Reconcile",
                reason_for(step),
            )),
            IdentityChange::StartSeed
            | IdentityChange::RecordCluster(_)
            | IdentityChange::SettleIntent => None,
        },
        Action::Disruption(EtcdDisruption::ChangeMembership { intent, .. }) => {
            match intent.change {
                MembershipChange::Add(serial) => told(
                    "MemberAdded",
                    format!("added {} as a learner", member(serial)),
                ),
                MembershipChange::Promote(serial) => told(
                    "MemberPromoted",
                    format!("gave {} its vote", member(serial)),
                ),
                MembershipChange::Remove(serial) if intent.is_replacement => {
                    let note = format!(
                        "removed {}, which has not come back, to replace it",
                        member(serial)
                    );
                    Some(EventSpec::warning("MemberReplaced", "Reconcile", note))
                }
                MembershipChange::RemoveUnknown(id) => {
                    let note = format!(
                        "removed the unknown member {:x} from the cluster: it never started",
                        id.0
                    );
                    Some(EventSpec::warning("StrangerRemoved", "Reconcile", note))
                }
                MembershipChange::Remove(serial) => told(
                    "MemberRemoved",
                    format!("removed {} from the cluster", member(serial)),
                ),
            }
        }
        Action::Disruption(EtcdDisruption::ForceSnapshot { .. }) => {
            let next = observed
                .desired
                .next
                .map(|next| next.to_string())
                .unwrap_or_default();
            told(
                "LogsRenewed",
                format!("renewed the logs of all members: {next} may follow"),
            )
        }
        Action::Disruption(EtcdDisruption::RestartMember {
            serial,
            spared: true,
            ..
        }) => told(
            "MemberRestarted",
            format!("restarted {}, which was out of date", member(*serial)),
        ),
        Action::Disruption(EtcdDisruption::RestartMember { serial, .. }) => {
            let note = format!(
                "restarted {}, which was out of date; clients cannot write until it is back, since there is no majority without it",
                member(*serial)
            );
            Some(EventSpec::warning(
                "RestartWithoutRedundancy",
                "Reconcile",
                note,
            ))
        }
        Action::Disruption(
            step @ EtcdDisruption::DeletePod {
                serial,
                why: reason,
                ..
            },
        ) => {
            let note = format!(
                "deleted the pod of {}: {}",
                member(*serial),
                reason_for(step)
            );
            match reason {
                DeleteReason::Finished => Some(EventSpec::warning("PodDeleted", "Reconcile", note)),
                DeleteReason::OldEpoch
                | DeleteReason::MemberRemoved
                | DeleteReason::FreesNode
                | DeleteReason::Outdated => told("PodDeleted", note),
            }
        }
        Action::Disruption(step @ EtcdDisruption::DeleteClaim { serial, .. }) => told(
            "ClaimDeleted",
            format!(
                "deleted the claim of {}: {}",
                member(*serial),
                reason_for(step)
            ),
        ),
    }
}

/// What is waited for and is a person's business.
pub fn warning_events(
    observed: &ObservedCluster,
    facts: &crate::facts::EtcdFacts,
    plan: &Plan<Etcd>,
) -> Vec<EventSpec> {
    let (words, view) = (Messages::of(observed, facts), view(facts));
    let waits = plan.waits.iter().filter_map(|wait| {
        let reason = degraded(wait, facts, view.as_ref())?;
        let note = words.wait(facts, view.as_ref(), wait);
        Some(EventSpec::warning(reason.as_str(), "Reconcile", note))
    });
    let warning =
        |(reason, note): (Reason, String)| EventSpec::warning(reason.as_str(), "Reconcile", note);
    let refused = observed
        .rejection
        .as_ref()
        .map(|refusal| (Reason::SpecRefused, super::rejection_message(refusal)));
    waits
        .chain(refused.map(warning))
        .chain(super::down(&words, view.as_ref()).map(warning))
        .collect()
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
