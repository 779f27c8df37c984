//! The table of members on the status screen. In 80 columns it leaves out the columns that say least.

use std::collections::BTreeSet;

use crate::report::{ClusterReport, MemberReport};
use crate::terminal::{Terminal, format_bytes, format_duration, full_table};

/// The longest member name that is printed in full. Of longer names, the cluster's name is left out.
const MAX_NAME_LENGTH: usize = 24;
/// The space between two columns.
const COLUMN_GAP: usize = 2;

/// A column of the table.
struct Column {
    kind: ColumnKind,
    cells: Vec<String>,
}

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Member,
    Role,
    Health,
    Pod,
    Age,
    Restarts,
    Lag,
    DbSize,
    Version,
    Node,
    Zone,
    PodIp,
    Id,
    Index,
    Image,
}

const COLUMNS: [ColumnKind; 10] = [
    ColumnKind::Member,
    ColumnKind::Role,
    ColumnKind::Health,
    ColumnKind::Pod,
    ColumnKind::Age,
    ColumnKind::Restarts,
    ColumnKind::Lag,
    ColumnKind::DbSize,
    ColumnKind::Version,
    ColumnKind::Node,
];

/// The columns that `-o wide` adds.
const WIDE_COLUMNS: [ColumnKind; 5] = [
    ColumnKind::Zone,
    ColumnKind::PodIp,
    ColumnKind::Id,
    ColumnKind::Index,
    ColumnKind::Image,
];

/// The columns that may be left out, in this order.
const OPTIONAL_COLUMNS: [ColumnKind; 6] = [
    ColumnKind::Version,
    ColumnKind::Restarts,
    ColumnKind::Lag,
    ColumnKind::Age,
    ColumnKind::Pod,
    ColumnKind::DbSize,
];

