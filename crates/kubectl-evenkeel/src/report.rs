//! The report about a cluster, which `status` prints as text, JSON or YAML. Its fields are part of the plugin's interface;
//! `docs/reference/plugin-report.schema.json` is generated from these types.
//!
//! Times are in UTC and in the format of RFC 3339.

use evenkeel_api::EtcdCluster;
use jiff::Timestamp;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::Target;
use crate::assess::Evidence;
use crate::backup::restore::state::RestoreStateReport;
use crate::backup::state::BackupStateReport;
use crate::connection::Connection;
use crate::error::{CliError, EXIT_DEGRADED, EXIT_UNAVAILABLE};
use crate::live::{LiveScope, LiveView};
use crate::operator_status::OperatorStatus;
use crate::terminal::Severity;

/// The API version of the plugin's output.
pub(crate) const API_VERSION: &str = "plugin.evenkeel.dev/v1alpha1";

/// The report about a cluster: the output of `kubectl evenkeel status -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterReport {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// ClusterReport.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// The namespace of the cluster.
    pub(crate) namespace: String,
    /// The name of the cluster.
    pub(crate) name: String,
    /// The cluster ID of etcd, in hexadecimal digits. Empty before bootstrap is finished.
    pub(crate) cluster_id: String,
    /// The versions of etcd.
    pub(crate) version: EtcdVersionReport,
    /// Whether clients are served.
    pub(crate) health: HealthReport,
    /// The exit code of `status`: 0 if the state is OK, 3 if clients are served and there is a problem, 4 if clients cannot
    /// write or this is unknown.
    pub(crate) exit_code: u8,
    /// The members that answer, and those that are desired.
    pub(crate) member_count: MemberCount,
    /// The further failures that the cluster tolerates while clients can still write. Null if unknown or without a quorum.
    pub(crate) failure_tolerance: Option<ToleranceReport>,
    /// The problems, the worst first.
    pub(crate) problems: Vec<ProblemReport>,
    /// The operation in progress, as the operator reports it.
    pub(crate) operation: Option<OperationReport>,
    /// The time of the last restart request, if a member was not restarted since. Null if none or unknown.
    pub(crate) restart_requested: Option<String>,
    /// The reasons why the operator waits, as it reports them.
    pub(crate) waiting_for: Vec<String>,
    /// The action that follows after the operator has waited, as it reports it.
    pub(crate) next_action: Option<NextActionReport>,
    /// Whether spec.paused is set.
    pub(crate) paused: bool,
    /// Whether an operator is running.
    pub(crate) operator: OperatorStateReport,
    /// How current the operator's status is, from which operation, waits, next action and most problems come.
    pub(crate) operator_status: StatusAge,
    /// The members.
    pub(crate) members: Vec<MemberReport>,
    /// Database, quota and volumes.
    pub(crate) storage: StorageReport,
    /// The certificates.
    pub(crate) certificates: Vec<CertificateReport>,
    /// The number of pods that may be evicted now. Null if unknown.
    pub(crate) disruptions_allowed: Option<i32>,
    /// Why the number of evictions is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) disruptions_error: String,
    /// The backups.
    pub(crate) backup: BackupStateReport,
    /// The last restore that replaces, or has replaced, the data. Null if there was none.
    pub(crate) restore: Option<RestoreStateReport>,
    /// The maintenance windows.
    pub(crate) maintenance: MaintenanceReport,
    /// How clients connect.
    pub(crate) connection: ClientConnectionReport,
    /// The last events, the oldest first.
    pub(crate) events: Vec<EventReport>,
    /// Why events are unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) events_error: String,
    /// Facts that need no action now, such as a missing permission.
    pub(crate) notes: Vec<String>,
}

/// The reports about all clusters: the output of `kubectl evenkeel status -A -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterReportList {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// ClusterReportList.
    pub(crate) kind: &'static str,
    /// The clusters, the worst first.
    pub(crate) items: Vec<ClusterReport>,
}

/// The versions of etcd.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdVersionReport {
    /// The lowest version that a member runs. Empty if unknown.
    pub(crate) running: String,
    /// The version in the spec.
    pub(crate) desired: String,
}

