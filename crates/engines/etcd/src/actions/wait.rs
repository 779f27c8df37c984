//! Waits: when each is checked again, how it is described, the step that follows it, and whether it
//! degrades the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_api::conditions::Reason;
use evenkeel_api::labels;
use evenkeel_runtime::{Requeue, UnixTime};
use kube::ResourceExt;

use super::{ActionContext, disruption::describe_change, format_duration, restore, sentence};
use crate::decide::intent;
use crate::facts::{EtcdFacts, OwnedObject, UnknownMember};
use crate::names::Serial;
use crate::plan::{EtcdWait, UnreadableObjects};
use crate::status::cause;
use crate::view::{ClusterView, DataState};

/// How soon objects that are not watched are read again while a user has to correct them.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(10);

/// How long a restore may fail, or its backup may be missing, before that is a problem.
pub(super) const RESTORE_GRACE: Duration = Duration::from_secs(60);

/// The texts of a problem.
pub(crate) struct ProblemText {
    /// The fact and its consequence, in sentences.
    pub(crate) message: String,
    /// The action that is required from a user, in sentences; empty if none is.
    pub(crate) advice: String,
}

impl ProblemText {
    pub(super) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: advice.into(),
        }
    }
}

impl EtcdWait {
    /// Returns the machine name, for logs and tests.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns when to reconcile again, besides on any change.
    pub(crate) fn requeue(&self, facts: &EtcdFacts) -> Requeue {
        match self {
            Self::BootstrapTimeout(until)
            | Self::RestoreRetry(_, until)
            | Self::ReplacementLimit(_, until)
            | Self::MaintenanceWindow(until) => Requeue::At(*until),
            // No watch event reports that a deletion takes too long.
            Self::PreviousResourceDeletion(until) if *until > facts.now => Requeue::At(*until),
            Self::PreviousResourceDeletion(_) => Requeue::OnChange,
            Self::OpenIntent(intent) => {
                Requeue::At(intent.recorded_at.after(intent::EXPIRES_AFTER))
            }
            // Neither are backups and stores watched.
            Self::RestoreSource(_) => Requeue::At(facts.now.after(UNWATCHED_RECHECK)),
            // Secrets are not watched: reading them again shows whether a conflicting one was
            // deleted.
            Self::Unreadable(_) | Self::NameConflict(_) | Self::CaMissing(_) => {
                Requeue::At(facts.now.after(UNWATCHED_RECHECK))
            }
            Self::UnknownMembers(unknown) => {
                let unstarted = unknown.iter().filter(|unknown| !unknown.has_started);
                unstarted
                    .map(|unknown| unknown.first_seen.after(facts.cluster.replace_after))
                    .min()
                    .map_or(Requeue::OnChange, Requeue::At)
            }
            // etcd's own state changes without an event in Kubernetes.
            Self::SeedStart(_)
            | Self::MemberJoin(_)
            | Self::LearnerCatchUp(_)
            | Self::UnsafeToAdd
            | Self::ReplacementJoin(_)
            | Self::UnhealthyMember(_)
            | Self::SnapshotBlocked(_) => Requeue::Poll,
            // The prober queries etcd at intervals and triggers a reconcile when an answer changes.
            Self::Paused
            | Self::InconsistentObjects
            | Self::DataLost(_)
            | Self::OldEpochDeletion
            | Self::Restore(_)
            | Self::RestorePodDeletion(_)
            | Self::NoQuorum
            | Self::TooFewVoters
            | Self::InvalidWindows
            | Self::VolumeResize(_)
            | Self::VersionMismatch(..) => Requeue::OnChange,
        }
    }

    /// Returns the time at which the wait ends by itself. The recheck of an object that a user has
    /// to correct is none.
    pub(crate) fn deadline(&self, facts: &EtcdFacts) -> Option<UnixTime> {
        let is_recheck = matches!(
            self,
            Self::Unreadable(_)
                | Self::NameConflict(_)
                | Self::CaMissing(_)
                | Self::RestoreSource(_)
                | Self::PreviousResourceDeletion(_)
        );
        match self.requeue(facts) {
            Requeue::At(time) if !is_recheck => Some(time),
            Requeue::At(_) | Requeue::OnChange | Requeue::Poll => None,
        }
    }

    /// Returns true if a stale cache can cause the wait. The plan is then confirmed with a live
    /// observation.
    pub(crate) fn needs_live_confirmation(&self) -> bool {
        matches!(
            self,
            Self::InconsistentObjects | Self::DataLost(_) | Self::NoQuorum
        )
    }

