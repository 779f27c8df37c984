//! The report about a cluster, from its resource, the metrics of its members and the operator's Lease. `status` and
//! `why` print it as text, JSON or YAML.

use evenkeel_api::{EtcdCluster, EtcdClusterStatus, MemberRole};
use evenkeel_etcd::view::quorum;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use crate::args::Target;
use crate::connection::Connection;
use crate::error::{CliError, EXIT_DEGRADED, EXIT_NOT_WRITABLE};
use crate::member_metrics::ClusterMetrics;
use crate::operator_status::OperatorStatus;
use crate::terminal::{Severity, format_duration};

/// How long before its expiry a certificate is mentioned. The operator renews certificates much earlier.
const EXPIRY_WARNING_SECONDS: i64 = 14 * 86_400;
/// How long a new resource may have no status before the report mentions it.
const MAX_SECONDS_WITHOUT_STATUS: i64 = 10;

/// The report about a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether clients can write. `None` if unknown.
    pub(crate) writable: Option<bool>,
    /// The number of further member failures that the cluster tolerates. `None` if unknown.
    pub(crate) failure_tolerance: Option<usize>,
    /// The number of serving members and the desired number, such as 3/3.
    pub(crate) ready: String,
    pub(crate) summary: String,
    pub(crate) members: Vec<MemberReport>,
    pub(crate) current_action: String,
    pub(crate) action_reason: String,
    pub(crate) waiting_for: Vec<String>,
    pub(crate) next_action: String,
    pub(crate) certificates: Vec<CertificateReport>,
    /// The condition Degraded, if it is true.
    pub(crate) degraded: Option<DegradedReport>,
    /// The messages of the conditions while clients are not served.
    pub(crate) unserved_messages: Vec<String>,
    /// The alarm that etcd has raised. etcd then rejects writes.
    pub(crate) alarm: Option<String>,
    pub(crate) paused: bool,
    /// Whether it is known that no operator manages the cluster.
    pub(crate) is_unmanaged: bool,
    /// Further notes for the user.
    pub(crate) notes: Vec<String>,
}

/// The condition Degraded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DegradedReport {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// How long the condition has been true, in seconds.
    pub(crate) seconds: i64,
}

/// The report about a member.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberReport {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) healthy: bool,
    /// The number of log entries that the member has not applied yet.
    pub(crate) lag: Option<u64>,
    /// The size of the database, in bytes.
    pub(crate) db_bytes: Option<u64>,
    pub(crate) version: String,
    pub(crate) node: String,
    pub(crate) message: String,
}

/// The expiry of a certificate.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateReport {
    pub(crate) secret: String,
    pub(crate) expires: String,
    /// The time until the expiry, in seconds.
    pub(crate) seconds_left: i64,
}

impl Report {
    /// Reads the cluster, and queries the operator's Lease and the members.
    pub(crate) async fn query(
        connection: &Connection,
        target: &Target,
        now: Timestamp,
    ) -> Result<(EtcdCluster, Self), CliError> {
        let cluster = connection.cluster(target.cluster.as_deref()).await?;
        let namespace = cluster.namespace();
        let operator = OperatorStatus::query(&connection.client, namespace.as_deref(), now).await;
        let metrics = ClusterMetrics::query(&connection.client, &cluster).await;
        let report = Self::new(&cluster, &metrics, &operator, now);
        Ok((cluster, report))
    }

    /// Creates the report.
    pub(crate) fn new(
        cluster: &EtcdCluster,
        metrics: &ClusterMetrics,
        operator: &OperatorStatus,
        now: Timestamp,
    ) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let leader = metrics.leader().unwrap_or(&status.leader);
        let members = status.member_list.iter().map(|member| MemberReport {
            name: member.name.clone(),
            role: role_name(member.role, leader == member.name).to_owned(),
            healthy: member.healthy,
            lag: metrics.lag(&member.name),
            db_bytes: metrics.db_bytes(&member.name),
            version: member.version.clone(),
            node: member.node.clone(),
            message: member.message.clone(),
        });
        let certificates = status
            .certificates
            .iter()
            .map(|certificate| CertificateReport {
                secret: certificate.secret.clone(),
                expires: certificate.expires.0.to_string(),
                seconds_left: certificate.expires.0.as_second() - now.as_second(),
            });
        let availability = Availability::new(&status, metrics, operator);
        let degraded = condition(&status, "Degraded")
            .filter(|condition| condition.status == "True")
            .map(|condition| DegradedReport {
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                seconds: now.as_second() - condition.last_transition_time.0.as_second(),
            });
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            version: cluster.spec.version.clone(),
            writable: availability.writable,
            failure_tolerance: availability.failure_tolerance,
            ready: status.ready.clone(),
            summary: status.summary.clone(),
            members: members.collect(),
            current_action: status.current_action.clone(),
            action_reason: status.action_reason.clone(),
            waiting_for: status.waiting_for.clone(),
            next_action: status.next_action.clone(),
            certificates: certificates.collect(),
            degraded,
            unserved_messages: unserved_messages(&status),
            alarm: metrics.alarm.clone(),
            paused: cluster.spec.paused,
            is_unmanaged: operator.is_not_running() || cluster.status.is_none(),
            notes: notes(cluster, &status, metrics, operator, now),
        }
    }

    /// Returns the severity of the state.
    pub(crate) fn severity(&self) -> Severity {
        match self.exit_code() {
            0 => Severity::Good,
            EXIT_DEGRADED => Severity::Warning,
            _ => Severity::Critical,
        }
    }

    /// Returns the exit code of `status`.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.writable, &self.degraded) {
            (Some(true), None) if self.is_unmanaged => EXIT_DEGRADED,
            (Some(true), None) => 0,
            (Some(true), Some(_)) => EXIT_DEGRADED,
            _ => EXIT_NOT_WRITABLE,
        }
    }

    /// Describes whether clients can write, and the failure tolerance.
    pub(crate) fn headline(&self) -> String {
        match (self.writable, self.failure_tolerance) {
            (Some(true), Some(0)) => "writable, survives no further failure".to_owned(),
            (Some(true), Some(1)) => "writable, survives 1 more failure".to_owned(),
            (Some(true), Some(more)) => format!("writable, survives {more} more failures"),
            (Some(true), None) => "writable".to_owned(),
            (Some(false), _) => "NOT writable".to_owned(),
            (None, _) => "not known whether it is writable".to_owned(),
        }
    }

    /// Describes the certificate that expires first.
    pub(crate) fn certificate_summary(&self) -> String {
        let Some(first) = self
            .certificates
            .iter()
            .min_by_key(|certificate| certificate.seconds_left)
        else {
            return "nothing is known of them".to_owned();
        };
        let day = first.expires.get(..10).unwrap_or(&first.expires);
        match first.seconds_left {
            ..=0 => format!("{} has EXPIRED on {day}", first.secret),
            left if left < EXPIRY_WARNING_SECONDS => format!(
                "{} expires in {}, on {day}",
                first.secret,
                format_duration(left)
            ),
            left => format!(
                "good; the first to expire is {}, in {}",
                first.secret,
                format_duration(left)
            ),
        }
    }
}

