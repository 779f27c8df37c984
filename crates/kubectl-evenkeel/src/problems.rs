//! The problems of a cluster: those that the operator reports and no answer contradicts, and those that the answers show and
//! the operator has not reported yet.

use evenkeel_api::conditions::Reason;
use evenkeel_api::{NodeProblem, ProblemStatus};
use evenkeel_etcd::availability::{Alarm, Availability, count};
use evenkeel_kit::pods;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::advice;
use crate::assess::{AssessedMember, Assessment, MAX_SECONDS_WITHOUT_STATUS};
use crate::operator_status::OperatorStatus;
use crate::report::{MemberHealthState, ProblemReport, ReportSource};
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
        problems.extend(not_reported(assessment));
        problems.extend(missing_operator(assessment));
        // The sort is stable.
        problems.sort_by_key(rank);
        Self {
            problems,
            contradictions,
        }
    }

    /// Returns whether there is a problem besides a missing operator.
    pub(crate) fn has_problems(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.reason != OPERATOR_NOT_RUNNING)
    }
}

/// Outages come first, then a missing operator, without which nothing else is resolved.
fn rank(problem: &ProblemReport) -> u8 {
    const OUTAGES: [Reason; 5] = [
        Reason::QuorumLost,
        Reason::DataLost,
        Reason::NoSpace,
        Reason::DataCorrupt,
        Reason::NotServing,
    ];
    if OUTAGES
        .iter()
        .any(|outage| outage.as_str() == problem.reason)
    {
        0
    } else if problem.reason == OPERATOR_NOT_RUNNING {
        1
    } else {
        2
    }
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
    let verb = if answering == 1 { "answers" } else { "answer" };
    let fact = match (voters.as_slice(), down.as_slice()) {
        ([only], [_]) => format!("The only member {}", does_not_answer(assessment, only)),
        (_, []) => {
            let voters = count(answering, "voter");
            format!("The quorum is lost: {voters} {verb}, but without a leader.")
        }
        (voters, down) => format!(
            "The quorum is lost: {answering} of {} {verb}. Not answering: {}.",
            count(voters.len(), "voter"),
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
    problem.advice = node.map(|(_, advice)| advice).unwrap_or_default();
    problem
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
    let problem = pods::problem(pod, "etcd")?;
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
            String::new(),
        )),
        NodeProblem::Cordoned => None,
    }
}

/// Returns the problem that no operator is running, or that none has reconciled the cluster.
fn missing_operator(assessment: &Assessment<'_>) -> Option<ProblemReport> {
    let age = assessment.age_seconds();
    let (reason, message, advice) = match assessment.evidence.operator {
        OperatorStatus::NotRunning { namespace, lease } => (
            OPERATOR_NOT_RUNNING,
            format!(
                "No operator is running: {lease}. Failed members are not recovered, and edits are not applied."
            ),
            format!("Check the operator: `kubectl -n {namespace} get pods`."),
        ),
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
