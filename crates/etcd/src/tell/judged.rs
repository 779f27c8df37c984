//! What is said for programs: whether a cluster is ready, gets on, and is as it should be; each with its reason.

use evenkeel::{Plan, Seen};
use evenkeel_api::conditions::{Holds, Reason};

use super::rolling::{self, Rolling};
use super::words::Words;
use crate::decide::Etcd;
use crate::facts::{Facts, GoesWith};
use crate::plan::Wait;
use crate::view::{Data, Member, View};

/// A read as clients make it, through the client Service, was answered: nothing less is ready.
pub(super) fn ready(facts: &Facts, view: Option<&View<'_>>) -> (Holds, Reason, String) {
    let Seen::Present(identity) = &facts.identity else { return ready_or_not(facts) };
    if facts.identity_goes == GoesWith::Former {
        let message = "clients are let in once the former cluster is gone and another is formed".to_owned();
        return (Holds::False, Reason::Bootstrapping, message);
    }
    if !identity.sealed {
        let message = "clients are let in once the members have formed a cluster".to_owned();
        return (Holds::False, Reason::Bootstrapping, message);
    }
    match facts.served {
        Seen::Present(()) => {
            let message = "a read through the client Service was answered".to_owned();
            (Holds::True, Reason::Serving, message)
        }
        _ if view.is_some_and(|view| !view.registry) => {
            let message = "too few voters answer: reads and writes wait for a majority".to_owned();
            (Holds::False, Reason::QuorumLost, message)
        }
        Seen::Absent => {
            let message = "a read through the client Service was not answered".to_owned();
            (Holds::False, Reason::NotServing, message)
        }
        Seen::Unknown => (Holds::Unknown, Reason::NotAsked, "etcd has not been asked yet".to_owned()),
    }
}

/// Of a cluster without an identity: one that is yet to begin, or one of which it is gone.
fn ready_or_not(facts: &Facts) -> (Holds, Reason, String) {
    let nothing = facts.pods.present().is_some_and(Vec::is_empty)
        && facts.claims.present().is_some_and(Vec::is_empty)
        && facts.identity.is_absent();
    let (holds, reason, message) = match facts.cluster.known {
        _ if !nothing => (Holds::Unknown, Reason::NotAsked, "without its identity no member can be asked"),
        Some(_) => (Holds::False, Reason::NotServing, "nothing is left of it that could answer"),
        None => {
            (Holds::False, Reason::Bootstrapping, "clients are let in once the members have formed a cluster")
        }
    };
    (holds, reason, message.to_owned())
}

pub(super) fn progressing(facts: &Facts, view: Option<&View<'_>>, plan: &Plan<Etcd>) -> (Holds, Reason) {
    if facts.cluster.deleted {
        return (Holds::True, Reason::Deleting);
    }
    if facts.cluster.paused {
        return (Holds::False, Reason::Paused);
    }
    let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
    if !sealed {
        // Without an identity and with nothing to do it is not beginning, but waits for a person.
        let begins = facts.identity.is_present() || !plan.is_quiet();
        if facts.identity.present().is_none() && !plan.is_quiet() && !facts.written.is_empty() {
            return (Holds::True, Reason::Healing);
        }
        return if begins { (Holds::True, Reason::Bootstrapping) } else { (Holds::False, Reason::Waiting) };
    }
    let rolling = view
        .and_then(|view| Rolling::of(view))
        .filter(|_| !plan.is_quiet() || view.is_some_and(|view| !view.registered().all(Member::serves)));
    match view {
        Some(view)
            if view.registry
                && rolling.is_some()
                && view.members.values().all(|one| one.data == Data::Own) =>
        {
            (Holds::True, rolling.map_or(Reason::Updating, |rolling| rolling.reason()))
        }
        Some(view) if view.voters().any(is_going) => (Holds::True, Reason::Healing),
        _ if plan.is_quiet() && plan.status.waits.is_empty() => match view {
            // Nothing is done about a member that is silent for a while; and yet not all is as it should be.
            Some(view) if !view.registered().all(Member::serves) => (Holds::False, Reason::Waiting),
            _ => (Holds::False, Reason::Converged),
        },
        Some(view) if view.registry && !view.members.values().all(|member| member.data == Data::Own) => {
            (Holds::True, Reason::Healing)
        }
        Some(view) if view.registry && view.registered().count() != usize::from(facts.cluster.members) => {
            (Holds::True, Reason::Scaling)
        }
        Some(view) if view.registered().any(|member| !member.serves() || !member.is_voter()) => {
            (Holds::True, Reason::Healing)
        }
        _ if plan.is_quiet() => (Holds::False, Reason::Waiting),
        _ => (Holds::True, Reason::Updating),
    }
}

