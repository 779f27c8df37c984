//! What people are told: the status of a resource, in words that a tired person understands. Pure, and nothing in it changes
//! by itself, so that a converged cluster is never written to.

mod conditions;
mod events;
mod messages;
mod reasons;
mod rollout;
mod waits;

pub use events::{action_name, event_for, warning_events};
pub use reasons::{at_rest, each, explain};

use evenkeel_api::conditions::{ConditionType, Holds, Reason, Said, merge};
use evenkeel_api::{
    CertificateStatus, EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, Refusal, labels,
    quantity,
};
use evenkeel_runtime::{Error, Observed, Plan};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::decide::Etcd;
use crate::effective_spec::{self, started_versions};
use crate::facts::{EtcdFacts, OwnedBy};
use crate::identity::MembershipChange;
use crate::names::member_name;
use crate::observe::ObservedCluster;
use crate::plan::{DeleteReason, EtcdCreate, EtcdDisruption, IdentityChange};
use crate::view::{ClusterView, DataState, MemberView, quorum};
use conditions::{degraded, down, is_going, is_worst, progressing, ready};
use messages::{HEALTHY, Messages};

/// The whole status; `refused` is what Kubernetes said no to.
pub fn status(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
    refused: Option<&Error>,
) -> EtcdClusterStatus {
    let old = observed.resource.status.clone().unwrap_or_default();
    let view = view(facts);
    if refused.is_none() && still_stands(&old, facts, view.as_ref()) {
        return old;
    }
    let words = Messages::of(observed, facts);
    let mut story = Summary::of(&words, facts, view.as_ref(), plan);
    if let Some(refusal) = &observed.rejection {
        story.reject_spec(refusal);
    }
    if let Some(error) = refused {
        story.reject_write(error, plan);
    }
    let now = Time(Timestamp::from_second(facts.now.0).unwrap_or_default());
    let generation = Some(observed.desired.generation);
    let members = view
        .as_ref()
        .map(|view| member_list(&words, facts, view))
        .unwrap_or_default();
    let known = view
        .as_ref()
        .is_some_and(|view| view.membership_known || !view.identity.bootstrapped);
    let members = if known {
        members
    } else {
        with_last_known(members, &old.member_list, facts)
    };
    let healthy = members
        .iter()
        .filter(|member| member.healthy && member.role == MemberRole::Voter)
        .count();
    let leader = view.as_ref().and_then(|view| leader(&words, facts, view));
    // Not that of a resource which was deleted: it may be gone in a moment, and nobody has lost anything.
    let identity = facts
        .identity
        .present()
        .filter(|identity| identity.resource_uid == facts.cluster.resource_uid);
    // Nor one to which nobody could write yet: it may be given up, and another formed.
    let cluster = identity
        .filter(|identity| identity.bootstrapped)
        .and_then(|identity| identity.cluster_id);
    EtcdClusterStatus {
        phrase: story.phrase.clone(),
        ready: format!("{healthy}/{}", facts.cluster.members),
        survives: view.as_ref().and_then(failure_tolerance),
        members: i32::try_from(members.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&observed.desired.name),
        observed_generation: generation,
        conditions: merge(
            &old.conditions,
            story.conditions(facts, view.as_ref()),
            generation,
            &now,
        ),
        cluster_id: cluster.map_or(old.cluster_id, |id| format!("{:x}", id.0)),
        leader: leader.unwrap_or_default(),
        version: lowest_version(observed).unwrap_or(old.version),
        volume_size: volume_size(observed).unwrap_or_default(),
        data_size: data_size(&old.data_size, facts, view.as_ref()),
        doing: story.doing,
        because: story.because,
        next: story.next,
        waiting_for: story.waiting_for,
        member_list: members,
        certificates: certificates(observed),
    }
}

/// The lowest version that members were seen to run.
fn lowest_version(observed: &ObservedCluster) -> Option<String> {
    started_versions(observed.pods.values(), observed.claims.values(), None)
        .map(|(lowest, _)| lowest.to_string())
}

/// How large the largest volume is; nothing if there are none.
fn volume_size(observed: &ObservedCluster) -> Option<String> {
    let size = effective_spec::largest_volume(observed.claims.values());
    (size > 0).then(|| quantity::binary(size))
}