/// Whether clients are served.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthReport {
    /// The state in one word.
    pub(crate) state: HealthState,
    /// The state in a sentence.
    pub(crate) message: String,
    /// Whether reads are served. Null if unknown.
    pub(crate) reads: Option<bool>,
    /// Whether writes are served. Null if unknown.
    pub(crate) writes: Option<bool>,
    /// The time since when the operator has reported the state. Null if the operator does not report it.
    pub(crate) since: Option<String>,
    /// The alarms that etcd has raised.
    pub(crate) alarms: Vec<String>,
}

/// The state of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum HealthState {
    /// Clients are served, and there is no problem.
    #[serde(rename = "OK")]
    Ok,
    /// Clients are served. spec.paused is set.
    Paused,
    /// Clients are served. No operator is running.
    Unmanaged,
    /// Clients are served. There is a problem.
    Degraded,
    /// The resource is being deleted.
    Deleting,
    /// The cluster is being created.
    Creating,
    /// The only member, or one of two, is being restarted as the spec asks for. Clients are not served meanwhile.
    Restarting,
    /// Reads are served, writes are rejected.
    ReadOnly,
    /// No member could be queried.
    Unknown,
    /// Clients are not served.
    Unavailable,
}

impl HealthState {
    /// Returns the word on the screen.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Paused => "PAUSED",
            Self::Unmanaged => "UNMANAGED",
            Self::Degraded => "DEGRADED",
            Self::Deleting => "DELETING",
            Self::Creating => "CREATING",
            Self::Restarting => "RESTARTING",
            Self::ReadOnly => "READ-ONLY",
            Self::Unknown => "unknown",
            Self::Unavailable => "UNAVAILABLE",
        }
    }

    /// Returns the exit code of `status`.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Paused | Self::Unmanaged | Self::Degraded | Self::Deleting => EXIT_DEGRADED,
            Self::Creating
            | Self::Restarting
            | Self::ReadOnly
            | Self::Unknown
            | Self::Unavailable => EXIT_UNAVAILABLE,
        }
    }

    /// Returns the severity.
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Ok => Severity::Good,
            Self::Paused
            | Self::Unmanaged
            | Self::Degraded
            | Self::Deleting
            | Self::Creating
            | Self::Restarting
            | Self::Unknown => Severity::Warning,
            Self::ReadOnly | Self::Unavailable => Severity::Critical,
        }
    }

    /// Returns the position in a list that begins with the worst state.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Unavailable => 0,
            Self::ReadOnly => 1,
            Self::Unknown => 2,
            Self::Restarting => 3,
            Self::Creating => 4,
            Self::Degraded => 5,
            Self::Unmanaged => 6,
            Self::Deleting => 7,
            Self::Paused => 8,
            Self::Ok => 9,
        }
    }
}

/// The number of members.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberCount {
    /// The number of voters that answer a linearizable read. Null if no member could be queried.
    pub(crate) serving: Option<usize>,
    /// The number of voters.
    pub(crate) voters: usize,
    /// The number of members in the spec.
    pub(crate) desired: i32,
    /// The number of serving voters and of members in the spec as the operator reports them, such as 3/3.
    pub(crate) reported: String,
}

/// Returns how many voters answer, as a clause.
pub(crate) fn answering_voters(answering: usize, voters: usize) -> String {
    match (answering, voters) {
        (0, 1) => "the only voter does not answer".to_owned(),
        (1, 1) => "the only voter answers".to_owned(),
        (1, voters) => format!("1 of {voters} voters answers"),
        (answering, voters) => format!("{answering} of {voters} voters answer"),
    }
}

