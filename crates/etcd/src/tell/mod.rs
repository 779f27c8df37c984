//! What people are told: the status of a resource, in words that a tired person understands. Pure, and nothing in it changes
//! by itself, so that a converged cluster is never written to.

mod notices;
mod words;

pub use notices::{name, notice, troubles};

use evenkeel::{Error, Plan, Seen};
use evenkeel_api::conditions::{ConditionType, Holds, Reason, Said, merge};
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::decide::Etcd;
use crate::facts::Facts;
use crate::names::member_name;
use crate::observe::Found;
use crate::plan::{Leaving, Step, Turn, Wait};
use crate::view::{Data, Member, View};
use words::Words;

/// The whole status.
pub fn status(found: &Found, facts: &Facts, plan: &Plan<Etcd>) -> EtcdClusterStatus {
    let old = found.resource.status.clone().unwrap_or_default();
    let view = view(facts);
    if still_stands(&old, facts, view.as_ref()) {
        return old;
    }
    let words = Words::of(found);
    let story = Story::of(&words, facts, view.as_ref(), plan);
    let now = Time(Timestamp::from_second(facts.now.0).unwrap_or_default());
    let generation = Some(found.wanted.generation);
    let members = view.as_ref().map(|view| list(&words, facts, view)).unwrap_or_default();
    // Without a look at etcd the last known names stay: an empty list would read as an empty cluster.
    let members = if members.is_empty() { old.member_list.clone() } else { members };
    let healthy = members.iter().filter(|member| member.healthy && member.role == MemberRole::Voter).count();
    let leader = view.as_ref().and_then(|view| leader(&words, facts, view));
    let cluster = facts.identity.present().and_then(|identity| identity.cluster);
    EtcdClusterStatus {
        phrase: story.phrase.clone(),
        ready: format!("{healthy}/{}", facts.cluster.members),
        members: i32::try_from(members.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&found.wanted.name),
        observed_generation: generation,
        conditions: merge(&old.conditions, story.conditions(facts, view.as_ref()), generation, &now),
        cluster_id: cluster.map_or(old.cluster_id, |id| format!("{:x}", id.0)),
        leader: leader.unwrap_or_default(),
        doing: story.doing,
        next: story.next,
        waiting_for: story.waiting_for,
        member_list: members,
    }
}

/// The status of a cluster that could not be looked at: all that was known stays, and why nothing is done is said.
pub fn unseen(resource: &EtcdCluster, now: evenkeel::Time, why: &Error) -> EtcdClusterStatus {
    let old = resource.status.clone().unwrap_or_default();
    let (phrase, reason) = match why {
        Error::Kubernetes { .. } => ("Cannot read its objects", Reason::CannotRead),
        Error::Other { .. } => ("Cannot be run as it is", Reason::SpecRefused),
    };
    let said = |about, holds, reason| Said { about, holds, reason, message: why.to_string() };
    let said = vec![
        said(ConditionType::Ready, Holds::Unknown, Reason::NotAsked),
        said(ConditionType::Progressing, Holds::False, Reason::Waiting),
        said(ConditionType::Degraded, Holds::True, reason),
    ];
    let generation = resource.metadata.generation;
    let now = Time(Timestamp::from_second(now.0).unwrap_or_default());
    EtcdClusterStatus {
        phrase: phrase.to_owned(),
        observed_generation: generation,
        conditions: merge(&old.conditions, said, generation, &now),
        waiting_for: vec![why.to_string()],
        ..old
    }
}

/// Whether what was said last is not to be changed yet. An operator that was started anew has not asked as clients do, and its
/// first question is under way: Ready is not to flicker, nor a converged cluster to be written to, because of that.
fn still_stands(old: &EtcdClusterStatus, facts: &Facts, view: Option<&View<'_>>) -> bool {
    let is_ready = |condition: &Condition| {
        condition.type_ == ConditionType::Ready.to_string() && condition.status == Holds::True.to_string()
    };
    // Without a quorum that answers there is something to be said at once.
    let answers = view.is_some_and(|view| view.registry && view.identity.sealed);
    facts.served.is_unknown() && answers && old.conditions.iter().any(is_ready)
}

/// The facts by member, as far as there is an identity.
pub(crate) fn view(facts: &Facts) -> Option<View<'_>> {
    let (Seen::Present(identity), Seen::Present(claims), Seen::Present(pods)) =
        (&facts.identity, &facts.claims, &facts.pods)
    else {
        return None;
    };
    Some(View::new(facts, identity, claims, pods))
}

