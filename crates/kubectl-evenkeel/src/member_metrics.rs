//! Queries the members for data that the status does not contain: database size, Raft lag, leader and alarms. The requests go
//! through the API server's proxy, with the permissions of the user.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::build::service::METRICS_PORT;
use futures::future::join_all;
use http::Request;
use kube::{Client, ResourceExt};

/// The metrics of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberMetrics {
    /// The size of the database, in bytes.
    pub(crate) db_size_bytes: Option<u64>,
    /// The index of the last applied log entry.
    pub(crate) applied: Option<u64>,
    /// The index of the last committed log entry that the member knows.
    pub(crate) committed: Option<u64>,
    /// 1 if the member is the leader.
    pub(crate) is_leader: Option<u64>,
    /// 1 if the member knows a leader.
    pub(crate) has_leader: Option<u64>,
}

/// The metrics of all members that respond.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterMetrics {
    members: BTreeMap<String, MemberMetrics>,
    /// Whether the members were queried, with sufficient permissions.
    was_queried: bool,
    /// The alarm that etcd has raised, such as NOSPACE. etcd then rejects writes.
    pub(crate) alarm: Option<String>,
    /// A note for the user if permissions are missing.
    pub(crate) note: Option<String>,
}

impl ClusterMetrics {
    /// Queries all members concurrently.
    pub(crate) async fn query(client: &Client, cluster: &EtcdCluster) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let members = cluster
            .status
            .as_ref()
            .map(|status| status.member_list.as_slice())
            .unwrap_or_default();
        let queries = members
            .iter()
            .map(|member| query_member(client, &namespace, &member.name));
        let results = join_all(queries).await;
        let mut metrics = Self {
            was_queried: !members.is_empty(),
            ..Self::default()
        };
        for (member, result) in members.iter().zip(results) {
            match result {
                Ok(response) => {
                    metrics
                        .members
                        .insert(member.name.clone(), response.metrics);
                    metrics.alarm = metrics.alarm.or(response.alarm);
                }
                Err(QueryError::Forbidden) => {
                    metrics.was_queried = false;
                    metrics.note = Some(
                        "Raft lag, database size and alarms are unknown: they require permission to get pods/proxy in this namespace"
                            .to_owned(),
                    );
                }
                Err(QueryError::Unreachable) => {}
            }
        }
        metrics
    }

    /// Returns how many of these members respond and know a leader, or `None` if they could not be queried.
    pub(crate) fn count_alive<'n>(&self, members: impl Iterator<Item = &'n str>) -> Option<usize> {
        let is_alive = |name: &&str| {
            self.members
                .get(*name)
                .is_some_and(|metrics| metrics.has_leader == Some(1))
        };
        self.was_queried.then(|| members.filter(is_alive).count())
    }

    /// Returns the size of a member's database, in bytes.
    pub(crate) fn db_size_bytes(&self, member: &str) -> Option<u64> {
        self.members.get(member)?.db_size_bytes
    }

    /// Returns the member that reports itself as the leader. The leader in the status may be some seconds old.
    pub(crate) fn leader(&self) -> Option<&str> {
        self.members
            .iter()
            .find(|(_, metrics)| metrics.is_leader == Some(1))
            .map(|(name, _)| name.as_str())
    }

    /// Returns the number of log entries that a member has not applied yet.
    pub(crate) fn raft_lag(&self, member: &str) -> Option<u64> {
        let newest = self
            .members
            .values()
            .filter_map(|metrics| metrics.committed)
            .max()?;
        Some(newest.saturating_sub(self.members.get(member)?.applied?))
    }
}

/// The response of a member.
struct MemberResponse {
    metrics: MemberMetrics,
    alarm: Option<String>,
}

/// Why the query of a member failed.
enum QueryError {
    /// The user may not use the proxy of the pod.
    Forbidden,
    /// The member does not respond.
    Unreachable,
}

/// How long the query of a member may take. Only members that are down take long.
const QUERY_TIMEOUT: Duration = Duration::from_secs(4);