/// The further failures that a cluster tolerates.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToleranceReport {
    /// Where the numbers come from.
    pub(crate) source: ReportSource,
    /// The tolerance in a few words, such as 1 node.
    pub(crate) summary: String,
    /// The number of members that may fail.
    pub(crate) members: usize,
    /// The number of nodes that may fail, whichever they are. Null if the node of a member is unknown.
    pub(crate) nodes: Option<usize>,
    /// The number of zones that may fail, whichever they are. Null if the zone of a member is unknown.
    pub(crate) zones: Option<usize>,
    /// The number of nodes that serving voters are on.
    pub(crate) node_count: Option<usize>,
    /// The number of zones that serving voters are in.
    pub(crate) zone_count: Option<usize>,
    /// The nodes whose loss alone would lose the quorum.
    pub(crate) critical_nodes: Vec<String>,
    /// The zones whose loss alone would lose the quorum.
    pub(crate) critical_zones: Vec<String>,
}

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum ReportSource {
    /// The plugin found it at the time of the report.
    Live,
    /// The operator reports it in the status of the resource.
    Operator,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemReport {
    /// Where the problem comes from.
    pub(crate) source: ReportSource,
    /// The reason, as in the conditions; for a problem that only the plugin reports, OperatorNotRunning or NotReconciled.
    pub(crate) reason: String,
    /// The fact and its consequence.
    pub(crate) message: String,
    /// The action that is required from a user. Empty if none is.
    pub(crate) advice: String,
    /// The name of the member that the problem is about, if any.
    pub(crate) member: String,
    /// The time since when the operator has reported the problem.
    pub(crate) since: Option<String>,
    /// The duration of the problem, in seconds.
    pub(crate) duration_seconds: Option<i64>,
}

/// The operation in progress.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationReport {
    /// The type, such as Upgrade.
    pub(crate) r#type: String,
    /// The current step, in words that follow "the operator is".
    pub(crate) message: String,
    /// The reason for the current step.
    pub(crate) reason: String,
    /// The number of members for which the operation is done.
    pub(crate) completed: Option<i32>,
    /// The number of members that the operation affects.
    pub(crate) total: Option<i32>,
    /// The time at which the operation began.
    pub(crate) start_time: String,
}

/// An action that follows after a wait.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NextActionReport {
    /// The action.
    pub(crate) message: String,
    /// The time of the action, if the wait has a deadline.
    pub(crate) time: Option<String>,
    /// The time until the action, in seconds.
    pub(crate) remaining_seconds: Option<i64>,
}

/// Whether an operator is running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperatorStateReport {
    /// Whether an operator renews its Lease. Null if unknown.
    pub(crate) running: Option<bool>,
    /// The namespace of the operator. Empty if unknown.
    pub(crate) namespace: String,
    /// The identity of the operator that holds the Lease. Empty if unknown.
    pub(crate) identity: String,
    /// The time since the Lease was renewed, in seconds.
    pub(crate) lease_age_seconds: Option<i64>,
    /// The state of the Lease, or why it is unknown. Empty if an operator is running.
    pub(crate) message: String,
}

/// How current the operator's status is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusAge {
    /// The time at which the operator last changed the status. It does not write an unchanged status.
    pub(crate) changed_at: Option<String>,
    /// The time since that change, in seconds.
    pub(crate) age_seconds: Option<i64>,
    /// The generation of the spec.
    pub(crate) generation: Option<i64>,
    /// The generation that the status describes.
    pub(crate) observed_generation: Option<i64>,
    /// The statements of the status that the answers of the members contradict.
    pub(crate) contradictions: Vec<String>,
}

/// A member.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberReport {
    /// The name of the member and of its pod.
    pub(crate) name: String,
    /// The role: leader, follower, voter (if the leader is unknown), learner, joining or leaving.
    pub(crate) role: String,
    /// The answer of the member at the time of the report.
    pub(crate) health: MemberHealthState,
    /// Why the member does not answer.
    pub(crate) message: String,
    /// The member ID of etcd, in hexadecimal digits.
    pub(crate) id: String,
    /// The state of the pod, as kubectl prints it; none if it does not exist.
    pub(crate) pod: String,
    /// The age of the pod, in seconds.
    pub(crate) pod_age_seconds: Option<i64>,
    /// The number of container restarts.
    pub(crate) restarts: Option<i32>,
    /// The number of log entries that the member has not applied yet.
    pub(crate) raft_lag: Option<u64>,
    /// The index of the last applied log entry.
    pub(crate) raft_index: Option<u64>,
    /// The size of the database, in bytes.
    pub(crate) db_size_bytes: Option<u64>,
    /// The version of etcd.
    pub(crate) version: String,
    /// The node.
    pub(crate) node: String,
    /// The problem of the node, if any: NotReady, Cordoned or Missing.
    pub(crate) node_problem: Option<String>,
    /// The zone of the node.
    pub(crate) zone: String,
    /// The IP address of the pod.
    pub(crate) pod_ip: String,
    /// The image of etcd.
    pub(crate) image: String,
}