/// How large the data of the largest member is. Of one that does not tell it is what it was.
fn data_size(old: &str, facts: &EtcdFacts, view: Option<&ClusterView<'_>>) -> String {
    let voices = facts.health.values().filter_map(|health| health.present());
    let now = voices
        .map(|health| health.db_size)
        .max()
        .unwrap_or_default();
    let all_tell = view
        .is_some_and(|view| view.membership_known && view.listed().all(|one| one.health.is_some()));
    let was = quantity::bytes(&Quantity(old.to_owned())).unwrap_or_default();
    match if all_tell { now } else { now.max(was) } {
        0 => String::new(),
        size => quantity::binary(size),
    }
}

/// How many more may fail: of all votes, those of strangers included, more than half must be there. Strangers' are not counted
/// as given, since nobody here asks them.
fn failure_tolerance(view: &ClusterView<'_>) -> Option<i32> {
    let serve = view.voters().filter(|member| member.is_serving()).count();
    let known = view.membership_known && view.identity.bootstrapped;
    i32::try_from(serve.saturating_sub(quorum(view.votes())))
        .ok()
        .filter(|_| known)
}

/// Until when the certificates are good. Those of authorities, too: they do not renew themselves.
fn certificates(observed: &ObservedCluster) -> Vec<CertificateStatus> {
    let told = observed.tls.ends.iter().filter_map(|(object, ends)| {
        let secret = crate::build::tls::secret_name(&observed.desired, *object)?;
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
    facts: &EtcdFacts,
) -> Vec<MemberStatus> {
    let some_run = facts.pods.present().is_some_and(|pods| !pods.is_empty());
    let message = if some_run {
        "it cannot be asked"
    } else {
        "no pod of it is there"
    };
    let told = |one: &MemberStatus| MemberStatus {
        healthy: false,
        message: message.to_owned(),
        ..one.clone()
    };
    let missing = last
        .iter()
        .filter(|one| members.iter().all(|other| other.name != one.name));
    let missing: Vec<_> = missing.map(told).collect();
    members.extend(missing);
    members
}

/// The status of a cluster that could not be looked at: all that was known stays, and why nothing is done is said.
pub fn observe_error_status(
    resource: &EtcdCluster,
    now: evenkeel_runtime::UnixTime,
    why: &Error,
) -> EtcdClusterStatus {
    let old = resource.status.clone().unwrap_or_default();
    let (phrase, reason) = match why {
        Error::InvalidSpec(_) => ("Cannot be run as it is", Reason::SpecRefused),
        _ => ("Cannot read its objects", Reason::CannotRead),
    };
    let said = |about, holds, reason| Said {
        about,
        holds,
        reason,
        message: why.to_string(),
    };
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
fn still_stands(
    old: &EtcdClusterStatus,
    facts: &EtcdFacts,
    view: Option<&ClusterView<'_>>,
) -> bool {
    let is_ready = |condition: &Condition| {
        condition.type_ == ConditionType::Ready.to_string()
            && condition.status == Holds::True.to_string()
    };
    // Without a quorum that answers there is something to be said at once.
    let state = view.is_some_and(|view| view.membership_known && view.identity.bootstrapped);
    facts.client_read.is_unknown() && state && old.conditions.iter().any(is_ready)
}

/// The facts by member, as far as there is an identity.
pub(crate) fn view(facts: &EtcdFacts) -> Option<ClusterView<'_>> {
    let (Observed::Present(identity), Observed::Present(claims), Observed::Present(pods)) =
        (&facts.identity, &facts.claims, &facts.pods)
    else {
        return None;
    };
    // What goes with a former resource is none of this one's.
    (facts.identity_owner != OwnedBy::PreviousResource)
        .then(|| ClusterView::new(facts, identity, claims, pods))
}

fn member_list(
    words: &Messages<'_>,
    facts: &EtcdFacts,
    view: &ClusterView<'_>,
) -> Vec<MemberStatus> {
    // Those beyond the serials that were ever given to members are prepared, and yet to become some; so is one whose adding
    // was begun, and used its serial up.
    let begun = view.identity.intent.as_ref().map(|intent| intent.change);
    let was_member = |member: &MemberView<'_>| {
        member.listed.is_some()
            || (member.serial < view.identity.next_serial
                && begun != Some(MembershipChange::Add(member.serial)))
    };
    let leaves = |member: &MemberView<'_>| {
        member.data == DataState::Lost
            || (view.membership_known && member.listed.is_none() && was_member(member))
    };
    let role = |member: &MemberView<'_>| match member.listed {
        _ if leaves(member) => MemberRole::Leaving,
        Some(entry) if !entry.is_learner => MemberRole::Voter,
        Some(entry) if entry.has_started => MemberRole::Learner,
        // etcd cannot be asked who votes: whoever was let in to clients did.
        None if member.pod.is_some_and(|pod| pod.is_routed) => MemberRole::Voter,
        _ => MemberRole::Joining,
    };
    let told = |member: &MemberView<'_>| {
        let about = facts
            .details
            .get(&member.serial)
            .cloned()
            .unwrap_or_default();
        MemberStatus {
            name: words.member(member.serial),
            id: member
                .listed
                .map(|entry| format!("{:x}", entry.id.0))
                .unwrap_or_default(),
            role: role(member),
            healthy: member.is_serving(),
            version: about.version.unwrap_or_default(),
            node: about.node.unwrap_or_default(),
            message: words.about(member, about.pod_problem),
        }
    };
    view.members.values().map(told).collect()
}