async fn query_member(
    client: &Client,
    namespace: &str,
    pod: &str,
) -> Result<MemberResponse, QueryError> {
    let page = |page: &str| {
        get(
            client,
            format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/{page}"),
        )
    };
    let both = async { futures::join!(page("metrics"), page("health")) };
    let (metrics, health) = tokio::time::timeout(QUERY_TIMEOUT, both)
        .await
        .map_err(|_| QueryError::Unreachable)?;
    Ok(MemberResponse {
        metrics: parse_metrics(&metrics?),
        alarm: health.ok().and_then(|health| parse_alarm(&health)),
    })
}

async fn get(client: &Client, path: String) -> Result<String, QueryError> {
    let request = Request::get(path)
        .body(Vec::new())
        .map_err(|_| QueryError::Unreachable)?;
    match client.request_text(request).await {
        Ok(text) => Ok(text),
        // An unhealthy member responds with an HTTP error and the reason in the body, which the client takes for a
        // Status of the API server.
        Err(kube::Error::Api(status))
            if format!("{} {}", status.reason, status.message).contains("ALARM") =>
        {
            Ok(format!("{} {}", status.reason, status.message))
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Err(QueryError::Forbidden),
        Err(_) => Err(QueryError::Unreachable),
    }
}

/// Returns the alarm in a response of `/health`, such as NOSPACE.
fn parse_alarm(health: &str) -> Option<String> {
    let (_, rest) = health.split_once("ALARM ")?;
    let name: String = rest
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Parses the metrics in the Prometheus text format.
fn parse_metrics(text: &str) -> MemberMetrics {
    let mut metrics = MemberMetrics::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else {
            continue;
        };
        let field = match name {
            "etcd_mvcc_db_total_size_in_bytes" => &mut metrics.db_size_bytes,
            "etcd_server_proposals_applied_total" => &mut metrics.applied,
            "etcd_server_proposals_committed_total" => &mut metrics.committed,
            "etcd_server_is_leader" => &mut metrics.is_leader,
            "etcd_server_has_leader" => &mut metrics.has_leader,
            _ => continue,
        };
        *field = parse_count(value);
    }
    metrics
}

/// Parses a count, which may be written as 1.234e+06.
fn parse_count(text: &str) -> Option<u64> {
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
    fn metrics_are_parsed_from_etcds_format() {
        let text = "# HELP etcd_mvcc_db_total_size_in_bytes Total size\netcd_mvcc_db_total_size_in_bytes 2.0971520e+07\n\
            etcd_server_proposals_applied_total 41\netcd_server_proposals_committed_total 42\nother{a=\"b c\"} 1\n\
            etcd_server_is_leader 1\n";
        let expected = MemberMetrics {
            db_size_bytes: Some(20_971_520),
            applied: Some(41),
            committed: Some(42),
            is_leader: Some(1),
            has_leader: None,
        };
        assert_eq!(parse_metrics(text), expected);
    }

    #[test]
    fn an_alarm_is_parsed_from_the_health_response() {
        let full = r#"{"health":"false","reason":"ALARM NOSPACE"}"#;
        assert_eq!(parse_alarm(full).as_deref(), Some("NOSPACE"));
        assert_eq!(parse_alarm(r#"{"health":"true","reason":""}"#), None);
    }

    #[test]
    fn lag_is_relative_to_the_highest_committed_index() {
        let metrics = |applied, committed| MemberMetrics {
            applied: Some(applied),
            committed: Some(committed),
            ..MemberMetrics::default()
        };
        let members = [("a", metrics(100, 100)), ("b", metrics(90, 95))];
        let members = members
            .map(|(name, metrics)| (name.to_owned(), metrics))
            .into();
        let cluster = ClusterMetrics {
            members,
            ..ClusterMetrics::default()
        };
        assert_eq!(
            (
                cluster.raft_lag("a"),
                cluster.raft_lag("b"),
                cluster.raft_lag("c")
            ),
            (Some(0), Some(10), None)
        );
    }
}
