//! The problems of a cluster: those that the operator reports and no answer contradicts, and those that the answers show and
//! the operator has not reported yet.

use evenkeel_api::conditions::Reason;
use evenkeel_api::{NodeProblem, ProblemStatus};
use evenkeel_etcd::availability::{Alarm, Availability};
use evenkeel_kit::pods;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::advice;
use crate::assess::{APPLICATION, AssessedMember, Assessment, MAX_SECONDS_WITHOUT_STATUS};
use crate::operator_status::OperatorStatus;
use crate::report::{MemberHealthState, ProblemReport, ReportSource, answering_voters};
use crate::terminal::{format_duration, format_time};

/// The reason of the problem that no operator is running.
pub(crate) const OPERATOR_NOT_RUNNING: &str = "OperatorNotRunning";
/// The reason of the problem that no operator has reconciled a cluster.
const NOT_RECONCILED: &str = "NotReconciled";
/// The end of the message of a problem that only the answers show.
const NOT_REPORTED: &str = "The operator has not reported it yet.";

/// The problems, and the statements of the operator that the answers contradict.
pub(crate) struct Findings {
    /// The problems, the worst first.
    pub(crate) problems: Vec<ProblemReport>,
    /// The contradicted statements.
    pub(crate) contradictions: Vec<String>,
}

impl Findings {
    /// Returns the problems of a cluster.
    pub(crate) fn of(assessment: &Assessment<'_>) -> Self {
        let mut contradictions = Vec::new();
        let mut problems = Vec::new();
        for problem in reported(assessment) {
            match contradiction(assessment, &problem) {
                Some(now) => contradictions.push(describe_contradiction(assessment, &problem, now)),
                None => problems.push(problem),
            }
        }
        Self {
            problems: merge(
                problems,
                not_reported(assessment),
                missing_operator(assessment),
            ),
            contradictions,
        }
    }

    /// Returns whether there is a problem besides a missing operator.
    pub(crate) fn has_problems(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.reason != OPERATOR_NOT_RUNNING)
    }
}

/// Adds the problems that the plugin has found to those of the operator, whose order stays: a rejected write comes before the
/// outage that it causes. Outages come before other problems, then a missing operator, without which nothing else is resolved.
fn merge(
    reported: Vec<ProblemReport>,
    found: Vec<ProblemReport>,
    operator: Option<ProblemReport>,
) -> Vec<ProblemReport> {
    let is_first = |problem: &&ProblemReport| {
        is_outage(problem) || problem.reason == Reason::WriteRejected.as_str()
    };
    let first = reported.iter().take_while(is_first).count();
    let (outages, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_outage);
    let mut problems = reported;
    let rest = problems.split_off(first);
    problems.extend(outages);
    problems.extend(operator);
    problems.extend(rest);
    problems.extend(others);
    problems
}

/// Returns whether clients are not served because of a problem, or not completely.
pub(crate) fn is_outage(problem: &ProblemReport) -> bool {
    const OUTAGES: [Reason; 5] = [
        Reason::QuorumLost,
        Reason::DataLost,
        Reason::NoSpace,
        Reason::DataCorrupt,
        Reason::NotServing,
    ];
    let mut outages = OUTAGES.iter();
    outages.any(|outage| outage.as_str() == problem.reason)
}

/// Returns the problems in the status. An older operator reports only the condition Degraded.
fn reported(assessment: &Assessment<'_>) -> Vec<ProblemReport> {
    let now = assessment.evidence.now;
    let name = assessment.evidence.cluster.name_any();
    let elapsed = |since: Timestamp| Some((now.as_second() - since.as_second()).max(0));
    let report = |problem: &ProblemStatus| ProblemReport {
        source: ReportSource::Operator,
        reason: problem.reason.clone(),
        message: problem.message.clone(),
        advice: problem.advice.clone(),
        member: problem.member.clone(),
        since: Some(problem.since.0.to_string()),
        duration_seconds: elapsed(problem.since.0),
    };
    let problems = &assessment.status.problems;
    if !problems.is_empty() {
        return problems.iter().map(report).collect();
    }
    let degraded = assessment.condition("Degraded");
    let degraded = degraded.filter(|degraded| degraded.status == "True");
    let problem = degraded.map(|degraded| ProblemReport {
        source: ReportSource::Operator,
        reason: degraded.reason.clone(),
        message: degraded.message.clone(),
        advice: advice::for_reason(&degraded.reason, &name).unwrap_or_default(),
        member: String::new(),
        since: Some(degraded.last_transition_time.0.to_string()),
        duration_seconds: elapsed(degraded.last_transition_time.0),
    });
    problem.into_iter().collect()
}

