//! Changes that may disturb clients, or that no other change may overlap.

use evenkeel_runtime::EventSpec;

use super::{ActionContext, EtcdAction, format_duration, member_display_name, normal, warning};
use crate::decide::replace;
use crate::facts::StorageKind;
use crate::identity::{Intent, MembershipChange};
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::plan::{DeleteReason, EtcdDisruption, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView};

impl EtcdAction for EtcdDisruption {
    fn name(&self) -> &'static str {
        match self {
            Self::UpdateIdentity { why, .. } => why.into(),
            Self::ChangeMembership { intent, .. } => change_name(intent),
            Self::RestartMember { .. }
            | Self::ForceSnapshot { .. }
            | Self::DeletePod { .. }
            | Self::DeleteClaim { .. } => self.into(),
        }
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::UpdateIdentity { why, .. } => why.describe().to_owned(),
            Self::ChangeMembership { intent, .. } => describe_change(context, intent),
            Self::RestartMember {
                serial,
                transfer_to: Some(transfer_to),
                ..
            } => {
                format!(
                    "restarting {}, which hands the lead to {}",
                    context.member(*serial),
                    context.member(*transfer_to)
                )
            }
            Self::RestartMember { serial, .. } => {
                format!("restarting {}", context.member(*serial))
            }
            Self::ForceSnapshot { .. } => {
                let next = context.facts.cluster.next_version;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                format!("renewing the members' logs, before {next} is entered")
            }
            Self::DeletePod { serial, why, .. } => {
                format!(
                    "deleting the pod of {}: {}",
                    context.member(*serial),
                    why.reason()
                )
            }
            Self::DeleteClaim { serial, why, .. } => {
                format!(
                    "deleting the volume of {}: {}",
                    context.member(*serial),
                    why.reason()
                )
            }
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::UpdateIdentity { why, .. } => why.reason().to_owned(),
            Self::ChangeMembership { intent, .. } => context
                .view
                .map(|view| change_reason(context, view, intent))
                .unwrap_or_default(),
            Self::RestartMember {
                serial,
                via_eviction,
                ..
            } => context
                .view
                .map(|view| restart_reason(view, *serial, *via_eviction))
                .unwrap_or_default(),
            Self::ForceSnapshot { .. } => {
                "what an earlier version has written to them is no longer read by the one that follows"
                    .to_owned()
            }
            Self::DeletePod { why, .. } | Self::DeleteClaim { why, .. } => why.reason().to_owned(),
        }
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        let member = |serial: &Serial| member_display_name(observed, *serial);
        match self {
            Self::UpdateIdentity { why, .. } => why.event(),
            Self::ChangeMembership { intent, .. } => change_event(observed, intent),
            Self::RestartMember {
                serial,
                via_eviction: true,
                ..
            } => normal(
                "MemberRestarted",
                format!("restarted {}, which was out of date", member(serial)),
            ),
            Self::RestartMember { serial, .. } => warning(
                "RestartWithoutRedundancy",
                format!(
                    "restarted {}, which was out of date; clients cannot write until it is back, since there is no majority without it",
                    member(serial)
                ),
            ),
            Self::ForceSnapshot { .. } => {
                let next = observed.desired.next;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                normal(
                    "SnapshotForced",
                    format!("renewed the logs of all members: {next} may follow"),
                )
            }
            Self::DeletePod { serial, why, .. } => {
                let note = format!("deleted the pod of {}: {}", member(serial), why.reason());
                match why {
                    DeleteReason::Finished => warning("PodDeleted", note),
                    DeleteReason::OldEpoch
                    | DeleteReason::MemberRemoved
                    | DeleteReason::FreesNode
                    | DeleteReason::Outdated => normal("PodDeleted", note),
                }
            }
            Self::DeleteClaim { serial, why, .. } => normal(
                "ClaimDeleted",
                format!("deleted the claim of {}: {}", member(serial), why.reason()),
            ),
        }
    }

    fn is_prerequisite(&self) -> bool {
        true
    }

    fn is_bookkeeping(&self) -> bool {
        match self {
            Self::UpdateIdentity { why, .. } => why.is_bookkeeping(),
            Self::ChangeMembership { .. }
            | Self::RestartMember { .. }
            | Self::ForceSnapshot { .. }
            | Self::DeletePod { .. }
            | Self::DeleteClaim { .. } => false,
        }
    }
}