/// Returns the messages of Ready and Degraded while Ready is not true. If all members are healthy, the message of
/// Degraded says what else to check.
fn unserved_messages(status: &EtcdClusterStatus) -> Vec<String> {
    let Some(ready) = condition(status, "Ready").filter(|ready| ready.status != "True") else {
        return Vec::new();
    };
    [Some(ready), condition(status, "Degraded")]
        .into_iter()
        .flatten()
        .map(|condition| condition.message.clone())
        .filter(|message| !message.is_empty())
        .collect()
}

/// Returns the condition of this type.
pub(crate) fn condition<'s>(status: &'s EtcdClusterStatus, type_: &str) -> Option<&'s Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

fn role_name(role: MemberRole, is_leader: bool) -> &'static str {
    match role {
        MemberRole::Voter if is_leader => "leader",
        MemberRole::Voter => "voter",
        MemberRole::Learner => "learner",
        MemberRole::Joining => "joining",
        MemberRole::Leaving => "leaving",
    }
}

/// Whether clients can write, and how many further failures the cluster tolerates. `None` means unknown.
struct Availability {
    writable: Option<bool>,
    failure_tolerance: Option<usize>,
}

impl Availability {
    /// Combines the status with the metrics of the members. Without a running operator the status may be old, so only
    /// the metrics count.
    fn new(
        status: &EtcdClusterStatus,
        metrics: &ClusterMetrics,
        operator: &OperatorStatus,
    ) -> Self {
        let ready = match condition(status, "Ready").map(|ready| ready.status.as_str()) {
            Some("True") => Some(true),
            Some("False") => Some(false),
            _ => None,
        };
        let voters: Vec<_> = status
            .member_list
            .iter()
            .filter(|member| member.role == MemberRole::Voter)
            .map(|member| member.name.as_str())
            .collect();
        let quorum = quorum(voters.len());
        let alive = metrics
            .count_alive(voters.iter().copied())
            .filter(|_| !voters.is_empty());
        if metrics.alarm.is_some() || alive.is_some_and(|alive| alive < quorum) {
            return Self {
                writable: Some(false),
                failure_tolerance: Some(0),
            };
        }
        let spare = alive.map(|alive| alive - quorum);
        if operator.is_not_running() {
            return Self {
                writable: (alive.is_some() && ready == Some(true)).then_some(true),
                failure_tolerance: spare,
            };
        }
        let reported = status
            .failure_tolerance
            .and_then(|more| usize::try_from(more).ok());
        let failure_tolerance = match (reported, spare) {
            (Some(reported), Some(spare)) => Some(reported.min(spare)),
            (reported, _) => reported,
        };
        Self {
            writable: ready,
            failure_tolerance: match ready {
                Some(true) => failure_tolerance,
                Some(false) => Some(0),
                None => None,
            },
        }
    }
}

fn notes(
    cluster: &EtcdCluster,
    status: &EtcdClusterStatus,
    metrics: &ClusterMetrics,
    operator: &OperatorStatus,
    now: Timestamp,
) -> Vec<String> {
    let mut notes: Vec<String> = operator.note().into_iter().collect();
    let created = cluster.metadata.creation_timestamp.as_ref();
    let age = created.map_or(0, |created| now.as_second() - created.0.as_second());
    if cluster.status.is_none() && age > MAX_SECONDS_WITHOUT_STATUS {
        notes.push(format!(
            "no operator has looked at it in the {} since it was created: is one running, and does it look after this \
             namespace?",
            format_duration(age)
        ));
    } else if status.observed_generation < cluster.metadata.generation && cluster.status.is_some() {
        notes.push(
            "the last edit has not been looked at yet: what is told here is about the one before"
                .to_owned(),
        );
    }
    if cluster.spec.paused {
        notes.push(
            "it is paused: nothing is healed. `kubectl evenkeel resume` ends that".to_owned(),
        );
    }
    notes.extend(
        metrics
            .alarm
            .as_ref()
            .map(|alarm| format!("etcd has raised the alarm {alarm}, and refuses writes")),
    );
    notes.extend(metrics.note.clone());
    notes
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
