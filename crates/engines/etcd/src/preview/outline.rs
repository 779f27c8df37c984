//! The actions of a preview as steps that a user knows: the restart of a member is one step,
//! although it consists of an eviction, a new pod and several records.

use std::collections::BTreeSet;

use evenkeel_runtime::{Action, Observed};

use super::step::{Drafts, Heading, IndexedAction, OutlineStep, Place, StepKind};
use super::step_texts as texts;
use crate::actions::ActionContext;
use crate::facts::{Drift, EtcdFacts, OwnedObject, StartMode};
use crate::identity::{Intent, MembershipChange, Uid};
use crate::names::Serial;
use crate::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, IdentityChange, OwnerTarget,
};
use crate::view::MemberView;

/// The deletion of the claim of a removed member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDeletion {
    /// The name of the claim.
    pub claim: String,
    /// The time of the deletion in seconds from now.
    pub after: i64,
    /// Whether the claim was retained before the preview begins.
    pub was_retained: bool,
}

/// The steps so far, and what was counted on the way.
#[derive(Default)]
pub(super) struct Outline {
    drafts: Drafts,
    /// The claims that were retained before the preview begins.
    retained: BTreeSet<Uid>,
    /// The latest step with a membership change.
    last_change: Option<usize>,
    /// A raise of the PodDisruptionBudget whose promotion is still to come.
    raised_budget: Option<usize>,
    last_removed: Option<String>,
    /// The removed members that no new member has taken the place of.
    vacancies: Vec<String>,
    pub(super) volumes: Vec<VolumeDeletion>,
    /// The claims that are resized.
    pub(super) resized: BTreeSet<Uid>,
    /// How often leadership is transferred.
    pub(super) leader_transfers: usize,
    /// How often a restart costs the quorum.
    pub(super) outages: usize,
    /// How often a member stops that serves clients.
    pub(super) stopped: usize,
}

impl Outline {
    pub(super) fn new(facts: &EtcdFacts) -> Self {
        let claims = facts.claims.present().into_iter().flatten();
        let retained = claims.filter(|claim| claim.removed_at.is_some());
        Self {
            retained: retained.map(|claim| claim.uid).collect(),
            ..Self::default()
        }
    }

    /// Returns the steps with their texts.
    pub(super) fn finish(self) -> Vec<OutlineStep> {
        self.drafts.finish()
    }

    /// Adds an action to the step that it belongs to.
    pub(super) fn add(&mut self, context: &ActionContext<'_>, action: &IndexedAction<'_>) {
        let at = Place::new(context, action);
        match action.action {
            Action::Create(create) => self.create(&at, create),
            Action::Patch(patch) => self.patch(&at, patch),
            Action::Apply(EtcdApply::Object(object)) => {
                let is_new = context.facts.drift.get(object) == Some(&Drift::Missing);
                let heading = if is_new {
                    Heading::new(StepKind::CreateObjects, "create", "")
                } else {
                    Heading::new(StepKind::UpdateObjects, "update", "")
                };
                self.drafts.group(&at, heading, context.object(*object));
            }
            Action::Apply(EtcdApply::PodDisruptionBudget { from, min }) => {
                self.budget(&at, *from, *min);
            }
            Action::Disruption(disruption) => self.disruption(&at, disruption),
        }
    }

    fn create(&mut self, at: &Place<'_>, create: &EtcdCreate) {
        match create {
            EtcdCreate::Identity(_) => {
                let object = at.context.object(OwnedObject::Identity);
                let heading = Heading::new(StepKind::CreateObjects, "create", "");
                self.drafts.group(at, heading, object);
            }
            EtcdCreate::Claim { serial, .. } => self.join(at, *serial),
            EtcdCreate::Pod { serial, .. } if at.context.has_joined(*serial) => {
                let text = format!("start {} again", at.context.member(*serial));
                let reason = "its pod does not exist";
                let heading = Heading::new(StepKind::StartMember, text, reason);
                self.drafts.member(at, *serial, heading);
            }
            EtcdCreate::Pod { serial, .. } => self.join(at, *serial),
            EtcdCreate::RestorePod {
                serial, restore, ..
            } => {
                let name = at.context.member(*serial);
                let text = format!(
                    "restore Backup {} onto the volume of {name}",
                    restore.backup
                );
                let reason = "the cluster begins with its data";
                let heading = Heading::new(StepKind::RestoreBackup, text, reason);
                self.drafts.step(at, heading);
            }
        }
    }

