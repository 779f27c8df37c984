//! The status of a resource: summary, conditions, member list, certificates, and the texts of the
//! decision log.
//!
//! Pure, and without values that change by themselves: the status of a converged cluster is never
//! written again.

mod backup;
pub(crate) mod cause;
mod conditions;
mod events;
mod messages;
mod operation;
mod problem;
mod reasons;
mod restore;
mod rollout;

pub use events::state_events;
pub use reasons::explain;
pub(crate) use reasons::{describe_actions, describe_idle};

use evenkeel_api::conditions::{ConditionStatus, ConditionType, ConditionUpdate, Reason, merge};
use evenkeel_api::{
    CertificateStatus, EtcdCluster, EtcdClusterStatus, FailureToleranceStatus, MemberRole,
    MemberStatus, NextActionStatus, OperationStatus, ProblemStatus, Rejection,
    RetainedVolumeStatus, labels, quantity,
};
use evenkeel_kit::identity_object::UnreadableIdentity;
use evenkeel_runtime::{Error, Plan, UnixTime};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::actions::{ActionContext, sentence};
use crate::availability::{DomainTolerance, FailureTolerance, Voter};
use crate::build::tls;
use crate::decide::{Etcd, replace};
use crate::effective_spec::started_versions;
use crate::facts::EtcdFacts;
use crate::identity::MembershipChange;
use crate::observe::ObservedCluster;
use crate::plan::EtcdCreate;
use crate::view::{ClusterView, DataState, MemberView};
use conditions::{Progress, is_terminating, progressing, ready};
use messages::HEALTHY;
use problem::{Problem, problems};

/// The message of Progressing if the plan is a no-op.
const MATCHES_SPEC: &str = "The cluster matches its spec.";
/// The message of Degraded if there is no problem.
const NO_PROBLEM: &str = "No problem is known.";

/// Returns the whole status; `rejected` is the error of a write that Kubernetes rejected.
pub fn status(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
    rejected: Option<&Error>,
) -> EtcdClusterStatus {
    let old = observed.resource.status.clone().unwrap_or_default();
    let view = ClusterView::from_facts(facts);
    let view = view.as_ref();
    if rejected.is_none() && keeps_last_status(&old, facts, view) {
        return old;
    }
    let context = ActionContext::new(observed, facts, view);
    let mut summary = Summary::of(&context, plan);
    if let Some(rejection) = &observed.rejection {
        summary.reject_spec(rejection);
    }
    if let Some(error) = rejected {
        summary.reject_write(error, plan);
    }
    let now = to_time(facts.now);
    let generation = Some(observed.desired.generation);
    let members = view
        .map(|view| member_list(&context, view))
        .unwrap_or_default();
    let membership_known =
        view.is_some_and(|view| view.membership_known || !view.identity.bootstrapped);
    let members = if membership_known {
        members
    } else {
        with_last_known(members, &old.member_list, facts)
    };
    let healthy = members
        .iter()
        .filter(|member| member.healthy && member.role == MemberRole::Voter)
        .count();
    // The identity of a previous resource may be deleted in a moment, and its cluster ID would then
    // read as lost data.
    let identity = facts
        .identity
        .present()
        .filter(|identity| identity.resource_uid == facts.cluster.resource_uid);
    // Before bootstrap is finished the epoch may be abandoned, and another cluster formed.
    let cluster_id = identity
        .filter(|identity| identity.bootstrapped)
        .and_then(|identity| identity.cluster_id);
    EtcdClusterStatus {
        summary: summary.summary.clone(),
        ready: format!("{healthy}/{}", facts.cluster.members),
        failure_tolerance: view.and_then(failure_tolerance),
        version_summary: version_summary(observed),
        members: i32::try_from(members.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&observed.desired.name),
        observed_generation: generation,
        conditions: merge(
            &old.conditions,
            summary.conditions(&context),
            generation,
            &now,
        ),
        cluster_id: cluster_id.map_or(old.cluster_id, |id| format!("{:x}", id.0)),
        leader: leader(&context).unwrap_or_default(),
        version: lowest_version(observed).unwrap_or(old.version),
        quota: quantity::binary(observed.desired.quota),
        volume_size: volume_size(observed).unwrap_or_default(),
        data_size: data_size(&old.data_size, facts, view),
        alarms: facts.alarms.iter().map(ToString::to_string).collect(),
        restore: restore::progress(&context, plan, old.restore.as_ref()),
        problems: summary.problem_list(&context, &old.problems, &now),
        operation: summary.operation,
        next_action: summary.next_action,
        waiting_for: summary.waiting_for,
        member_list: members,
        retained_volumes: retained_volumes(&context),
        certificates: certificates(observed),
        backup: backup::summary(observed, old.backup.as_ref()),
    }
}