    /// Returns the event that ends the wait, as a noun phrase that follows "waiting for".
    pub(crate) fn describe(&self, context: &ActionContext<'_>) -> String {
        let facts = context.facts;
        match self {
            Self::Unreadable(objects) => {
                format!("{} to become readable", unreadable(context, *objects))
            }
            Self::Paused => "spec.paused to be set to false".to_owned(),
            Self::InconsistentObjects => {
                "PersistentVolumeClaims and pods to belong to one cluster".to_owned()
            }
            Self::DataLost(cluster) => {
                format!(
                    "the EtcdCluster to be deleted: the data of etcd cluster {:x} is lost",
                    cluster.0
                )
            }
            Self::OldEpochDeletion => {
                "pods and PersistentVolumeClaims of an abandoned bootstrap to be deleted".to_owned()
            }
            Self::PreviousResourceDeletion(_) => format!(
                "objects of the previous EtcdCluster to be deleted{}",
                previous_objects_suffix(context)
            ),
            Self::RestoreSource(problem) => restore::describe_source(context, problem),
            Self::Restore(serial) => restore::describe_restore(context, *serial),
            Self::RestoreRetry(_, until) => format!(
                "the next attempt to restore Backup {} at {}{}",
                restore::backup_name(context),
                timestamp(*until),
                restore::failure_suffix(context)
            ),
            Self::RestorePodDeletion(serial) => {
                format!("Pod {} to be deleted", context.restore_pod(*serial))
            }
            Self::SeedStart(serial) => {
                let problem = context.pod_problem_suffix(*serial);
                format!(
                    "first member {} to start and respond{problem}",
                    context.member(*serial)
                )
            }
            Self::NoQuorum => describe_no_quorum(context),
            Self::OpenIntent(intent) => {
                format!("the result of {}", describe_change(context, intent))
            }
            Self::MemberJoin(serials) => {
                let first = serials.first();
                let problem = first
                    .map(|serial| context.pod_problem_suffix(*serial))
                    .unwrap_or_default();
                let verb = if all_are_voters(facts, serials) {
                    "respond again"
                } else {
                    "join"
                };
                format!("{} to {verb}{problem}", context.counted_members(serials))
            }
            Self::LearnerCatchUp(serial) => {
                format!(
                    "learner {} to catch up with the leader",
                    context.member(*serial)
                )
            }
            Self::UnsafeToAdd => "all members to be healthy before another one is added".to_owned(),
            Self::BootstrapTimeout(_) => format!(
                "all {} members to join, or the bootstrap timeout to end",
                facts.cluster.members
            ),
            Self::NameConflict(object) => format!(
                "{}, which does not belong to this cluster, to be deleted",
                context.object(*object)
            ),
            Self::CaMissing(object) => format!("CA {} to be restored", context.object(*object)),
            Self::UnknownMembers(unknown) => {
                let described: Vec<_> = unknown
                    .iter()
                    .map(|unknown| describe_unknown(unknown, facts))
                    .collect();
                described.join("; ")
            }
            Self::MaintenanceWindow(opens) => {
                format!("the maintenance window that opens at {}", timestamp(*opens))
            }
            Self::InvalidWindows => {
                "valid maintenance windows before outdated members are restarted".to_owned()
            }
            Self::UnhealthyMember(serial) => {
                let verb = if replaces_voters(context) {
                    "replaced"
                } else {
                    "restarted"
                };
                let problem = context.pod_problem_suffix(*serial);
                let member = context.member(*serial);
                if has_other_outdated(context, *serial) {
                    format!(
                        "member {member} to become healthy before the next member is {verb}{problem}"
                    )
                } else {
                    format!("member {member} to become healthy{problem}")
                }
            }
            Self::TooFewVoters => {
                "more healthy voters: the restart of an outdated member would lose the quorum"
                    .to_owned()
            }
            Self::VersionMismatch(serial, _) => format!(
                "spec.image or spec.version to be corrected so that member {} runs etcd {}",
                context.member(*serial),
                facts.cluster.version
            ),
            Self::VolumeResize(serial) => format!(
                "PersistentVolumeClaim {} to be resized before members are restarted (see its conditions and events)",
                context.member(*serial)
            ),
            Self::SnapshotBlocked(serial) => {
                let current = facts.cluster.version;
                let problem = context.pod_problem_suffix(*serial);
                format!(
                    "member {} to be healthy and to run etcd {current} before a snapshot is forced{problem}",
                    context.member(*serial)
                )
            }
            Self::ReplacementJoin(serial) => {
                format!(
                    "member {} to join before the next member is replaced",
                    context.member(*serial)
                )
            }
            Self::ReplacementLimit(serial, until) => format!(
                "the limit of 3 replacements per hour, which allows the replacement of member {} at {}",
                context.member(*serial),
                timestamp(*until)
            ),
        }
    }

