//! `kubectl evenkeel plan`: what an edit would do, one thing after another, by the same rules that would do it, before it is
//! applied. It says what it takes for granted, and how old what it knows is.

mod edit;
mod known;

use std::path::Path;
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::effective_spec::{ClusterHistory, effective_spec};
use evenkeel_etcd::observe::objects::{self, ClusterObjects};
use evenkeel_etcd::preview::{Preview, preview};
use evenkeel_runtime::{Decision, ResourceKey};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use crate::args::{Output, Which};
use crate::log::log_of;
use crate::output::print;
use crate::reach::{Reached, asked as asked_for};
use crate::screen::{Screen, WIDTH, span, wrapped};
use crate::trouble::{FAILED, Trouble};
use known::Known;

/// What `plan` tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    cluster: String,
    /// Whether there is such a cluster already.
    exists: bool,
    /// The fields that change.
    edits: Vec<String>,
    /// What the operator would not accept, and leave as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    steps: Vec<Step>,
    /// How it ends.
    ends: String,
    /// What is waited for in the end.
    waits_for: Vec<String>,
    assumes: Vec<String>,
    /// How many seconds ago etcd was asked, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_seconds_ago: Option<i64>,
}

/// One thing that would be done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    /// Not before so many seconds have passed.
    after: i64,
    does: String,
    because: String,
}

/// What to plan for, and how much to tell.
pub(crate) struct Asked<'a> {
    /// The file with the resource as it is to be; nothing for what will be done as things are.
    pub(crate) file: Option<&'a Path>,
    /// Whether what is only written down is told, too.
    pub(crate) all: bool,
}

/// Tells what would happen.
pub(crate) async fn run(
    reached: &Reached,
    which: &Which,
    asked: Asked<'_>,
    (output, screen): (Output, Screen),
) -> Result<u8, Trouble> {
    let after = match asked.file {
        Some(file) => edit::applied(reached, file, which.cluster.as_deref())?,
        None => reached.cluster(which.cluster.as_deref()).await?,
    };
    let namespace = after
        .namespace()
        .unwrap_or_else(|| reached.namespace.clone());
    let key = ResourceKey {
        namespace,
        name: after.name_any(),
    };
    let answer = in_time(reached, &key, &after, asked.all).await?;
    print(output, &answer, || text(&answer, screen))?;
    Ok(if answer.refused.is_some() { FAILED } else { 0 })
}

/// How often is looked whether what the operator knows is written down: it does that when it has acted, and told.
const LOOKS: u32 = 20;
/// How long after one another.
const SHORTLY: Duration = Duration::from_millis(500);

/// Plans as soon as what was written down is of now.
async fn in_time(
    reached: &Reached,
    key: &ResourceKey,
    after: &EtcdCluster,
    all: bool,
) -> Result<Answer, Trouble> {
    for _ in 0..LOOKS {
        let api = reached.api_in(&key.namespace);
        let before = asked_for("read the etcdcluster", api.get_opt(&key.name)).await?;
        let beside = objects::read_live_related(&reached.client, key)
            .await
            .map_err(unread)?;
        if let Some(answer) = planned(reached, before, beside(after.clone()), all).await? {
            return Ok(answer);
        }
        tokio::time::sleep(SHORTLY).await;
    }
    Err(
        Trouble::new("the operator is at work, and has not written down yet what it knows now")
            .help("ask again in a moment; `kubectl evenkeel status` shows what it does"),
    )
}