    fn patch(&mut self, at: &Place<'_>, patch: &EtcdPatch) {
        match patch {
            EtcdPatch::SetStartMode { pod, to, .. } => match (at.pod_serial(*pod), to) {
                (Some(serial), StartMode::Bootstrap | StartMode::Restored | StartMode::Join(_)) => {
                    self.join(at, serial)
                }
                (serial, _) => self.drafts.record(at, serial),
            },
            EtcdPatch::MarkJoined { pod, .. } | EtcdPatch::RecordTemplateHash { pod, .. } => {
                self.drafts.record(at, at.pod_serial(*pod));
            }
            EtcdPatch::ReleaseRestorePod { .. } => self.drafts.record(at, None),
            EtcdPatch::RecordJoinedVolume { claim, .. }
            | EtcdPatch::RecordRestored { claim, .. }
            | EtcdPatch::RecordRemoval { claim, .. }
            | EtcdPatch::RecordReplaced { claim, .. }
            | EtcdPatch::RecordVersion { claim, .. } => {
                self.drafts.record(at, at.claim_serial(*claim));
            }
            EtcdPatch::AttachClients { pod } => {
                let text = format!("route clients to {}", at.context.pod_member(*pod));
                let heading = Heading::new(StepKind::RouteClients, text, at.reason());
                match at.pod_serial(*pod) {
                    Some(serial) => self.drafts.member(at, serial, heading),
                    None => self.drafts.weak(at, None, heading),
                }
            }
            EtcdPatch::DetachClients { pod } => {
                let text = format!("stop routing clients to {}", at.context.pod_member(*pod));
                let heading = Heading::new(StepKind::RouteClients, text, at.reason());
                // A removal may follow.
                self.drafts.weak(at, at.pod_serial(*pod), heading);
            }
            EtcdPatch::ResizeVolume { claim, to } => {
                let reason = texts::resize_reason(at.context, *claim, *to);
                let heading = Heading::new(StepKind::ResizeVolumes, "resize", reason);
                let volume = texts::volume(at.context, *claim);
                self.drafts.group(at, heading, volume);
                self.resized.insert(*claim);
            }
            EtcdPatch::RecordSpec => self.drafts.record(at, None),
            EtcdPatch::SetOwner { target, owned } => self.set_owner(at, *target, *owned),
            EtcdPatch::NudgeMember { .. } => {
                let text = "append an entry to etcd's log";
                let heading = Heading::new(StepKind::NudgeMember, text, at.reason());
                self.drafts.step(at, heading);
            }
        }
    }

    fn disruption(&mut self, at: &Place<'_>, disruption: &EtcdDisruption) {
        match disruption {
            EtcdDisruption::UpdateIdentity { why, .. } => self.update_identity(at, *why),
            EtcdDisruption::ChangeMembership {
                intent,
                transfer_to,
                ..
            } => {
                self.leader_transfers += usize::from(transfer_to.is_some());
                self.change_membership(at, intent, *transfer_to);
                let member = intent.change.member();
                let step = member.and_then(|serial| self.drafts.open(serial));
                self.last_change = step.or(self.drafts.last());
            }
            EtcdDisruption::RestartMember {
                serial,
                transfer_to,
                via_eviction,
                ..
            } => {
                self.leader_transfers += usize::from(transfer_to.is_some());
                self.outages += usize::from(!via_eviction);
                self.stopped += 1;
                let text = texts::restart(at.context, *serial, *transfer_to);
                let reason = texts::restart_reason(at.context, *serial);
                let heading = Heading::new(StepKind::RestartMember, text, reason);
                self.drafts.main(at, *serial, heading);
            }
            EtcdDisruption::ForceSnapshot { .. } => {
                let text = "force a snapshot on every member";
                let heading = Heading::new(StepKind::ForceSnapshot, text, at.reason());
                self.drafts.step(at, heading);
            }
            EtcdDisruption::DeletePod { serial, why, .. } => self.delete_pod(at, *serial, *why),
            EtcdDisruption::DeleteRestorePod { serial, .. } => {
                self.drafts.record(at, Some(*serial));
            }
            EtcdDisruption::DeleteClaim { claim, serial, why } => match why {
                DeleteReason::OldEpoch => {
                    let volume = texts::volume(at.context, *claim);
                    self.delete_old(at, volume);
                }
                DeleteReason::MemberRemoved
                | DeleteReason::Replaced
                | DeleteReason::Finished
                | DeleteReason::FreesNode
                | DeleteReason::Outdated => self.volumes.push(VolumeDeletion {
                    claim: at.context.member(*serial),
                    after: at.after,
                    was_retained: self.retained.contains(claim),
                }),
            },
        }
    }

