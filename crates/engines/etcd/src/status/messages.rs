//! Phrases and sentences about a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_api::quantity;
use evenkeel_runtime::{Action, Observed, Plan};

use super::member_display_name;
use super::rollout::RolloutProgress;
use crate::decide::Etcd;
use crate::facts::{EtcdFacts, OwnedObject, StartMode};
use crate::identity::{Intent, MembershipChange, Uid};
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::plan::{
    EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange, OwnerTarget,
};
use crate::view::{ClusterView, DataState, MemberView};

/// That nothing is amiss, in the fewest words.
pub(super) const HEALTHY: &str = "Healthy";

/// How much of somebody else's complaint fits into a column, in letters.
const COLUMN: usize = 80;

/// Speaks of one cluster.
pub(super) struct Messages<'f> {
    pub(super) observed: &'f ObservedCluster,
    facts: &'f EtcdFacts,
}

impl<'f> Messages<'f> {
    pub(super) fn of(observed: &'f ObservedCluster, facts: &'f EtcdFacts) -> Self {
        Self { observed, facts }
    }

    /// The member whose pod this is.
    fn pod(&self, uid: Uid) -> String {
        let pods = self.facts.pods.present().into_iter().flatten();
        let serial = pods
            .filter(|pod| pod.uid == uid)
            .map(|pod| pod.serial)
            .next();
        serial.map_or_else(|| "a pod".to_owned(), |serial| self.member(serial))
    }

    /// The member whose claim this is.
    fn claim(&self, uid: Uid) -> String {
        let claims = self.facts.claims.present().into_iter().flatten();
        let serial = claims
            .filter(|claim| claim.uid == uid)
            .map(|claim| claim.serial)
            .next();
        serial.map_or_else(|| "a member".to_owned(), |serial| self.member(serial))
    }

    pub(super) fn member(&self, serial: Serial) -> String {
        member_display_name(self.observed, serial)
    }

