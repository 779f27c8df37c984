//! Waits: when each is checked again, how it is described, the step that follows it, and whether it
//! degrades the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::{Requeue, UnixTime};
use kube::ResourceExt;

use super::{ActionContext, disruption::describe_change, format_duration};
use crate::decide::intent;
use crate::facts::{EtcdFacts, UnknownMember};
use crate::names::Serial;
use crate::plan::{EtcdWait, UnreadableObjects};
use crate::view::{ClusterView, DataState};

/// How soon objects that are not watched are read again while a user has to correct them.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(10);

impl EtcdWait {
    /// Returns the machine name, for logs and tests.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns when to reconcile again, besides on any change.
    pub(crate) fn requeue(&self, facts: &EtcdFacts) -> Requeue {
        match self {
            Self::BootstrapTimeout(until)
            | Self::ReplacementLimit(_, until)
            | Self::MaintenanceWindow(until) => Requeue::At(*until),
            // No watch event reports that a deletion takes too long.
            Self::PreviousResourceDeletion(until) if *until > facts.now => Requeue::At(*until),
            Self::PreviousResourceDeletion(_) => Requeue::OnChange,
            Self::OpenIntent(intent) => {
                Requeue::At(intent.recorded_at.after(intent::EXPIRES_AFTER))
            }
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
            | Self::NoQuorum
            | Self::TooFewVoters
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

    /// Describes the wait and how it ends.
    pub(crate) fn describe(&self, context: &ActionContext<'_>) -> String {
        let facts = context.facts;
        match self {
            Self::Unreadable(UnreadableObjects::Identity) => "the identity cannot be read".to_owned(),
            Self::Unreadable(UnreadableObjects::Objects) => "pods and claims cannot be read".to_owned(),
            Self::Paused => "spec.paused is set: nothing is changed until it is false".to_owned(),
            Self::InconsistentObjects => format!(
                "claims and pods labelled for this cluster do not say the same about which cluster they are of: put the \
                 ConfigMap {} back, or take the label off those that are not its own",
                context.observed.desired.names().identity()
            ),
            Self::DataLost(cluster) => format!(
                "etcd cluster {:x} has lost all its data: no empty one is put in its place. Delete the resource and \
                 create it again to begin anew",
                cluster.0
            ),
            Self::OldEpochDeletion => "pods of a bootstrap that was given up must be gone first".to_owned(),
            Self::PreviousResourceDeletion(until) => describe_previous_resource(context, *until <= facts.now),
            Self::SeedStart(serial) => {
                let problem = context.pod_problem_suffix(*serial);
                format!("{} must start and answer{problem}", context.member(*serial))
            }
            Self::NoQuorum => describe_no_quorum(context),
            Self::OpenIntent(intent) => format!(
                "{} was begun, and etcd does not say yet what became of it",
                describe_change(context, intent)
            ),
            Self::MemberJoin(serials) => {
                let first = serials.first();
                let problem = first.map(|serial| context.pod_problem_suffix(*serial)).unwrap_or_default();
                let verb = if all_are_voters(facts, serials) { "come back" } else { "join" };
                format!("{} must {verb}{problem}", context.members(serials))
            }
            Self::LearnerCatchUp(serial) => {
                format!("{} must catch up before it gets its vote", context.member(*serial))
            }
            Self::UnsafeToAdd => "all members must be in place before another is added".to_owned(),
            Self::BootstrapTimeout(_) => format!(
                "all {} members should be there before clients are let in; those that do not start are not waited for \
                 much longer",
                facts.cluster.members
            ),
            Self::NameConflict(object) => format!(
                "{} exists and is not this cluster's: delete or rename it, or give the cluster another name",
                context.object(*object)
            ),
            Self::CaMissing(object) => format!(
                "{} is gone or of no use, and members run on certificates that it signed: put it back. No other is made while any of \
                 them runs; none can be renewed meanwhile",
                context.object(*object)
            ),
            Self::UnknownMembers(unknown) => {
                let described: Vec<_> = unknown.iter().map(|unknown| describe_unknown(unknown, facts)).collect();
                format!("{}. No member can be added while it is there", described.join("; "))
            }
            Self::MaintenanceWindow(opens) => format!(
                "members are restarted in the next maintenance window, which opens at {}",
                timestamp(*opens)
            ),
            Self::UnhealthyMember(serial) => {
                let replaces =
                    context.view.is_some_and(|view| view.voters().any(|voter| view.must_be_replaced(voter)));
                let verb = if replaces { "replaced" } else { "restarted" };
                let problem = context.pod_problem_suffix(*serial);
                format!("{} must be well before the next member is {verb}{problem}", context.member(*serial))
            }
            Self::TooFewVoters => {
                "members that are out of date are not restarted while the others could not agree without them"
                    .to_owned()
            }
            Self::VersionMismatch(serial, reported) => format!(
                "{} is up to date, and says that it is etcd {reported}, where {} is wanted: no other member follows it. Its image holds \
                 something else than spec.version says: mend spec.image, or spec.version",
                context.member(*serial),
                facts.cluster.version
            ),
            Self::VolumeResize(serial) => format!(
                "the volume of {} must have grown before members are restarted: see its claim for what is in the way",
                context.member(*serial)
            ),
            Self::SnapshotBlocked(serial) => {
                let next = facts.cluster.next_version;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                let current = facts.cluster.version;
                let problem = context.pod_problem_suffix(*serial);
                format!(
                    "{} must be well and run {current} before the members' logs are renewed, and {next} follows{problem}",
                    context.member(*serial)
                )
            }
            Self::ReplacementJoin(serial) => {
                format!("{} must join first: members are replaced one at a time", context.member(*serial))
            }
            Self::ReplacementLimit(serial, until) => format!(
                "{} would be replaced, but three members were within an hour, and it waits until {}: find out why members \
                 fail before more of them do",
                context.member(*serial),
                timestamp(*until)
            ),
        }
    }

    /// Describes the step that follows the wait.
    pub(crate) fn next_step(&self, context: &ActionContext<'_>) -> Option<String> {
        let next = match self {
            Self::Paused | Self::InconsistentObjects | Self::DataLost(_) => {
                return None;
            }
            Self::UnknownMembers(unknown) => {
                let unstarted = unknown.iter().find(|unknown| !unknown.has_started)?;
                return Some(format!(
                    "the unknown member {:x} is removed",
                    unstarted.id.0
                ));
            }
            Self::SnapshotBlocked(_) => "the members' logs are renewed",
            Self::MaintenanceWindow(_)
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::VolumeResize(_)
            | Self::VersionMismatch(..) => "the next member that is out of date is restarted",
            Self::ReplacementJoin(_) => "the next member that does not come back is replaced",
            Self::ReplacementLimit(serial, _) => {
                return Some(format!("{} is replaced", context.member(*serial)));
            }
            Self::OldEpochDeletion => "the bootstrap begins again, under new names",
            Self::PreviousResourceDeletion(_) => "a new cluster is formed",
            Self::SeedStart(_) if context.facts.cluster.members > 1 => "the other members join it",
            Self::SeedStart(_) | Self::BootstrapTimeout(_) => "clients are let in",
            Self::NoQuorum | Self::Unreadable(_) => {
                "members that are missing are brought back or replaced"
            }
            Self::OpenIntent(_) => "the next change of the membership, if one is needed",
            Self::MemberJoin(serials) if all_are_voters(context.facts, serials) => return None,
            Self::MemberJoin(serials) if serials.len() > 1 => "they get their votes",
            Self::MemberJoin(_) => "it gets its vote",
            Self::LearnerCatchUp(serial) => {
                return Some(format!("{} gets its vote", context.member(*serial)));
            }
            Self::UnsafeToAdd => "another member is added",
            Self::NameConflict(_) => "what is missing is created",
            Self::CaMissing(_) => "certificates are renewed in time again",
        };
        Some(next.to_owned())
    }

    /// Returns the reason of the Degraded condition; `None` if the wait ends without a user.
    pub(crate) fn degraded_reason(&self, context: &ActionContext<'_>) -> Option<Reason> {
        match self {
            Self::Unreadable(_) => Some(Reason::ObserveFailed),
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
            | Self::SeedStart(_)
            | Self::OpenIntent(_)
            | Self::MemberJoin(_)
            | Self::LearnerCatchUp(_)
            | Self::UnsafeToAdd
            | Self::ReplacementJoin(_)
            | Self::MaintenanceWindow(_)
            | Self::UnhealthyMember(_)
            | Self::TooFewVoters
            | Self::SnapshotBlocked(_)
            | Self::VolumeResize(_)
            | Self::BootstrapTimeout(_) => None,
        }
    }
}

/// Describes the objects of a deleted resource of the same name, and the remedy once their deletion
/// takes too long.
fn describe_previous_resource(context: &ActionContext<'_>, is_overdue: bool) -> String {
    let pods = context.observed.pods.values();
    let pods = pods.map(|pod| format!("pod {}", pod.name_any()));
    let claims = context.observed.claims.values();
    let claims = claims.map(|claim| format!("claim {}", claim.name_any()));
    let left: Vec<_> = pods.chain(claims).collect();
    let left = if left.is_empty() {
        String::new()
    } else {
        format!(" ({} left)", left.join(", "))
    };
    let remedy = if is_overdue {
        ", but it takes long. A pod whose node is gone for good goes with `kubectl delete pod --force`; a claim when no pod uses it \
         and nobody's finalizer holds it"
    } else {
        ""
    };
    format!(
        "what belonged to the resource of this name that was deleted must be gone first{left}: Kubernetes deletes it{remedy}"
    )
}

fn describe_no_quorum(context: &ActionContext<'_>) -> String {
    let Some(view) = context.view else {
        return "a majority of voters must answer".to_owned();
    };
    if view.membership_known {
        return describe_unsafe_removal(context, view);
    }
    let identity = context.observed.desired.names().identity();
    if view.members.is_empty() && !view.retained_claims.is_empty() {
        let retained = view.retained_claims.iter().map(|claim| claim.serial);
        return format!(
            "no pod and no volume of a member is left. The volumes of {}, which were removed before, hold older data: put the \
             members' claims back if you can; to begin anew, delete the resource, those claims and the ConfigMap {identity}, and \
             create it again",
            context.members(&retained.collect()),
        );
    }
    if view.members.is_empty() {
        return format!(
            "no pod and no volume of this cluster is left, and no empty one is put in its place: put the volumes' \
             claims back if you can; to begin anew, delete the resource and the ConfigMap {identity}, and create it again",
        );
    }
    let unreachable = view
        .members
        .values()
        .filter(|member| member.health.is_none());
    let unreachable: Vec<_> = unreachable
        .map(|member| {
            let problem = context.pod_problem_suffix(member.serial);
            format!("{}{problem}", context.member(member.serial))
        })
        .collect();
    if unreachable.is_empty() {
        return "the members answer, and must agree on a leader; if they do not, they cannot reach each other"
            .to_owned();
    }
    format!(
        "a majority of voters must answer; silent: {}",
        unreachable.join(", ")
    )
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
        context.members(&down)
    };
    format!(
        "{voters} must serve again before a member is removed, or too few would be left to agree"
    )
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
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and has started: it is left alone. If nobody needs it, \
             remove it with etcdctl member remove {id:x}"
        )
    } else {
        let grace = format_duration(facts.cluster.replace_after);
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and never started: it is removed unless it starts \
             within {grace}"
        )
    }
}

fn timestamp(time: UnixTime) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.0).unwrap_or_default()
}