    /// Describes the problem behind a wait that degrades the cluster.
    pub(crate) fn problem(&self, context: &ActionContext<'_>) -> ProblemText {
        match self {
            Self::Unreadable(objects) => ProblemText::new(
                format!(
                    "The operator cannot read {}. It changes nothing until the read succeeds.",
                    unreadable(context, *objects)
                ),
                "Check the Kubernetes API, and the permissions and the log of the operator.",
            ),
            Self::InconsistentObjects => ProblemText::new(
                format!(
                    "PersistentVolumeClaims and pods with the label {}={} belong to different clusters: their lineage \
                     annotations differ. The operator changes none of them.",
                    labels::CLUSTER,
                    context.observed.desired.name,
                ),
                format!(
                    "Restore {}, or remove the label from objects that do not belong to this cluster.",
                    context.object(OwnedObject::Identity)
                ),
            ),
            Self::RestoreSource(problem) => restore::source_problem(context, problem),
            Self::RestoreRetry(..) => restore::failure_problem(context),
            Self::DataLost(cluster) => ProblemText::new(
                format!(
                    "All PersistentVolumeClaims and pods of etcd cluster {:x} are gone. The operator does not create an \
                     empty cluster in its place.",
                    cluster.0
                ),
                "To start with an empty cluster, delete the EtcdCluster and create it again. Then load your last snapshot \
                 into it.",
            ),
            Self::PreviousResourceDeletion(_) => ProblemText::new(
                format!(
                    "Objects of the previous EtcdCluster still exist{}. The operator creates the new cluster when \
                     Kubernetes has deleted them.",
                    previous_objects_suffix(context)
                ),
                "If the node of a pod is lost, delete the pod with `kubectl delete pod --force`. A PersistentVolumeClaim \
                 is deleted when no pod uses it and it has no finalizers.",
            ),
            Self::NoQuorum => no_quorum_problem(context),
            Self::NameConflict(object) => ProblemText::new(
                format!(
                    "{} exists and does not belong to this cluster. The operator does not change it.",
                    context.object(*object)
                ),
                "Delete it, or create the EtcdCluster under another name.",
            ),
            Self::CaMissing(object) => ProblemText::new(
                format!(
                    "CA {} is missing or invalid. The operator does not create a new CA while members use certificates \
                     issued by the old one, and it cannot renew certificates until then.",
                    context.object(*object)
                ),
                format!("Restore {} from a backup.", context.object(*object)),
            ),
            Self::UnknownMembers(unknown) => unknown_members_problem(context, unknown),
            Self::VersionMismatch(serial, reported) => ProblemText::new(
                format!(
                    "Member {} runs etcd {reported} instead of {}: the image contains another version than spec.version. \
                     The rollout is stopped, and the other members are not restarted.",
                    context.member(*serial),
                    context.facts.cluster.version
                ),
                "Correct spec.image or spec.version.",
            ),
            Self::ReplacementLimit(serial, until) => ProblemText::new(
                format!(
                    "3 members were replaced within an hour. The operator does not replace member {} before {}.",
                    context.member(*serial),
                    timestamp(*until)
                ),
                format!(
                    "Find out why members fail before more of them do: `kubectl evenkeel why {0}` shows the last decisions, \
                     `kubectl evenkeel logs {0}` the logs.",
                    context.observed.desired.name
                ),
            ),
            Self::Paused
            | Self::OldEpochDeletion
            | Self::Restore(_)
            | Self::RestorePodDeletion(_)
            | Self::SeedStart(_)
            | Self::OpenIntent(_)
            | Self::MemberJoin(_)
            | Self::LearnerCatchUp(_)
            | Self::UnsafeToAdd
            | Self::BootstrapTimeout(_)
            | Self::ReplacementJoin(_)
            | Self::MaintenanceWindow(_)
            | Self::InvalidWindows
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::VolumeResize(_)
            | Self::SnapshotBlocked(_) => ProblemText::new(
                sentence(&format!(
                    "The operator waits for {}",
                    self.describe(context)
                )),
                "",
            ),
        }
    }

