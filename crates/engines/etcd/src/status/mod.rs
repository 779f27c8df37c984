//! The status of a resource: summary, conditions, member list, certificates, and the texts of the
//! decision log.
//!
//! Pure, and without values that change by themselves: the status of a converged cluster is never
//! written again.

mod conditions;
mod events;
mod messages;
mod reasons;
mod rollout;

pub use events::warning_events;
pub use reasons::explain;
pub(crate) use reasons::{describe_actions, describe_idle};

use evenkeel_api::conditions::{ConditionStatus, ConditionType, ConditionUpdate, Reason, merge};
use evenkeel_api::{
    CertificateStatus, EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, Rejection, labels,
    quantity,
};
use evenkeel_runtime::{Error, Plan, UnixTime};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::actions::{ActionContext, sentence};
use crate::build::tls;
use crate::decide::{Etcd, replace};
use crate::effective_spec::started_versions;
use crate::facts::EtcdFacts;
use crate::identity::MembershipChange;
use crate::observe::ObservedCluster;
use crate::plan::EtcdCreate;
use crate::view::{ClusterView, DataState, MemberView, quorum};
use conditions::{Problem, Progress, is_terminating, member_problem, progressing, ready};
use messages::HEALTHY;

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
        members: i32::try_from(members.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&observed.desired.name),
        observed_generation: generation,
        conditions: merge(
            &old.conditions,
            summary.conditions(facts, view),
            generation,
            &now,
        ),
        cluster_id: cluster_id.map_or(old.cluster_id, |id| format!("{:x}", id.0)),
        leader: leader(&context).unwrap_or_default(),
        version: lowest_version(observed).unwrap_or(old.version),
        volume_size: volume_size(observed).unwrap_or_default(),
        data_size: data_size(&old.data_size, facts, view),
        current_action: summary.current_action,
        action_reason: summary.action_reason,
        next_action: summary.next_action,
        waiting_for: summary.waiting_for,
        member_list: members,
        certificates: certificates(observed),
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

/// Returns how many more voters may fail. Voters that the operator did not add count towards the
/// quorum and never as healthy: the operator does not query them.
fn failure_tolerance(view: &ClusterView<'_>) -> Option<i32> {
    if !view.membership_known || !view.identity.bootstrapped {
        return None;
    }
    let serving = view.voters().filter(|member| member.is_serving()).count();
    i32::try_from(serving.saturating_sub(quorum(view.votes()))).ok()
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

/// Adds the last known members while etcd's list is unknown: a list without them would read as a
/// smaller cluster. They are reported as not healthy.
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
    let (summary, reason, wait) = match error {
        Error::InvalidSpec(source) => (
            "Invalid spec",
            Reason::InvalidSpec,
            format!("a valid spec: {source}"),
        ),
        error => (
            messages::CANNOT_READ,
            Reason::ObserveFailed,
            format!("a successful retry: {error}"),
        ),
    };
    let rejection = match error {
        Error::InvalidSpec(source) => source.downcast_ref::<Rejection>(),
        _ => None,
    };
    let message = rejection.map_or_else(|| error.to_string(), rejection_message);
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
        current_action: String::new(),
        action_reason: String::new(),
        failure_tolerance: None,
        next_action: String::new(),
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
            unreachable_since: replace::unreachable_since(view, member).map(to_time),
            message: messages::member_message(member, details.pod_problem),
        }
    };
    view.members.values().map(status).collect()
}

