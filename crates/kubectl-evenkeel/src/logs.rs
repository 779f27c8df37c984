//! `kubectl evenkeel logs`: prints the logs of one member, or of all members, merged by time.

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

use crate::args::Target;
use crate::connection::{Connection, request};
use crate::error::CliError;
use crate::terminal::{Severity, Terminal, clean};

/// The interval at which pods are listed while logs are followed, to find new ones.
const POD_LIST_INTERVAL: Duration = Duration::from_secs(3);

/// Which lines are printed.
#[derive(Clone, Debug)]
pub(crate) struct LogOptions<'a> {
    /// The name of the member. `None` for all members.
    pub(crate) member: Option<&'a str>,
    /// Continue with new lines.
    pub(crate) follow: bool,
    /// The number of lines of each member, from the end.
    pub(crate) tail: Option<i64>,
    /// The maximum age of a line, in seconds.
    pub(crate) since_seconds: Option<i64>,
    /// Print the log of the previous container.
    pub(crate) previous: bool,
}

/// Prints the logs.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: &LogOptions<'_>,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(target.cluster.as_deref()).await?;
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let name = cluster.name_any();
    let mut of_cluster = ListParams::default().labels(&labels::selector(&name));
    let pods = request("list pods", api.list(&of_cluster)).await?;
    let pods: Vec<String> = pods.items.iter().map(|pod| pod.name_any()).collect();
    let pods = select(pods, options.member, &name)?;
    if let Some(member) = options.member {
        of_cluster = of_cluster.fields(&format!("metadata.name={member}"));
    }
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow: options.follow,
        tail_lines: options.tail,
        since_seconds: options.since_seconds,
        previous: options.previous,
        timestamps: true,
        ..LogParams::default()
    };
    if options.follow {
        follow(&api, &of_cluster, params, terminal).await
    } else {
        print_merged(&api, &pods, &params, terminal).await
    }
}

/// Returns the pods whose logs are printed.
fn select(pods: Vec<String>, member: Option<&str>, cluster: &str) -> Result<Vec<String>, CliError> {
    if pods.is_empty() {
        return Err(CliError::new(format!("EtcdCluster {cluster} has no pods"))
            .help(format!("`kubectl evenkeel why {cluster}` shows the reason")));
    }
    match member {
        None => Ok(pods),
        Some(member) if pods.iter().any(|pod| pod == member) => Ok(vec![member.to_owned()]),
        Some(member) => Err(CliError::new(format!(
            "EtcdCluster {cluster} has no pod of a member {member}"
        ))
        .help(format!("members with a pod: {}", pods.join(", ")))),
    }
}

/// The part of the API server's error for a container that was not restarted.
const NO_PREVIOUS: &str = "previous terminated container";

/// The errors of members whose logs cannot be read.
#[derive(Debug, Default)]
struct LogErrors {
    /// The members whose container has no previous log.
    without_previous: Vec<String>,
    others: Vec<CliError>,
}

impl LogErrors {
    fn add(&mut self, pod: &str, error: CliError) {
        if error.message.contains(NO_PREVIOUS) {
            self.without_previous.push(pod.to_owned());
        } else {
            self.others.push(error.about(pod));
        }
    }

    fn len(&self) -> usize {
        self.without_previous.len() + self.others.len()
    }

    /// Returns the lines about logs that were not printed.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<_> = self.others.iter().map(ToString::to_string).collect();
        if !self.without_previous.is_empty() {
            notes.push(format!(
                "note: no previous container, and so no log of it: {}",
                self.without_previous.join(", ")
            ));
        }
        notes
    }

    /// Returns the error if no log was printed.
    fn into_error(mut self) -> Option<CliError> {
        let error = self.others.pop();
        error.or_else(|| {
            let pods = self.without_previous.join(", ");
            (!pods.is_empty()).then(|| {
                CliError::new(format!(
                    "there is no log of a previous container: the container was not restarted in {pods}"
                ))
                .help("without --previous, the log of the current container is printed")
            })
        })
    }
}