    fn delete_pod(&mut self, at: &Place<'_>, serial: Serial, why: DeleteReason) {
        let name = at.context.member(serial);
        match why {
            DeleteReason::OldEpoch => self.delete_old(at, format!("Pod {name}")),
            DeleteReason::Replaced => {
                self.stopped += 1;
                let reason = "a restore replaces their cluster";
                let heading = Heading::new(StepKind::DeleteObjects, "delete", reason);
                self.drafts.group(at, heading, format!("Pod {name}"));
            }
            DeleteReason::MemberRemoved => {
                let text = format!("delete the pod of removed member {name}");
                let heading = Heading::new(StepKind::RemoveMember, text, "");
                self.drafts.member(at, serial, heading);
            }
            DeleteReason::Finished => {
                let text = format!("start {name} again");
                let reason = "its pod has terminated";
                let heading = Heading::new(StepKind::StartMember, text, reason);
                self.drafts.main(at, serial, heading);
            }
            DeleteReason::FreesNode => {
                let text = format!("delete the pod of {name} and create it later");
                let heading = Heading::new(StepKind::StartMember, text, at.reason());
                self.drafts.main(at, serial, heading);
            }
            DeleteReason::Outdated => {
                let text = format!("restart {name}, which does not serve");
                let reason = texts::restart_reason(at.context, serial);
                let heading = Heading::new(StepKind::RestartMember, text, reason);
                self.drafts.main(at, serial, heading);
            }
        }
    }

    /// Deletes an object of an abandoned bootstrap.
    fn delete_old(&mut self, at: &Place<'_>, object: String) {
        let reason = "they belong to an abandoned bootstrap";
        let heading = Heading::new(StepKind::DeleteObjects, "delete", reason);
        self.drafts.group(at, heading, object);
    }

    fn update_identity(&mut self, at: &Place<'_>, why: IdentityChange) {
        let (kind, text) = match why {
            IdentityChange::StartSeed | IdentityChange::RecordCluster(_) => {
                let seed = at.context.view.map(|view| view.identity.seed);
                return self.drafts.record(at, seed);
            }
            IdentityChange::SettleIntent => {
                return match self.last_change {
                    Some(step) => self.drafts.append(step, at),
                    None => self.drafts.record(at, None),
                };
            }
            IdentityChange::FinishBootstrap => (
                StepKind::FinishBootstrap,
                "finish the bootstrap: route clients to the members".to_owned(),
            ),
            IdentityChange::SeedLost
            | IdentityChange::SeedStorageChanged
            | IdentityChange::SourceChanged
            | IdentityChange::ResourceReplaced => {
                self.drafts.close_all();
                (
                    StepKind::RestartBootstrap,
                    "begin the bootstrap anew, with new members".to_owned(),
                )
            }
            IdentityChange::PrepareRestore | IdentityChange::RestartPreparation => (
                StepKind::RestoreBackup,
                "prepare a volume with the data of a backup".to_owned(),
            ),
            IdentityChange::CancelRestore => {
                (StepKind::UpdateIdentity, "cancel the restore".to_owned())
            }
            IdentityChange::ReplaceCluster => {
                self.drafts.close_all();
                (
                    StepKind::RestoreBackup,
                    "replace the etcd cluster by one with the restored data".to_owned(),
                )
            }
            IdentityChange::UndoRestore => {
                self.drafts.close_all();
                (
                    StepKind::RestoreBackup,
                    "undo the restore: start the replaced etcd cluster again".to_owned(),
                )
            }
            IdentityChange::Adopt => (
                StepKind::UpdateIdentity,
                "adopt the existing etcd cluster".to_owned(),
            ),
            IdentityChange::Repair => {
                let object = at.context.object(OwnedObject::Identity);
                (StepKind::UpdateIdentity, format!("update {object}"))
            }
        };
        self.drafts.step(at, Heading::new(kind, text, at.reason()));
    }

    fn change_membership(&mut self, at: &Place<'_>, intent: &Intent, transfer_to: Option<Serial>) {
        match intent.change {
            MembershipChange::Add(serial) => {
                let reason = if self.vacancies.is_empty() {
                    texts::addition_reason(at.context)
                } else {
                    format!("takes the place of {}", self.vacancies.remove(0))
                };
                let text = format!("add {}", at.context.member(serial));
                let heading = Heading::new(StepKind::AddMember, text, reason);
                self.drafts.main(at, serial, heading);
            }
            MembershipChange::Promote(serial) => {
                if let Some(budget) = self.raised_budget.take() {
                    let name = at.context.member(serial);
                    self.drafts
                        .complete(budget, &format!("before {name} becomes a voter"));
                }
                self.join(at, serial);
            }
            MembershipChange::Remove(serial) => self.remove(at, serial, transfer_to),
            MembershipChange::RemoveUnknown(id) => {
                let text = format!("remove unknown member {:x}", id.0);
                let heading = Heading::new(StepKind::RemoveUnknownMember, text, at.reason());
                self.drafts.step(at, heading);
            }
        }
    }