    /// Describes the step that follows the wait, as a sentence without a period.
    pub(crate) fn next_step(&self, context: &ActionContext<'_>) -> Option<String> {
        let next = match self {
            Self::Paused | Self::InconsistentObjects | Self::DataLost(_) => {
                return None;
            }
            Self::UnknownMembers(unknown) => {
                let unstarted = unknown.iter().find(|unknown| !unknown.has_started)?;
                let grace = format_duration(context.facts.cluster.replace_after);
                return Some(format!(
                    "operator removes unknown member {:x} unless it starts within {grace}",
                    unstarted.id.0
                ));
            }
            Self::SnapshotBlocked(_) => {
                "operator forces a snapshot on every member before the upgrade"
            }
            Self::MaintenanceWindow(_)
            | Self::InvalidWindows
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::VolumeResize(_)
            | Self::VersionMismatch(..)
                if replaces_voters(context) =>
            {
                "operator replaces the next outdated member"
            }
            Self::MaintenanceWindow(_)
            | Self::InvalidWindows
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::VolumeResize(_)
            | Self::VersionMismatch(..) => "operator restarts the next outdated member",
            Self::ReplacementJoin(_) => "operator replaces the next member that does not recover",
            Self::ReplacementLimit(serial, _) => {
                return Some(format!(
                    "operator replaces member {}",
                    context.member(*serial)
                ));
            }
            Self::RestoreSource(_) | Self::RestoreRetry(..) => {
                return Some(format!(
                    "operator restores Backup {}",
                    restore::backup_name(context)
                ));
            }
            Self::Restore(serial) | Self::RestorePodDeletion(serial) => {
                return Some(format!(
                    "operator starts first member {} on the restored data",
                    context.member(*serial)
                ));
            }
            Self::OldEpochDeletion => "operator restarts the bootstrap with new members",
            Self::PreviousResourceDeletion(_) => "operator creates the new cluster",
            Self::SeedStart(_) if context.facts.cluster.members > 1 => {
                "operator adds the other members"
            }
            Self::SeedStart(_) | Self::BootstrapTimeout(_) => {
                let service = context.object(OwnedObject::ClientService);
                return Some(format!("operator adds the members to {service}"));
            }
            Self::NoQuorum => return None,
            Self::Unreadable(_) => "operator recreates or replaces members that are missing",
            Self::OpenIntent(_) => "operator makes the next membership change, if one is needed",
            Self::MemberJoin(serials) if all_are_voters(context.facts, serials) => return None,
            Self::MemberJoin(serials) => {
                let noun = if serials.len() == 1 {
                    "voter"
                } else {
                    "voters"
                };
                return Some(format!(
                    "operator promotes {} to {noun}",
                    context.counted_members(serials)
                ));
            }
            Self::LearnerCatchUp(serial) => {
                return Some(format!(
                    "operator promotes learner {} to voter",
                    context.member(*serial)
                ));
            }
            Self::UnsafeToAdd => "operator adds another member",
            Self::NameConflict(object) => {
                return Some(format!("operator creates {}", context.object(*object)));
            }
            Self::CaMissing(_) => "operator renews certificates when they are due",
        };
        Some(next.to_owned())
    }

    /// Returns the reason of the Degraded condition; `None` if the wait ends without a user.
    pub(crate) fn degraded_reason(&self, context: &ActionContext<'_>) -> Option<Reason> {
        match self {
            Self::Unreadable(_) => Some(Reason::ObserveFailed),
            Self::RestoreSource(problem) => {
                let created_at = context.facts.cluster.created_at;
                let has_waited = context.facts.now.since(created_at) >= RESTORE_GRACE;
                (has_waited || !problem.is_transient()).then_some(Reason::RestoreFailed)
            }
            Self::RestoreRetry(..) => {
                restore::is_persistent_failure(context).then_some(Reason::RestoreFailed)
            }
            Self::InconsistentObjects => Some(Reason::InconsistentObjects),
            Self::PreviousResourceDeletion(until) if *until <= context.facts.now => {
                Some(Reason::BootstrapStalled)
            }
            Self::DataLost(_) => Some(Reason::DataLost),
            Self::NoQuorum => {
                let view = context
                    .view
                    .filter(|view| view.identity.bootstrapped && !view.membership_known)?;
                if view.members.is_empty() {
                    Some(Reason::DataLost)
                } else {
                    Some(Reason::QuorumLost)
                }
            }
            Self::NameConflict(_) => Some(Reason::NameConflict),
            Self::CaMissing(_) => Some(Reason::CAMissing),
            Self::UnknownMembers(_) => Some(Reason::UnknownMember),
            Self::ReplacementLimit(..) => Some(Reason::TooManyReplacements),
            Self::VersionMismatch(..) => Some(Reason::RolloutStopped),
            Self::Paused
            | Self::OldEpochDeletion
            | Self::PreviousResourceDeletion(_)
            | Self::Restore(_)
            | Self::RestorePodDeletion(_)
            | Self::SeedStart(_)
            | Self::OpenIntent(_)
            | Self::MemberJoin(_)
            | Self::LearnerCatchUp(_)
            | Self::UnsafeToAdd
            | Self::ReplacementJoin(_)
            | Self::MaintenanceWindow(_)
            | Self::InvalidWindows
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::SnapshotBlocked(_)
            | Self::VolumeResize(_)
            | Self::BootstrapTimeout(_) => None,
        }
    }
}