impl ColumnKind {
    fn title(self) -> &'static str {
        match self {
            Self::Member => "MEMBER",
            Self::Role => "ROLE",
            Self::Health => "HEALTH",
            Self::Pod => "POD",
            Self::Age => "AGE",
            Self::Restarts => "RESTARTS",
            Self::Lag => "LAG",
            Self::DbSize => "DB SIZE",
            Self::Version => "VERSION",
            Self::Node => "NODE",
            Self::Zone => "ZONE",
            Self::PodIp => "POD IP",
            Self::Id => "ID",
            Self::Index => "RAFT INDEX",
            Self::Image => "IMAGE",
        }
    }

    fn cell(self, member: &MemberReport) -> String {
        match self {
            Self::Member => member.name.clone(),
            Self::Role => member.role.clone(),
            Self::Health => member.health.words().to_owned(),
            Self::Pod => member.pod.clone(),
            Self::Age => or_dash(member.pod_age_seconds.map(format_duration)),
            Self::Restarts => or_dash(member.restarts.map(|count| count.to_string())),
            Self::Lag => or_dash(member.raft_lag.map(|lag| lag.to_string())),
            Self::DbSize => or_dash(member.db_size_bytes.map(format_bytes)),
            Self::Version => text_or_dash(&member.version),
            Self::Node => node(member),
            Self::Zone => text_or_dash(&member.zone),
            Self::PodIp => text_or_dash(&member.pod_ip),
            Self::Id => text_or_dash(&member.id),
            Self::Index => or_dash(member.raft_index.map(|index| index.to_string())),
            Self::Image => text_or_dash(&member.image),
        }
    }

    /// Returns whether a column says something that the rest of the screen does not.
    fn is_interesting(self, report: &ClusterReport) -> bool {
        let mut members = report.members.iter();
        match self {
            Self::Version => {
                members.any(|one| !one.version.is_empty() && one.version != report.version.running)
            }
            Self::Restarts => members.any(|one| one.restarts.unwrap_or_default() > 0),
            Self::Lag => members.any(|one| one.raft_lag.unwrap_or_default() > 0),
            Self::Pod => members.any(|one| one.pod != "Running"),
            Self::Age | Self::DbSize => false,
            Self::Member
            | Self::Role
            | Self::Health
            | Self::Node
            | Self::Zone
            | Self::PodIp
            | Self::Id
            | Self::Index
            | Self::Image => true,
        }
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn text_or_dash(text: &str) -> String {
    or_dash((!text.is_empty()).then(|| text.to_owned()))
}

fn node(member: &MemberReport) -> String {
    let node = text_or_dash(&member.node);
    match member.node_problem.as_deref() {
        None => node,
        Some("Cordoned") => format!("{node} (cordoned)"),
        Some("Missing") => format!("{node} (deleted)"),
        Some(problem) => format!("{node} ({problem})"),
    }
}

/// Renders the table of members.
pub(crate) fn text(report: &ClusterReport, is_wide: bool, terminal: Terminal) -> String {
    let kinds = COLUMNS
        .into_iter()
        .chain(WIDE_COLUMNS.into_iter().filter(|_| is_wide));
    let mut columns: Vec<_> = kinds
        .map(|kind| Column {
            kind,
            cells: report
                .members
                .iter()
                .map(|member| kind.cell(member))
                .collect(),
        })
        .collect();
    if !is_wide {
        fit(&mut columns, report, terminal.table_width());
    }
    let heading = columns.iter().map(|column| column.kind.title().to_owned());
    let mut rows = vec![heading.collect::<Vec<_>>()];
    for index in 0..report.members.len() {
        let cells = columns
            .iter()
            .filter_map(|column| column.cells.get(index).cloned());
        rows.push(cells.collect());
    }
    let lines = if is_wide {
        full_table(&rows)
    } else {
        terminal.table(&rows)
    };
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let line = if index == 0 {
            terminal.bold(line)
        } else {
            line.clone()
        };
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// Abbreviates names and leaves out columns until the table fits.
fn fit(columns: &mut Vec<Column>, report: &ClusterReport, limit: usize) {
    let names = report
        .members
        .iter()
        .map(|member| member.name.chars().count());
    if names.max().is_some_and(|length| length > MAX_NAME_LENGTH) {
        let members = columns
            .iter_mut()
            .filter(|column| column.kind == ColumnKind::Member);
        members.for_each(|column| abbreviate(&mut column.cells, &report.name));
    }
    let boring = OPTIONAL_COLUMNS
        .into_iter()
        .filter(|kind| !kind.is_interesting(report));
    let interesting = OPTIONAL_COLUMNS
        .into_iter()
        .filter(|kind| kind.is_interesting(report) && *kind != ColumnKind::Pod);
    for (index, kind) in boring.chain(interesting).enumerate() {
        if index == 1 && width(columns) > limit {
            shorten_nodes(columns);
        }
        if width(columns) > limit {
            columns.retain(|column| column.kind != kind);
        }
    }
}

fn abbreviate(names: &mut [String], cluster: &str) {
    for name in names {
        if let Some(rest) = name.strip_prefix(cluster) {
            *name = format!("…{rest}");
        }
    }
}

/// Leaves out the domains of nodes, if the first labels are unique.
fn shorten_nodes(columns: &mut [Column]) {
    let Some(nodes) = columns
        .iter_mut()
        .find(|column| column.kind == ColumnKind::Node)
    else {
        return;
    };
    let short = |cell: &String| {
        let (name, problem) = cell.split_once(' ').unwrap_or((cell, ""));
        let label = name.split('.').next().unwrap_or(name);
        format!("{label} {problem}").trim_end().to_owned()
    };
    let shortened: Vec<_> = nodes.cells.iter().map(short).collect();
    let all: BTreeSet<_> = nodes.cells.iter().collect();
    if shortened.iter().collect::<BTreeSet<_>>().len() == all.len() {
        nodes.cells = shortened;
    }
}

fn width(columns: &[Column]) -> usize {
    let column_width = |column: &Column| {
        let cells = column.cells.iter().map(|cell| cell.chars().count());
        let widest = cells.max().unwrap_or_default();
        widest.max(column.kind.title().len())
    };
    let content: usize = columns.iter().map(column_width).sum();
    content + COLUMN_GAP * columns.len().saturating_sub(1)
}