fn list(words: &Words<'_>, facts: &Facts, view: &View<'_>) -> Vec<MemberStatus> {
    // Those beyond the serials that were ever given to members are prepared, and yet to become some.
    let was_member = |member: &Member<'_>| member.registered.is_some() || member.serial < view.identity.next;
    let leaves = |member: &Member<'_>| {
        member.data == Data::Gone || (view.registry && member.registered.is_none() && was_member(member))
    };
    let role = |member: &Member<'_>| match member.registered {
        _ if leaves(member) => MemberRole::Leaving,
        Some(entry) if !entry.learner => MemberRole::Voter,
        Some(entry) if entry.started => MemberRole::Learner,
        // etcd cannot be asked who votes: whoever was let in to clients did.
        None if member.pod.is_some_and(|pod| pod.routed) => MemberRole::Voter,
        _ => MemberRole::Joining,
    };
    let told = |member: &Member<'_>| {
        let about = facts.about.get(&member.serial).cloned().unwrap_or_default();
        MemberStatus {
            name: words.member(member.serial),
            id: member.registered.map(|entry| format!("{:x}", entry.id.0)).unwrap_or_default(),
            role: role(member),
            healthy: member.serves(),
            version: about.version.unwrap_or_default(),
            node: about.node.unwrap_or_default(),
            message: words.about(member, about.trouble),
        }
    };
    view.members.values().map(told).collect()
}

fn leader(words: &Words<'_>, facts: &Facts, view: &View<'_>) -> Option<String> {
    let leads = |member: &&Member<'_>| facts.about.get(&member.serial).is_some_and(|about| about.leads);
    view.members.values().find(leads).map(|member| words.member(member.serial))
}

/// What is going on, said in several lengths.
struct Story {
    /// A few words.
    phrase: String,
    /// What is being done, as a sentence.
    doing: String,
    /// What is done next, as a sentence.
    next: String,
    /// What is waited for, as sentences.
    waiting_for: Vec<String>,
    progressing: (Holds, Reason),
    degraded: Option<(Reason, String)>,
}

impl Story {
    fn of(words: &Words<'_>, facts: &Facts, view: Option<&View<'_>>, plan: &Plan<Etcd>) -> Self {
        let waits = &plan.status.waits;
        let mut waiting_for: Vec<String> = waits.iter().map(|wait| words.wait(facts, view, wait)).collect();
        let going = view.into_iter().flat_map(View::voters).filter(|member| is_going(member));
        waiting_for
            .extend(going.map(|member| format!("the pod of {} must be gone", words.member(member.serial))));
        let doing = words.doing(plan);
        let next = waits.iter().find_map(|wait| words.next(facts, wait)).unwrap_or_default();
        let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
        let degraded = waits
            .iter()
            .find_map(|wait| degraded(wait, sealed))
            .map(|reason| (reason, waiting_for.first().cloned().unwrap_or_default()));
        let degraded = degraded.or_else(|| down(words, view));
        let progressing = progressing(facts, view, plan);
        let phrase = words.phrase(facts, view, plan);
        Self { phrase, doing, next, waiting_for, progressing, degraded }
    }

    fn conditions(&self, facts: &Facts, view: Option<&View<'_>>) -> Vec<Said> {
        let (holds, reason, message) = ready(facts, view);
        let ready = Said { about: ConditionType::Ready, holds, reason, message };
        let message = match (&self.doing, self.waiting_for.first(), &self.degraded) {
            (doing, ..) if !doing.is_empty() => doing.clone(),
            (_, Some(wait), _) => wait.clone(),
            (_, None, Some((_, trouble))) => trouble.clone(),
            _ => "everything is as the spec says".to_owned(),
        };
        let (holds, reason) = self.progressing;
        let progressing = Said { about: ConditionType::Progressing, holds, reason, message };
        let (holds, reason, message) = match &self.degraded {
            Some((reason, message)) => (Holds::True, *reason, message.clone()),
            None => (Holds::False, Reason::AsExpected, "nothing is amiss".to_owned()),
        };
        vec![ready, progressing, Said { about: ConditionType::Degraded, holds, reason, message }]
    }
}