/// Prints the existing lines, sorted by time.
async fn print_merged(
    api: &Api<Pod>,
    pods: &[String],
    params: &LogParams,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let logs = join_all(
        pods.iter()
            .map(|pod| request("read the log", api.logs(pod, params))),
    )
    .await;
    let mut lines = Vec::new();
    let mut errors = LogErrors::default();
    for (pod, log) in pods.iter().zip(logs) {
        match log {
            Ok(log) => lines.extend(log.lines().map(|line| {
                let (timestamp, text) = split_timestamp(line);
                (timestamp.to_owned(), pod, text.to_owned())
            })),
            Err(error) => errors.add(pod, error),
        }
    }
    // The sort is stable, so lines with the same timestamp keep their order.
    lines.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    for (_, pod, text) in &lines {
        if !print_line(pod, text, terminal) {
            return Ok(0);
        }
    }
    if errors.len() == pods.len() {
        return errors.into_error().map_or(Ok(0), Err);
    }
    errors.notes().iter().for_each(|note| eprintln!("{note}"));
    Ok(0)
}

/// Prints lines as they are written, until the reader closes the output. Pods that are created meanwhile are followed
/// as well.
async fn follow(
    api: &Api<Pod>,
    of_cluster: &ListParams,
    mut params: LogParams,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let mut streams = SelectAll::new();
    let mut followed = BTreeSet::new();
    let mut is_first_round = true;
    loop {
        let pods = request("list pods", api.list(of_cluster))
            .await
            .map(|list| list.items)
            .unwrap_or_default();
        let new_pods: Vec<_> = pods
            .iter()
            .filter(|pod| !followed.contains(&pod.uid()))
            .map(|pod| (pod.uid(), pod.name_any()))
            .collect();
        let opened = join_all(
            new_pods
                .iter()
                .map(|(_, pod)| request("read the log", api.log_stream(pod, &params))),
        )
        .await;
        for ((uid, pod), stream) in new_pods.into_iter().zip(opened) {
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
                Err(error) if is_first_round && streams.is_empty() && pods.len() == 1 => {
                    return Err(error.about(&pod));
                }
                Err(error) if is_first_round => eprintln!("{}", error.about(&pod)),
                // A container that is starting has no log yet. The next round tries again.
                Err(_) => {}
            }
        }
        if is_first_round && followed.is_empty() {
            return Err(CliError::new("cannot read the log of any member"));
        }
        is_first_round = false;
        // The logs of new pods are printed from their beginning.
        params.tail_lines = None;
        params.since_seconds = None;
        let next_list = Instant::now() + POD_LIST_INTERVAL;
        while let Ok(line) = timeout_at(next_list, streams.next()).await {
            match line {
                Some(Ok((pod, line))) => {
                    if !print_line(&pod, split_timestamp(&line).1, terminal) {
                        return Ok(0);
                    }
                }
                Some(Err(error)) => eprintln!("a log stream ended: {error}"),
                None => sleep_until(next_list).await,
            }
        }
    }
}

/// Splits a line into its timestamp and its text.
fn split_timestamp(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

/// Prints a line. Returns whether the output is still open.
fn print_line(pod: &str, text: &str, terminal: Terminal) -> bool {
    let name = terminal.paint(Severity::Good, &format!("[{pod}]"));
    writeln!(std::io::stdout(), "{name} {}", clean(text)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_without_a_previous_container_are_skipped_with_a_note() {
        let missing = |pod: &str| {
            CliError::new(format!(
                "cannot read the log: previous terminated container \"etcd\" in pod \"{pod}\" not found"
            ))
        };
        let mut errors = LogErrors::default();
        errors.add("orders-a", missing("orders-a"));
        errors.add("orders-b", missing("orders-b"));
        errors.add(
            "orders-c",
            CliError::new("cannot read the log: no route to host"),
        );
        assert_eq!(
            errors.notes(),
            [
                "error: orders-c: cannot read the log: no route to host",
                "note: no previous container, and so no log of it: orders-a, orders-b"
            ]
        );
        let mut errors = LogErrors::default();
        errors.add("orders-a", missing("orders-a"));
        let error = errors.into_error().unwrap();
        assert!(
            error.message.contains("was not restarted in orders-a"),
            "{error}"
        );
    }

    #[test]
    fn one_member_can_be_selected() {
        let pods = || vec!["orders-a".to_owned(), "orders-b".to_owned()];
        assert_eq!(select(pods(), None, "orders"), Ok(pods()));
        assert_eq!(
            select(pods(), Some("orders-b"), "orders"),
            Ok(vec!["orders-b".to_owned()])
        );
        let error = select(pods(), Some("orders-x"), "orders").unwrap_err();
        assert_eq!(
            error.help.as_deref(),
            Some("members with a pod: orders-a, orders-b")
        );
    }
}