fn to_time(time: UnixTime) -> Time {
    Time(Timestamp::from_second(time.0).unwrap_or_default())
}

/// Returns the lowest version that members have run.
fn lowest_version(observed: &ObservedCluster) -> Option<String> {
    started_versions(observed.pods.values(), observed.claims.values(), None)
        .map(|(lowest, _)| lowest.to_string())
}

/// Returns the size of the largest volume; `None` without volumes.
fn volume_size(observed: &ObservedCluster) -> Option<String> {
    let size = evenkeel_kit::claims::largest_volume(observed.claims.values());
    (size > 0).then(|| quantity::binary(size))
}

/// Returns the size of the largest member's data; at least the last size if a member does not
/// report its own.
fn data_size(old: &str, facts: &EtcdFacts, view: Option<&ClusterView<'_>>) -> String {
    let health = facts.health.values().filter_map(|health| health.present());
    let reported = health.map(|health| health.db_size).max();
    let reported = reported.unwrap_or_default();
    let all_report = view.is_some_and(|view| {
        view.membership_known && view.listed().all(|member| member.health.is_some())
    });
    let last = quantity::bytes(&Quantity(old.to_owned())).unwrap_or_default();
    let size = if all_report {
        reported
    } else {
        reported.max(last)
    };
    if size == 0 {
        return String::new();
    }
    quantity::binary(size)
}

/// Returns the running version, and the desired one while they differ.
fn version_summary(observed: &ObservedCluster) -> String {
    let desired = &observed.resource.spec.version;
    match lowest_version(observed) {
        Some(running) if running != *desired => format!("{running} → {desired}"),
        Some(running) => running,
        None => desired.clone(),
    }
}

/// Returns which further failures the cluster tolerates: none without a quorum; `None` until bootstrap is finished.
/// Voters that the operator did not add count towards the quorum and never as healthy: the operator does not query them.
fn failure_tolerance(view: &ClusterView<'_>) -> Option<FailureToleranceStatus> {
    if !view.identity.bootstrapped {
        return None;
    }
    if !view.membership_known {
        return Some(FailureToleranceStatus {
            summary: "nothing: the quorum is lost".to_owned(),
            ..FailureToleranceStatus::default()
        });
    }
    let voters = view.voters().map(|member| {
        let details = view.facts.details.get(&member.serial);
        Voter {
            is_serving: member.is_serving(),
            node: details.and_then(|details| details.node.clone()),
            zone: details.and_then(|details| details.zone.clone()),
        }
    });
    let voters: Vec<_> = voters.collect();
    let tolerance = FailureTolerance::of(&voters, view.unknown_voters().len())?;
    let to_i32 = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let failures = |domain: &DomainTolerance| to_i32(domain.failures);
    let critical = |domain: &DomainTolerance| domain.critical.clone();
    let zones = tolerance.zones.as_ref();
    Some(FailureToleranceStatus {
        summary: tolerance.summary(),
        members: to_i32(tolerance.members),
        nodes: tolerance.nodes.as_ref().map(failures),
        zones: zones.map(failures),
        critical_nodes: tolerance.nodes.as_ref().map(critical).unwrap_or_default(),
        // In a single zone, its loss is trivially critical.
        critical_zones: zones
            .filter(|zones| zones.domains > 1)
            .map(critical)
            .unwrap_or_default(),
    })
}

/// Returns the claims of removed members, and when they are deleted.
fn retained_volumes(context: &ActionContext<'_>) -> Vec<RetainedVolumeStatus> {
    let Some(view) = context.view else {
        return Vec::new();
    };
    let keep_for = context.facts.cluster.keep_removed_for;
    let volume = |claim: &&crate::facts::ClaimFacts| RetainedVolumeStatus {
        claim: context.member(claim.serial),
        size: quantity::binary(claim.requested_size),
        delete_time: claim.removed_at.map(|at| to_time(at.after(keep_for))),
    };
    view.retained_claims.iter().map(volume).collect()
}

