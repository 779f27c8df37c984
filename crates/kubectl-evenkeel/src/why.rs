//! `kubectl evenkeel why`: explains the state of a cluster: the goal, the blocker, the evidence, the action required from
//! the user, and the last decisions with the facts that they were based on.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_etcd::names::member_name;
use evenkeel_etcd::view::{ClusterView, DataState, MemberView};
use evenkeel_runtime::{Decision, Observed};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::advice;
use crate::args::Target;
use crate::connection::Connection;
use crate::decision_log::read_decisions;
use crate::error::CliError;
use crate::member_metrics::ClusterMetrics;
use crate::operator_status::OperatorStatus;
use crate::output::OutputOptions;
use crate::report::Report;
use crate::terminal::{Terminal, WIDTH, format_duration, wrap};

/// The output of `why`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhyReport {
    namespace: String,
    name: String,
    /// The desired state, in a few words.
    goal: String,
    blocker: Option<String>,
    evidence: Vec<String>,
    advice: Vec<String>,
    decisions: Vec<DecisionReport>,
}

/// A decision and its facts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionReport {
    #[serde(flatten)]
    decision: Decision,
    /// The facts about each member, in a few words.
    fact_summary: Vec<String>,
    /// All facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<Value>,
}

/// Which part of the decision log is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhyOptions {
    /// The number of decisions, counted from the newest.
    pub(crate) max_decisions: usize,
    /// Whether all facts of each decision are shown.
    pub(crate) include_facts: bool,
}

/// Explains the state of a cluster.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: WhyOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let now = Timestamp::now();
    let (cluster, report) = Report::query(connection, target, now).await?;
    let explanation = explain_with_log(connection, &cluster, &report, options).await;
    output.print(&explanation, |terminal| text(&explanation, now, terminal))?;
    Ok(0)
}

/// Explains the state of the clusters of all namespaces.
pub(crate) async fn run_all(
    connection: &Connection,
    options: WhyOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let now = Timestamp::now();
    let clusters = connection.clusters_in_all_namespaces().await?;
    let mut explanations = Vec::new();
    for cluster in &clusters {
        let namespace = cluster.namespace();
        let operator = OperatorStatus::query(&connection.client, namespace.as_deref(), now).await;
        let metrics = ClusterMetrics::query(&connection.client, cluster).await;
        let report = Report::new(cluster, &metrics, &operator, now);
        explanations.push(explain_with_log(connection, cluster, &report, options).await);
    }
    output.print(&explanations, |terminal| {
        let one = |explanation: &WhyReport| {
            let name = format!("{}/{}", explanation.namespace, explanation.name);
            format!(
                "{}\n{}",
                terminal.bold(&name),
                text(explanation, now, terminal)
            )
        };
        if explanations.is_empty() {
            return "No EtcdClusters found.\n".to_owned();
        }
        explanations.iter().map(one).collect::<Vec<_>>().join("\n")
    })?;
    Ok(0)
}