impl IdentityChange {
    fn describe(self) -> &'static str {
        match self {
            Self::StartSeed => "letting the first member start",
            Self::RecordCluster(_) => "noting which cluster the first member has formed",
            Self::FinishBootstrap => "letting clients in",
            Self::SettleIntent => "closing a change of the membership",
            Self::SeedLost => "beginning the bootstrap again: its first member is lost",
            Self::SeedStorageChanged => "beginning the bootstrap again: spec.storage was changed",
            Self::ResourceReplaced => {
                "beginning the bootstrap again: the resource was created anew"
            }
            Self::Adopt => "taking up the cluster that is there: the resource was created anew",
            Self::Repair => "bringing the identity up to date: it is an older one",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::StartSeed => "the first member may start",
            Self::RecordCluster(_) => "the first member has formed the cluster",
            Self::FinishBootstrap => "the bootstrap is over",
            Self::SettleIntent => "a change of the membership is done",
            Self::SeedLost => "the bootstrap lost its first member and begins again",
            Self::SeedStorageChanged => {
                "spec.storage was changed before there was a cluster: the bootstrap begins again"
            }
            Self::ResourceReplaced => {
                "the resource was created anew before the bootstrap was over, which begins again"
            }
            Self::Adopt => "the resource was created anew, and takes up the cluster that is there",
            Self::Repair => "the identity is an older one, and was brought up to date",
        }
    }

    fn event(self) -> Option<EventSpec> {
        match self {
            Self::FinishBootstrap => normal(
                "BootstrapFinished",
                "the bootstrap was finished; clients were let in",
            ),
            Self::SeedLost | Self::SeedStorageChanged | Self::ResourceReplaced => {
                warning("BootstrapRestarted", self.reason())
            }
            Self::Adopt => normal("ClusterAdopted", self.reason()),
            Self::Repair => warning("IdentityRebuilt", self.reason()),
            Self::StartSeed | Self::RecordCluster(_) | Self::SettleIntent => None,
        }
    }

    fn is_bookkeeping(self) -> bool {
        match self {
            Self::StartSeed | Self::RecordCluster(_) | Self::SettleIntent => true,
            Self::FinishBootstrap
            | Self::SeedLost
            | Self::SeedStorageChanged
            | Self::ResourceReplaced
            | Self::Adopt
            | Self::Repair => false,
        }
    }
}

impl DeleteReason {
    fn reason(self) -> &'static str {
        match self {
            Self::OldEpoch => "it is left over from a bootstrap that was given up",
            Self::MemberRemoved => "its member was removed",
            Self::Finished => "it has ended, and is created again",
            Self::FreesNode => "a member that is to come back needs the place first",
            Self::Outdated => "it does not run, and is created again as the spec has it now",
        }
    }
}

fn change_name(intent: &Intent) -> &'static str {
    match intent.change {
        MembershipChange::Add(_) => "add-member",
        MembershipChange::Promote(_) => "promote-member",
        MembershipChange::Remove(_) if intent.is_replacement => "replace-member",
        MembershipChange::Remove(_) => "remove-member",
        MembershipChange::RemoveUnknown(_) => "remove-unknown-member",
    }
}

/// Describes a membership change.
pub(super) fn describe_change(context: &ActionContext<'_>, intent: &Intent) -> String {
    match intent.change {
        MembershipChange::Add(serial) => format!("adding {} as a learner", context.member(serial)),
        MembershipChange::Promote(serial) => format!("giving {} its vote", context.member(serial)),
        MembershipChange::Remove(serial) if intent.is_replacement => {
            format!(
                "replacing {}, which has not come back",
                context.member(serial)
            )
        }
        MembershipChange::Remove(serial) => format!("removing {}", context.member(serial)),
        MembershipChange::RemoveUnknown(id) => format!(
            "removing the unknown member {:x}, which never started",
            id.0
        ),
    }
}

fn change_event(observed: &ObservedCluster, intent: &Intent) -> Option<EventSpec> {
    let member = |serial| member_display_name(observed, serial);
    match intent.change {
        MembershipChange::Add(serial) => normal(
            "MemberAdded",
            format!("added {} as a learner", member(serial)),
        ),
        MembershipChange::Promote(serial) => normal(
            "MemberPromoted",
            format!("gave {} its vote", member(serial)),
        ),
        MembershipChange::Remove(serial) if intent.is_replacement => warning(
            "MemberReplaced",
            format!(
                "removed {}, which has not come back, to replace it",
                member(serial)
            ),
        ),
        MembershipChange::Remove(serial) => normal(
            "MemberRemoved",
            format!("removed {} from the cluster", member(serial)),
        ),
        MembershipChange::RemoveUnknown(id) => warning(
            "UnknownMemberRemoved",
            format!(
                "removed the unknown member {:x} from the cluster: it never started",
                id.0
            ),
        ),
    }
}

