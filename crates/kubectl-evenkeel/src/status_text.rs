//! The status screen of one cluster: every fact once, in 80 columns, the most important first.

use evenkeel_etcd::availability::count;
use jiff::Timestamp;

use crate::member_table;
use crate::operation_text;
use crate::report::{
    ClusterReport, HealthState, MemberReport, ProblemReport, ReportSource, StorageReport,
    ToleranceReport, answering_voters,
};
use crate::terminal::{
    Severity, Terminal, WIDTH, format_bytes, format_duration, format_elapsed, format_time, truncate,
};

/// The column at which the version begins on the first line, if the name is short enough.
const VERSION_COLUMN: usize = 32;
/// The width of the text after a label.
const TEXT_WIDTH: usize = 67;
/// The number of problems that are shown.
const MAX_PROBLEMS: usize = 3;
/// The percentage of a database from which on reclaimable space is shown, and its size.
const MIN_RECLAIMABLE_PERCENT: u64 = 20;
const MIN_RECLAIMABLE_SIZE: u64 = 16 << 20;

/// Renders the state of one cluster.
pub(crate) fn text(report: &ClusterReport, is_wide: bool, terminal: Terminal) -> String {
    let mut text = cluster(report, terminal);
    text.push_str(&health(report, terminal));
    if let Some(tolerance) = tolerance(report) {
        text.push_str(&terminal.field("Tolerates", &tolerance));
    }
    text.push_str(&problems(report, terminal));
    text.push_str(&operation_text::text(report, terminal));
    text.push_str(&operator(report, is_wide, terminal));
    for note in &report.notes {
        text.push_str(&terminal.field("Note", note));
    }
    if !report.members.is_empty() {
        text.push('\n');
        text.push_str(&member_table::text(report, is_wide, terminal));
    }
    text.push('\n');
    text.push_str(&terminal.field("Storage", &storage(report)));
    text.push_str(&terminal.field("Certificates", &certificates(report)));
    text.push_str(&terminal.field("Disruptions", &disruptions(report)));
    text.push_str(&report.backup.text(report.now(), terminal));
    if let Some(restore) = &report.restore {
        text.push_str(&restore.text(report.now(), terminal));
    }
    let connection = &report.connection;
    text.push_str(&terminal.field(
        "Connect",
        &format!("{}, Secret {}", connection.url, connection.secret),
    ));
    text.push_str(&events(report, terminal));
    text
}

impl ClusterReport {
    /// Returns the time of the report.
    pub(crate) fn now(&self) -> Timestamp {
        self.time.parse().unwrap_or_default()
    }

    /// Formats a time of the report.
    pub(crate) fn format_time(&self, time: &str) -> String {
        match time.parse() {
            Ok(time) => format_time(time, self.now()),
            Err(_) => time.to_owned(),
        }
    }

    /// Returns the time between a time of the report and the report, in seconds.
    pub(crate) fn seconds_since(&self, time: &str) -> i64 {
        let time = time.parse::<Timestamp>().map(|time| time.as_second());
        self.now().as_second() - time.unwrap_or_else(|_| self.now().as_second())
    }

    /// Returns the version that runs, and the desired one while they differ.
    pub(crate) fn version_text(&self) -> String {
        let version = &self.version;
        if version.running.is_empty() || version.running == version.desired {
            version.desired.clone()
        } else {
            format!("{} → {}", version.running, version.desired)
        }
    }
}

fn cluster(report: &ClusterReport, terminal: Terminal) -> String {
    let name = format!("{}/{}", report.namespace, report.name);
    let mut version = format!("etcd {}", report.version_text());
    if !report.cluster_id.is_empty() {
        version.push_str(&format!(" (cluster ID {})", report.cluster_id));
    }
    let (left, right) = (name.chars().count(), version.chars().count());
    if left + 2 + right > TEXT_WIDTH {
        return terminal.field("Cluster", &format!("{name}, {version}"));
    }
    let column = VERSION_COLUMN.min(TEXT_WIDTH - right).max(left + 2);
    let label = terminal.bold(&format!("{:<13}", "Cluster"));
    format!("{label}{name:<column$}{version}\n")
}

