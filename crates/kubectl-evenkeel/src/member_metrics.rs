//! Queries a member for its state at this moment: `/health`, which makes etcd answer a linearizable read and names alarms,
//! and `/metrics`. The requests go through the API server's proxy, with the permissions of the user.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_etcd::availability::Alarm;
use evenkeel_etcd::build::service::METRICS_PORT;
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

/// How long a member has to answer. Only members that are down take long.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(4);

/// The answer of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveAnswer {
    /// Whether the member serves.
    pub(crate) health: LiveHealth,
    /// The alarms that it reports.
    pub(crate) alarms: BTreeSet<Alarm>,
    /// Its metrics; all `None` if it did not return them.
    pub(crate) metrics: MemberMetrics,
    /// Why it does not serve or could not be queried. Empty if it serves.
    pub(crate) error: String,
}

/// Whether a member serves at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveHealth {
    /// It answered a linearizable read.
    Ok,
    /// It answers, but not a linearizable read: it reaches no quorum.
    NoQuorum,
    /// It does not answer.
    NoAnswer,
    /// The user may not query it, or the Kubernetes API did not respond.
    Unknown,
}

/// The metrics of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberMetrics {
    /// The size of the database, in bytes.
    pub(crate) db_size_bytes: Option<u64>,
    /// The part of the database that is in use, in bytes.
    pub(crate) db_in_use_bytes: Option<u64>,
    /// The quota of the database, in bytes.
    pub(crate) quota_bytes: Option<u64>,
    /// The index of the last applied log entry.
    pub(crate) applied: Option<u64>,
    /// The index of the last committed log entry that the member knows.
    pub(crate) committed: Option<u64>,
    /// The revision of the data.
    pub(crate) revision: Option<u64>,
    /// 1 if the member is the leader.
    pub(crate) is_leader: Option<u64>,
    /// 1 if the member is a learner.
    pub(crate) is_learner: Option<u64>,
    /// The version of etcd.
    pub(crate) version: Option<String>,
}

/// The response to the request for a page of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PageResponse {
    /// The member responded with this body.
    Body(String),
    /// The user may not use the proxy of the pod.
    Forbidden,
    /// The member did not respond, for this reason.
    Failed(String),
}

/// Queries a member. An alarm hides the result of the read, so the read is then repeated without that alarm.
pub(crate) async fn query(client: &Client, namespace: &str, pod: &str) -> LiveAnswer {
    let page = |page: String| {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/{page}");
        get(client, path)
    };
    let (metrics, mut health) =
        futures::join!(page("metrics".to_owned()), page("health".to_owned()));
    let mut alarms = BTreeSet::new();
    while let Some(alarm) = alarm_of(&health)
        && alarms.insert(alarm)
    {
        let excluded: Vec<_> = alarms.iter().map(|one| format!("exclude={one}")).collect();
        health = page(format!("health?{}", excluded.join("&"))).await;
    }
    LiveAnswer::new(&metrics, &health, alarms)
}

async fn get(client: &Client, path: String) -> PageResponse {
    let request = match Request::get(path).body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return PageResponse::Failed(error.to_string()),
    };
    // `send` returns the response of an unhealthy member, too, whose code is 503.
    let response = async {
        let response = client.send(request).await?;
        let status = response.status();
        let body = response.into_body().collect_bytes().await?;
        Ok::<_, kube::Error>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    match tokio::time::timeout(QUERY_TIMEOUT, response).await {
        Ok(Ok((status, body))) => page_response(status, body),
        Ok(Err(error)) => PageResponse::Failed(error.to_string()),
        Err(_) => PageResponse::Failed(format!("no response within {QUERY_TIMEOUT:?}")),
    }
}