/// Returns the fact that contradicts a problem of the operator's status.
fn contradiction(assessment: &Assessment<'_>, problem: &ProblemReport) -> Option<&'static str> {
    if !assessment.is_live() {
        return None;
    }
    let is_serving = |member: &&AssessedMember<'_>| member.state.is_serving();
    let is = |reason: Reason| problem.reason == reason.as_str();
    if !problem.member.is_empty() {
        let mut members = assessment.members.iter();
        let member = members.find(|member| member.name == problem.member);
        return member.filter(is_serving).map(|_| "the member answers now");
    }
    let has_alarm = |alarm| assessment.alarms.contains(&alarm);
    let answers_reads = assessment.availability != Availability::Unavailable;
    if is(Reason::QuorumLost) {
        return answers_reads.then_some("a quorum of members answers now");
    }
    if is(Reason::NoSpace) && answers_reads {
        return (!has_alarm(Alarm::NoSpace)).then_some("the alarm is not raised any more");
    }
    if is(Reason::DataCorrupt) && answers_reads {
        return (!has_alarm(Alarm::Corrupt)).then_some("the alarm is not raised any more");
    }
    // An older operator does not name the member.
    let all_serve = assessment.voters().all(|member| member.state.is_serving());
    (is(Reason::MemberDown) && all_serve).then_some("all members answer now")
}

fn describe_contradiction(
    assessment: &Assessment<'_>,
    problem: &ProblemReport,
    now: &str,
) -> String {
    let changed = assessment.status_changed_at();
    let time = changed.map(|time| format!(" at {}", format_time(time, assessment.evidence.now)));
    let message = problem.message.trim_end_matches('.');
    format!(
        "the operator reported{}: {message}. That is outdated: {now}",
        time.unwrap_or_default()
    )
}

/// Returns the problems that the answers show and the operator has not reported.
fn not_reported(assessment: &Assessment<'_>) -> Vec<ProblemReport> {
    if !assessment.is_bootstrapped() || !assessment.is_live() {
        return Vec::new();
    }
    let is_reported = |reason: Reason| {
        let mut problems = assessment.status.problems.iter();
        problems.any(|problem| problem.reason == reason.as_str())
    };
    let mut problems: Vec<_> = assessment
        .alarms
        .iter()
        .filter_map(|alarm| {
            let reason = match alarm {
                Alarm::NoSpace => Reason::NoSpace,
                Alarm::Corrupt => Reason::DataCorrupt,
            };
            (!is_reported(reason)).then(|| raised_alarm(assessment, *alarm, reason))
        })
        .collect();
    let has_lost_quorum = assessment.availability == Availability::Unavailable;
    if has_lost_quorum {
        let is_known = is_reported(Reason::QuorumLost)
            || is_reported(Reason::DataLost)
            || assessment.is_planned_outage();
        problems.extend((!is_known).then(|| lost_quorum(assessment)));
        // A lost quorum names its members.
        return problems;
    }
    let down = assessment.members.iter().filter(|member| {
        member.state.is_down() && assessment.reported_problem(&member.name).is_none()
    });
    // An older operator reports a member that is down without its name.
    let is_unnamed = assessment.status.problems.is_empty()
        && assessment
            .condition("Degraded")
            .is_some_and(|degraded| degraded.status == "True" && degraded.reason == "MemberDown");
    problems.extend(
        down.filter(|_| !is_unnamed)
            .map(|member| member_down(assessment, member)),
    );
    problems
}

fn live_problem(assessment: &Assessment<'_>, reason: Reason, fact: String) -> ProblemReport {
    let message = if assessment.evidence.operator.is_not_running() {
        fact
    } else {
        format!("{fact} {NOT_REPORTED}")
    };
    let name = assessment.evidence.cluster.name_any();
    ProblemReport {
        source: ReportSource::Live,
        reason: reason.to_string(),
        message,
        advice: advice::for_reason(reason.as_str(), &name).unwrap_or_default(),
        member: String::new(),
        since: None,
        duration_seconds: None,
    }
}

fn raised_alarm(assessment: &Assessment<'_>, alarm: Alarm, reason: Reason) -> ProblemReport {
    let fact = match alarm {
        Alarm::NoSpace => {
            "etcd has raised the alarm NOSPACE: a database has reached its quota. etcd rejects writes."
        }
        Alarm::Corrupt => {
            "etcd has raised the alarm CORRUPT: the data of members differs. etcd rejects requests."
        }
    };
    live_problem(assessment, reason, fact.to_owned())
}

fn lost_quorum(assessment: &Assessment<'_>) -> ProblemReport {
    let voters: Vec<_> = assessment.voters().collect();
    let answers = |member: &AssessedMember<'_>| member.state == MemberHealthState::NoQuorum;
    let down = voters.iter().filter(|member| !answers(member));
    let down: Vec<_> = down
        .map(|member| match cause(assessment, member) {
            Some(cause) => format!("{} ({cause})", member.name),
            None => member.name.clone(),
        })
        .collect();
    let answering = voters.len() - down.len();
    let fact = match (voters.as_slice(), down.as_slice()) {
        ([only], [_]) => format!("The only member {}", does_not_answer(assessment, only)),
        (_, []) => {
            let voters = answering_voters(answering, voters.len());
            format!("The quorum is lost: {voters}, but without a leader.")
        }
        (voters, down) => format!(
            "The quorum is lost: {}. Not answering: {}.",
            answering_voters(answering, voters.len()),
            down.join(", ")
        ),
    };
    live_problem(assessment, Reason::QuorumLost, fact)
}

fn member_down(assessment: &Assessment<'_>, member: &AssessedMember<'_>) -> ProblemReport {
    let name = &member.name;
    let fact = if member.state == MemberHealthState::NoQuorum {
        format!("Member {name} answers, but reaches no quorum of the other members.")
    } else {
        format!("Member {}", does_not_answer(assessment, member))
    };
    let node = node_cause(assessment, member);
    let reason = if node.is_some() {
        Reason::NodeNotReady
    } else {
        Reason::MemberDown
    };
    let mut problem = live_problem(assessment, reason, fact.clone());
    // The operator knows that the member is down, and reports the cause as another problem.
    if member.listed.is_some_and(|listed| !listed.healthy) {
        problem.message = fact;
    }
    problem.member.clone_from(name);
    problem.advice = match node {
        Some((_, advice)) => advice,
        None => advice_without_cause(assessment, member),
    };
    problem
}

/// Returns what a user can do about a member that is down for a reason that the operator has not reported. Kubernetes reports
/// a node that is off after 40 s.
fn advice_without_cause(assessment: &Assessment<'_>, member: &AssessedMember<'_>) -> String {
    let (name, evidence) = (&member.name, assessment.evidence);
    let mut reported = assessment.status.problems.iter();
    let is_explained = member.listed.is_some_and(|listed| !listed.healthy)
        && reported.any(|problem| !problem.advice.is_empty());
    // Another problem says what to do: the operator's, that no operator is running, or the pause.
    if is_explained || evidence.operator.is_not_running() || evidence.cluster.spec.paused {
        return String::new();
    }
    if member
        .pod
        .is_some_and(|pod| pods::problem(pod, APPLICATION).is_some())
    {
        return format!(
            "Resolve the problem of its pod: `kubectl describe pod {name}` shows its events."
        );
    }
    match member.pod {
        None if evidence.live.pods.is_ok() => {
            "Wait some seconds: the operator creates the pod again, or reports what prevents that."
                .to_owned()
        }
        _ => format!(
            "Wait up to a minute: the operator reports the cause and what to do. Meanwhile, `kubectl describe pod {name}` shows \
             the pod's node and events."
        ),
    }
}

/// Returns the name of a member and that it does not answer, with the cause if Kubernetes reports one.
fn does_not_answer(assessment: &Assessment<'_>, member: &AssessedMember<'_>) -> String {
    let name = &member.name;
    match cause(assessment, member) {
        Some(cause) => format!("{name} does not answer: {cause}."),
        None => format!("{name} does not answer."),
    }
}

/// Returns the cause for which a member does not answer, if Kubernetes reports one.
fn cause(assessment: &Assessment<'_>, member: &AssessedMember<'_>) -> Option<String> {
    if let Some((cause, _)) = node_cause(assessment, member) {
        return Some(cause);
    }
    let Some(pod) = member.pod else {
        let is_missing = assessment.evidence.live.pods.is_ok();
        return is_missing.then(|| "its pod does not exist".to_owned());
    };
    let since = pods::terminating_since(pod);
    if let Some(since) = since.and_then(|since| Timestamp::from_second(since.0).ok()) {
        let since = format_time(since, assessment.evidence.now);
        return Some(format!("its pod is Terminating since {since}"));
    }
    let problem = pods::problem(pod, APPLICATION)?;
    Some(problem.trim_end_matches('.').to_owned())
}

/// Returns the cause and the advice if the node of a member is not Ready or does not exist.
fn node_cause(
    assessment: &Assessment<'_>,
    member: &AssessedMember<'_>,
) -> Option<(String, String)> {
    let (trouble, node) = (member.node_trouble?, member.node.as_ref()?);
    match trouble.problem {
        NodeProblem::NotReady => {
            let since = trouble
                .since
                .map(|since| format!(" since {}", format_time(since, assessment.evidence.now)));
            Some((
                format!("node {node} is NotReady{}", since.unwrap_or_default()),
                format!(
                    "Bring node {node} back. If it is gone for good, delete it: `kubectl delete node {node}`."
                ),
            ))
        }
        NodeProblem::Missing => Some((
            format!("node {node} does not exist any more"),
            "Wait some seconds: the operator replaces the member, or reports what prevents that."
                .to_owned(),
        )),
        NodeProblem::Cordoned => None,
    }
}

/// Returns the problem that no operator is running, or that none has reconciled the cluster.
fn missing_operator(assessment: &Assessment<'_>) -> Option<ProblemReport> {
    let age = assessment.age_seconds();
    let (reason, message, advice) = match assessment.evidence.operator {
        OperatorStatus::NotRunning { namespace, lease } => {
            let (fact, advice) = match namespace {
                Some(namespace) => (
                    "No operator is running",
                    format!("Check the operator: `kubectl -n {namespace} get deployments,pods`."),
                ),
                None => (
                    "No operator watches this namespace",
                    "Add the namespace to the operator's flag --namespaces, or install an operator for it."
                        .to_owned(),
                ),
            };
            (
                OPERATOR_NOT_RUNNING,
                format!(
                    "{fact}: {lease}. Failed members are not recovered, and edits are not applied."
                ),
                advice,
            )
        }
        OperatorStatus::Running(_) | OperatorStatus::Unknown(_)
            if assessment.evidence.cluster.status.is_none() && age > MAX_SECONDS_WITHOUT_STATUS =>
        {
            (
                NOT_RECONCILED,
                format!(
                    "No operator has reconciled this cluster in the {} since its creation.",
                    format_duration(age)
                ),
                "Check that an operator is running and manages this namespace.".to_owned(),
            )
        }
        OperatorStatus::Running(_) | OperatorStatus::Unknown(_) => return None,
    };
    Some(ProblemReport {
        source: ReportSource::Live,
        reason: reason.to_owned(),
        message,
        advice,
        member: String::new(),
        since: None,
        duration_seconds: None,
    })
}
