//! `kubectl evenkeel logs`: what all members log, merged by time.

use evenkeel_api::labels;
use futures::future::join_all;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};

use crate::args::Which;
use crate::reach::Reached;
use crate::screen::{Mood, Screen};
use crate::trouble::Trouble;

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
    let pods = api.list(&selected).await.map_err(|error| Trouble::kubernetes("list pods", &error))?;
    let pods: Vec<String> = pods.items.iter().map(|pod| pod.name_any()).collect();
    if pods.is_empty() {
        return Err(Trouble::new(format!("{} has no pods", cluster.name_any()))
            .help("`kubectl evenkeel why` tells why"));
    }
    let params = LogParams {
        container: Some("etcd".to_owned()),
        follow: lines.follow,
        tail_lines: lines.tail,
        since_seconds: lines.since,
        previous: lines.previous,
        timestamps: true,
        ..LogParams::default()
    };
    if lines.follow {
        followed(&api, &pods, &params, screen).await
    } else {
        merged(&api, &pods, &params, screen).await
    }
}

/// All that there is, by time.
async fn merged(api: &Api<Pod>, pods: &[String], params: &LogParams, screen: Screen) -> Result<u8, Trouble> {
    let texts = join_all(pods.iter().map(|pod| api.logs(pod, params))).await;
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    for (pod, text) in pods.iter().zip(texts) {
        match text {
            Ok(text) => all.extend(
                text.lines()
                    .map(|line| (stamped(line).0.to_owned(), pod.clone(), stamped(line).1.to_owned())),
            ),
            Err(error) => silent.push((pod, error)),
        }
    }
    // Those of one time stay in order.
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all.iter().for_each(|(_, pod, line)| say(pod, line, screen));
    if let (true, Some((pod, error))) = (silent.len() == pods.len(), silent.first()) {
        return Err(Trouble::kubernetes(&format!("read the log of {pod}"), error));
    }
    for (pod, error) in silent {
        eprintln!("{}", Trouble::kubernetes(&format!("read the log of {pod}"), &error));
    }
    Ok(0)
}

/// As they are written, until somebody has seen enough.
async fn followed(
    api: &Api<Pod>,
    pods: &[String],
    params: &LogParams,
    screen: Screen,
) -> Result<u8, Trouble> {
    let mut streams = Vec::new();
    for pod in pods {
        match api.log_stream(pod, params).await {
            Ok(stream) => {
                let pod = pod.clone();
                streams.push(stream.lines().map_ok(move |line| (pod.clone(), line)).boxed_local());
            }
            Err(error) => eprintln!("{}", Trouble::kubernetes(&format!("read the log of {pod}"), &error)),
        }
    }
    let mut lines = futures::stream::select_all(streams);
    while let Some(line) = lines.next().await {
        match line {
            Ok((pod, line)) => say(&pod, stamped(&line).1, screen),
            Err(why) => return Err(Trouble::new(format!("the log has ended early: {why}"))),
        }
    }
    Ok(0)
}

/// The time and the rest of a line.
fn stamped(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn say(pod: &str, line: &str, screen: Screen) {
    println!("{} {line}", screen.paint(Mood::Good, &format!("[{pod}]")));
}