fn page_response(status: StatusCode, body: String) -> PageResponse {
    if status.is_success() || parse_health(&body).is_some() {
        return PageResponse::Body(body);
    }
    if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED {
        return PageResponse::Forbidden;
    }
    // The API server wraps the error of the connection.
    let error: Option<kube::core::Status> = serde_json::from_str(&body).ok();
    let is_api_error = error.is_some();
    let message = error.map_or(body, |error| error.message);
    let message = message.trim();
    let message = message
        .strip_prefix("error trying to reach service: ")
        .unwrap_or(message);
    PageResponse::Failed(match message {
        "" => status.to_string(),
        // The proxy has no address to connect to.
        "address not allowed" => "its pod has no address".to_owned(),
        _ if status == StatusCode::NOT_FOUND && is_api_error => "its pod does not exist".to_owned(),
        message => message.to_owned(),
    })
}

impl LiveAnswer {
    /// The answer of a member that could not be queried.
    pub(crate) fn unknown(error: impl Into<String>) -> Self {
        Self {
            health: LiveHealth::Unknown,
            alarms: BTreeSet::new(),
            metrics: MemberMetrics::default(),
            error: error.into(),
        }
    }

    fn new(metrics: &PageResponse, health: &PageResponse, alarms: BTreeSet<Alarm>) -> Self {
        let (live, error) = match (health, metrics) {
            (PageResponse::Forbidden, _) | (_, PageResponse::Forbidden) => {
                (LiveHealth::Unknown, String::new())
            }
            (PageResponse::Body(body), _) => match parse_health(body) {
                Some(health) if health.health == "true" => (LiveHealth::Ok, String::new()),
                Some(health) => (LiveHealth::NoQuorum, health.reason),
                None => (
                    LiveHealth::NoQuorum,
                    "its health response cannot be parsed".to_owned(),
                ),
            },
            (PageResponse::Failed(error), PageResponse::Body(_)) => {
                (LiveHealth::NoQuorum, error.clone())
            }
            (PageResponse::Failed(error), PageResponse::Failed(_)) => {
                (LiveHealth::NoAnswer, error.clone())
            }
        };
        Self {
            health: live,
            alarms,
            metrics: match metrics {
                PageResponse::Body(text) => MemberMetrics::parse(text),
                PageResponse::Forbidden | PageResponse::Failed(_) => MemberMetrics::default(),
            },
            error,
        }
    }
}

/// The body of `/health`.
#[derive(Debug, Deserialize)]
struct HealthBody {
    health: String,
    #[serde(default)]
    reason: String,
}

fn parse_health(body: &str) -> Option<HealthBody> {
    serde_json::from_str(body).ok()
}

/// Returns the alarm in a response of `/health`, such as `ALARM NOSPACE`.
fn alarm_of(response: &PageResponse) -> Option<Alarm> {
    let PageResponse::Body(body) = response else {
        return None;
    };
    let reason = parse_health(body)?.reason;
    reason.strip_prefix("ALARM ")?.trim().parse().ok()
}