fn health(report: &ClusterReport, terminal: Terminal) -> String {
    let health = &report.health;
    let since = health
        .since
        .as_ref()
        .map(|since| format_elapsed(report.seconds_since(since)));
    let text = match since {
        Some(since) => format!("for {since}: {}", health.message),
        None => health.message.clone(),
    };
    let state = health.state;
    terminal.field_with_word("Health", state.severity(), state.word(), &text)
}

/// Describes the tolerance; `None` if it is unknown.
fn tolerance(report: &ClusterReport) -> Option<String> {
    let Some(tolerance) = &report.failure_tolerance else {
        return without_quorum(report);
    };
    let source = match tolerance.source {
        ReportSource::Live => "",
        ReportSource::Operator => ", according to the operator",
    };
    let member_count = &report.member_count;
    if tolerance.members == 0 {
        let voters = member_count.voters;
        let reason = match (voters, member_count.serving) {
            (1, _) => "the cluster has only one member".to_owned(),
            (2, Some(2)) => "the quorum needs both members".to_owned(),
            (voters, Some(serving)) => format!(
                "{}, and the quorum needs {}",
                answering_voters(serving, voters),
                voters / 2 + 1
            ),
            (_, None) => return Some(format!("nothing{source}")),
        };
        return Some(format!("nothing: {reason}"));
    }
    Some(format!("{}{source}", tolerated(report, tolerance)))
}

fn tolerated(report: &ClusterReport, tolerance: &ToleranceReport) -> String {
    let failures = |number: usize, domain: &str| count(number, &format!("{domain} failure"));
    let mut parts = vec![failures(tolerance.members, "member")];
    parts.extend(tolerance.nodes.map(|nodes| failures(nodes, "node")));
    let zone_count = tolerance.zone_count.filter(|zones| *zones > 1);
    let zones = tolerance.zones.filter(|_| zone_count.is_some());
    parts.extend(zones.map(|zones| failures(zones, "zone")));
    let mut text = parts.join(", ");
    if let Some(nodes) = tolerance.node_count {
        let mut domains = vec![count(nodes, "node")];
        domains.extend(zone_count.map(|zones| count(zones, "zone")));
        let members = count(report.member_count.voters, "member");
        text.push_str(&format!(" ({members} on {})", domains.join(", ")));
    }
    let sharing = |is_in: &dyn Fn(&MemberReport) -> bool| {
        let members = report.members.iter().filter(|member| is_in(member));
        members.count()
    };
    let nodes = tolerance.critical_nodes.iter();
    text.extend(nodes.map(|node| critical("node", node, sharing(&|one| one.node == *node))));
    let zones = tolerance.critical_zones.iter();
    text.extend(zones.map(|zone| critical("zone", zone, sharing(&|one| one.zone == *zone))));
    text
}

/// Describes a node or zone whose loss alone loses the quorum.
fn critical(domain: &str, name: &str, members: usize) -> String {
    format!(". Losing {domain} {name} loses the quorum: {members} members share it")
}

/// Describes that nothing is tolerated without a quorum.
fn without_quorum(report: &ClusterReport) -> Option<String> {
    let serving = report.member_count.serving?;
    let voters = report.member_count.voters;
    let is_expected = matches!(
        report.health.state,
        HealthState::Creating | HealthState::Deleting
    );
    if is_expected || voters == 0 || serving > voters / 2 {
        return None;
    }
    Some(format!("nothing: the quorum of {} is lost", voters / 2 + 1))
}

fn problems(report: &ClusterReport, terminal: Terminal) -> String {
    let mut text = String::new();
    let shown = report.problems.iter().take(MAX_PROBLEMS);
    let mut last_advice = "";
    for problem in shown.clone() {
        text.push_str(&terminal.field("Problem", &problem_text(report, problem)));
        // Two members on a lost node have the same advice.
        if !problem.advice.is_empty() && problem.advice != last_advice {
            text.push_str(&terminal.field("You can", &problem.advice));
            last_advice = &problem.advice;
        }
    }
    if report.problems.is_empty() {
        return text;
    }
    if last_advice.is_empty() {
        text.push_str(&terminal.field("You can", &no_advice(report)));
    }
    let hidden = report.problems.len().saturating_sub(MAX_PROBLEMS);
    let more = match hidden {
        0 => format!("`kubectl evenkeel why {}`", report.name),
        hidden => format!(
            "{}: `kubectl evenkeel why {}`",
            count(hidden, "further problem"),
            report.name
        ),
    };
    text.push_str(&terminal.field("More", &more));
    text
}