/// Returns kind and name of the objects that could not be read.
fn unreadable(context: &ActionContext<'_>, objects: UnreadableObjects) -> String {
    match objects {
        UnreadableObjects::Identity => context.object(OwnedObject::Identity),
        UnreadableObjects::Objects => "pods and PersistentVolumeClaims of the cluster".to_owned(),
    }
}

/// Returns kind and name of the objects of a deleted resource of the same name, in parentheses;
/// empty if no object is left.
fn previous_objects_suffix(context: &ActionContext<'_>) -> String {
    let pods = context.observed.pods.values();
    let pods = pods.map(|pod| format!("Pod {}", pod.name_any()));
    let claims = context.observed.claims.values();
    let claims = claims.map(|claim| format!("PersistentVolumeClaim {}", claim.name_any()));
    let left: Vec<_> = pods.chain(claims).collect();
    if left.is_empty() {
        String::new()
    } else {
        format!(" ({})", left.join(", "))
    }
}

/// Returns true if outdated voters are replaced instead of restarted.
fn replaces_voters(context: &ActionContext<'_>) -> bool {
    context
        .view
        .is_some_and(|view| view.voters().any(|voter| view.must_be_replaced(voter)))
}

/// Returns true if a member other than this one is still to be restarted or replaced.
fn has_other_outdated(context: &ActionContext<'_>, serial: Serial) -> bool {
    context.view.is_some_and(|view| {
        let mut others = view.members.values();
        others.any(|member| member.serial != serial && view.is_outdated_or_misplaced(member))
    })
}

fn describe_no_quorum(context: &ActionContext<'_>) -> String {
    let Some(view) = context.view else {
        return "a quorum of voters to respond".to_owned();
    };
    if view.membership_known {
        return describe_unsafe_removal(context, view);
    }
    if view.members.is_empty() {
        return "the EtcdCluster to be deleted: the data of all members is lost".to_owned();
    }
    let unreachable = view
        .members
        .values()
        .filter(|member| member.health.is_none());
    let unreachable: BTreeSet<_> = unreachable.map(|member| member.serial).collect();
    if unreachable.is_empty() {
        return "the voters to elect a leader".to_owned();
    }
    format!(
        "a quorum of voters to respond (not responding: {})",
        context.members(&unreachable)
    )
}

/// Describes a lost quorum.
fn no_quorum_problem(context: &ActionContext<'_>) -> ProblemText {
    let Some(view) = context.view.filter(|view| !view.membership_known) else {
        let wait = format!("The operator waits for {}", describe_no_quorum(context));
        return ProblemText::new(sentence(&wait), "");
    };
    let identity = context.object(OwnedObject::Identity);
    if view.members.is_empty() && !view.retained_claims.is_empty() {
        let retained = view.retained_claims.iter().map(|claim| claim.serial);
        return ProblemText::new(
            format!(
                "All pods and PersistentVolumeClaims of members are gone. The PersistentVolumeClaims of removed members \
                 ({}) hold older data.",
                context.members(&retained.collect()),
            ),
            format!(
                "To start with an empty cluster, delete the EtcdCluster, the PersistentVolumeClaims of removed members and \
                 {identity}, then create the EtcdCluster again and load your last snapshot into it."
            ),
        );
    }
    if view.members.is_empty() {
        return ProblemText::new(
            "All pods and PersistentVolumeClaims of members are gone. The operator does not create an empty cluster in \
             their place.",
            format!(
                "To start with an empty cluster, delete the EtcdCluster and {identity}, then create the EtcdCluster again \
                 and load your last snapshot into it."
            ),
        );
    }
    let Some(unreachable) = unreachable_members(context, view) else {
        return ProblemText::new(
            "All members respond, but they have no leader. Clients cannot read or write.",
            "If this persists, check the network between the members.",
        );
    };
    let lost = format!(
        "{}. Clients cannot read or write until a quorum responds. Not responding: {unreachable}",
        responding_voters(view)
    );
    let mut advice: Vec<String> = Vec::new();
    let down = view
        .members
        .values()
        .filter(|member| member.health.is_none());
    for member in down {
        let of_member = cause::of(context, view, member).advice;
        if !of_member.is_empty() && !advice.contains(&of_member) {
            advice.push(of_member);
        }
    }
    advice.push(
        "The operator replaces no member without a quorum, so waiting loses no data.".to_owned(),
    );
    ProblemText::new(sentence(&lost), advice.join(" "))
}