fn member_role(view: &ClusterView<'_>, member: &MemberView<'_>) -> MemberRole {
    // Serials from `next_serial` on are prepared members. So is a member that is being added: its
    // intent has used its serial.
    let intended = view.identity.intent.as_ref().map(|intent| intent.change);
    let was_member = member.serial < view.identity.next_serial
        && intended != Some(MembershipChange::Add(member.serial));
    let is_removed = view.membership_known && member.listed.is_none() && was_member;
    match member.listed {
        _ if member.data == DataState::Lost || is_removed => MemberRole::Leaving,
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

/// Describes a rejected spec.
fn rejection_message(rejection: &Rejection) -> String {
    let fact = sentence(&format!(
        "{} is invalid: {}",
        rejection.field, rejection.reason
    ));
    format!("{fact} {}", rejection.effect.sentence())
}

/// The texts of a status and the problems that its conditions report.
struct Summary {
    /// The state in a few words.
    summary: String,
    /// The current action.
    current_action: String,
    /// The reason for the current action.
    action_reason: String,
    /// The next step.
    next_action: String,
    /// The waits.
    waiting_for: Vec<String>,
    /// Whether the summary is that of a cluster without problems.
    is_healthy: bool,
    progress: Progress,
    problem: Option<Problem>,
}

impl Summary {
    fn of(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Self {
        let facts = context.facts;
        let waits = plan.waits.iter();
        let mut waiting_for: Vec<String> = waits.map(|wait| wait.describe(context)).collect();
        let voters = context.view.into_iter().flat_map(ClusterView::voters);
        let terminating = voters.filter(|member| is_terminating(member));
        waiting_for.extend(terminating.map(|member| {
            let name = context.member(member.serial);
            format!("pod {name} to be deleted")
        }));
        let (current_action, action_reason) = if facts.cluster.is_deleted {
            (
                "waiting for Kubernetes to delete the owned objects".to_owned(),
                "the EtcdCluster was deleted".to_owned(),
            )
        } else {
            (
                messages::current_action(context, plan),
                messages::current_reason(context, plan),
            )
        };
        let next = plan.waits.iter().find_map(|wait| wait.next_step(context));
        let next = next.or_else(|| messages::pending_replacement(context));
        let waits = plan.waits.iter();
        let mut problems: Vec<_> = waits
            .filter_map(|wait| Problem::of_wait(context, wait))
            .collect();
        // An outage comes first; the sort is stable.
        problems.sort_by_key(|problem| !problem.is_outage());
        let problem = problems.into_iter().next();
        let summary = messages::summarize(context, plan);
        Self {
            is_healthy: summary.is_none(),
            summary: summary.unwrap_or_else(|| HEALTHY.to_owned()),
            current_action,
            action_reason,
            next_action: next.unwrap_or_default(),
            waiting_for,
            progress: progressing(facts, context.view, plan),
            problem: problem.or_else(|| member_problem(context)),
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
        let problem = Problem {
            reason: Reason::InvalidSpec,
            message: rejection_message(rejection),
        };
        let wait = format!("a valid {}: {}", rejection.field, rejection.reason);
        self.degrade(problem, wait);
    }

    /// Reports a write that Kubernetes rejected. If it is the creation of a pod or a claim, it
    /// comes before every other problem: it keeps members from coming back.
    fn reject_write(&mut self, error: &Error, plan: &Plan<Etcd>) {
        let problem = Problem {
            reason: Reason::WriteRejected,
            message: error.to_string(),
        };
        let creates_member = plan.create.iter().any(|create| match create {
            EtcdCreate::Pod { .. } | EtcdCreate::Claim { .. } => true,
            EtcdCreate::Identity(_) => false,
        });
        let wait = format!("a successful retry: {error}");
        if creates_member {
            self.waiting_for.insert(0, wait);
            self.problem = Some(problem);
        } else {
            self.degrade(problem, wait);
        }
    }

    /// Reports a problem. Only an outage comes before it.
    fn degrade(&mut self, problem: Problem, wait: String) {
        self.waiting_for.push(wait);
        if !self.problem.as_ref().is_some_and(Problem::is_outage) {
            self.problem = Some(problem);
        }
    }

    fn conditions(
        &self,
        facts: &EtcdFacts,
        view: Option<&ClusterView<'_>>,
    ) -> Vec<ConditionUpdate> {
        vec![
            ready(facts, view),
            self.progressing_condition(facts),
            self.degraded_condition(facts),
        ]
    }

    fn progressing_condition(&self, facts: &EtcdFacts) -> ConditionUpdate {
        let message = if !self.current_action.is_empty() {
            sentence(&format!("The operator is {}", self.current_action))
        } else if let Some(wait) = self.waiting_for.first() {
            sentence(&format!("The operator waits for {wait}"))
        } else if let Some(problem) = &self.problem {
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

    fn degraded_condition(&self, facts: &EtcdFacts) -> ConditionUpdate {
        let (status, reason, message) = match &self.problem {
            Some(problem) => (
                ConditionStatus::True,
                problem.reason,
                problem.message.as_str(),
            ),
            // The operator does not check the path from the client Service to the members.
            None if self.progress.reason == Reason::Converged && facts.client_read.is_absent() => (
                ConditionStatus::False,
                Reason::AsExpected,
                "No problem of the members is known. Check the client Service and the network.",
            ),
            None => (ConditionStatus::False, Reason::AsExpected, NO_PROBLEM),
        };
        ConditionUpdate {
            condition: ConditionType::Degraded,
            status,
            reason,
            message: message.to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "rejected_tests.rs"]
mod rejected_tests;

#[cfg(test)]
#[path = "argocd_tests.rs"]
mod argocd_tests;
