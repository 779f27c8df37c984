//! What only the members themselves can tell: how large their data is, and how far behind they are. Asked through the API
//! server, as far as the user may.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::build::service::METRICS_PORT;
use futures::future::join_all;
use http::Request;
use kube::{Client, ResourceExt};

/// What a member tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// How large its data is, in bytes.
    pub(crate) size: Option<u64>,
    /// Up to which entry of the log it has applied.
    pub(crate) applied: Option<u64>,
    /// Up to which entry it knows that the cluster has agreed.
    pub(crate) committed: Option<u64>,
    /// Whether it leads: 1 if it does.
    pub(crate) leads: Option<u64>,
    /// Whether it knows who leads: 1 if it does.
    pub(crate) follows: Option<u64>,
}

/// What the members tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    members: BTreeMap<String, Metrics>,
    /// Whether they were asked, and could be.
    asked: bool,
    /// An alarm that etcd has raised: it refuses writes.
    pub(crate) alarm: Option<String>,
    /// Why they could not be asked, if nobody could.
    pub(crate) trouble: Option<String>,
}

impl Live {
    /// Asks all members at once.
    pub(crate) async fn of(client: &Client, cluster: &EtcdCluster) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let members = cluster
            .status
            .as_ref()
            .map(|status| status.member_list.as_slice())
            .unwrap_or_default();
        let asked = members
            .iter()
            .map(|member| ask(client, &namespace, &member.name));
        let answers = join_all(asked).await;
        let mut live = Self {
            asked: !members.is_empty(),
            ..Self::default()
        };
        for (member, answer) in members.iter().zip(answers) {
            match answer {
                Ok((metrics, alarm)) => {
                    live.members.insert(member.name.clone(), metrics);
                    live.alarm = live.alarm.or(alarm);
                }
                Err(NoAnswer::Forbidden) => {
                    live.asked = false;
                    let what =
                        "lag, size and alarms need the right to get pods/proxy in this namespace";
                    live.trouble = Some(what.to_owned());
                }
                Err(NoAnswer::Silent) => {}
            }
        }
        live
    }

    /// Which of these members answer and know who leads; nothing if they could not be asked.
    pub(crate) fn alive<'n>(&self, members: impl Iterator<Item = &'n str>) -> Option<usize> {
        let alive = |name: &&str| {
            self.members
                .get(*name)
                .is_some_and(|metrics| metrics.follows == Some(1))
        };
        self.asked.then(|| members.filter(alive).count())
    }

    /// What a member tells.
    pub(crate) fn size(&self, member: &str) -> Option<u64> {
        self.members.get(member)?.size
    }

    /// Who leads, if that is known by its own word: the status may be some seconds old.
    pub(crate) fn leader(&self) -> Option<&str> {
        let leads = |metrics: &Metrics| metrics.leads == Some(1);
        self.members
            .iter()
            .find(|(_, metrics)| leads(metrics))
            .map(|(name, _)| name.as_str())
    }

    /// By how many entries a member is behind whoever knows most.
    pub(crate) fn lag(&self, member: &str) -> Option<u64> {
        let newest = self
            .members
            .values()
            .filter_map(|metrics| metrics.committed)
            .max()?;
        Some(newest.saturating_sub(self.members.get(member)?.applied?))
    }
}

/// Why a member tells nothing.
enum NoAnswer {
    /// The user may not ask.
    Forbidden,
    /// It does not answer, or nobody reaches it.
    Silent,
}

/// Nobody waits longer than this for a member: it is the ones that are down that take long.
const LIMIT: Duration = Duration::from_secs(4);

async fn ask(
    client: &Client,
    namespace: &str,
    pod: &str,
) -> Result<(Metrics, Option<String>), NoAnswer> {
    let page = |page: &str| {
        get(
            client,
            format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/{page}"),
        )
    };
    let both = async { futures::join!(page("metrics"), page("health")) };
    let (metrics, health) = tokio::time::timeout(LIMIT, both)
        .await
        .map_err(|_| NoAnswer::Silent)?;
    Ok((
        read(&metrics?),
        health.ok().and_then(|health| alarm(&health)),
    ))
}

async fn get(client: &Client, path: String) -> Result<String, NoAnswer> {
    let request = Request::get(path)
        .body(Vec::new())
        .map_err(|_| NoAnswer::Silent)?;
    match client.request_text(request).await {
        Ok(text) => Ok(text),
        // Whoever is not well says so with an error, and why in its answer, which is then taken for Kubernetes' own.
        Err(kube::Error::Api(status))
            if format!("{} {}", status.reason, status.message).contains("ALARM") =>
        {
            Ok(format!("{} {}", status.reason, status.message))
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Err(NoAnswer::Forbidden),
        Err(_) => Err(NoAnswer::Silent),
    }
}

/// The alarm that a member's own judgement of its health names, such as NOSPACE.
fn alarm(health: &str) -> Option<String> {
    let (_, named) = health.split_once("ALARM ")?;
    let name: String = named
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Reads metrics as Prometheus writes them.
fn read(text: &str) -> Metrics {
    let mut metrics = Metrics::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else {
            continue;
        };
        let place = match name {
            "etcd_mvcc_db_total_size_in_bytes" => &mut metrics.size,
            "etcd_server_proposals_applied_total" => &mut metrics.applied,
            "etcd_server_proposals_committed_total" => &mut metrics.committed,
            "etcd_server_is_leader" => &mut metrics.leads,
            "etcd_server_has_leader" => &mut metrics.follows,
            _ => continue,
        };
        *place = number(value);
    }
    metrics
}

/// A count that may be written as 1.234e+06.
fn number(text: &str) -> Option<u64> {
    let value: f64 = text.trim().parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts, all far below 2^53"
    )]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_as_etcd_writes_them() {
        let text = "# HELP etcd_mvcc_db_total_size_in_bytes Total size\netcd_mvcc_db_total_size_in_bytes 2.0971520e+07\n\
            etcd_server_proposals_applied_total 41\netcd_server_proposals_committed_total 42\nother{a=\"b c\"} 1\n\
            etcd_server_is_leader 1\n";
        let read = read(text);
        let known = Metrics {
            size: Some(20_971_520),
            applied: Some(41),
            committed: Some(42),
            leads: Some(1),
            follows: None,
        };
        assert_eq!(read, known);
    }

    #[test]
    fn an_alarm_is_found_in_what_a_member_says_of_its_health() {
        let full = r#"{"health":"false","reason":"ALARM NOSPACE"}"#;
        assert_eq!(alarm(full).as_deref(), Some("NOSPACE"));
        assert_eq!(alarm(r#"{"health":"true","reason":""}"#), None);
    }

    #[test]
    fn lag_is_counted_from_whoever_knows_most() {
        let metrics = |applied, committed| Metrics {
            applied: Some(applied),
            committed: Some(committed),
            ..Metrics::default()
        };
        let members = [("a", metrics(100, 100)), ("b", metrics(90, 95))];
        let members = members
            .map(|(name, metrics)| (name.to_owned(), metrics))
            .into();
        let live = Live {
            members,
            ..Live::default()
        };
        assert_eq!(
            (live.lag("a"), live.lag("b"), live.lag("c")),
            (Some(0), Some(10), None)
        );
    }
}
