//! `kubectl evenkeel why`: explains the state of a cluster: the goal, the blocker, the evidence, the action required from
//! the user, and the last decisions with the facts that they were based on.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::availability::count;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_etcd::names::member_name;
use evenkeel_etcd::view::{ClusterView, DataState, MemberView};
use evenkeel_runtime::{Decision, Observed};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::args::Target;
use crate::connection::Connection;
use crate::decision_log::read_decisions;
use crate::error::CliError;
use crate::operation_text;
use crate::output::OutputOptions;
use crate::report::{
    API_VERSION, ClusterReport, HealthReport, MemberHealthState, MemberReport, ProblemReport,
    ReportSource, answering_voters,
};
use crate::status::report_all;
use crate::terminal::format_elapsed;
use crate::why_text;

/// The explanation of a cluster's state: the output of `kubectl evenkeel why -o json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterExplanation {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// ClusterExplanation.
    pub(crate) kind: &'static str,
    /// The time of the explanation.
    pub(crate) time: String,
    /// The namespace of the cluster.
    pub(crate) namespace: String,
    /// The name of the cluster.
    pub(crate) name: String,
    /// The desired state, in a few words.
    pub(crate) goal: String,
    /// Whether clients are served.
    pub(crate) health: HealthReport,
    /// What keeps the cluster from the desired state: its worst problem, or what the operator waits for. Null if nothing.
    pub(crate) blocker: Option<String>,
    /// The observations behind it.
    pub(crate) evidence: Vec<String>,
    /// The actions that are required from a user, the most urgent first. Empty if none is.
    pub(crate) actions_required: Vec<String>,
    /// The action that follows without a user.
    pub(crate) next_action: Option<String>,
    /// The number of recorded decisions. Null if the log was not read.
    pub(crate) decision_count: Option<usize>,
    /// The last decisions, the oldest first.
    pub(crate) decisions: Vec<DecisionReport>,
}

/// The explanations of all clusters: the output of `kubectl evenkeel why -A -o json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterExplanationList {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// ClusterExplanationList.
    pub(crate) kind: &'static str,
    /// The clusters, the worst first, without their decisions.
    pub(crate) items: Vec<ClusterExplanation>,
}

/// A decision of the operator and its facts.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecisionReport {
    /// The time of the decision.
    pub(crate) time: String,
    /// The operator instance that made it.
    pub(crate) operator: String,
    /// The actions, in order. Empty if there were none.
    pub(crate) actions: Vec<String>,
    /// The reasons for the actions.
    pub(crate) reasons: Vec<String>,
    /// What the operator waited for.
    pub(crate) waiting_for: Vec<String>,
    /// The result, machine-readable: noop, completed, partial, conflict, declined, inProgress or failed.
    pub(crate) result: Value,
    /// The result as a sentence, empty if there were no actions.
    pub(crate) outcome: String,
    /// The events that were published.
    pub(crate) events: Vec<String>,
    /// The plan, machine-readable.
    pub(crate) plan: Value,
    /// Whether etcd's member list was known. Null if the facts are not recorded or cannot be parsed.
    pub(crate) membership_known: Option<bool>,
    /// The facts about each member.
    pub(crate) members: Vec<MemberFactsReport>,
    /// All facts, with --facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) facts: Option<Value>,
}

/// The facts about a member that a decision was based on.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberFactsReport {
    /// The name of the member.
    pub(crate) name: String,
    /// The role: voter, learner, unlisted or unknown.
    pub(crate) role: &'static str,
    /// The pod: Ready, NotReady, Terminating, Finished, Unschedulable, CrashLoop or none.
    pub(crate) pod: &'static str,
    /// The data: intact, empty or lost.
    pub(crate) data: &'static str,
    /// The answer to the operator's probe: ok, unhealthy or no answer.
    pub(crate) probe: &'static str,
}

/// Which part of the decision log is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhyOptions {
    /// The number of decisions, counted from the newest.
    pub(crate) max_decisions: usize,
    /// Whether all facts of each decision are shown.
    pub(crate) include_facts: bool,
    /// Whether tables are not truncated.
    pub(crate) is_wide: bool,
}

/// Explains the state of a cluster.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: WhyOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let (cluster, report) = ClusterReport::query(connection, target, Timestamp::now()).await?;
    let mut explanation = explain(&cluster, &report);
    match read_decisions(connection, &cluster).await {
        Ok(decisions) => explanation.add_decisions(decisions, options),
        Err(error) => explanation.evidence.push(error),
    }
    output.print(&explanation, |terminal| {
        why_text::text(&explanation, terminal)
    })?;
    Ok(0)
}

