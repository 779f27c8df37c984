//! `kubectl evenkeel logs`: what all members log, merged by time.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use evenkeel_api::labels;
use evenkeel_etcd::build::pod::CONTAINER;
use futures::future::join_all;
use futures::stream::SelectAll;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::args::Which;
use crate::connection::{Reached, asked};
use crate::error::Trouble;
use crate::terminal::{Mood, Screen, clean};

/// How often it is looked for pods that were created again.
const AGAIN: Duration = Duration::from_secs(3);

/// Which lines.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// Those that are yet to come, too.
    pub(crate) follow: bool,
    /// So many of each member.
    pub(crate) tail: Option<i64>,
    /// Not older than so many seconds.
    pub(crate) since: Option<i64>,
    /// Of what ran before the last restart.
    pub(crate) previous: bool,
}

/// Prints them.
pub(crate) async fn run(
    reached: &Reached,
    which: &Which,
    lines: &Lines,
    screen: Screen,
) -> Result<u8, Trouble> {
    let cluster = reached.cluster(which.cluster.as_deref()).await?;
    let api: Api<Pod> = Api::namespaced(reached.client.clone(), &reached.namespace);
    let selected = ListParams::default().labels(&labels::selector(&cluster.name_any()));
    let pods = asked("list pods", api.list(&selected)).await?;
    let pods: Vec<String> = pods.items.iter().map(|pod| pod.name_any()).collect();
    if pods.is_empty() {
        return Err(Trouble::new(format!("{} has no pods", cluster.name_any()))
            .help("`kubectl evenkeel why` tells why"));
    }
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow: lines.follow,
        tail_lines: lines.tail,
        since_seconds: lines.since,
        previous: lines.previous,
        timestamps: true,
        ..LogParams::default()
    };
    if lines.follow {
        followed(&api, &selected, &params, screen).await
    } else {
        merged(&api, &pods, &params, screen).await
    }
}

/// All that there is, by time.
async fn merged(
    api: &Api<Pod>,
    pods: &[String],
    params: &LogParams,
    screen: Screen,
) -> Result<u8, Trouble> {
    let texts = join_all(
        pods.iter()
            .map(|pod| asked("read the log", api.logs(pod, params))),
    )
    .await;
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    for (pod, text) in pods.iter().zip(texts) {
        match text {
            Ok(text) => all.extend(text.lines().map(|line| {
                let (at, rest) = stamped(line);
                (at.to_owned(), pod.clone(), rest.to_owned())
            })),
            Err(trouble) => silent.push(of(pod, trouble)),
        }
    }
    // Those of one time stay in order.
    all.sort_by(|one, other| one.0.cmp(&other.0));
    for (_, pod, line) in &all {
        if !say(pod, line, screen) {
            return Ok(0);
        }
    }
    if silent.len() == pods.len() {
        return silent.pop().map_or(Ok(0), Err);
    }
    silent.iter().for_each(|trouble| eprintln!("{trouble}"));
    Ok(0)
}

/// As they are written, until somebody has seen enough. A pod that is created again is followed again.
async fn followed(
    api: &Api<Pod>,
    selected: &ListParams,
    params: &LogParams,
    screen: Screen,
) -> Result<u8, Trouble> {
    let mut streams = SelectAll::new();
    let (mut followed, mut first) = (BTreeSet::new(), true);
    let mut params = params.clone();
    loop {
        let pods = asked("list pods", api.list(selected))
            .await
            .map(|list| list.items)
            .unwrap_or_default();
        let new = pods
            .iter()
            .filter(|pod| !followed.contains(&pod.uid()))
            .map(|pod| (pod.uid(), pod.name_any()));
        let new: Vec<_> = new.collect();
        let opened = join_all(
            new.iter()
                .map(|(_, pod)| asked("read the log", api.log_stream(pod, &params))),
        )
        .await;
        for ((uid, pod), stream) in new.into_iter().zip(opened) {
            match stream {
                Ok(stream) => {
                    followed.insert(uid);
                    streams.push(
                        stream
                            .lines()
                            .map_ok(move |line| (pod.clone(), line))
                            .boxed_local(),
                    );
                }
                // One that is just starting has none yet: it is tried again.
                Err(trouble) if first && streams.is_empty() && pods.len() == 1 => {
                    return Err(of(&pod, trouble));
                }
                Err(trouble) if first => eprintln!("{}", of(&pod, trouble)),
                Err(_) => {}
            }
        }
        if first && followed.is_empty() {
            return Err(Trouble::new("no member's log can be read"));
        }
        first = false;
        // Of those who come later, all that they say.
        (params.tail_lines, params.since_seconds) = (None, None);
        let until = Instant::now() + AGAIN;
        while let Ok(line) = timeout_at(until, streams.next()).await {
            match line {
                Some(Ok((pod, line))) => {
                    if !say(&pod, stamped(&line).1, screen) {
                        return Ok(0);
                    }
                }
                Some(Err(why)) => eprintln!("a log has ended: {why}"),
                None => sleep_until(until).await,
            }
        }
    }
}

fn of(pod: &str, trouble: Trouble) -> Trouble {
    Trouble {
        what: format!("{pod}: {}", trouble.what),
        ..trouble
    }
}

/// The time and the rest of a line.
fn stamped(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

/// Prints a line; says whether anybody reads on.
fn say(pod: &str, line: &str, screen: Screen) -> bool {
    let name = screen.paint(Mood::Good, &format!("[{pod}]"));
    writeln!(std::io::stdout(), "{name} {}", clean(line)).is_ok()
}
