//! What is said for programs: whether a cluster is ready, gets on, and is as it should be; each with its reason.

use evenkeel_api::conditions::{ConditionStatus as Holds, Reason};
use evenkeel_runtime::{Observed, Plan};

use super::messages::Messages;
use super::rollout::{self, RolloutProgress};
use crate::decide::Etcd;
use crate::facts::{EtcdFacts, OwnedBy};
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// A read as clients make it, through the client Service, was answered: nothing less is ready.
pub(super) fn ready(facts: &EtcdFacts, view: Option<&ClusterView<'_>>) -> (Holds, Reason, String) {
    let Observed::Present(identity) = &facts.identity else {
        return ready_or_not(facts);
    };
    if facts.identity_owner == OwnedBy::PreviousResource {
        let message =
            "clients are let in once the former cluster is gone and another is formed".to_owned();
        return (Holds::False, Reason::Bootstrapping, message);
    }
    if !identity.bootstrapped {
        let message = "clients are let in once the members have formed a cluster".to_owned();
        return (Holds::False, Reason::Bootstrapping, message);
    }
    match facts.client_read {
        Observed::Present(()) => {
            let message = "a read through the client Service was answered".to_owned();
            (Holds::True, Reason::Serving, message)
        }
        _ if view.is_some_and(|view| !view.membership_known) => {
            let message = "too few voters answer: reads and writes wait for a majority".to_owned();
            (Holds::False, Reason::QuorumLost, message)
        }
        Observed::Absent => {
            let message = "a read through the client Service was not answered".to_owned();
            (Holds::False, Reason::NotServing, message)
        }
        Observed::Unknown => (
            Holds::Unknown,
            Reason::NotAsked,
            "etcd has not been asked yet".to_owned(),
        ),
    }
}

/// Of a cluster without an identity: one that is yet to begin, or one of which it is gone.
fn ready_or_not(facts: &EtcdFacts) -> (Holds, Reason, String) {
    let nothing = facts.pods.present().is_some_and(Vec::is_empty)
        && facts.claims.present().is_some_and(Vec::is_empty)
        && facts.identity.is_absent();
    let (holds, reason, message) = match facts.cluster.status_cluster_id {
        _ if !nothing => (
            Holds::Unknown,
            Reason::NotAsked,
            "without its identity no member can be asked",
        ),
        Some(_) => (
            Holds::False,
            Reason::NotServing,
            "nothing is left of it that could answer",
        ),
        None => (
            Holds::False,
            Reason::Bootstrapping,
            "clients are let in once the members have formed a cluster",
        ),
    };
    (holds, reason, message.to_owned())
}

pub(super) fn progressing(
    facts: &EtcdFacts,
    view: Option<&ClusterView<'_>>,
    plan: &Plan<Etcd>,
) -> (Holds, Reason) {
    if facts.cluster.is_deleted {
        return (Holds::True, Reason::Deleting);
    }
    if facts.cluster.is_paused {
        return (Holds::False, Reason::Paused);
    }
    let sealed = facts
        .identity
        .present()
        .is_some_and(|identity| identity.bootstrapped);
    if !sealed {
        // Without an identity and with nothing to do it is not beginning, but waits for a person.
        let begins = facts.identity.is_present() || !plan.is_noop();
        if facts.identity.present().is_none() && !plan.is_noop() && !facts.lineages.is_empty() {
            return (Holds::True, Reason::Healing);
        }
        return if begins {
            (Holds::True, Reason::Bootstrapping)
        } else {
            (Holds::False, Reason::Waiting)
        };
    }
    let rolling = view.and_then(|view| RolloutProgress::of(view)).filter(|_| {
        !plan.is_noop() || view.is_some_and(|view| !view.listed().all(MemberView::is_serving))
    });
    match view {
        Some(view)
            if view.membership_known
                && rolling.is_some()
                && view
                    .members
                    .values()
                    .all(|one| one.data == DataState::Intact) =>
        {
            (
                Holds::True,
                rolling.map_or(Reason::Updating, |rolling| rolling.reason()),
            )
        }
        Some(view) if view.voters().any(is_going) => (Holds::True, Reason::Healing),
        _ if plan.is_noop() && plan.waits.is_empty() => match view {
            // Nothing is done about a member that is silent for a while; and yet not all is as it should be.
            Some(view) if !view.listed().all(MemberView::is_serving) => {
                (Holds::False, Reason::Waiting)
            }
            _ => (Holds::False, Reason::Converged),
        },
        Some(view)
            if view.membership_known
                && !view
                    .members
                    .values()
                    .all(|member| member.data == DataState::Intact) =>
        {
            (Holds::True, Reason::Healing)
        }
        Some(view)
            if view.membership_known
                && view.listed().count() != usize::from(facts.cluster.members) =>
        {
            (Holds::True, Reason::Scaling)
        }
        Some(view)
            if view
                .listed()
                .any(|member| !member.is_serving() || !member.is_voter()) =>
        {
            (Holds::True, Reason::Healing)
        }
        _ if plan.is_noop() => (Holds::False, Reason::Waiting),
        _ => (Holds::True, Reason::Updating),
    }
}