/// A read as clients make it, through the client Service, was answered: nothing less is ready.
fn ready(facts: &Facts, view: Option<&View<'_>>) -> (Holds, Reason, String) {
    let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
    if !sealed {
        let message = "clients are let in once the members have formed a cluster".to_owned();
        return (Holds::False, Reason::Bootstrapping, message);
    }
    match facts.served {
        Seen::Present(()) => {
            let message = "a linearizable read through the client Service was answered".to_owned();
            (Holds::True, Reason::Serving, message)
        }
        _ if view.is_some_and(|view| !view.registry) => {
            let message = "too few voters answer: reads and writes wait for a majority".to_owned();
            (Holds::False, Reason::QuorumLost, message)
        }
        Seen::Absent => {
            let message = "a linearizable read through the client Service was not answered".to_owned();
            (Holds::False, Reason::NotServing, message)
        }
        Seen::Unknown => (Holds::Unknown, Reason::NotAsked, "etcd has not been asked yet".to_owned()),
    }
}

fn progressing(facts: &Facts, view: Option<&View<'_>>, plan: &Plan<Etcd>) -> (Holds, Reason) {
    if facts.cluster.deleted {
        return (Holds::True, Reason::Deleting);
    }
    if facts.cluster.paused {
        return (Holds::False, Reason::Paused);
    }
    let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
    if !sealed {
        return (Holds::True, Reason::Bootstrapping);
    }
    match view {
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

/// Whether its pod is on its way out: what comes in its place waits until it is gone.
fn is_going(member: &Member<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.deleting)
}

/// Which waits are a person's business.
fn degraded(wait: &Wait, sealed: bool) -> Option<Reason> {
    match wait {
        Wait::Reading(_) => Some(Reason::CannotRead),
        Wait::IdentityMissing => Some(Reason::VolumesFound),
        Wait::NothingLeft(_) => Some(Reason::DataLost),
        Wait::NoQuorum if sealed => Some(Reason::QuorumLost),
        Wait::NameTaken(_) => Some(Reason::NameTaken),
        Wait::AuthorityLost(_) => Some(Reason::AuthorityLost),
        Wait::Strangers(_) => Some(Reason::UnknownMembers),
        Wait::NoQuorum
        | Wait::Paused
        | Wait::OldEpochGoes
        | Wait::SeedStarts(_)
        | Wait::Settling(_)
        | Wait::Joining(_)
        | Wait::CatchingUp(_)
        | Wait::AddUnsafe
        | Wait::Patience(_) => None,
    }
}

/// A voter that does not serve, or a pod that no node takes.
fn down(words: &Words<'_>, view: Option<&View<'_>>) -> Option<(Reason, String)> {
    let view = view?;
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
    let silent = view.voters().find(|member| view.identity.sealed && !member.serves());
    let silent = silent.map(|member| {
        let trouble = view.facts.about.get(&member.serial).and_then(|about| about.trouble.clone());
        let why = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
        (Reason::MemberDown, format!("{} does not serve{why}", words.member(member.serial)))
    });
    unschedulable.or(silent).or(held_up)
}

/// The name of a member, if it is known which lineage it is of.
pub(crate) fn named(found: &Found, serial: crate::names::Serial) -> String {
    let lineage = found.identity.as_ref().map(|(_, identity)| identity.lineage);
    lineage.map_or_else(
        || format!("member {}", serial.0),
        |lineage| member_name(&found.wanted.name, lineage, serial),
    )
}

/// Why an identity is changed, or something deleted, in words.
pub(crate) fn why(step: &Step) -> &'static str {
    match step {
        Step::Identity { why, .. } => match why {
            Turn::SeedStarts => "the first member may start",
            Turn::Formed(_) => "the first member has formed the cluster",
            Turn::Seal => "the bootstrap is over",
            Turn::Settle => "a change of the membership is done",
            Turn::SeedLost => "the bootstrap lost its first member and begins again",
            Turn::ResourceReplaced => {
                "the resource was created anew before the bootstrap was over, which begins again"
            }
            Turn::Adopt => "the resource was created anew, and takes up the cluster that is there",
        },
        Step::Call { .. } => "the membership changes",
        Step::DeletePod { why, .. } | Step::DeleteClaim { why, .. } => match why {
            Leaving::OldEpoch => "it is left over from a bootstrap that was given up",
            Leaving::NotAMember => "its member was removed",
            Leaving::Finished => "it has ended, and is created again",
        },
    }
}