    fn remove(&mut self, at: &Place<'_>, serial: Serial, transfer_to: Option<Serial>) {
        let name = at.context.member(serial);
        let view = at.context.view;
        let is_vacancy = view
            .is_some_and(|view| view.listed().count() <= usize::from(view.facts.cluster.members));
        if is_vacancy {
            self.vacancies.push(name.clone());
        }
        let member = view.and_then(|view| view.members.get(&serial));
        self.stopped += usize::from(member.is_some_and(MemberView::is_serving));
        let text = match transfer_to {
            Some(leader) => format!(
                "remove {name} (leader) after leadership moves to {}",
                at.context.member(leader)
            ),
            None => format!("remove {name}"),
        };
        let reason = texts::removal_reason(at.context, serial);
        let reason = reason.unwrap_or_else(|| at.reason());
        let heading = Heading::new(StepKind::RemoveMember, text, reason);
        self.drafts.main(at, serial, heading);
        self.last_removed = Some(name);
    }

    /// Adds an action for a member that joins.
    fn join(&mut self, at: &Place<'_>, serial: Serial) {
        let name = at.context.member(serial);
        let view = at.context.view;
        let is_seed = at.is_bootstrap && view.is_some_and(|view| view.identity.seed == serial);
        let is_listed = view.is_some_and(|view| view.listed_serials().contains(&serial));
        if is_seed {
            let text = format!("start {name} as the first member");
            let heading = Heading::new(StepKind::StartSeed, text, "");
            self.drafts.member(at, serial, heading);
        } else if is_listed || self.drafts.open(serial).is_some() {
            let text = format!("let {name} join and become a voter");
            let heading = Heading::new(StepKind::AddMember, text, "it has been added already");
            self.drafts.member(at, serial, heading);
        } else {
            // During bootstrap the pod is created before the member is added.
            let heading = Heading::new(StepKind::AddMember, format!("add {name}"), "");
            self.drafts.weak(at, Some(serial), heading);
        }
    }

    fn budget(&mut self, at: &Place<'_>, from: Observed<Option<u8>>, min: u8) {
        if at.is_bootstrap {
            // The budget follows the number of members. Clients are not routed yet.
            return match self.drafts.last() {
                Some(last) => self.drafts.append(last, at),
                None => self.drafts.record(at, None),
            };
        }
        let object = at.context.object(OwnedObject::PodDisruptionBudget);
        let before = from.present().copied().flatten();
        let text = match before {
            Some(before) => format!("set PodDisruptionBudget minAvailable {before} → {min}"),
            None if from.is_absent() => format!("create {object} with minAvailable {min}"),
            None => format!("set PodDisruptionBudget minAvailable to {min}"),
        };
        let heading = Heading::new(StepKind::SetBudget, text, at.reason());
        let step = self.drafts.step(at, heading);
        if before.is_some_and(|before| before < min) {
            self.raised_budget = Some(step);
        } else if let (Some(_), Some(removed)) = (before, &self.last_removed) {
            let clause = format!("after {removed} has left");
            self.drafts.complete(step, &clause);
        }
    }

    fn set_owner(&mut self, at: &Place<'_>, target: OwnerTarget, owned: bool) {
        // Until bootstrap is finished, the resource owns everything.
        if let Some(last) = self.drafts.last_of(StepKind::FinishBootstrap) {
            return self.drafts.append(last, at);
        }
        if at.is_bootstrap
            && let Some(last) = self.drafts.last()
        {
            return self.drafts.append(last, at);
        }
        let object = match target {
            OwnerTarget::Identity => at.context.object(OwnedObject::Identity),
            OwnerTarget::Claim(claim) => texts::volume(at.context, claim),
            OwnerTarget::Pod(pod) => format!("Pod {}", at.context.pod_member(pod)),
        };
        let (text, reason) = if owned {
            (
                "set the owner references of",
                "they are deleted together with the EtcdCluster",
            )
        } else {
            (
                "remove the owner references of",
                "they are kept when the EtcdCluster is deleted",
            )
        };
        let heading = Heading::new(StepKind::SetOwners, text, reason);
        self.drafts.group(at, heading, object);
    }
}
