//! The text of `why`.

use jiff::Timestamp;

use crate::report::HealthState;
use crate::terminal::{Severity, Terminal, WIDTH, format_elapsed, format_time, full_table, wrap};
use crate::why::{ClusterExplanation, DecisionReport};

/// The width of the labels of a decision.
const LABEL_WIDTH: usize = 13;

/// Renders the explanation of one cluster.
pub(crate) fn text(explanation: &ClusterExplanation, terminal: Terminal) -> String {
    let mut text = terminal.labelled("Goal", &explanation.goal);
    text.push_str(&terminal.labelled("Blocker", explanation.blocker.as_deref().unwrap_or("none")));
    for evidence in &explanation.evidence {
        text.push_str(&terminal.labelled("Evidence", evidence));
    }
    for (index, action) in explanation.actions_required.iter().enumerate() {
        // A further problem may be a consequence of the first.
        let label = if index == 0 {
            "Action required"
        } else {
            "Then, if needed"
        };
        text.push_str(&terminal.labelled(label, action));
    }
    if explanation.actions_required.is_empty() {
        text.push_str(&terminal.labelled("Action required", "none"));
    }
    if let Some(next) = &explanation.next_action {
        text.push_str(&terminal.labelled("Next action", next));
    }
    text.push_str(&decisions(explanation, terminal));
    text
}

fn decisions(explanation: &ClusterExplanation, terminal: Terminal) -> String {
    let shown = &explanation.decisions;
    let heading = match explanation.decision_count {
        None => return String::new(),
        Some(0) => return "\nNo decisions are recorded.\n".to_owned(),
        Some(count) if shown.is_empty() => {
            return format!("\n{count} decisions are recorded. `--last 5` shows the last five.\n");
        }
        Some(count) => format!("Last decisions, newest last ({} of {count}):", shown.len()),
    };
    let now = explanation.time.parse().unwrap_or_default();
    let mut text = format!("\n{}\n", terminal.bold(&heading));
    for decision in shown {
        text.push_str(&decision_text(decision, now, terminal));
    }
    text
}

fn decision_text(decision: &DecisionReport, now: Timestamp, terminal: Terminal) -> String {
    let time = match decision.time.parse::<Timestamp>() {
        Ok(time) => format!(
            "{} ({} ago)",
            format_time(time, now),
            format_elapsed(now.as_second() - time.as_second())
        ),
        Err(_) => decision.time.clone(),
    };
    let heading = format!("{time}, by {}", decision.operator);
    let mut text = format!("\n{}\n", terminal.bold(&heading));
    let mut add = |label: &str, content: &str| {
        let mut label = label;
        for line in wrap(&terminal.commands(content), WIDTH - 2 - LABEL_WIDTH) {
            text.push_str(&format!("  {label:<LABEL_WIDTH$}{line}\n"));
            label = "";
        }
    };
    if decision.actions.is_empty() {
        add("decision", &no_action(decision));
    }
    for action in &decision.actions {
        add("decision", action);
    }
    for reason in &decision.reasons {
        add("reason", reason);
    }
    for wait in &decision.waiting_for {
        add("waiting for", wait);
    }
    if !decision.outcome.is_empty() {
        add("result", &outcome(decision));
    }
    if decision.membership_known == Some(false) {
        add("facts", "etcd's member list is unknown");
    }
    text.push_str(&facts_table(decision, terminal));
    if let Some(facts) = &decision.facts {
        text.push_str(&format!("  {facts}\n"));
    }
    text
}

/// Returns the result. A decision with one action is not done partially.
fn outcome(decision: &DecisionReport) -> String {
    match decision.outcome.strip_prefix("partially done: ") {
        Some(error) if decision.actions.len() == 1 => format!("failed: {error}"),
        _ => decision.outcome.clone(),
    }
}

/// Describes a decision without an action. A member that does not answer may still recover by itself.
fn no_action(decision: &DecisionReport) -> String {
    let down = decision
        .members
        .iter()
        .filter(|member| member.probe != "ok");
    let down: Vec<_> = down.map(|member| member.name.as_str()).collect();
    if !decision.waiting_for.is_empty() {
        "wait".to_owned()
    } else if down.is_empty() {
        "no action: the cluster matches its spec".to_owned()
    } else {
        format!("no action yet: {} may still recover", down.join(", "))
    }
}

fn facts_table(decision: &DecisionReport, terminal: Terminal) -> String {
    if decision.members.is_empty() {
        return String::new();
    }
    let heading = ["MEMBER", "ROLE", "POD", "DATA", "PROBE"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(decision.members.iter().map(|member| {
        let cells = [member.role, member.pod, member.data, member.probe];
        let cells = cells.map(str::to_owned);
        std::iter::once(member.name.clone()).chain(cells).collect()
    }));
    let lines = full_table(&rows);
    let mut lines = lines.iter();
    let heading = lines.next().map(|line| terminal.bold(line));
    let heading = heading.unwrap_or_default();
    let rows: String = lines.map(|line| format!("  {line}\n")).collect();
    format!("  {heading}\n{rows}")
}

/// Renders the table of all clusters.
pub(crate) fn table(
    explanations: &[ClusterExplanation],
    is_wide: bool,
    terminal: Terminal,
) -> String {
    if explanations.is_empty() {
        return "No EtcdClusters found.\n".to_owned();
    }
    let heading = ["NAMESPACE", "NAME", "HEALTH", "BLOCKER"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(explanations.iter().map(|explanation| {
        vec![
            explanation.namespace.clone(),
            explanation.name.clone(),
            explanation.health.state.word().to_owned(),
            terminal.commands_in(
                &explanation.namespace,
                explanation.blocker.as_deref().unwrap_or("none"),
            ),
        ]
    }));
    let lines = if is_wide {
        full_table(&rows)
    } else {
        terminal.table(&rows)
    };
    let mut lines = lines.into_iter();
    let heading = lines.next().unwrap_or_default();
    let mut text = format!("{}\n", terminal.bold(&heading));
    for (line, explanation) in lines.zip(explanations) {
        let severity = match explanation.health.state {
            HealthState::Ok => Severity::Neutral,
            state => state.severity(),
        };
        text.push_str(&format!("{}\n", terminal.paint(severity, &line)));
    }
    text
}