fn leader(words: &Messages<'_>, facts: &EtcdFacts, view: &ClusterView<'_>) -> Option<String> {
    let leads = |member: &&MemberView<'_>| {
        facts
            .details
            .get(&member.serial)
            .is_some_and(|about| about.is_leader)
    };
    view.members
        .values()
        .find(leads)
        .map(|member| words.member(member.serial))
}

/// That a spec cannot be accepted, and which one is in force instead.
fn rejection_message(refusal: &Refusal) -> String {
    format!("{refusal}. What was accepted last stays in force until this is mended")
}

/// What is going on, said in several lengths.
struct Summary {
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

impl Summary {
    fn of(
        words: &Messages<'_>,
        facts: &EtcdFacts,
        view: Option<&ClusterView<'_>>,
        plan: &Plan<Etcd>,
    ) -> Self {
        let waits = &plan.waits;
        let mut waiting_for: Vec<String> = waits
            .iter()
            .map(|wait| words.wait(facts, view, wait))
            .collect();
        let going = view
            .into_iter()
            .flat_map(ClusterView::voters)
            .filter(|member| is_going(member));
        waiting_for.extend(
            going.map(|member| format!("the pod of {} must be gone", words.member(member.serial))),
        );
        let doing = if facts.cluster.is_deleted {
            "Kubernetes deletes what goes with the resource".to_owned()
        } else {
            words.doing(plan)
        };
        let because = if facts.cluster.is_deleted {
            "the resource was deleted".to_owned()
        } else {
            reasons::main(words, view, plan)
        };
        let next = waits.iter().find_map(|wait| words.next(facts, wait));
        let next = next.or_else(|| words.waited_for(view)).unwrap_or_default();
        let told = waits.iter().zip(&waiting_for);
        let mut problems: Vec<_> = told
            .filter_map(|(wait, told)| Some((degraded(wait, facts, view)?, told.clone())))
            .collect();
        // A quorum that is lost is worse than anything that keeps others from being mended.
        problems.sort_by_key(|(reason, _)| !is_worst(*reason));
        let degraded = problems.into_iter().next();
        let degraded = degraded.or_else(|| down(words, view));
        let progressing = progressing(facts, view, plan);
        let phrase = words.summary(facts, view, plan);
        Self {
            phrase,
            doing,
            because,
            next,
            waiting_for,
            progressing,
            degraded,
        }
    }

    /// The spec cannot be accepted, and another one is in force.
    fn reject_spec(&mut self, refusal: &Refusal) {
        let told = rejection_message(refusal);
        if self.phrase == HEALTHY {
            self.phrase = format!("Healthy, but {} is refused", refusal.field);
        }
        if self.progressing.1 == Reason::Converged {
            self.progressing.1 = Reason::Waiting;
        }
        self.degrade(Reason::SpecRefused, told);
    }

    /// Kubernetes said no to something. Where members are to be brought back, that is why they are not, and clients with them.
    fn reject_write(&mut self, error: &Error, plan: &Plan<Etcd>) {
        if plan
            .create
            .iter()
            .any(|what| matches!(what, EtcdCreate::Pod { .. } | EtcdCreate::Claim { .. }))
        {
            self.degraded = Some((Reason::WriteRefused, error.to_string()));
            self.waiting_for.insert(0, error.to_string());
        } else {
            self.degrade(Reason::WriteRefused, error.to_string());
        }
    }