/// Returns the expiry of each certificate, those of the CAs included.
fn certificates(observed: &ObservedCluster) -> Vec<CertificateStatus> {
    let certificates = observed.tls.expires_at.iter();
    let certificates = certificates.filter_map(|(object, ends)| {
        let secret = tls::secret_name(&observed.desired, *object)?;
        let expires = Time(Timestamp::from_second(ends.0).ok()?);
        Some(CertificateStatus { secret, expires })
    });
    certificates.collect()
}

/// Completes the members while etcd's list is unknown: a member keeps its last known ID and role, and a member without
/// objects is listed as not healthy. A list without them would read as a smaller cluster.
fn with_last_known(
    mut members: Vec<MemberStatus>,
    last: &[MemberStatus],
    facts: &EtcdFacts,
) -> Vec<MemberStatus> {
    let has_pods = facts.pods.present().is_some_and(|pods| !pods.is_empty());
    let message = if has_pods {
        "etcd cannot be queried"
    } else {
        "pod does not exist"
    };
    for member in &mut members {
        let known = last.iter().find(|last| last.name == member.name);
        if let Some(last) = known.filter(|_| member.role == MemberRole::Joining) {
            member.role = last.role;
            member.id.clone_from(&last.id);
        }
    }
    let missing: Vec<_> = last
        .iter()
        .filter(|last| members.iter().all(|member| member.name != last.name))
        .map(|last| MemberStatus {
            healthy: false,
            unreachable_since: None,
            message: message.to_owned(),
            ..last.clone()
        })
        .collect();
    members.extend(missing);
    members
}

/// Returns the status of a cluster that could not be observed: the last one, with the error as the
/// reason why the operator does not act.
pub fn observe_error_status(
    resource: &EtcdCluster,
    now: UnixTime,
    error: &Error,
) -> EtcdClusterStatus {
    let old = resource.status.clone().unwrap_or_default();
    let (summary, reason, wait, advice) = match error {
        Error::InvalidSpec(source) => (
            "Invalid spec",
            Reason::InvalidSpec,
            format!("a valid spec: {source}"),
            "Correct the field. The operator does nothing until then.",
        ),
        error => (
            messages::CANNOT_READ,
            Reason::ObserveFailed,
            format!("a successful retry: {error}"),
            "Check the Kubernetes API, and the permissions and the log of the operator.",
        ),
    };
    let (message, advice) = match error {
        Error::InvalidSpec(source) => source
            .downcast_ref::<Rejection>()
            .map(invalid_spec)
            .map(|problem| (problem.message, problem.advice)),
        Error::Other { source, .. } => {
            source.downcast_ref::<UnreadableIdentity>().map(|identity| {
                let advice = format!(
                    "Restore ConfigMap {0} from a backup, or delete it: the operator rebuilds it from the \
                     PersistentVolumeClaims and pods.",
                    identity.config_map
                );
                (error.to_string(), advice)
            })
        }
        _ => None,
    }
    .unwrap_or_else(|| (error.to_string(), advice.to_owned()));
    let update = |condition, status, reason| ConditionUpdate {
        condition,
        status,
        reason,
        message: message.clone(),
    };
    let conditions = vec![
        update(
            ConditionType::Ready,
            ConditionStatus::Unknown,
            Reason::ProbePending,
        ),
        update(
            ConditionType::Progressing,
            ConditionStatus::False,
            Reason::Waiting,
        ),
        update(ConditionType::Degraded, ConditionStatus::True, reason),
    ];
    let generation = resource.metadata.generation;
    EtcdClusterStatus {
        summary: summary.to_owned(),
        observed_generation: generation,
        conditions: merge(&old.conditions, conditions, generation, &to_time(now)),
        waiting_for: vec![wait],
        operation: None,
        failure_tolerance: None,
        next_action: None,
        problems: vec![ProblemStatus {
            reason: reason.to_string(),
            message,
            advice,
            member: String::new(),
            since: since(&old.problems, reason, "", &to_time(now)),
        }],
        ..old
    }
}

/// Returns true if the last status is kept. A restarted operator has not made a client read yet:
/// Ready must not flicker, and a converged cluster must not be written to, until its first read is
/// answered.
fn keeps_last_status(
    old: &EtcdClusterStatus,
    facts: &EtcdFacts,
    view: Option<&ClusterView<'_>>,
) -> bool {
    let is_ready = |condition: &Condition| {
        condition.type_ == ConditionType::Ready.to_string()
            && condition.status == ConditionStatus::True.to_string()
    };
    // A lost quorum is reported at once.
    let has_quorum = view.is_some_and(|view| view.membership_known && view.identity.bootstrapped);
    facts.client_read.is_unknown() && has_quorum && old.conditions.iter().any(is_ready)
}

