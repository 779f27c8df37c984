//! Events: what was done, once, in the past tense; and what a person should know.

use evenkeel::{Action, Notice, Plan};

use evenkeel_api::conditions::Reason;
use evenkeel_api::quantity;

use super::judged::degraded;
use super::words::Words;
use super::{named, view, why};
use crate::decide::Etcd;
use crate::identity::Change;
use crate::observe::Found;
use crate::plan::{Apply, Create, Leaving, Mark, Step, Turn};

/// A word for an action, for logs and metrics.
pub fn name(action: &Action<'_, Etcd>) -> &'static str {
    match action {
        Action::Create(Create::Identity(_)) => "create-identity",
        Action::Create(Create::Claim { .. }) => "create-claim",
        Action::Create(Create::Pod { .. }) => "create-pod",
        Action::Mark(Mark::Start { .. }) => "mark-start",
        Action::Mark(Mark::JoinedOn { .. }) => "mark-joined-on",
        Action::Mark(Mark::Turn { .. }) => "mark-turned",
        Action::Mark(Mark::Route { .. }) => "mark-route",
        Action::Mark(Mark::Unroute { .. }) => "mark-unroute",
        Action::Mark(Mark::Own { .. }) => "mark-own",
        Action::Mark(Mark::Version { .. }) => "mark-version",
        Action::Mark(Mark::Inputs { .. }) => "mark-inputs",
        Action::Mark(Mark::Grow { .. }) => "grow-volume",
        Action::Mark(Mark::Accept) => "mark-accepted",
        Action::Mark(Mark::Removed { .. }) => "mark-removed",
        Action::Apply(Apply::Object(_)) => "apply-object",
        Action::Apply(Apply::Budget { .. }) => "apply-budget",
        Action::Step(Step::Identity { why, .. }) => match why {
            Turn::SeedStarts => "note-seed",
            Turn::Formed(_) => "note-cluster",
            Turn::Seal => "seal",
            Turn::Settle => "settle",
            Turn::SeedLost => "begin-again",
            Turn::SeedMoves => "begin-on-other-volumes",
            Turn::ResourceReplaced => "begin-anew",
            Turn::Adopt => "adopt",
            Turn::PassOver => "pass-over",
        },
        Action::Step(Step::Call { intent, .. }) => match intent.change {
            Change::Add(_) => "add-member",
            Change::Promote(_) => "promote-member",
            Change::Remove(_) if intent.replaces => "replace-member",
            Change::Remove(_) => "remove-member",
            Change::Expel(_) => "remove-stranger",
        },
        Action::Step(Step::Restart { .. }) => "restart-member",
        Action::Step(Step::Renew { .. }) => "renew-logs",
        Action::Step(Step::DeletePod { .. }) => "delete-pod",
        Action::Step(Step::DeleteClaim { .. }) => "delete-claim",
    }
}

/// What to tell once an action is done. Small marks are no news.
pub fn notice(found: &Found, action: &Action<'_, Etcd>) -> Option<Notice> {
    let member = |serial| named(found, serial);
    let told = |reason: &str, note: String| Some(Notice::normal(reason, "Reconcile", note));
    match action {
        Action::Create(Create::Identity(identity)) if identity.next > crate::names::Serial(1) => {
            let note = "the identity was gone; it was rebuilt from what is written on volumes and pods";
            Some(Notice::warning("IdentityRebuilt", "Reconcile", note))
        }
        Action::Create(Create::Identity(_)) | Action::Apply(_) => None,
        Action::Create(Create::Claim { serial, .. }) => {
            told("ClaimCreated", format!("created the claim of {}", member(*serial)))
        }
        Action::Create(Create::Pod { serial, .. }) => {
            told("PodCreated", format!("created the pod of {}", member(*serial)))
        }
        Action::Mark(Mark::Route { pod }) => {
            let pod = found.pods.get(pod)?;
            let name = pod.metadata.name.clone()?;
            told("ClientsRouted", format!("routed clients to {name}"))
        }
        Action::Mark(Mark::Unroute { pod }) => {
            let name = found.pods.get(pod)?.metadata.name.clone()?;
            told("ClientsLed", format!("routed clients away from {name}, which goes"))
        }
        Action::Mark(Mark::Removed { claim, at: Some(_) }) => {
            let name = found.claims.get(claim)?.metadata.name.clone()?;
            let kept = super::words::span(found.wanted.keep_removed_for);
            told("ClaimKept", format!("the claim {name} of a member that was removed is kept for {kept}"))
        }
        Action::Mark(Mark::Grow { claim, to }) => {
            let (name, size) = (found.claims.get(claim)?.metadata.name.clone()?, quantity::binary(*to));
            told("VolumeGrown", format!("asked for a volume of {size} for the claim {name}"))
        }
        Action::Mark(_) => None,
        Action::Step(step @ Step::Identity { why: turn, .. }) => match turn {
            Turn::Seal => told("BootstrapDone", "the bootstrap was finished; clients were let in".to_owned()),
            Turn::SeedLost | Turn::SeedMoves | Turn::ResourceReplaced => {
                Some(Notice::warning("BootstrapRestarted", "Reconcile", why(step)))
            }
            Turn::Adopt => told("Adopted", why(step).to_owned()),
            Turn::PassOver => Some(Notice::warning("IdentityRebuilt", "Reconcile", why(step))),
            Turn::SeedStarts | Turn::Formed(_) | Turn::Settle => None,
        },
        Action::Step(Step::Call { intent, .. }) => match intent.change {
            Change::Add(serial) => told("MemberAdded", format!("added {} as a learner", member(serial))),
            Change::Promote(serial) => told("MemberPromoted", format!("gave {} its vote", member(serial))),
            Change::Remove(serial) if intent.replaces => {
                let note = format!("removed {}, which has not come back, to replace it", member(serial));
                Some(Notice::warning("MemberReplaced", "Reconcile", note))
            }
            Change::Expel(id) => {
                let note =
                    format!("removed the unknown member {:x} from the cluster: it never started", id.0);
                Some(Notice::warning("StrangerRemoved", "Reconcile", note))
            }
            Change::Remove(serial) => {
                told("MemberRemoved", format!("removed {} from the cluster", member(serial)))
            }
        },
        Action::Step(Step::Renew { .. }) => {
            let next = found.wanted.next.map(|next| next.to_string()).unwrap_or_default();
            told("LogsRenewed", format!("renewed the logs of all members: {next} may follow"))
        }
        Action::Step(Step::Restart { serial, spared: true, .. }) => {
            told("MemberRestarted", format!("restarted {}, which was out of date", member(*serial)))
        }
        Action::Step(Step::Restart { serial, .. }) => {
            let note = format!(
                "restarted {}, which was out of date; clients cannot write until it is back, since there is no majority without it",
                member(*serial)
            );
            Some(Notice::warning("RestartWithoutRedundancy", "Reconcile", note))
        }
        Action::Step(step @ Step::DeletePod { serial, why: reason, .. }) => {
            let note = format!("deleted the pod of {}: {}", member(*serial), why(step));
            match reason {
                Leaving::Finished => Some(Notice::warning("PodDeleted", "Reconcile", note)),
                Leaving::OldEpoch | Leaving::NotAMember | Leaving::MakesWay | Leaving::Outdated => {
                    told("PodDeleted", note)
                }
            }
        }
        Action::Step(step @ Step::DeleteClaim { serial, .. }) => {
            told("ClaimDeleted", format!("deleted the claim of {}: {}", member(*serial), why(step)))
        }
    }
}

/// What is waited for and is a person's business.
pub fn troubles(found: &Found, facts: &crate::facts::Facts, plan: &Plan<Etcd>) -> Vec<Notice> {
    let (words, view) = (Words::of(found, facts), view(facts));
    let waits = plan.status.waits.iter().filter_map(|wait| {
        let reason = degraded(wait, facts, view.as_ref())?;
        let note = words.wait(facts, view.as_ref(), wait);
        Some(Notice::warning(reason.as_str(), "Reconcile", note))
    });
    let warning = |(reason, note): (Reason, String)| Notice::warning(reason.as_str(), "Reconcile", note);
    let refused = found.refused.as_ref().map(|refusal| (Reason::SpecRefused, super::in_force(refusal)));
    waits.chain(refused.map(warning)).chain(super::down(&words, view.as_ref()).map(warning)).collect()
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