/// Whether clients are not served because of it.
pub(super) fn is_worst(reason: Reason) -> bool {
    matches!(reason, Reason::QuorumLost | Reason::DataLost)
}

/// Whether its pod is on its way out: what comes in its place waits until it is gone.
pub(super) fn is_going(member: &MemberView<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.is_terminating)
}

/// Which waits are a person's business.
pub(super) fn degraded(
    wait: &EtcdWait,
    facts: &EtcdFacts,
    view: Option<&ClusterView<'_>>,
) -> Option<Reason> {
    let is_lost = |view: &ClusterView<'_>| view.identity.bootstrapped && !view.membership_known;
    match wait {
        EtcdWait::Unreadable(_) => Some(Reason::CannotRead),
        EtcdWait::InconsistentObjects => Some(Reason::VolumesFound),
        EtcdWait::PreviousResourceDeletion(until) if *until <= facts.now => {
            Some(Reason::BootstrapWaiting)
        }
        EtcdWait::DataLost(_) => Some(Reason::DataLost),
        EtcdWait::NoQuorum if view.is_some_and(|view| is_lost(view) && view.members.is_empty()) => {
            Some(Reason::DataLost)
        }
        EtcdWait::NoQuorum if view.is_some_and(is_lost) => Some(Reason::QuorumLost),
        EtcdWait::NameConflict(_) => Some(Reason::NameTaken),
        EtcdWait::CaMissing(_) => Some(Reason::AuthorityLost),
        EtcdWait::UnknownMembers(_) => Some(Reason::UnknownMember),
        EtcdWait::ReplacementLimit(..) => Some(Reason::TooManyReplacements),
        EtcdWait::VersionMismatch(..) => Some(Reason::RolloutStopped),
        EtcdWait::NoQuorum
        | EtcdWait::Paused
        | EtcdWait::OldEpochDeletion
        | EtcdWait::PreviousResourceDeletion(_)
        | EtcdWait::SeedStart(_)
        | EtcdWait::OpenIntent(_)
        | EtcdWait::MemberJoin(_)
        | EtcdWait::LearnerCatchUp(_)
        | EtcdWait::UnsafeToAdd
        | EtcdWait::ReplacementJoin(_)
        | EtcdWait::MaintenanceWindow(_)
        | EtcdWait::UnhealthyMember(_)
        | EtcdWait::TooFewVoters
        | EtcdWait::SnapshotBlocked(_)
        | EtcdWait::VolumeResize(_)
        | EtcdWait::BootstrapTimeout(_) => None,
    }
}

/// A voter that does not serve, or a pod that no node takes.
pub(super) fn down(
    words: &Messages<'_>,
    view: Option<&ClusterView<'_>>,
) -> Option<(Reason, String)> {
    // Members of a resource that is being deleted go, as they should.
    let view = view.filter(|view| !view.facts.cluster.is_deleted)?;
    let unschedulable = view.members.values().find_map(|member| {
        let about = view.facts.details.get(&member.serial)?;
        let trouble = about
            .pod_problem
            .as_ref()
            .filter(|_| about.node.is_none())?;
        Some((
            Reason::Unschedulable,
            format!("no node takes {}: {trouble}", words.member(member.serial)),
        ))
    });
    let held_up = view.members.values().find_map(|member| {
        let trouble = view
            .facts
            .details
            .get(&member.serial)?
            .pod_problem
            .as_ref()?;
        let why = format!("{} cannot start: {trouble}", words.member(member.serial));
        (!member.is_serving() && !member.is_voter()).then_some((Reason::MemberDown, why))
    });
    let mut silent = view
        .voters()
        .filter(|member| view.identity.bootstrapped && !member.is_serving());
    let silent = silent.find(|member| !rollout::is_at_it(view, member));
    let silent = silent.map(|member| {
        if let Some(stopped) = rollout::stopped(words, view, member) {
            return (Reason::RolloutStopped, stopped);
        }
        let trouble = view
            .facts
            .details
            .get(&member.serial)
            .and_then(|about| about.pod_problem.clone());
        let why = trouble
            .map(|trouble| format!(": {trouble}"))
            .unwrap_or_default();
        (
            Reason::MemberDown,
            format!("{} does not serve{why}", words.member(member.serial)),
        )
    });
    unschedulable.or(silent).or(held_up)
}