fn change_reason(context: &ActionContext<'_>, view: &ClusterView<'_>, intent: &Intent) -> String {
    match intent.change {
        MembershipChange::Add(_) => {
            let (listed, desired) = (view.listed().count(), view.facts.cluster.members);
            format!("{listed} of {desired} members are there, and everyone with a vote serves")
        }
        MembershipChange::Promote(_) => {
            let healthy = view.voters().filter(|member| member.is_serving()).count();
            let votes = view.votes();
            format!("it serves and has caught up, and {healthy} of {votes} with a vote are well")
        }
        MembershipChange::RemoveUnknown(_) => {
            let after = format_duration(view.facts.cluster.replace_after);
            format!("it is none of ours, and has not started within {after}")
        }
        MembershipChange::Remove(serial) => match view.members.get(&serial) {
            Some(member) => removal_reason(context, view, member),
            None => "it was begun".to_owned(),
        },
    }
}

fn removal_reason(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> String {
    let (listed, desired) = (view.listed().count(), view.facts.cluster.members);
    let after = format_duration(view.facts.cluster.replace_after);
    if member.data == DataState::Lost {
        return data_loss_reason(view, member).to_owned();
    }
    if !member.is_voter() && view.blocks_a_voter(member) {
        let blocked = view
            .voters()
            .find(|voter| view.occupies_node_of(member, voter));
        let blocked = blocked.map(|voter| context.member(voter.serial));
        return format!(
            "it has the place that a member with a vote must come back to ({})",
            blocked.unwrap_or_default()
        );
    }
    let is_misplaced = member.claim.is_some_and(|claim| claim.is_misplaced);
    if member.is_unstarted_learner() && (view.must_be_replaced(member) || is_misplaced) {
        return "it waits for a volume that is no longer wanted, and another one gets the one that is"
            .to_owned();
    }
    if replace::is_crashing(view, member) {
        return format!(
            "its etcd has ended at every start for {after}, while others run on the same image"
        );
    }
    if replace::is_unreachable(view, member) {
        return format!(
            "for {after} neither the operator nor the leader has heard it, and its pod is not Ready"
        );
    }
    if listed > usize::from(desired) {
        return format!("there are {listed} members, and {desired} are wanted");
    }
    "it was begun".to_owned()
}

/// Returns how a member's data was lost.
fn data_loss_reason(view: &ClusterView<'_>, member: &MemberView<'_>) -> &'static str {
    match (view.facts.cluster.storage, member.claim) {
        (StorageKind::Ephemeral, _) => "its pod is gone, and its data with it",
        (_, None) => "its claim is gone, and its data with it",
        (_, Some(claim)) if claim.is_lost => "its volume was on a node that is no more",
        (_, Some(claim)) if claim.joined_on.is_some() => {
            "its claim or its volume is not the one it joined on: what is there is other data"
        }
        (_, Some(_)) => "nothing tells on which volume it joined",
    }
}

fn restart_reason(view: &ClusterView<'_>, serial: Serial, via_eviction: bool) -> String {
    let cause = outdated_because(view, serial);
    if !via_eviction {
        return format!(
            "{cause}; clients cannot write meanwhile, since there is no majority without it"
        );
    }
    let outdated = view
        .voters()
        .filter(|voter| view.is_outdated_or_misplaced(voter));
    format!(
        "{cause}; everybody else is well ({} to go)",
        outdated.count()
    )
}

fn outdated_because(view: &ClusterView<'_>, serial: Serial) -> String {
    let desired = &view.facts.cluster;
    let pod = view.members.get(&serial).and_then(|member| member.pod);
    if let Some(version) = pod.and_then(|pod| pod.version)
        && version != desired.version
    {
        return format!("it runs {version}, and {} is wanted", desired.version);
    }
    let template_hash = pod.and_then(|pod| pod.template_hash);
    if template_hash.is_some_and(|hash| hash != desired.pod_template_hash) {
        return "the spec has changed since it was started".to_owned();
    }
    "a restart was asked for".to_owned()
}