    /// Something is amiss. Nothing is worse but that clients are not served.
    fn degrade(&mut self, reason: Reason, told: String) {
        let worse = self
            .degraded
            .as_ref()
            .is_some_and(|(reason, _)| is_worst(*reason));
        if !worse {
            self.degraded = Some((reason, told.clone()));
        }
        self.waiting_for.push(told);
    }

    fn conditions(&self, facts: &EtcdFacts, view: Option<&ClusterView<'_>>) -> Vec<Said> {
        let (holds, reason, message) = ready(facts, view);
        let ready = Said {
            about: ConditionType::Ready,
            holds,
            reason,
            message,
        };
        let message = match (&self.doing, self.waiting_for.first(), &self.degraded) {
            (doing, ..) if !doing.is_empty() => doing.clone(),
            (_, Some(wait), _) => wait.clone(),
            (_, None, Some((_, trouble))) => trouble.clone(),
            // Whoever drains a node and is refused looks here.
            _ if facts.cluster.members <= 2 => {
                let all = if facts.cluster.members == 1 {
                    "its one member"
                } else {
                    "either of its two members"
                };
                format!(
                    "everything is as the spec says. Drains wait: it cannot do without {all}. Scale it to 3 members first, and \
                     back afterwards"
                )
            }
            _ => "everything is as the spec says".to_owned(),
        };
        let (holds, reason) = self.progressing;
        let progressing = Said {
            about: ConditionType::Progressing,
            holds,
            reason,
            message,
        };
        let (holds, reason, message) = match &self.degraded {
            Some((reason, message)) => (Holds::True, *reason, message.clone()),
            // Clients do not get through, and the way to the members is not looked at here.
            None if self.progressing.1 == Reason::Converged && facts.client_read.is_absent() => {
                let message =
                    "nothing is amiss with the members: look at the client Service and the network";
                (Holds::False, Reason::AsExpected, message.to_owned())
            }
            None => (
                Holds::False,
                Reason::AsExpected,
                "nothing is amiss".to_owned(),
            ),
        };
        vec![
            ready,
            progressing,
            Said {
                about: ConditionType::Degraded,
                holds,
                reason,
                message,
            },
        ]
    }
}

/// The name of a member, if it is known which lineage it is of.
pub(crate) fn member_display_name(
    observed: &ObservedCluster,
    serial: crate::names::Serial,
) -> String {
    let lineage = observed
        .identity
        .as_ref()
        .map(|(_, identity)| identity.lineage);
    lineage.map_or_else(
        || format!("member {}", serial.0),
        |lineage| member_name(&observed.desired.name, lineage, serial),
    )
}

/// Why an identity is changed, or something deleted, in words.
pub(crate) fn reason_for(step: &EtcdDisruption) -> &'static str {
    match step {
        EtcdDisruption::UpdateIdentity { why, .. } => match why {
            IdentityChange::StartSeed => "the first member may start",
            IdentityChange::RecordCluster(_) => "the first member has formed the cluster",
            IdentityChange::FinishBootstrap => "the bootstrap is over",
            IdentityChange::SettleIntent => "a change of the membership is done",
            IdentityChange::SeedLost => "the bootstrap lost its first member and begins again",
            IdentityChange::SeedStorageChanged => {
                "spec.storage was changed before there was a cluster: the bootstrap begins again"
            }
            IdentityChange::ResourceReplaced => {
                "the resource was created anew before the bootstrap was over, which begins again"
            }
            IdentityChange::Adopt => {
                "the resource was created anew, and takes up the cluster that is there"
            }
            IdentityChange::Repair => "the identity is an older one, and was brought up to date",
        },
        EtcdDisruption::ChangeMembership { .. } => "the membership changes",
        EtcdDisruption::RestartMember { .. } => "it is out of date",
        EtcdDisruption::ForceSnapshot { .. } => {
            "what an earlier version has written to them is no longer read by the one that follows"
        }
        EtcdDisruption::DeletePod { why, .. } | EtcdDisruption::DeleteClaim { why, .. } => {
            match why {
                DeleteReason::OldEpoch => "it is left over from a bootstrap that was given up",
                DeleteReason::MemberRemoved => "its member was removed",
                DeleteReason::Finished => "it has ended, and is created again",
                DeleteReason::FreesNode => "a member that is to come back needs the place first",
                DeleteReason::Outdated => {
                    "it does not run, and is created again as the spec has it now"
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "rejected_tests.rs"]
mod rejected_tests;

#[cfg(test)]
#[path = "argocd_tests.rs"]
mod argocd_tests;