fn member_list(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Vec<MemberStatus> {
    let status = |member: &MemberView<'_>| {
        let details = context.facts.details.get(&member.serial);
        let details = details.cloned().unwrap_or_default();
        let id = member.listed.map(|listed| format!("{:x}", listed.id.0));
        MemberStatus {
            name: context.member(member.serial),
            id: id.unwrap_or_default(),
            role: member_role(view, member),
            healthy: member.is_serving(),
            version: details.version.unwrap_or_default(),
            node: details.node.unwrap_or_default(),
            zone: details.zone.unwrap_or_default(),
            node_status: details.node_problem.map(|trouble| trouble.problem),
            unreachable_since: replace::unreachable_since(view, member).map(to_time),
            message: messages::member_message(context, view, member),
        }
    };
    view.members.values().map(status).collect()
}

/// Returns true if etcd no longer lists a member whose objects still exist. Its etcd ends until its pod is deleted.
fn is_removed(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    // Serials from `next_serial` on are prepared members. So is a member that is being added: its
    // intent has used its serial.
    let intended = view.identity.intent.as_ref().map(|intent| intent.change);
    let was_member = member.serial < view.identity.next_serial
        && intended != Some(MembershipChange::Add(member.serial));
    view.membership_known && member.listed.is_none() && was_member
}

fn member_role(view: &ClusterView<'_>, member: &MemberView<'_>) -> MemberRole {
    match member.listed {
        _ if is_removed(view, member) => MemberRole::Leaving,
        _ if member.data == DataState::Lost && view.membership_known => MemberRole::Leaving,
        Some(listed) if !listed.is_learner => MemberRole::Voter,
        Some(listed) if listed.has_started => MemberRole::Learner,
        // Without etcd's list the label of the client Service identifies the voters.
        None if member.pod.is_some_and(|pod| pod.is_routed) => MemberRole::Voter,
        _ => MemberRole::Joining,
    }
}

fn leader(context: &ActionContext<'_>) -> Option<String> {
    let is_leader = |member: &&MemberView<'_>| {
        let details = context.facts.details.get(&member.serial);
        details.is_some_and(|details| details.is_leader)
    };
    let leader = context.view?.members.values().find(is_leader)?;
    Some(context.member(leader.serial))
}

/// Returns the problem of a rejected spec.
fn invalid_spec(rejection: &Rejection) -> Problem {
    let fact = sentence(&format!(
        "{} is invalid: {}",
        rejection.field, rejection.reason
    ));
    Problem {
        reason: Reason::InvalidSpec,
        message: format!("{fact} {}", rejection.effect.sentence()),
        advice: format!("Correct {}.", rejection.field),
        member: None,
    }
}

/// Returns since when a problem is reported.
fn since(old: &[ProblemStatus], reason: Reason, member: &str, now: &Time) -> Time {
    let mut old = old.iter();
    let same = old.find(|old| old.reason == reason.as_str() && old.member == member);
    same.map_or(now, |same| &same.since).clone()
}

/// The texts of a status and the problems that its conditions report.
struct Summary {
    /// The state in a few words.
    summary: String,
    /// The operation in progress.
    operation: Option<OperationStatus>,
    /// The next step.
    next_action: Option<NextActionStatus>,
    /// The waits.
    waiting_for: Vec<String>,
    /// Whether the summary is that of a cluster without problems.
    is_healthy: bool,
    progress: Progress,
    /// The problems, the worst first.
    problems: Vec<Problem>,
}