/// Returns how many voters respond. Without etcd's list every known member counts as a voter.
pub(crate) fn responding_voters(view: &ClusterView<'_>) -> String {
    let members = view.members.values();
    let responding = members.filter(|member| member.health.is_some()).count();
    let verb = if responding == 1 {
        "responds"
    } else {
        "respond"
    };
    format!("{responding} of {} voters {verb}", view.members.len())
}

/// Returns the names of members that do not respond, with the causes; `None` if all respond.
fn unreachable_members(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<String> {
    let unreachable = view
        .members
        .values()
        .filter(|member| member.health.is_none());
    let unreachable: Vec<_> = unreachable
        .map(|member| {
            let cause = cause::of(context, view, member).text;
            format!("{} ({cause})", context.member(member.serial))
        })
        .collect();
    (!unreachable.is_empty()).then(|| unreachable.join(", "))
}

/// A quorum answers, and a removal would leave too few voters.
fn describe_unsafe_removal(context: &ActionContext<'_>, view: &ClusterView<'_>) -> String {
    let down: BTreeSet<_> = view
        .voters()
        .filter(|member| !member.is_serving() && member.data != DataState::Lost)
        .map(|member| member.serial)
        .collect();
    let voters = if down.is_empty() {
        "more voters".to_owned()
    } else {
        context.counted_members(&down)
    };
    format!("{voters} to become healthy: the removal of another member would lose the quorum")
}

/// Returns true if etcd lists all these members as voters.
fn all_are_voters(facts: &EtcdFacts, serials: &BTreeSet<Serial>) -> bool {
    let listed = facts
        .membership
        .present()
        .map(|membership| membership.members.as_slice());
    let is_voter = |serial: &Serial| {
        let mut listed = listed.unwrap_or_default().iter();
        listed.any(|listed| listed.serial == *serial && !listed.is_learner)
    };
    serials.iter().all(is_voter)
}

fn describe_unknown(unknown: &UnknownMember, facts: &EtcdFacts) -> String {
    let id = unknown.id.0;
    if unknown.has_started {
        format!("unknown member {id:x} to be removed by a user")
    } else {
        let grace = format_duration(facts.cluster.replace_after);
        format!("unknown member {id:x} to start within {grace} or to be removed")
    }
}

fn unknown_members_problem(context: &ActionContext<'_>, unknown: &[UnknownMember]) -> ProblemText {
    let grace = format_duration(context.facts.cluster.replace_after);
    let cluster = &context.observed.desired.name;
    let facts = unknown.iter().map(|unknown| {
        let id = unknown.id.0;
        if unknown.has_started {
            format!(
                "etcd lists member {id:x}, which the operator did not add and which has started. The operator does not \
                 remove it."
            )
        } else {
            format!(
                "etcd lists member {id:x}, which the operator did not add and which never started. The operator removes it \
                 unless it starts within {grace}."
            )
        }
    });
    let facts: Vec<_> = facts.collect();
    let started = unknown.iter().filter(|unknown| unknown.has_started);
    let advice: Vec<_> = started
        .map(|unknown| {
            format!(
                "If the member is not needed, remove it: `kubectl evenkeel etcdctl {cluster} -- member remove {:x}`.",
                unknown.id.0
            )
        })
        .collect();
    ProblemText::new(
        format!(
            "{} No member can be added while etcd lists an unknown member.",
            facts.join(" ")
        ),
        advice.join(" "),
    )
}

fn timestamp(time: UnixTime) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.0).unwrap_or_default()
}
