//! `kubectl evenkeel why`: what is wanted, what is in the way, how one knows, what a person can do; and what was decided last,
//! with the facts that it rested on.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_etcd::names::member_name;
use evenkeel_etcd::view::{ClusterView, DataState, MemberView};
use evenkeel_runtime::{Decision, Observed};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::advice;
use crate::args::{Output, Which};
use crate::connection::Reached;
use crate::decision_log::log_of;
use crate::error::Trouble;
use crate::output::print;
use crate::report::Report;
use crate::terminal::{Screen, WIDTH, span, wrapped};

/// What `why` tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    goal: String,
    blocker: Option<String>,
    evidence: Vec<String>,
    you_can: Vec<String>,
    decisions: Vec<Told>,
}

/// A decision, with what was known then.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(flatten)]
    decision: Decision,
    /// The facts, a sentence for each member.
    on: Vec<String>,
    /// All of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<Value>,
}

/// How much of the log is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// How many decisions, the last ones.
    pub(crate) last: usize,
    /// Whether with all facts.
    pub(crate) facts: bool,
}

/// Tells why a cluster is as it is.
pub(crate) async fn run(
    reached: &Reached,
    which: &Which,
    extent: Extent,
    (output, screen): (Output, Screen),
) -> Result<u8, Trouble> {
    let now = Timestamp::now();
    let (cluster, report) = Report::asked(reached, which, now).await?;
    let (log, unread) = log_of(reached, &cluster).await;
    let decisions = log.as_ref().map(Decision::read).unwrap_or_default();
    let mut answer = answer(&cluster, &report, decisions, extent);
    answer.evidence.extend(unread);
    print(output, &answer, || text(&answer, now, screen))?;
    Ok(0)
}

fn answer(
    cluster: &EtcdCluster,
    report: &Report,
    decisions: Vec<Decision>,
    extent: Extent,
) -> Answer {
    let spec = &cluster.spec;
    let mut goal = format!(
        "{} of etcd {}",
        counted(spec.members, "member"),
        spec.version
    );
    if spec.paused {
        goal.push_str(", left alone while spec.paused is set");
    }
    let degraded = report.degraded.as_ref();
    let blocker = report
        .waiting_for
        .first()
        .cloned()
        .or_else(|| degraded.map(|one| one.message.clone()));
    let blocker = blocker.or_else(|| report.about_clients.first().cloned());
    let mut evidence: Vec<String> = report.notes.clone();
    if let Some(amiss) = degraded {
        evidence.push(format!(
            "Degraded for {}: {}: {}",
            span(amiss.seconds),
            amiss.reason,
            amiss.message
        ));
    }
    // What was said of it already is not said twice.
    let said = evidence.join(" ");
    let is_news = |message: &str| message.is_empty() || !said.contains(message);
    let down = report
        .members
        .iter()
        .filter(|member| !member.healthy && is_news(&member.message));
    evidence.extend(down.map(|member| {
        let why = if member.message.is_empty() {
            "it does not serve"
        } else {
            &member.message
        };
        format!("{} ({}): {why}", member.name, member.role)
    }));
    let unserved = report
        .about_clients
        .iter()
        .filter(|said| Some(*said) != blocker.as_ref());
    evidence.extend(unserved.cloned());
    if evidence.is_empty() {
        evidence.push(format!(
            "{} members serve, and nothing is amiss",
            report.ready
        ));
    }
    let skipped = decisions.len().saturating_sub(extent.last);
    let shown = decisions
        .into_iter()
        .skip(skipped)
        .map(|decision| told(decision, &report.name, extent.facts));
    Answer {
        goal,
        blocker,
        evidence,
        you_can: advised(report),
        decisions: shown.collect(),
    }
}

/// What a person can do, the most pressing first; nothing where nobody is needed.
fn advised(report: &Report) -> Vec<String> {
    let degraded = report.degraded.as_ref();
    let well = report.writable == Some(true) && degraded.is_none() && report.notes.is_empty();
    let mut advice = Vec::new();
    if report.alarm.as_deref() == Some("NOSPACE") {
        advice.push(format!(
            "make room: delete what nobody needs, then `kubectl evenkeel etcdctl {0}` with compact, defrag and alarm disarm",
            report.name
        ));
    }
    if report.unattended {
        advice.push(
            "bring an operator back: until then nothing is healed, and nothing here is news"
                .to_owned(),
        );
    }
    if report.paused {
        advice.push(format!(
            "end the pause, if it is over: `kubectl evenkeel resume {}`",
            report.name
        ));
    } else {
        advice.extend(degraded.and_then(|amiss| advice::about(&amiss.reason, &report.name)));
    }
    if advice.is_empty() && !well {
        advice.push(
            "see to what the evidence names; what Evenkeel can do about it, it does".to_owned(),
        );
    }
    advice
}