/// Explains the state of the clusters of all namespaces, one line each.
pub(crate) async fn run_all(
    connection: &Connection,
    options: WhyOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let reports = report_all(connection, Timestamp::now()).await?;
    let list = ClusterExplanationList {
        api_version: API_VERSION,
        kind: "ClusterExplanationList",
        items: reports
            .iter()
            .map(|(cluster, report)| explain(cluster, report))
            .collect(),
    };
    output.print(&list, |terminal| {
        why_text::table(&list.items, options.is_wide, terminal)
    })?;
    Ok(0)
}

/// Explains the state of a cluster without its decisions.
pub(crate) fn explain(cluster: &EtcdCluster, report: &ClusterReport) -> ClusterExplanation {
    let spec = &cluster.spec;
    let members = usize::try_from(spec.members).unwrap_or_default();
    let mut goal = format!("{}, etcd {}", count(members, "member"), spec.version);
    if spec.paused {
        goal.push_str("; spec.paused is set");
    }
    ClusterExplanation {
        api_version: API_VERSION,
        kind: "ClusterExplanation",
        time: report.time.clone(),
        namespace: report.namespace.clone(),
        name: report.name.clone(),
        goal,
        health: report.health.clone(),
        blocker: blocker(report),
        evidence: evidence(report),
        actions_required: actions_required(report),
        next_action: operation_text::next_action(report),
        decision_count: None,
        decisions: Vec::new(),
    }
}

fn blocker(report: &ClusterReport) -> Option<String> {
    let problem = report
        .problems
        .first()
        .map(|problem| problem.message.clone());
    let paused = || report.paused.then(|| "spec.paused is set".to_owned());
    let wait = || {
        let wait = report.waiting_for.first()?;
        Some(format!("the operator waits for {wait}"))
    };
    let operation = || {
        let operation = report.operation.as_ref()?;
        Some(format!("the operator is {}", operation.message))
    };
    problem.or_else(paused).or_else(wait).or_else(operation)
}

/// Returns the observations behind the blocker.
fn evidence(report: &ClusterReport) -> Vec<String> {
    let mut evidence = Vec::new();
    if let Some(serving) = report.member_count.serving {
        evidence.push(format!(
            "{} a linearizable read now",
            answering_voters(serving, report.member_count.voters)
        ));
    } else {
        evidence.push(format!(
            "the members' answers are unknown {}",
            report.health.message
        ));
    }
    evidence.extend(report.problems.iter().enumerate().map(|(index, problem)| {
        let message = if index == 0 {
            "the blocker"
        } else {
            &problem.message
        };
        problem_evidence(report, problem, message)
    }));
    let is_noteworthy = |member: &&MemberReport| {
        !matches!(
            member.health,
            MemberHealthState::Ok | MemberHealthState::Alarm | MemberHealthState::Unknown
        )
    };
    evidence.extend(
        report
            .members
            .iter()
            .filter(is_noteworthy)
            .map(member_evidence),
    );
    if let Some(operation) = &report.operation {
        let progress = operation_text::progress(operation).unwrap_or_default();
        evidence.push(format!(
            "operation {}{progress}, started {}: {}",
            operation.r#type.to_lowercase(),
            report.format_time(&operation.start_time),
            operation.message
        ));
    }
    evidence.extend(
        report
            .waiting_for
            .iter()
            .map(|wait| format!("the operator waits for {wait}")),
    );
    evidence.extend(report.notes.iter().cloned());
    evidence
}

fn problem_evidence(report: &ClusterReport, problem: &ProblemReport, message: &str) -> String {
    let source = match problem.source {
        ReportSource::Live => "found now".to_owned(),
        ReportSource::Operator => {
            let since = problem
                .since
                .as_deref()
                .map(|since| report.format_time(since));
            let elapsed = format_elapsed(problem.duration_seconds.unwrap_or_default());
            format!("reported since {} ({elapsed})", since.unwrap_or_default())
        }
    };
    format!("{}, {source}: {message}", problem.reason)
}