impl MemberMetrics {
    /// Parses the metrics in the Prometheus text format.
    fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else {
                continue;
            };
            if let Some(label) = name.strip_prefix("etcd_server_version{server_version=\"") {
                metrics.version = label.strip_suffix("\"}").map(str::to_owned);
                continue;
            }
            let field = match name {
                "etcd_mvcc_db_total_size_in_bytes" => &mut metrics.db_size_bytes,
                "etcd_mvcc_db_total_size_in_use_in_bytes" => &mut metrics.db_in_use_bytes,
                "etcd_server_quota_backend_bytes" => &mut metrics.quota_bytes,
                "etcd_server_proposals_applied_total" => &mut metrics.applied,
                "etcd_server_proposals_committed_total" => &mut metrics.committed,
                // Since etcd 3.5; the name says that it may be renamed (seen on 3.5.35, 3.6.16 and 3.7.3).
                "etcd_debugging_mvcc_current_revision" => &mut metrics.revision,
                "etcd_server_is_leader" => &mut metrics.is_leader,
                "etcd_server_is_learner" => &mut metrics.is_learner,
                _ => continue,
            };
            *field = parse_count(value);
        }
        metrics
    }
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

    /// A part of what etcd 3.6.16 returns.
    const METRICS: &str = "# HELP etcd_mvcc_db_total_size_in_bytes Total size\n\
        etcd_mvcc_db_total_size_in_bytes 1.716224e+07\netcd_mvcc_db_total_size_in_use_in_bytes 1.3869056e+07\n\
        etcd_debugging_mvcc_current_revision 1.000004711e+09\n\
        etcd_server_apply_duration_seconds_count{op=\"PUT\",success=\"true\",version=\"v2\"} 2\n\
        etcd_server_has_leader 1\netcd_server_is_leader 1\netcd_server_is_learner 0\n\
        etcd_server_proposals_applied_total 41\netcd_server_proposals_committed_total 42\n\
        etcd_server_quota_backend_bytes 1.6777216e+07\netcd_server_version{server_version=\"3.6.16\"} 1\n";

    fn body(text: &str) -> PageResponse {
        PageResponse::Body(text.to_owned())
    }

    fn health(metrics: &PageResponse, health: &PageResponse) -> LiveHealth {
        LiveAnswer::new(metrics, health, BTreeSet::new()).health
    }

    #[test]
    fn metrics_are_parsed_from_etcds_format() {
        let expected = MemberMetrics {
            db_size_bytes: Some(17_162_240),
            db_in_use_bytes: Some(13_869_056),
            quota_bytes: Some(16_777_216),
            applied: Some(41),
            committed: Some(42),
            revision: Some(1_000_004_711),
            is_leader: Some(1),
            is_learner: Some(0),
            version: Some("3.6.16".to_owned()),
        };
        assert_eq!(MemberMetrics::parse(METRICS), expected);
    }

    #[test]
    fn a_member_that_answers_without_a_linearizable_read_has_no_quorum() {
        let healthy = body(r#"{"health":"true","reason":""}"#);
        let no_leader = body(r#"{"health":"false","reason":"RAFT NO LEADER"}"#);
        let timeout = PageResponse::Failed("no response within 4s".to_owned());
        let metrics = body(METRICS);
        assert_eq!(health(&metrics, &healthy), LiveHealth::Ok);
        assert_eq!(health(&timeout, &healthy), LiveHealth::Ok);
        assert_eq!(health(&metrics, &no_leader), LiveHealth::NoQuorum);
        assert_eq!(health(&metrics, &timeout), LiveHealth::NoQuorum);
        assert_eq!(health(&timeout, &timeout), LiveHealth::NoAnswer);
        let forbidden = PageResponse::Forbidden;
        assert_eq!(health(&forbidden, &forbidden), LiveHealth::Unknown);
    }

    #[test]
    fn a_response_of_the_member_differs_from_an_error_of_the_api_server() {
        let unhealthy = r#"{"health":"false","reason":"ALARM NOSPACE"}"#;
        let from_member = page_response(StatusCode::SERVICE_UNAVAILABLE, unhealthy.to_owned());
        assert_eq!(from_member, body(unhealthy));
        assert_eq!(alarm_of(&from_member), Some(Alarm::NoSpace));
        assert_eq!(
            alarm_of(&body(r#"{"health":"false","reason":"RAFT NO LEADER"}"#)),
            None
        );
        let refused = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"error trying to reach service: dial tcp 10.0.0.5:2381: connect: connection refused","reason":"ServiceUnavailable","code":503}"#;
        assert_eq!(
            page_response(StatusCode::SERVICE_UNAVAILABLE, refused.to_owned()),
            PageResponse::Failed("dial tcp 10.0.0.5:2381: connect: connection refused".to_owned())
        );
        let failure = |code: u16, message: &str| {
            let status = StatusCode::from_u16(code).unwrap();
            let body = serde_json::json!({ "kind": "Status", "message": message, "code": code });
            page_response(status, body.to_string())
        };
        assert_eq!(
            failure(404, "pods \"orders-gv2z5\" not found"),
            PageResponse::Failed("its pod does not exist".to_owned())
        );
        assert_eq!(
            failure(400, "address not allowed"),
            PageResponse::Failed("its pod has no address".to_owned())
        );
        assert_eq!(
            page_response(StatusCode::FORBIDDEN, String::new()),
            PageResponse::Forbidden
        );
    }
}
