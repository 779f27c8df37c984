//! `kubectl evenkeel status`: one screen that tells how a cluster is.

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::args::{Output, Which};
use crate::connection::Reached;
use crate::error::Trouble;
use crate::member_metrics::Live;
use crate::operator_status::Overseer;
use crate::output::print;
use crate::report::{MemberReport, Report};
use crate::terminal::{Mood, Screen, bytes, cut};

/// Tells how one cluster is, or all of them.
pub(crate) async fn run(
    reached: &Reached,
    which: &Which,
    everywhere: bool,
    (output, screen): (Output, Screen),
) -> Result<u8, Trouble> {
    let now = Timestamp::now();
    if everywhere {
        return all(reached, now, (output, screen)).await;
    }
    let (_, report) = Report::asked(reached, which, now).await?;
    print(output, &report, || text(&report, screen))?;
    Ok(report.code())
}

async fn all(
    reached: &Reached,
    now: Timestamp,
    (output, screen): (Output, Screen),
) -> Result<u8, Trouble> {
    let mut clusters = reached.clusters(true).await?;
    let overseer = &Overseer::of(&reached.client, None, now).await;
    clusters.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
    let lives = join_all(
        clusters
            .iter()
            .map(|cluster| Live::of(&reached.client, cluster)),
    )
    .await;
    let told = clusters
        .iter()
        .zip(&lives)
        .map(|(cluster, live)| Report::of(cluster, live, overseer, now));
    let reports: Vec<_> = told.collect();
    print(output, &reports, || list(&reports, overseer, screen))?;
    Ok(reports.iter().map(Report::code).max().unwrap_or_default())
}

/// One screen.
pub(crate) fn text(report: &Report, screen: Screen) -> String {
    let headline = format!("{}: {}", report.name, report.verdict());
    let mut all = format!("{}\n", screen.paint(report.mood(), &headline));
    let ready = if report.ready.is_empty() {
        "no"
    } else {
        &report.ready
    };
    let about = format!(
        "etcd {}, {ready} members serve, namespace {}",
        report.version, report.namespace
    );
    all.push_str(&format!("{about}\n"));
    if !report.phrase.is_empty() {
        all.push_str(&format!(
            "{}\n",
            cut(&report.phrase, crate::terminal::WIDTH)
        ));
    }
    for note in &report.notes {
        all.push_str(&screen.labelled("Note", note));
    }
    if !report.members.is_empty() {
        all.push('\n');
        all.push_str(&members(report, screen));
    }
    all.push('\n');
    all.push_str(&screen.labelled(
        "Doing",
        if report.doing.is_empty() {
            "nothing"
        } else {
            &report.doing
        },
    ));
    all.push_str(&screen.labelled("Because", &because(report)));
    for wait in &report.waiting_for {
        all.push_str(&screen.labelled("Waits", wait));
    }
    if !report.next.is_empty() {
        all.push_str(&screen.labelled("Next", &report.next));
    }
    all.push_str(&screen.labelled("Certs", &report.certs()));
    all
}

fn because(report: &Report) -> String {
    match &report.degraded {
        _ if !report.because.is_empty() => report.because.clone(),
        Some(amiss) => amiss.message.clone(),
        None if report.writable != Some(true) && !report.about_clients.is_empty() => {
            report.about_clients.join("; ")
        }
        None if report.doing.is_empty()
            && report.waiting_for.is_empty()
            && report.writable == Some(true) =>
        {
            "everything is as the spec says".to_owned()
        }
        None => "nothing is amiss".to_owned(),
    }
}

fn members(report: &Report, screen: Screen) -> String {
    let heading = ["MEMBER", "ROLE", "HEALTH", "LAG", "SIZE", "VERSION", "NODE"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    let short = report
        .members
        .iter()
        .any(|one| one.name.chars().count() > 24);
    rows.extend(
        report
            .members
            .iter()
            .map(|member| row(member, &report.name, short)),
    );
    let mut lines = screen.table(&rows).into_iter();
    let mut all = format!("{}\n", screen.bold(&lines.next().unwrap_or_default()));
    for (line, member) in lines.zip(&report.members) {
        let mood = if member.healthy {
            Mood::Plain
        } else {
            Mood::Warning
        };
        all.push_str(&format!("{}\n", screen.paint(mood, &line)));
    }
    // What is said below anyway is not said twice.
    let below = format!("{} {}", because(report), report.waiting_for.join(" "));
    let is_news =
        |member: &&MemberReport| !member.message.is_empty() && !below.contains(&member.message);
    for member in report.members.iter().filter(is_news) {
        for line in crate::terminal::wrapped(
            &format!("{}: {}", member.name, member.message),
            crate::terminal::WIDTH - 2,
        ) {
            all.push_str(&format!("  {line}\n"));
        }
    }
    all
}

fn row(member: &MemberReport, cluster: &str, short: bool) -> Vec<String> {
    let unknown = || "-".to_owned();
    let shown = |text: &str| {
        if text.is_empty() {
            unknown()
        } else {
            text.to_owned()
        }
    };
    // Names of members begin with their cluster's, which is above already.
    let name = match member.name.strip_prefix(cluster) {
        Some(rest) if short => format!("…{rest}"),
        _ => member.name.clone(),
    };
    vec![
        name,
        member.role.clone(),
        if member.healthy { "serves" } else { "down" }.to_owned(),
        member.lag.map_or_else(unknown, |lag| lag.to_string()),
        member.size.map_or_else(unknown, bytes),
        shown(&member.version),
        shown(&member.node),
    ]
}

fn list(reports: &[Report], overseer: &Overseer, screen: Screen) -> String {
    if reports.is_empty() {
        return "No etcdclusters found.\n".to_owned();
    }
    let heading = [
        "NAMESPACE",
        "NAME",
        "VERSION",
        "MEMBERS",
        "WRITABLE",
        "SURVIVES",
        "STATUS",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for report in reports {
        let writable = report
            .writable
            .map_or("unknown", |writable| if writable { "yes" } else { "NO" });
        rows.push(vec![
            report.namespace.clone(),
            report.name.clone(),
            report.version.clone(),
            report.ready.clone(),
            writable.to_owned(),
            report
                .survives
                .map_or_else(|| "-".to_owned(), |more| more.to_string()),
            report.phrase.clone(),
        ]);
    }
    let mut lines = screen.table(&rows).into_iter();
    let mut all = String::new();
    if let Some(trouble) = overseer.trouble() {
        all.push_str(&screen.labelled("Note", &trouble));
    }
    all.push_str(&format!(
        "{}\n",
        screen.bold(&lines.next().unwrap_or_default())
    ));
    for (line, report) in lines.zip(reports) {
        let mood = if report.code() == 0 {
            Mood::Plain
        } else {
            report.mood()
        };
        all.push_str(&format!("{}\n", screen.paint(mood, &line)));
    }
    all
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