/// Explains the state of a cluster with the decisions in its log.
async fn explain_with_log(
    connection: &Connection,
    cluster: &EtcdCluster,
    report: &Report,
    options: WhyOptions,
) -> WhyReport {
    let (decisions, log_error) = match read_decisions(connection, cluster).await {
        Ok(decisions) => (decisions, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut explanation = explain(cluster, report, decisions, options);
    explanation.evidence.extend(log_error);
    explanation
}

fn explain(
    cluster: &EtcdCluster,
    report: &Report,
    decisions: Vec<Decision>,
    options: WhyOptions,
) -> WhyReport {
    let spec = &cluster.spec;
    let mut goal = format!(
        "{}, etcd {}",
        pluralize(spec.members, "member"),
        spec.version
    );
    if spec.paused {
        goal.push_str("; spec.paused is set");
    }
    let degraded = report.degraded.as_ref();
    let blocker = report
        .waiting_for
        .first()
        .or_else(|| degraded.map(|degraded| &degraded.message))
        .or_else(|| report.not_ready_messages.first())
        .cloned();
    let skipped = decisions.len().saturating_sub(options.max_decisions);
    let decisions = decisions
        .into_iter()
        .skip(skipped)
        .map(|decision| DecisionReport::new(decision, &report.name, options.include_facts));
    WhyReport {
        namespace: report.namespace.clone(),
        name: report.name.clone(),
        goal,
        evidence: evidence(report, blocker.as_deref()),
        blocker,
        advice: advice(report),
        decisions: decisions.collect(),
    }
}

/// Returns the observations behind the blocker, without repeating the blocker itself.
fn evidence(report: &Report, blocker: Option<&str>) -> Vec<String> {
    let mut evidence: Vec<String> = report.notes.clone();
    if let Some(degraded) = &report.degraded {
        evidence.push(format!(
            "Degraded for {}: {}: {}",
            format_duration(degraded.duration_seconds),
            degraded.reason,
            degraded.message
        ));
    }
    let mentioned = evidence.join(" ");
    let is_new = |message: &str| message.is_empty() || !mentioned.contains(message);
    let down = report
        .members
        .iter()
        .filter(|member| !member.healthy && is_new(&member.message));
    evidence.extend(down.map(|member| {
        let problem = if member.message.is_empty() {
            "unhealthy"
        } else {
            &member.message
        };
        format!("{} ({}): {problem}", member.name, member.role)
    }));
    let not_ready = report
        .not_ready_messages
        .iter()
        .filter(|message| Some(message.as_str()) != blocker);
    evidence.extend(not_ready.cloned());
    if evidence.is_empty() {
        evidence.push(format!(
            "{} members are healthy, and no problem is known",
            report.ready
        ));
    }
    evidence
}

/// Returns the actions that are required from the user, the most urgent first.
fn advice(report: &Report) -> Vec<String> {
    let degraded = report.degraded.as_ref();
    let is_healthy =
        report.available == Some(true) && degraded.is_none() && report.notes.is_empty();
    let mut advice = Vec::new();
    if report.alarm.as_deref() == Some("NOSPACE") {
        advice.push(format!(
            "free space: delete keys that are no longer needed, then run compact, defrag and alarm disarm with `kubectl evenkeel etcdctl {}`",
            report.name
        ));
    }
    if report.unmanaged {
        advice.push(
            "start the operator. Until then the cluster is not healed, and this output may be outdated"
                .to_owned(),
        );
    }
    if report.paused {
        advice.push(format!(
            "resume the cluster when the pause is no longer needed: `kubectl evenkeel resume {}`",
            report.name
        ));
    } else {
        advice.extend(
            degraded.and_then(|degraded| advice::for_reason(&degraded.reason, &report.name)),
        );
    }
    if advice.is_empty() && !is_healthy {
        advice.push(
            "check the evidence above. The operator continues by itself where it can".to_owned(),
        );
    }
    advice
}

impl DecisionReport {
    fn new(mut decision: Decision, cluster: &str, include_facts: bool) -> Self {
        let json = decision.facts.take();
        let facts: Option<EtcdFacts> = json
            .as_ref()
            .and_then(|json| serde_json::from_str(json).ok());
        Self {
            decision,
            fact_summary: facts
                .map(|facts| summarize(&facts, cluster))
                .unwrap_or_default(),
            facts: json
                .filter(|_| include_facts)
                .and_then(|json| serde_json::from_str(&json).ok()),
        }
    }
}

/// Summarizes the facts about each member.
fn summarize(facts: &EtcdFacts, cluster: &str) -> Vec<String> {
    let (Observed::Present(identity), Observed::Present(claims), Observed::Present(pods)) =
        (&facts.identity, &facts.claims, &facts.pods)
    else {
        return vec![
            "the identity, PersistentVolumeClaims or pods are missing or unknown".to_owned(),
        ];
    };
    let view = ClusterView::new(facts, identity, claims, pods);
    let mut summary = Vec::new();
    if !view.membership_known {
        summary.push("etcd's member list is unknown".to_owned());
    }
    summary.extend(view.members.values().map(|member| {
        format!(
            "{}: {}",
            member_name(cluster, identity.lineage, member.serial),
            summarize_member(member, view.membership_known)
        )
    }));
    summary
}

fn summarize_member(member: &MemberView<'_>, membership_known: bool) -> String {
    let role = match member.listed {
        Some(listed) if listed.is_learner => "learner",
        Some(_) => "voter",
        None if membership_known => "not in etcd's member list",
        None => "role unknown",
    };
    let pod = match member.pod {
        None => "no pod",
        Some(pod) if pod.is_terminating => "pod Terminating",
        Some(pod) if pod.is_finished => "pod finished",
        Some(pod) if pod.unschedulable_since.is_some() => "pod unschedulable",
        Some(pod) if pod.crashing_since.is_some() => "pod crash-looping",
        Some(pod) if pod.is_ready => "pod Ready",
        Some(_) => "pod not Ready",
    };
    let data = match member.data {
        DataState::Empty => "no data yet",
        DataState::Intact => "data intact",
        DataState::Lost => "data lost",
    };
    let health = match member.health {
        Some(health) if health.is_serving => "etcd healthy",
        Some(_) => "etcd unhealthy",
        None => "etcd does not respond",
    };
    format!("{role}, {pod}, {data}, {health}")
}

fn pluralize(count: i32, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

fn text(report: &WhyReport, now: Timestamp, terminal: Terminal) -> String {
    let mut text = terminal.labelled("Goal", &report.goal);
    text.push_str(&terminal.labelled("Blocker", report.blocker.as_deref().unwrap_or("none")));
    for evidence in &report.evidence {
        text.push_str(&terminal.labelled("Evidence", evidence));
    }
    for advice in &report.advice {
        text.push_str(&terminal.labelled("Action required", advice));
    }
    if report.advice.is_empty() {
        text.push_str(&terminal.labelled("Action required", "none"));
    }
    if report.decisions.is_empty() {
        text.push_str("\nNo decisions to show.\n");
        return text;
    }
    text.push_str(&format!(
        "\n{}\n",
        terminal.bold("Last decisions, newest last:")
    ));
    for decision in &report.decisions {
        text.push_str(&decision_text(decision, now, terminal));
    }
    text
}

fn decision_text(report: &DecisionReport, now: Timestamp, terminal: Terminal) -> String {
    let decision = &report.decision;
    let age = decision
        .at
        .parse::<Timestamp>()
        .map(|at| {
            let seconds = now.as_second() - at.as_second();
            format!(" ({} ago)", format_duration(seconds))
        })
        .unwrap_or_default();
    let mut text = format!(
        "\n{}\n",
        terminal.bold(&format!("{}{age}, by {}", decision.at, decision.by))
    );
    let mut add = |label: &str, content: &str| {
        let mut label = label;
        for line in wrap(content, WIDTH - 14) {
            text.push_str(&format!("  {label:<11} {line}\n"));
            label = "";
        }
    };
    let explained = &decision.explained;
    if explained.actions.is_empty() {
        let is_waiting = !explained.waits.is_empty();
        add("decision", if is_waiting { "wait" } else { "no action" });
    }
    for action in &explained.actions {
        add("decision", action);
    }
    for reason in &explained.reasons {
        add("reason", reason);
    }
    for wait in &explained.waits {
        add("waiting for", wait);
    }
    for fact in &report.fact_summary {
        add("observed", fact);
    }
    if !decision.outcome.is_empty() {
        add("outcome", &decision.outcome);
    }
    if let Some(facts) = &report.facts {
        text.push_str(&format!("  facts       {facts}\n"));
    }
    text
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