/// Whether clients are not served because of it.
pub(super) fn is_worst(reason: Reason) -> bool {
    matches!(reason, Reason::QuorumLost | Reason::DataLost)
}

/// Whether its pod is on its way out: what comes in its place waits until it is gone.
pub(super) fn is_going(member: &Member<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.deleting)
}

/// Which waits are a person's business.
pub(super) fn degraded(wait: &Wait, facts: &Facts, view: Option<&View<'_>>) -> Option<Reason> {
    let is_lost = |view: &View<'_>| view.identity.sealed && !view.registry;
    match wait {
        Wait::Reading(_) => Some(Reason::CannotRead),
        Wait::Contradiction => Some(Reason::VolumesFound),
        Wait::FormerGoes(until) if *until <= facts.now => Some(Reason::BootstrapWaiting),
        Wait::NothingLeft(_) => Some(Reason::DataLost),
        Wait::NoQuorum if view.is_some_and(|view| is_lost(view) && view.members.is_empty()) => {
            Some(Reason::DataLost)
        }
        Wait::NoQuorum if view.is_some_and(is_lost) => Some(Reason::QuorumLost),
        Wait::NameTaken(_) => Some(Reason::NameTaken),
        Wait::AuthorityLost(_) => Some(Reason::AuthorityLost),
        Wait::Strangers(_) => Some(Reason::UnknownMember),
        Wait::Enough(..) => Some(Reason::TooManyReplacements),
        Wait::Misnamed(..) => Some(Reason::RolloutStopped),
        Wait::NoQuorum
        | Wait::Paused
        | Wait::OldEpochGoes
        | Wait::FormerGoes(_)
        | Wait::SeedStarts(_)
        | Wait::Settling(_)
        | Wait::Joining(_)
        | Wait::CatchingUp(_)
        | Wait::AddUnsafe
        | Wait::Replacing(_)
        | Wait::Window(_)
        | Wait::Unwell(_)
        | Wait::TooFew
        | Wait::NotRenewed(_)
        | Wait::Growing(_)
        | Wait::Patience(_) => None,
    }
}

/// A voter that does not serve, or a pod that no node takes.
pub(super) fn down(words: &Words<'_>, view: Option<&View<'_>>) -> Option<(Reason, String)> {
    // Members of a resource that is being deleted go, as they should.
    let view = view.filter(|view| !view.facts.cluster.deleted)?;
    let unschedulable = view.members.values().find_map(|member| {
        let about = view.facts.about.get(&member.serial)?;
        let trouble = about.trouble.as_ref().filter(|_| about.node.is_none())?;
        Some((Reason::Unschedulable, format!("no node takes {}: {trouble}", words.member(member.serial))))
    });
    let held_up = view.members.values().find_map(|member| {
        let trouble = view.facts.about.get(&member.serial)?.trouble.as_ref()?;
        let why = format!("{} cannot start: {trouble}", words.member(member.serial));
        (!member.serves() && !member.is_voter()).then_some((Reason::MemberDown, why))
    });
    let mut silent = view.voters().filter(|member| view.identity.sealed && !member.serves());
    let silent = silent.find(|member| !rolling::is_at_it(view, member));
    let silent = silent.map(|member| {
        if let Some(stopped) = rolling::stopped(words, view, member) {
            return (Reason::RolloutStopped, stopped);
        }
        let trouble = view.facts.about.get(&member.serial).and_then(|about| about.trouble.clone());
        let why = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
        (Reason::MemberDown, format!("{} does not serve{why}", words.member(member.serial)))
    });
    unschedulable.or(silent).or(held_up)
}