impl Summary {
    fn of(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Self {
        let waits = plan.waits.iter();
        let mut waiting_for: Vec<String> = waits.map(|wait| wait.describe(context)).collect();
        let voters = context.view.into_iter().flat_map(ClusterView::voters);
        let terminating = voters.filter(|member| is_terminating(member));
        waiting_for.extend(terminating.map(|member| {
            let name = context.member(member.serial);
            format!("pod {name} to be deleted")
        }));
        let progress = progressing(context, plan);
        let summary = messages::summarize(context, plan);
        Self {
            is_healthy: summary.is_none(),
            summary: summary.unwrap_or_else(|| HEALTHY.to_owned()),
            operation: operation::operation(context, plan, progress, &waiting_for),
            next_action: messages::next_action(context, plan),
            waiting_for,
            progress,
            problems: problems(context, plan, progress),
        }
    }

    /// Reports that the spec is rejected and an earlier one is effective.
    fn reject_spec(&mut self, rejection: &Rejection) {
        if self.is_healthy {
            self.summary = format!("{HEALTHY}, but {} is invalid", rejection.field);
        }
        if self.progress.reason == Reason::Converged {
            self.progress.reason = Reason::Waiting;
        }
        let wait = format!("a valid {}: {}", rejection.field, rejection.reason);
        self.degrade(invalid_spec(rejection), wait);
    }

    /// Reports a write that Kubernetes rejected. If it is the creation of a pod or a claim, it
    /// comes before every other problem: it keeps members from coming back.
    fn reject_write(&mut self, error: &Error, plan: &Plan<Etcd>) {
        let problem = Problem {
            reason: Reason::WriteRejected,
            message: error.to_string(),
            advice: "Resolve the cause that the message names: a ResourceQuota, a policy, a webhook, or missing permissions \
                     of the operator."
                .to_owned(),
            member: None,
        };
        let creates_member = plan.create.iter().any(|create| match create {
            EtcdCreate::Pod { .. } | EtcdCreate::RestorePod { .. } | EtcdCreate::Claim { .. } => {
                true
            }
            EtcdCreate::Identity(_) => false,
        });
        let wait = format!("a successful retry: {error}");
        if creates_member {
            self.waiting_for.insert(0, wait);
            self.problems.insert(0, problem);
        } else {
            self.degrade(problem, wait);
        }
    }

    /// Reports a problem. Only an outage comes before it.
    fn degrade(&mut self, problem: Problem, wait: String) {
        self.waiting_for.push(wait);
        let outages = self
            .problems
            .iter()
            .take_while(|problem| problem.is_outage());
        let position = outages.count();
        self.problems.insert(position, problem);
    }

    fn problem_list(
        &self,
        context: &ActionContext<'_>,
        old: &[ProblemStatus],
        now: &Time,
    ) -> Vec<ProblemStatus> {
        let problems = self.problems.iter().map(|problem| {
            let member = problem.member.map(|serial| context.member(serial));
            let member = member.unwrap_or_default();
            ProblemStatus {
                reason: problem.reason.to_string(),
                message: problem.message.clone(),
                advice: problem.advice.clone(),
                since: since(old, problem.reason, &member, now),
                member,
            }
        });
        problems.collect()
    }

    fn conditions(&self, context: &ActionContext<'_>) -> Vec<ConditionUpdate> {
        vec![
            ready(context),
            self.progressing_condition(context.facts),
            self.degraded_condition(),
        ]
    }

    fn progressing_condition(&self, facts: &EtcdFacts) -> ConditionUpdate {
        let message = if let Some(operation) = &self.operation {
            sentence(&format!("The operator is {}", operation.message))
        } else if let Some(wait) = self.waiting_for.first() {
            sentence(&format!("The operator waits for {wait}"))
        } else if let Some(problem) = self.problems.first() {
            problem.message.clone()
        } else if facts.cluster.members <= 2 {
            // Users whose drain is rejected look here.
            let members = if facts.cluster.members == 1 {
                "its only member"
            } else {
                "both of its members"
            };
            format!(
                "{MATCHES_SPEC} Node drains are blocked: the quorum needs {members}. Scale it to 3 members before a drain, \
                 and back afterwards."
            )
        } else {
            MATCHES_SPEC.to_owned()
        };
        ConditionUpdate {
            condition: ConditionType::Progressing,
            status: self.progress.status,
            reason: self.progress.reason,
            message,
        }
    }

    fn degraded_condition(&self) -> ConditionUpdate {
        let (status, reason, message) = match self.problems.first() {
            Some(problem) => (ConditionStatus::True, problem.reason, problem.text()),
            None => (
                ConditionStatus::False,
                Reason::AsExpected,
                NO_PROBLEM.to_owned(),
            ),
        };
        ConditionUpdate {
            condition: ConditionType::Degraded,
            status,
            reason,
            message,
        }
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "causes_tests.rs"]
mod causes_tests;

#[cfg(test)]
#[path = "rejected_tests.rs"]
mod rejected_tests;

#[cfg(test)]
#[path = "argocd_tests.rs"]
mod argocd_tests;