fn problem_text(report: &ClusterReport, problem: &ProblemReport) -> String {
    let message = without_preemption(&problem.message);
    match (&problem.since, problem.duration_seconds) {
        (Some(since), Some(seconds)) if !names_time(&message) => format!(
            "{}. Since {} ({}).",
            message.trim_end_matches([' ', '.', ',']),
            report.format_time(since),
            format_elapsed(seconds)
        ),
        _ => message,
    }
}

/// Returns whether a message says itself since when the problem exists.
fn names_time(message: &str) -> bool {
    let mut rests = message.split(" since ").skip(1);
    rests.any(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Leaves out the second half of the scheduler's message, which repeats the first one for preemption.
fn without_preemption(message: &str) -> String {
    let Some((before, after)) = message.split_once(" preemption:") else {
        return message.to_owned();
    };
    let rest = after.split_once(". ").map_or("", |(_, rest)| rest.trim());
    // The scheduler's sentence may have sentences of its own: "0/3 nodes are available: 3 Preemption is not helpful."
    let rest = rest.strip_prefix("0/").map_or(rest, |_| "");
    format!("{before} {rest}").trim_end().to_owned()
}

/// Returns what follows if no action is required.
fn no_advice(report: &ClusterReport) -> String {
    if report.paused {
        return format!(
            "Resume the cluster, so that the operator recovers it: `kubectl evenkeel resume {}`.",
            report.name
        );
    }
    match operation_text::next_action(report) {
        Some(next) => format!("nothing: {next}"),
        None if report.operator.running == Some(false) => "nothing".to_owned(),
        None => "nothing: the operator recovers the cluster as soon as it can".to_owned(),
    }
}

fn operator(report: &ClusterReport, is_wide: bool, terminal: Terminal) -> String {
    let operator = &report.operator;
    let (severity, word, text) = match operator.running {
        Some(true) => {
            let age = operator.lease_age_seconds.unwrap_or_default();
            let place = if is_wide {
                format!("{}/{}", operator.namespace, operator.identity)
            } else {
                format!("namespace {}", operator.namespace)
            };
            let text = format!("{place}, renewed its Lease {} ago", format_duration(age));
            (Severity::Neutral, "running", text)
        }
        // The problem states the rest.
        Some(false) => (
            Severity::Warning,
            "NOT RUNNING",
            match operator.namespace.as_str() {
                "" => format!("for namespace {}", report.namespace),
                namespace => format!("in namespace {namespace}"),
            },
        ),
        None => (
            Severity::Neutral,
            "unknown",
            format!("({})", operator.message),
        ),
    };
    terminal.field_with_word("Operator", severity, word, &text)
}

fn storage(report: &ClusterReport) -> String {
    let storage = &report.storage;
    let mut parts = vec![database(storage)];
    if storage.ephemeral {
        parts.push("data in the pods (ephemeral)".to_owned());
    } else {
        let class = if storage.storage_class.is_empty() {
            "default StorageClass"
        } else {
            &storage.storage_class
        };
        let size = &storage.volume_size;
        parts.push(match storage.volume_count {
            None => format!("volumes of {size}, {class}"),
            Some(0) => "no volumes".to_owned(),
            Some(volumes) => format!("volumes {volumes} × {size} {class}"),
        });
    }
    parts.extend(retained_volumes(report));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn database(storage: &StorageReport) -> String {
    let Some(size) = storage.db_size_bytes else {
        let quota = storage.quota_bytes.map(format_bytes);
        return quota
            .map(|quota| format!("quota {quota}"))
            .unwrap_or_default();
    };
    let mut text = match storage.db_size_source {
        ReportSource::Live => format_bytes(size),
        ReportSource::Operator => format!("at most {} when last reported", format_bytes(size)),
    };
    if storage.db_size_source == ReportSource::Operator {
        let quota = storage.quota_bytes.map(format_bytes);
        text.push_str(
            &quota
                .map(|quota| format!(", quota {quota}"))
                .unwrap_or_default(),
        );
        return text;
    }
    if let (Some(quota), Some(percent)) = (storage.quota_bytes, storage.quota_percent()) {
        text.push_str(&format!(" of {} quota ({percent} %)", format_bytes(quota)));
    }
    let in_use = storage.db_in_use_bytes.unwrap_or(size);
    let reclaimable = size.saturating_sub(in_use).saturating_mul(100) / size.max(1);
    if size >= MIN_RECLAIMABLE_SIZE && reclaimable >= MIN_RECLAIMABLE_PERCENT {
        text.push_str(&format!(", {reclaimable} % reclaimable"));
    }
    text
}

fn retained_volumes(report: &ClusterReport) -> Option<String> {
    let volumes = &report.storage.retained_volumes;
    if volumes.is_empty() {
        return None;
    }
    let names: Vec<_> = volumes.iter().map(|volume| volume.claim.as_str()).collect();
    let first = volumes
        .iter()
        .filter_map(|volume| volume.delete_time.as_deref())
        .min();
    let deleted = first.map_or_else(
        || {
            let them = if volumes.len() == 1 { "it" } else { "them" };
            format!("kept until you delete {them}")
        },
        |time| format!("deleted from {}", report.format_time(time)),
    );
    Some(format!(
        "{} ({}), {deleted}",
        count(volumes.len(), "retained volume"),
        names.join(", ")
    ))
}

fn certificates(report: &ClusterReport) -> String {
    let leaves = || report.certificates.iter().filter(|one| !one.is_ca);
    let Some(next) = leaves().min_by_key(|one| one.remaining_seconds) else {
        return "none reported yet".to_owned();
    };
    let day = |time: &str| time.get(..10).unwrap_or(time).to_owned();
    let secret = &next.secret;
    let mut text = if next.remaining_seconds <= 0 {
        format!("{secret} EXPIRED on {}", day(&next.expires))
    } else if next.renewal_seconds() == 0 {
        format!(
            "{secret} expires in {}; its renewal is due",
            format_duration(next.remaining_seconds)
        )
    } else {
        format!(
            "valid; next renewal of {secret} in {}",
            format_duration(next.renewal_seconds())
        )
    };
    let cas = report.certificates.iter().filter(|one| one.is_ca);
    if let Some(ca) = cas.min_by_key(|one| one.remaining_seconds) {
        text.push_str(&format!("; CAs until {}", day(&ca.expires)));
    }
    text
}

fn disruptions(report: &ClusterReport) -> String {
    let evictions = match report.disruptions_allowed {
        Some(0) => "no eviction allowed now".to_owned(),
        Some(allowed) => {
            let allowed = usize::try_from(allowed).unwrap_or_default();
            format!("{} allowed now", count(allowed, "eviction"))
        }
        None if report.disruptions_error.is_empty() => "no PodDisruptionBudget".to_owned(),
        None => format!("evictions unknown ({})", report.disruptions_error),
    };
    let maintenance = &report.maintenance;
    let until = maintenance
        .until
        .as_deref()
        .map(|time| report.format_time(time));
    let maintenance = match (maintenance.open, until) {
        (None, _) => "spec.maintenance is invalid".to_owned(),
        (Some(true), None) => "any time".to_owned(),
        (Some(true), Some(until)) => format!("window open until {until}"),
        (Some(false), until) => format!("next window at {}", until.unwrap_or_default()),
    };
    format!("{evictions}; maintenance: {maintenance}")
}

fn events(report: &ClusterReport, terminal: Terminal) -> String {
    if !report.events_error.is_empty() {
        return terminal.field("Last events", &format!("unknown ({})", report.events_error));
    }
    if report.events.is_empty() {
        return terminal.field("Last events", "none");
    }
    let mut text = String::new();
    for (index, event) in report.events.iter().enumerate() {
        let label = if index == 0 { "Last events" } else { "" };
        let kind = if event.r#type == "Warning" {
            "Warning "
        } else {
            ""
        };
        let line = format!(
            "{} {kind}{}: {}",
            report.format_time(&event.time),
            event.reason,
            event.message
        );
        let line = truncate(&line, WIDTH - 13);
        text.push_str(&terminal.field(label, &line));
    }
    text
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "problem_tests.rs"]
mod problem_tests;

#[cfg(test)]
#[path = "layout_tests.rs"]
mod layout_tests;
