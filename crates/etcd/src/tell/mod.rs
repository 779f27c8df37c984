//! What people are told: the status of a resource, in words that a tired person understands. Pure, and nothing in it changes
//! by itself, so that a converged cluster is never written to.

mod because;
mod judged;
mod notices;
mod rolling;
mod waits;
mod words;

pub use because::{at_rest, each, explain};
pub use notices::{name, notice, troubles};

use evenkeel::{Error, Plan, Seen};
use evenkeel_api::conditions::{ConditionType, Holds, Reason, Said, merge};
use evenkeel_api::{
    CertificateStatus, EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, Refusal, labels, quantity,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::accept::{self, started};
use crate::decide::Etcd;
use crate::facts::{Facts, GoesWith};
use crate::identity::Change;
use crate::names::member_name;
use crate::observe::Found;
use crate::plan::{Create, Leaving, Step, Turn};
use crate::view::{Data, Member, View, quorum};
use judged::{degraded, down, is_going, is_worst, progressing, ready};
use words::{HEALTHY, Words};

/// The whole status; `refused` is what Kubernetes said no to.
pub fn status(found: &Found, facts: &Facts, plan: &Plan<Etcd>, refused: Option<&Error>) -> EtcdClusterStatus {
    let old = found.resource.status.clone().unwrap_or_default();
    let view = view(facts);
    if refused.is_none() && still_stands(&old, facts, view.as_ref()) {
        return old;
    }
    let words = Words::of(found, facts);
    let mut story = Story::of(&words, facts, view.as_ref(), plan);
    if let Some(refusal) = &found.refused {
        story.has_refused(refusal);
    }
    if let Some(error) = refused {
        story.is_refused(error, plan);
    }
    let now = Time(Timestamp::from_second(facts.now.0).unwrap_or_default());
    let generation = Some(found.wanted.generation);
    let members = view.as_ref().map(|view| list(&words, facts, view)).unwrap_or_default();
    let known = view.as_ref().is_some_and(|view| view.registry || !view.identity.sealed);
    let members = if known { members } else { with_last_known(members, &old.member_list, facts) };
    let healthy = members.iter().filter(|member| member.healthy && member.role == MemberRole::Voter).count();
    let leader = view.as_ref().and_then(|view| leader(&words, facts, view));
    // Not that of a resource which was deleted: it may be gone in a moment, and nobody has lost anything.
    let identity = facts.identity.present().filter(|identity| identity.resource == facts.cluster.resource);
    // Nor one to which nobody could write yet: it may be given up, and another formed.
    let cluster = identity.filter(|identity| identity.sealed).and_then(|identity| identity.cluster);
    EtcdClusterStatus {
        phrase: story.phrase.clone(),
        ready: format!("{healthy}/{}", facts.cluster.members),
        survives: view.as_ref().and_then(survives),
        members: i32::try_from(members.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&found.wanted.name),
        observed_generation: generation,
        conditions: merge(&old.conditions, story.conditions(facts, view.as_ref()), generation, &now),
        cluster_id: cluster.map_or(old.cluster_id, |id| format!("{:x}", id.0)),
        leader: leader.unwrap_or_default(),
        version: lowest(found).unwrap_or(old.version),
        volume_size: volume_size(found).unwrap_or_default(),
        data_size: data_size(&old.data_size, facts, view.as_ref()),
        doing: story.doing,
        because: story.because,
        next: story.next,
        waiting_for: story.waiting_for,
        member_list: members,
        certificates: certificates(found),
    }
}

/// The lowest version that members were seen to run.
fn lowest(found: &Found) -> Option<String> {
    started(found.pods.values(), found.claims.values(), None).map(|(lowest, _)| lowest.to_string())
}

/// How large the largest volume is; nothing if there are none.
fn volume_size(found: &Found) -> Option<String> {
    let size = accept::largest(found.claims.values());
    (size > 0).then(|| quantity::binary(size))
}

/// How large the data of the largest member is. Of one that does not tell it is what it was.
fn data_size(old: &str, facts: &Facts, view: Option<&View<'_>>) -> String {
    let voices = facts.voices.values().filter_map(|voice| voice.present());
    let now = voices.map(|voice| voice.size).max().unwrap_or_default();
    let all_tell = view.is_some_and(|view| view.registry && view.registered().all(|one| one.voice.is_some()));
    let was = quantity::bytes(&Quantity(old.to_owned())).unwrap_or_default();
    match if all_tell { now } else { now.max(was) } {
        0 => String::new(),
        size => quantity::binary(size),
    }
}

/// How many more may fail: of all votes, those of strangers included, more than half must be there. Strangers' are not counted
/// as given, since nobody here asks them.
fn survives(view: &View<'_>) -> Option<i32> {
    let serve = view.voters().filter(|member| member.serves()).count();
    let known = view.registry && view.identity.sealed;
    i32::try_from(serve.saturating_sub(quorum(view.votes()))).ok().filter(|_| known)
}

/// Until when the certificates are good. Those of authorities, too: they do not renew themselves.
fn certificates(found: &Found) -> Vec<CertificateStatus> {
    let told = found.tls.ends.iter().filter_map(|(object, ends)| {
        let secret = crate::build::tls::secret_name(&found.wanted, *object)?;
        let expires = Time(Timestamp::from_second(ends.0).ok()?);
        Some(CertificateStatus { secret, expires })
    });
    told.collect()
}

/// With those who were members last, when nobody can be asked who they are: a list without them would read as a smaller
/// cluster. Of none of them can it be said that it is well.
fn with_last_known(
    mut members: Vec<MemberStatus>,
    last: &[MemberStatus],
    facts: &Facts,
) -> Vec<MemberStatus> {
    let some_run = facts.pods.present().is_some_and(|pods| !pods.is_empty());
    let message = if some_run { "it cannot be asked" } else { "no pod of it is there" };
    let told =
        |one: &MemberStatus| MemberStatus { healthy: false, message: message.to_owned(), ..one.clone() };
    let missing = last.iter().filter(|one| members.iter().all(|other| other.name != one.name));
    let missing: Vec<_> = missing.map(told).collect();
    members.extend(missing);
    members
}

/// What is tried when a spec turns out to be refused.
pub(crate) const ACCEPTING: &str = "accept its spec";

/// The status of a cluster that could not be looked at: all that was known stays, and why nothing is done is said.
pub fn unseen(resource: &EtcdCluster, now: evenkeel::Time, why: &Error) -> EtcdClusterStatus {
    let old = resource.status.clone().unwrap_or_default();
    let (phrase, reason) = match why {
        Error::Other { doing, .. } if doing == ACCEPTING => ("Cannot be run as it is", Reason::SpecRefused),
        _ => ("Cannot read its objects", Reason::CannotRead),
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
        doing: String::new(),
        because: String::new(),
        survives: None,
        next: String::new(),
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
    // What goes with a former resource is none of this one's.
    (facts.identity_goes != GoesWith::Former).then(|| View::new(facts, identity, claims, pods))
}

fn list(words: &Words<'_>, facts: &Facts, view: &View<'_>) -> Vec<MemberStatus> {
    // Those beyond the serials that were ever given to members are prepared, and yet to become some; so is one whose adding
    // was begun, and used its serial up.
    let begun = view.identity.intent.as_ref().map(|intent| intent.change);
    let was_member = |member: &Member<'_>| {
        member.registered.is_some()
            || (member.serial < view.identity.next && begun != Some(Change::Add(member.serial)))
    };
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

/// That a spec cannot be accepted, and which one is in force instead.
fn in_force(refusal: &Refusal) -> String {
    format!("{refusal}. What was accepted last stays in force until this is mended")
}

/// What is going on, said in several lengths.
struct Story {
    /// A few words.
    phrase: String,
    /// What is being done, as a sentence.
    doing: String,
    /// Why, as a sentence.
    because: String,
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
        let doing = if facts.cluster.deleted {
            "Kubernetes deletes what goes with the resource".to_owned()
        } else {
            words.doing(plan)
        };
        let because = if facts.cluster.deleted {
            "the resource was deleted".to_owned()
        } else {
            because::main(words, view, plan)
        };
        let next = waits.iter().find_map(|wait| words.next(facts, wait));
        let next = next.or_else(|| words.waited_for(view)).unwrap_or_default();
        let told = waits.iter().zip(&waiting_for);
        let mut troubles: Vec<_> =
            told.filter_map(|(wait, told)| Some((degraded(wait, facts, view)?, told.clone()))).collect();
        // A quorum that is lost is worse than anything that keeps others from being mended.
        troubles.sort_by_key(|(reason, _)| !is_worst(*reason));
        let degraded = troubles.into_iter().next();
        let degraded = degraded.or_else(|| down(words, view));
        let progressing = progressing(facts, view, plan);
        let phrase = words.phrase(facts, view, plan);
        Self { phrase, doing, because, next, waiting_for, progressing, degraded }
    }

    /// The spec cannot be accepted, and another one is in force.
    fn has_refused(&mut self, refusal: &Refusal) {
        let told = in_force(refusal);
        if self.phrase == HEALTHY {
            self.phrase = format!("Healthy, but {} is refused", refusal.field);
        }
        if self.progressing.1 == Reason::Converged {
            self.progressing.1 = Reason::Waiting;
        }
        self.is_amiss(Reason::SpecRefused, told);
    }

    /// Kubernetes said no to something. Where members are to be brought back, that is why they are not, and clients with them.
    fn is_refused(&mut self, error: &Error, plan: &Plan<Etcd>) {
        if plan.create.iter().any(|what| matches!(what, Create::Pod { .. } | Create::Claim { .. })) {
            self.degraded = Some((Reason::WriteRefused, error.to_string()));
            self.waiting_for.insert(0, error.to_string());
        } else {
            self.is_amiss(Reason::WriteRefused, error.to_string());
        }
    }

    /// Something is amiss. Nothing is worse but that clients are not served.
    fn is_amiss(&mut self, reason: Reason, told: String) {
        let worse = self.degraded.as_ref().is_some_and(|(reason, _)| is_worst(*reason));
        if !worse {
            self.degraded = Some((reason, told.clone()));
        }
        self.waiting_for.push(told);
    }

    fn conditions(&self, facts: &Facts, view: Option<&View<'_>>) -> Vec<Said> {
        let (holds, reason, message) = ready(facts, view);
        let ready = Said { about: ConditionType::Ready, holds, reason, message };
        let message = match (&self.doing, self.waiting_for.first(), &self.degraded) {
            (doing, ..) if !doing.is_empty() => doing.clone(),
            (_, Some(wait), _) => wait.clone(),
            (_, None, Some((_, trouble))) => trouble.clone(),
            // Whoever drains a node and is refused looks here.
            _ if facts.cluster.members <= 2 => {
                let all =
                    if facts.cluster.members == 1 { "its one member" } else { "either of its two members" };
                format!(
                    "everything is as the spec says. Drains wait: it cannot do without {all}. Scale it to 3 members first, and \
                     back afterwards"
                )
            }
            _ => "everything is as the spec says".to_owned(),
        };
        let (holds, reason) = self.progressing;
        let progressing = Said { about: ConditionType::Progressing, holds, reason, message };
        let (holds, reason, message) = match &self.degraded {
            Some((reason, message)) => (Holds::True, *reason, message.clone()),
            // Clients do not get through, and the way to the members is not looked at here.
            None if self.progressing.1 == Reason::Converged && facts.served.is_absent() => {
                let message = "nothing is amiss with the members: look at the client Service and the network";
                (Holds::False, Reason::AsExpected, message.to_owned())
            }
            None => (Holds::False, Reason::AsExpected, "nothing is amiss".to_owned()),
        };
        vec![ready, progressing, Said { about: ConditionType::Degraded, holds, reason, message }]
    }
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
            Turn::SeedMoves => {
                "spec.storage was changed before there was a cluster: the bootstrap begins again"
            }
            Turn::ResourceReplaced => {
                "the resource was created anew before the bootstrap was over, which begins again"
            }
            Turn::Adopt => "the resource was created anew, and takes up the cluster that is there",
            Turn::PassOver => "the identity is an older one, and was brought up to date",
        },
        Step::Call { .. } => "the membership changes",
        Step::Restart { .. } => "it is out of date",
        Step::Renew { .. } => {
            "what an earlier version has written to them is no longer read by the one that follows"
        }
        Step::DeletePod { why, .. } | Step::DeleteClaim { why, .. } => match why {
            Leaving::OldEpoch => "it is left over from a bootstrap that was given up",
            Leaving::NotAMember => "its member was removed",
            Leaving::Finished => "it has ended, and is created again",
            Leaving::MakesWay => "a member that is to come back needs the place first",
            Leaving::Outdated => "it does not run, and is created again as the spec has it now",
        },
    }
}

#[cfg(test)]
#[path = "tell_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "refused_tests.rs"]
mod refused_tests;

#[cfg(test)]
#[path = "argocd_tests.rs"]
mod argocd_tests;