async fn planned(
    reached: &Reached,
    before: Option<EtcdCluster>,
    objects: ClusterObjects,
    all: bool,
) -> Result<Option<Answer>, Trouble> {
    let after = objects.resource.clone();
    let decisions = match &before {
        Some(cluster) => log_of(reached, cluster)
            .await
            .0
            .as_ref()
            .map(Decision::read)
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let known = Known::of(&decisions)?;
    if !known.is_of_now(&objects) {
        return Ok(None);
    }
    if before
        .as_ref()
        .is_some_and(|cluster| cluster.status.is_some())
        && known.facts.is_none()
    {
        return Err(Trouble::new("the operator has not written down what it knows of this cluster").help(
            "`kubectl evenkeel why` shows its log of decisions: it is written by every operator of this release, and may need the \
             right to read ConfigMaps",
        ));
    }
    let effective = effective_spec(&after, &ClusterHistory::of(&objects)).map_err(refusal)?;
    let now = Timestamp::now();
    let (found, facts) = known.applied_to(objects, effective, now)?;
    let refused = found.rejection.as_ref().map(ToString::to_string);
    let foreseen = preview(&found, facts, known.membership.clone());
    let edits = before
        .as_ref()
        .map(|before| edit::changes(before, &after))
        .unwrap_or_default();
    let asked = known.at.map(|at| now.as_second() - at.as_second());
    Ok(Some(answer(
        (&after, before.is_some()),
        (edits, refused),
        foreseen,
        asked,
        all,
    )))
}

fn answer(
    (cluster, exists): (&EtcdCluster, bool),
    (edits, refused): (Vec<String>, Option<String>),
    foreseen: Preview,
    asked_seconds_ago: Option<i64>,
    all: bool,
) -> Answer {
    let steps = foreseen
        .steps
        .into_iter()
        .filter(|step| all || !step.is_note);
    let steps = steps.map(|step| Step {
        after: step.after,
        does: step.does,
        because: step.because,
    });
    Answer {
        cluster: cluster.name_any(),
        exists,
        edits,
        refused,
        steps: steps.collect(),
        ends: foreseen.ends,
        waits_for: foreseen.waits_for,
        assumes: foreseen.assumes,
        asked_seconds_ago,
    }
}

fn unread(error: evenkeel_runtime::Error) -> Trouble {
    match error {
        evenkeel_runtime::Error::Kubernetes { doing, why } => Trouble::kubernetes(&doing, &why),
        other @ (evenkeel_runtime::Error::Other { .. }
        | evenkeel_runtime::Error::RetriesExhausted { .. }) => Trouble::new(other.to_string()),
    }
}

fn refusal(why: evenkeel_api::Refusal) -> Trouble {
    Trouble::new(format!("the operator would refuse it: {why}"))
        .help("nothing would be done until that is mended")
}

fn text(answer: &Answer, screen: Screen) -> String {
    let mut all = String::new();
    match (&answer.edits[..], answer.exists) {
        (_, false) => {
            all.push_str(&screen.labelled("Edit", &format!("{} is created", answer.cluster)))
        }
        ([], true) => all.push_str(&screen.labelled("Edit", "nothing is changed")),
        (edits, true) => edits
            .iter()
            .for_each(|edit| all.push_str(&screen.labelled("Edit", edit))),
    }
    if let Some(refused) = &answer.refused {
        let refused = format!("{refused}. It stays as it was");
        all.push_str(&screen.labelled("Refused", &refused));
    }
    if answer.steps.is_empty() {
        all.push_str(&screen.labelled("Plan", "nothing is to be done"));
    }
    let mut after = 0;
    for (number, step) in answer.steps.iter().enumerate() {
        if number == 0 {
            all.push_str(&format!("{}\n", screen.bold("Plan:")));
        }
        if step.after != after {
            after = step.after;
            all.push_str(&format!(
                "  {}\n",
                screen.bold(&format!("{} from now:", span(after)))
            ));
        }
        all.push_str(&numbered(number + 1, step));
    }
    all.push_str(&screen.labelled("Ends", &answer.ends));
    answer
        .waits_for
        .iter()
        .for_each(|wait| all.push_str(&screen.labelled("Waits for", wait)));
    answer
        .assumes
        .iter()
        .for_each(|said| all.push_str(&screen.labelled("Assumes", said)));
    let facts = answer.asked_seconds_ago.map_or_else(
        || "objects as they are now; nothing was noted of etcd".to_owned(),
        |ago| {
            format!(
                "objects as they are now; etcd as the operator noted it {} ago, and the status since",
                span(ago)
            )
        },
    );
    all.push_str(&screen.labelled("Facts", &facts));
    all
}

fn numbered(number: usize, step: &Step) -> String {
    let mut all = String::new();
    for (line, text) in wrapped(&step.does, WIDTH - 6).into_iter().enumerate() {
        let label = if line == 0 {
            format!("{number:>3}.")
        } else {
            String::new()
        };
        all.push_str(&format!("{label:<4}  {text}\n"));
    }
    if !step.because.is_empty() {
        for text in wrapped(&format!("because {}", step.because), WIDTH - 8) {
            all.push_str(&format!("        {text}\n"));
        }
    }
    all
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