    pub(super) fn members(&self, serials: &BTreeSet<Serial>) -> String {
        serials
            .iter()
            .map(|serial| self.member(*serial))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// A few words: what is being done, or how the cluster is.
    pub(super) fn summary(
        &self,
        facts: &EtcdFacts,
        view: Option<&ClusterView<'_>>,
        plan: &Plan<Etcd>,
    ) -> String {
        if facts.cluster.is_deleted {
            return "Being deleted".to_owned();
        }
        let first = plan.waits.first();
        match (view, first) {
            (_, Some(EtcdWait::Paused)) => "Paused".to_owned(),
            (_, Some(EtcdWait::Unreadable(_))) => "Cannot read its objects".to_owned(),
            (_, Some(EtcdWait::InconsistentObjects)) => {
                "Volumes and pods contradict each other".to_owned()
            }
            (_, Some(EtcdWait::DataLost(_))) => "All data is gone".to_owned(),
            (_, Some(EtcdWait::PreviousResourceDeletion(_))) => {
                "Waiting until the former cluster is gone".to_owned()
            }
            // Nothing is worse for whoever uses the cluster.
            (Some(view), _) if view.identity.bootstrapped && !view.membership_known => {
                self.no_quorum(view)
            }
            (_, Some(EtcdWait::NameConflict(object))) => {
                format!("Name taken: {}", self.object(*object))
            }
            (_, Some(EtcdWait::CaMissing(object))) => {
                format!("Gone or of no use: {}", self.object(*object))
            }
            (_, Some(EtcdWait::UnknownMembers(unknown_members))) => {
                format!("Unknown members in etcd: {}", unknown_members.len())
            }
            (Some(view), _) if !view.identity.bootstrapped => self.bootstrap(facts, view),
            (Some(view), _) => self.running(facts, view),
            (None, _) if !facts.lineages.is_empty() => "Rebuilding its identity".to_owned(),
            (None, _) => "Beginning".to_owned(),
        }
    }

    fn bootstrap(&self, facts: &EtcdFacts, view: &ClusterView<'_>) -> String {
        let up = view.listed().filter(|member| member.is_serving()).count();
        let held_up = view
            .members
            .values()
            .find(|member| self.trouble(view, member).is_some());
        match held_up {
            Some(member) => {
                let trouble = self.trouble(view, member).unwrap_or_default();
                format!(
                    "Bootstrapping {up} of {}: {}: {trouble}",
                    facts.cluster.members,
                    self.member(member.serial)
                )
            }
            None => format!("Bootstrapping {up} of {}", facts.cluster.members),
        }
    }

    fn no_quorum(&self, view: &ClusterView<'_>) -> String {
        let up = view
            .members
            .values()
            .filter(|member| member.health.is_some())
            .count();
        match view.members.len() {
            0 => "All pods and volumes are gone".to_owned(),
            all if up == all => format!("No quorum: all {all} answer, and agree on no leader"),
            all => format!("No quorum: {up} of {all} answer"),
        }
    }

    fn running(&self, facts: &EtcdFacts, view: &ClusterView<'_>) -> String {
        if let Some(member) = view.listed().find(|member| member.data == DataState::Lost) {
            return format!("Replacing {}: its data is gone", self.member(member.serial));
        }
        if let Some(phrase) = self.rolling(view) {
            return phrase;
        }
        if let Some(next) = facts
            .cluster
            .next_version
            .filter(|_| view.listed().all(MemberView::is_serving))
        {
            return format!("Preparing {next}: renewing the log");
        }
        if let Some(member) = view.learners().next() {
            let held_up = self
                .trouble(view, member)
                .map(|trouble| format!(": {trouble}"))
                .unwrap_or_default();
            return format!("Joining {}{held_up}", self.member(member.serial));
        }
        let (there, desired) = (view.listed().count(), usize::from(facts.cluster.members));
        if there < desired {
            return format!("Adding a member: {there} of {desired}");
        }
        if there > desired {
            return format!("Removing a member: {there} there, {desired} wanted");
        }
        match view.listed().find(|member| !member.is_serving()) {
            Some(member) => {
                let held_up = self
                    .trouble(view, member)
                    .map(|trouble| format!(": {trouble}"))
                    .unwrap_or_default();
                format!("Bringing back {}{held_up}", self.member(member.serial))
            }
            None => match facts.client_read {
                Observed::Present(()) => HEALTHY.to_owned(),
                Observed::Absent => "Not serving".to_owned(),
                Observed::Unknown => "All members are up: not asked as clients do yet".to_owned(),
            },
        }
    }

    /// How far members have been brought up to date, and what is in the way of that.
    fn rolling(&self, view: &ClusterView<'_>) -> Option<String> {
        let rolling = RolloutProgress::of(view)?;
        let opens = view.facts.cluster.disruption.waits_until(view.facts.now);
        if let Some(opens) = opens.filter(|_| view.listed().all(MemberView::is_serving)) {
            return Some(rolling.waits(opens));
        }
        let rolling = rolling.phrase();
        let held_up = view
            .listed()
            .filter(|member| !member.is_serving())
            .find_map(|member| {
                let trouble = self.trouble(view, member)?;
                Some(format!(": {}: {trouble}", self.member(member.serial)))
            });
        Some(format!("{rolling}{}", held_up.unwrap_or_default()))
    }

    /// What holds a member's pod up, cut to what fits into a column.
    fn trouble(&self, view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<String> {
        let trouble = view
            .facts
            .details
            .get(&member.serial)?
            .pod_problem
            .as_ref()?;
        // Its first sentence; dots within words, as in the name of an image, do not end one.
        let first = trouble.lines().next().unwrap_or_default();
        let short = first
            .split(". ")
            .next()
            .unwrap_or_default()
            .trim_end_matches('.');
        if short.chars().count() <= COLUMN {
            return Some(short.to_owned());
        }
        Some(short.chars().take(COLUMN - 1).chain(['…']).collect())
    }

    /// What is to be said of a member.
    pub(super) fn about(&self, member: &MemberView<'_>, trouble: Option<String>) -> String {
        match (member.data, trouble) {
            (DataState::Lost, _) => "its data is gone; it is being replaced".to_owned(),
            (_, Some(trouble)) => trouble,
            (_, None) if member.pod.is_none() => "it has no pod".to_owned(),
            (_, None) if member.pod.is_some_and(|pod| pod.is_terminating) => {
                "its pod is going".to_owned()
            }
            (_, None) if member.pod.is_some_and(|pod| pod.is_finished) => {
                "its pod has ended".to_owned()
            }
            (_, None)
                if member
                    .pod
                    .is_some_and(|pod| pod.start_mode == StartMode::Held) =>
            {
                "it waits for its turn".to_owned()
            }
            (_, None) if member.health.is_none() => "etcd does not answer".to_owned(),
            (_, None) => String::new(),
        }
    }

    /// What the plan does, as a sentence; nothing if it does nothing.
    pub(super) fn doing(&self, plan: &Plan<Etcd>) -> String {
        if let Some(step) = &plan.disruption {
            return self.step(step);
        }
        match plan.create.first() {
            Some(create) => self.create(create),
            None if !plan.apply.is_empty() => {
                "bringing services and certificates up to date".to_owned()
            }
            None => plan
                .patch
                .first()
                .map(|mark| self.mark(mark))
                .unwrap_or_default(),
        }
    }

    /// What one thing of a plan does.
    pub(super) fn action(&self, action: &Action<'_, Etcd>) -> String {
        match action {
            Action::Create(create) => self.create(create),
            Action::Patch(mark) => self.mark(mark),
            Action::Apply(EtcdApply::Object(object)) => {
                format!("bringing {} up to date", self.object(*object))
            }
            Action::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
                format!("having evictions leave {min} with a vote")
            }
            Action::Disruption(step) => self.step(step),
        }
    }

    fn create(&self, create: &EtcdCreate) -> String {
        match create {
            EtcdCreate::Identity(_) => "giving the cluster its identity".to_owned(),
            EtcdCreate::Claim { serial, .. } => {
                format!("creating the volume of {}", self.member(*serial))
            }
            EtcdCreate::Pod { serial, .. } => {
                format!("creating the pod of {}", self.member(*serial))
            }
        }
    }

    fn mark(&self, mark: &EtcdPatch) -> String {
        let pod = |uid: &Uid| self.pod(*uid);
        match mark {
            EtcdPatch::SetStartMode {
                pod: uid,
                to: StartMode::Join(_),
                ..
            } => format!("letting {} join", pod(uid)),
            EtcdPatch::SetStartMode { pod: uid, .. } => format!("starting {}", pod(uid)),
            EtcdPatch::RecordJoinedVolume { claim, .. } => {
                format!("noting on which volume {} has joined", self.claim(*claim))
            }
            EtcdPatch::MarkJoined { pod: uid, .. } => {
                format!("noting that {} has joined", pod(uid))
            }
            EtcdPatch::AttachClients { pod: uid } => format!("letting clients reach {}", pod(uid)),
            EtcdPatch::DetachClients { pod: uid } => {
                format!("leading clients away from {}, which goes", pod(uid))
            }
            EtcdPatch::RecordRemoval { claim, at } => {
                let name = self.claim(*claim);
                if at.is_none() {
                    return format!("noting that {name} is a member");
                }
                format!(
                    "keeping the volume of {name} for {}",
                    format_duration(self.observed.desired.keep_removed_for)
                )
            }
            EtcdPatch::RecordVersion { claim, version } => {
                format!("noting that {} runs {version}", self.claim(*claim))
            }
            EtcdPatch::RecordTemplateHash { pod: uid, .. } => {
                format!("noting from what the pod of {} was built", pod(uid))
            }
            EtcdPatch::ResizeVolume { claim, to } => {
                format!(
                    "growing the volume of {} to {}",
                    self.claim(*claim),
                    quantity::binary(*to)
                )
            }
            EtcdPatch::RecordSpec => "noting the spec".to_owned(),
            EtcdPatch::SetOwner { what, owned } => {
                let what = match what {
                    OwnerTarget::Identity => "the identity".to_owned(),
                    OwnerTarget::Claim(claim) => format!("the volume of {}", self.claim(*claim)),
                    OwnerTarget::Pod(uid) => format!("the pod of {}", pod(uid)),
                };
                if *owned {
                    format!("having {what} go with the resource")
                } else {
                    format!("having {what} stay when the resource goes")
                }
            }
        }
    }

    fn step(&self, step: &EtcdDisruption) -> String {
        match step {
            EtcdDisruption::UpdateIdentity { why, .. } => turn(*why).to_owned(),
            EtcdDisruption::ChangeMembership { intent, .. } => self.change(intent),
            EtcdDisruption::RestartMember {
                serial,
                transfer_to: Some(transfer_to),
                ..
            } => {
                format!(
                    "restarting {}, which hands the lead to {}",
                    self.member(*serial),
                    self.member(*transfer_to)
                )
            }
            EtcdDisruption::RestartMember { serial, .. } => {
                format!("restarting {}", self.member(*serial))
            }
            EtcdDisruption::ForceSnapshot { .. } => {
                let next = self
                    .facts
                    .cluster
                    .next_version
                    .map(|next| next.to_string())
                    .unwrap_or_default();
                format!("renewing the members' logs, before {next} is entered")
            }
            EtcdDisruption::DeletePod { serial, .. } => {
                format!(
                    "deleting the pod of {}: {}",
                    self.member(*serial),
                    super::reason_for(step)
                )
            }
            EtcdDisruption::DeleteClaim { serial, .. } => {
                format!(
                    "deleting the volume of {}: {}",
                    self.member(*serial),
                    super::reason_for(step)
                )
            }
        }
    }

    pub(super) fn change(&self, intent: &Intent) -> String {
        match intent.change {
            MembershipChange::Add(serial) => format!("adding {} as a learner", self.member(serial)),
            MembershipChange::Promote(serial) => format!("giving {} its vote", self.member(serial)),
            MembershipChange::Remove(serial) if intent.is_replacement => {
                format!("replacing {}, which has not come back", self.member(serial))
            }
            MembershipChange::Remove(serial) => format!("removing {}", self.member(serial)),
            MembershipChange::RemoveUnknown(id) => format!(
                "removing the unknown member {:x}, which never started",
                id.0
            ),
        }
    }

    pub(super) fn object(&self, object: OwnedObject) -> String {
        let names = self.observed.desired.names();
        match object {
            OwnedObject::Identity => format!("the ConfigMap {}", names.identity()),
            OwnedObject::PeerService => format!("the Service {}", names.peer_service()),
            OwnedObject::ClientService => format!("the Service {}", names.client_service()),
            OwnedObject::PodDisruptionBudget => {
                format!(
                    "the PodDisruptionBudget {}",
                    self.observed.desired.names().pod_disruption_budget()
                )
            }
            secret => {
                let name = crate::build::tls::secret_name(&self.observed.desired, secret)
                    .unwrap_or_default();
                format!("the Secret {name}")
            }
        }
    }
}

/// A duration as users write it.
pub(super) fn format_duration(length: Duration) -> String {
    let (hours, minutes, seconds) = (
        length.as_secs() / 3600,
        length.as_secs() / 60 % 60,
        length.as_secs() % 60,
    );
    let parts = [(hours, 'h'), (minutes, 'm'), (seconds, 's')];
    let parts: String = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts
    }
}

/// What is done when an identity is changed.
fn turn(why: IdentityChange) -> &'static str {
    match why {
        IdentityChange::StartSeed => "letting the first member start",
        IdentityChange::RecordCluster(_) => "noting which cluster the first member has formed",
        IdentityChange::FinishBootstrap => "letting clients in",
        IdentityChange::SettleIntent => "closing a change of the membership",
        IdentityChange::SeedLost => "beginning the bootstrap again: its first member is lost",
        IdentityChange::SeedStorageChanged => {
            "beginning the bootstrap again: spec.storage was changed"
        }
        IdentityChange::ResourceReplaced => {
            "beginning the bootstrap again: the resource was created anew"
        }
        IdentityChange::Adopt => {
            "taking up the cluster that is there: the resource was created anew"
        }
        IdentityChange::Repair => "bringing the identity up to date: it is an older one",
    }
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