fn member_evidence(member: &MemberReport) -> String {
    let mut facts = vec![format!("pod {}", member.pod)];
    if !member.node.is_empty() {
        let problem = member.node_problem.as_ref();
        let problem = problem
            .map(|problem| format!(" ({problem})"))
            .unwrap_or_default();
        facts.push(format!("node {}{problem}", member.node));
    }
    if !member.message.is_empty() && member.pod != "none" {
        facts.push(member.message.clone());
    }
    format!(
        "{} ({}): {}; {}",
        member.name,
        member.role,
        member.health.words(),
        facts.join("; ")
    )
}

/// Returns whether advice asks for an action, and not for patience.
fn is_action(advice: &str) -> bool {
    let mut patience = ["None", "Wait"].into_iter();
    !advice.is_empty() && !patience.any(|word| advice.starts_with(word))
}

/// Returns the actions that are required from the user, the most urgent first.
fn actions_required(report: &ClusterReport) -> Vec<String> {
    let mut actions: Vec<String> = Vec::new();
    for problem in &report.problems {
        if is_action(&problem.advice) && !actions.contains(&problem.advice) {
            actions.push(problem.advice.clone());
        }
    }
    if report.paused {
        actions.push(format!(
            "Resume the cluster when the pause is no longer needed: `kubectl evenkeel resume {}`.",
            report.name
        ));
    }
    actions
}

impl ClusterExplanation {
    /// Adds the last decisions.
    pub(crate) fn add_decisions(&mut self, decisions: Vec<Decision>, options: WhyOptions) {
        self.decision_count = Some(decisions.len());
        let skipped = decisions.len().saturating_sub(options.max_decisions);
        self.decisions = decisions
            .into_iter()
            .skip(skipped)
            .map(|decision| DecisionReport::new(decision, &self.name, options.include_facts))
            .collect();
    }
}

impl DecisionReport {
    fn new(decision: Decision, cluster: &str, include_facts: bool) -> Self {
        let json = decision.facts.as_ref();
        let facts: Option<EtcdFacts> = json.and_then(|json| serde_json::from_str(json).ok());
        let (membership_known, members) = match &facts {
            Some(facts) => member_facts(facts, cluster),
            None => (None, Vec::new()),
        };
        let to_json = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            result: to_json(serde_json::to_value(decision.result)),
            plan: to_json(serde_json::to_value(&decision.plan)),
            membership_known,
            members,
            facts: json
                .filter(|_| include_facts)
                .and_then(|json| serde_json::from_str(json).ok()),
            time: decision.at,
            operator: decision.by,
            actions: decision.explained.actions,
            reasons: decision.explained.reasons,
            waiting_for: decision.explained.waits,
            outcome: decision.outcome,
            events: decision.events,
        }
    }
}

/// Returns whether etcd's member list was known, and the facts about each member.
fn member_facts(facts: &EtcdFacts, cluster: &str) -> (Option<bool>, Vec<MemberFactsReport>) {
    let (Observed::Present(identity), Observed::Present(claims), Observed::Present(pods)) =
        (&facts.identity, &facts.claims, &facts.pods)
    else {
        return (Some(false), Vec::new());
    };
    let view = ClusterView::new(facts, identity, claims, pods);
    let report = |member: &MemberView<'_>| MemberFactsReport {
        name: member_name(cluster, identity.lineage, member.serial),
        ..describe_member(member, view.membership_known)
    };
    let members = view.members.values().map(report).collect();
    (Some(view.membership_known), members)
}

fn describe_member(member: &MemberView<'_>, membership_known: bool) -> MemberFactsReport {
    MemberFactsReport {
        name: String::new(),
        role: match member.listed {
            Some(listed) if listed.is_learner => "learner",
            Some(_) => "voter",
            None if membership_known => "unlisted",
            None => "unknown",
        },
        pod: match member.pod {
            None => "none",
            Some(pod) if pod.is_terminating => "Terminating",
            Some(pod) if pod.is_finished => "Finished",
            Some(pod) if pod.unschedulable_since.is_some() => "Unschedulable",
            Some(pod) if pod.crashing_since.is_some() => "CrashLoop",
            Some(pod) if pod.is_ready => "Ready",
            Some(_) => "NotReady",
        },
        data: match member.data {
            DataState::Empty => "empty",
            DataState::Intact => "intact",
            DataState::Lost => "lost",
        },
        probe: match member.health {
            Some(health) if health.is_serving => "ok",
            Some(_) => "unhealthy",
            None => "no answer",
        },
    }
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