fn told(mut decision: Decision, cluster: &str, all: bool) -> Told {
    let text = decision.facts.take();
    let facts: Option<EtcdFacts> = text
        .as_ref()
        .and_then(|text| serde_json::from_str(text).ok());
    let on = facts
        .map(|facts| digest(&facts, cluster))
        .unwrap_or_default();
    let facts = text
        .filter(|_| all)
        .and_then(|text| serde_json::from_str(&text).ok());
    Told {
        decision,
        on,
        facts,
    }
}

/// What was known of each member, in a few words.
fn digest(facts: &EtcdFacts, cluster: &str) -> Vec<String> {
    let (Observed::Present(identity), Observed::Present(claims), Observed::Present(pods)) =
        (&facts.identity, &facts.claims, &facts.pods)
    else {
        return vec!["there was no identity, or it could not be read".to_owned()];
    };
    let view = ClusterView::new(facts, identity, claims, pods);
    let mut all = Vec::new();
    if !view.membership_known {
        all.push("etcd could not be asked who its members are".to_owned());
    }
    let told = |member: &MemberView<'_>| {
        format!(
            "{}: {}",
            member_name(cluster, identity.lineage, member.serial),
            known(member, view.membership_known)
        )
    };
    all.extend(view.members.values().map(told));
    all
}

fn known(member: &MemberView<'_>, registry: bool) -> String {
    let vote = match member.listed {
        Some(entry) if entry.is_learner => "a learner",
        Some(_) => "a voter",
        None if registry => "not in etcd's list",
        None => "perhaps a member",
    };
    let pod = match member.pod {
        None => "no pod",
        Some(pod) if pod.is_terminating => "a pod that goes",
        Some(pod) if pod.is_finished => "a pod that has ended",
        Some(pod) if pod.unschedulable_since.is_some() => "a pod that no node takes",
        Some(pod) if pod.crashing_since.is_some() => "a pod that crashes at every start",
        Some(pod) if pod.is_ready => "a pod that is Ready",
        Some(_) => "a pod that is not Ready",
    };
    let data = match member.data {
        DataState::Empty => "no data yet",
        DataState::Intact => "its own data",
        DataState::Lost => "its data gone",
    };
    let voice = match member.health {
        Some(voice) if voice.is_serving => "served",
        Some(_) => "answered, and did not serve",
        None => "did not answer",
    };
    format!("{vote}, {pod}, {data}, {voice}")
}

fn counted(count: i32, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

fn text(answer: &Answer, now: Timestamp, screen: Screen) -> String {
    let mut all = screen.labelled("Goal", &answer.goal);
    all.push_str(&screen.labelled(
        "Blocker",
        answer.blocker.as_deref().unwrap_or("nothing is in the way"),
    ));
    for evidence in &answer.evidence {
        all.push_str(&screen.labelled("Evidence", evidence));
    }
    for advice in &answer.you_can {
        all.push_str(&screen.labelled("You can", advice));
    }
    if answer.you_can.is_empty() {
        all.push_str(&screen.labelled("You can", "leave it alone: nothing needs you"));
    }
    if answer.decisions.is_empty() {
        all.push_str("\nNo decision is on record.\n");
        return all;
    }
    all.push_str(&format!(
        "\n{}\n",
        screen.bold("What was decided last, the newest at the end:")
    ));
    for told in &answer.decisions {
        all.push_str(&decided(told, now, screen));
    }
    all
}

fn decided(told: &Told, now: Timestamp, screen: Screen) -> String {
    let decision = &told.decision;
    let at = decision.at.parse::<Timestamp>();
    let ago = at
        .map(|at| format!(" ({} ago)", span(now.as_second() - at.as_second())))
        .unwrap_or_default();
    let mut all = format!(
        "\n{}\n",
        screen.bold(&format!("{}{ago}, by {}", decision.at, decision.by))
    );
    let mut say = |label: &str, text: &str| {
        let mut label = label;
        for line in wrapped(text, WIDTH - 14) {
            all.push_str(&format!("  {label:<11} {line}\n"));
            label = "";
        }
    };
    let explained = &decision.explained;
    if explained.actions.is_empty() {
        let quiet = explained.waits.is_empty();
        say(
            "decided",
            if quiet {
                "nothing was to be done"
            } else {
                "to wait"
            },
        );
    }
    explained
        .actions
        .iter()
        .for_each(|done| say("decided", done));
    explained.reasons.iter().for_each(|why| say("because", why));
    explained
        .waits
        .iter()
        .for_each(|wait| say("waited for", wait));
    told.on.iter().for_each(|fact| say("it saw", fact));
    if !decision.outcome.is_empty() {
        say("outcome", &decision.outcome);
    }
    if let Some(facts) = &told.facts {
        all.push_str(&format!("  facts       {facts}\n"));
    }
    all
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