/// The answer of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum MemberHealthState {
    /// It answered a linearizable read.
    #[serde(rename = "OK")]
    Ok,
    /// It answers reads and reports an alarm.
    Alarm,
    /// It answers, but reaches no quorum.
    NoQuorum,
    /// It does not answer.
    NoAnswer,
    /// It does not answer because its pod was restarted or deleted less than a minute ago.
    Restarting,
    /// It does not answer because it has not joined yet.
    Starting,
    /// It does not answer because it is being removed.
    Stopping,
    /// It could not be queried.
    Unknown,
}

impl MemberHealthState {
    /// Returns the words on the screen.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Alarm => "alarm",
            Self::NoQuorum => "no quorum",
            Self::NoAnswer => "no answer",
            Self::Restarting => "restarting",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the member serves reads.
    pub(crate) fn is_serving(self) -> bool {
        matches!(self, Self::Ok | Self::Alarm)
    }

    /// Returns whether the member is expected to serve and does not.
    pub(crate) fn is_down(self) -> bool {
        matches!(self, Self::NoAnswer | Self::NoQuorum)
    }
}

/// Database, quota and volumes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageReport {
    /// The size of the largest database, in bytes. The operator's report is rounded up in coarse steps.
    pub(crate) db_size_bytes: Option<u64>,
    /// Where that size comes from.
    pub(crate) db_size_source: ReportSource,
    /// The part of that database that is in use, in bytes. Defragmentation frees the rest.
    pub(crate) db_in_use_bytes: Option<u64>,
    /// The size at which etcd rejects writes, in bytes.
    pub(crate) quota_bytes: Option<u64>,
    /// Whether the data is in the pods.
    pub(crate) ephemeral: bool,
    /// The number of PersistentVolumeClaims of members. Null if unknown.
    pub(crate) volume_count: Option<usize>,
    /// The size of the largest volume, such as 4Gi.
    pub(crate) volume_size: String,
    /// The StorageClass in the spec. Empty for the default one.
    pub(crate) storage_class: String,
    /// The volumes of removed members.
    pub(crate) retained_volumes: Vec<RetainedVolumeReport>,
}

/// The volume of a removed member.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetainedVolumeReport {
    /// The name of the PersistentVolumeClaim.
    pub(crate) claim: String,
    /// The size of the volume.
    pub(crate) size: String,
    /// The time at which the operator deletes it. Null if it is kept for ever.
    pub(crate) delete_time: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateReport {
    /// The name of the Secret.
    pub(crate) secret: String,
    /// Whether it is the certificate of a CA, which the operator does not renew.
    pub(crate) is_ca: bool,
    /// The time at which it expires.
    pub(crate) expires: String,
    /// The time until it expires, in seconds.
    pub(crate) remaining_seconds: i64,
}

/// The maintenance windows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MaintenanceReport {
    /// Whether disruptive changes may begin now. Null if the windows in the spec are invalid.
    pub(crate) open: Option<bool>,
    /// The time at which that changes. Null if it does not.
    pub(crate) until: Option<String>,
}

/// How clients connect.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientConnectionReport {
    /// The URL of the client Service.
    pub(crate) url: String,
    /// The Secret with the client certificate.
    pub(crate) secret: String,
}

/// An event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventReport {
    /// The time at which it occurred last.
    pub(crate) time: String,
    /// Normal or Warning.
    pub(crate) r#type: &'static str,
    /// The reason.
    pub(crate) reason: String,
    /// The text.
    pub(crate) message: String,
}

impl ClusterReport {
    /// Reads the cluster, and queries the operator's Lease and the members.
    pub(crate) async fn query(
        connection: &Connection,
        target: &Target,
        now: Timestamp,
    ) -> Result<(EtcdCluster, Self), CliError> {
        let cluster = connection.cluster(target.cluster.as_deref()).await?;
        let report = Self::of(connection, &cluster, LiveScope::Everything, now).await;
        Ok((cluster, report))
    }

    /// Reports about a cluster.
    pub(crate) async fn of(
        connection: &Connection,
        cluster: &EtcdCluster,
        scope: LiveScope,
        now: Timestamp,
    ) -> Self {
        let namespace = cluster.namespace();
        let (operator, live) = futures::join!(
            OperatorStatus::query(&connection.client, namespace.as_deref(), now),
            LiveView::query(&connection.client, cluster, scope),
        );
        Evidence {
            cluster,
            live: &live,
            operator: &operator,
            now,
        }
        .report()
    }
}
