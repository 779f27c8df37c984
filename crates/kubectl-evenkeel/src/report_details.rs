//! Assembles the report about a cluster from its evaluation, and adds what needs none: storage, certificates, maintenance
//! windows, events, and how clients connect.

use std::time::Duration;

use evenkeel_api::windows::WindowState;
use evenkeel_api::{MemberRole, labels, quantity};
use evenkeel_etcd::names::ObjectNames;
use evenkeel_kit::certificates::LEAF_LIFETIME;
use evenkeel_kit::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use crate::assess::{AssessedMember, Assessment, Evidence};
use crate::backup::restore::state::RestoreStateReport;
use crate::backup::state::BackupStateReport;
use crate::live::LiveEvent;
use crate::operator_status::OperatorStatus;
use crate::problems::Findings;
use crate::report::{
    API_VERSION, CertificateReport, ClientConnectionReport, ClusterReport, EtcdVersionReport,
    EventReport, MaintenanceReport, MemberReport, NextActionReport, OperationReport,
    OperatorStateReport, ReportSource, RetainedVolumeReport, StatusAge, StorageReport,
};
use crate::restart;
use crate::terminal::format_bytes;

/// The percentage of the quota from which on the report has a note.
const QUOTA_NOTE_PERCENT: u64 = 80;
/// How long before its expiry a certificate of a CA is mentioned in a note, in seconds. The operator does not renew it.
const CA_EXPIRY_NOTE_SECONDS: i64 = 90 * 86_400;
/// The port of the client Service.
const CLIENT_PORT: u16 = 2379;

impl Evidence<'_> {
    /// Reports about the cluster.
    pub(crate) fn report(self) -> ClusterReport {
        let assessment = Assessment::new(self);
        let findings = Findings::of(&assessment);
        let (cluster, status, now) = (self.cluster, &assessment.status, self.now);
        let health = assessment.health(&findings);
        let name = cluster.name_any();
        let names = ObjectNames(&name);
        let namespace = cluster.namespace().unwrap_or_default();
        let storage = storage(&assessment);
        let certificates = certificates(&assessment);
        let notes = notes(&assessment, &findings, &storage, &certificates);
        let (events, events_error) = match &self.live.events {
            Ok(events) => (events.iter().map(EventReport::new).collect(), String::new()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        let (disruptions_allowed, disruptions_error) = match &self.live.disruptions_allowed {
            Ok(allowed) => (*allowed, String::new()),
            Err(error) => (None, error.to_string()),
        };
        ClusterReport {
            api_version: API_VERSION,
            kind: "ClusterReport",
            time: in_seconds(now).to_string(),
            cluster_id: status.cluster_id.clone(),
            version: EtcdVersionReport {
                running: running_version(&assessment),
                desired: cluster.spec.version.clone(),
            },
            exit_code: health.state.exit_code(),
            health,
            member_count: assessment.member_count(),
            failure_tolerance: assessment.tolerance(),
            operation: status.operation.as_ref().map(|operation| OperationReport {
                r#type: format!("{:?}", operation.r#type),
                message: operation.message.clone(),
                reason: operation.reason.clone(),
                completed: operation.completed,
                total: operation.total,
                start_time: operation.start_time.0.to_string(),
            }),
            restart_requested: restart_requested(&assessment),
            waiting_for: status.waiting_for.clone(),
            next_action: status.next_action.as_ref().map(|next| NextActionReport {
                message: next.message.clone(),
                time: next.time.as_ref().map(|time| time.0.to_string()),
                remaining_seconds: next
                    .time
                    .as_ref()
                    .map(|time| time.0.as_second() - now.as_second()),
            }),
            paused: cluster.spec.paused,
            operator: OperatorStateReport::new(self.operator),
            operator_status: status_age(&assessment, findings.contradictions),
            problems: findings.problems,
            members: members(&assessment),
            storage,
            certificates,
            disruptions_allowed,
            disruptions_error,
            backup: BackupStateReport::new(&name, &self.live.backups, now),
            restore: RestoreStateReport::new(cluster),
            maintenance: maintenance(&assessment),
            connection: ClientConnectionReport {
                url: format!(
                    "https://{}.{namespace}.svc:{CLIENT_PORT}",
                    names.client_service()
                ),
                secret: names.client_tls(),
            },
            events,
            events_error,
            notes,
            namespace,
            name,
        }
    }
}

/// Returns the time of the last restart request, if a member was not restarted since.
fn restart_requested(assessment: &Assessment<'_>) -> Option<String> {
    let (cluster, live) = (assessment.evidence.cluster, assessment.evidence.live);
    let pods = live.pods.as_ref().ok()?;
    restart::unfinished_restart(cluster, pods.values())?;
    cluster.annotations().get(labels::RESTARTED_AT).cloned()
}

/// Leaves out the fraction of a second.
fn in_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns the lowest version that a member reports now, or else the one of the status.
fn running_version(assessment: &Assessment<'_>) -> String {
    let answers = assessment.evidence.live.answers.values();
    let live = answers.filter_map(|answer| answer.metrics.version.as_deref());
    let parse = |version: &&str| version.parse::<evenkeel_api::Version>().ok();
    let live = live.min_by_key(parse);
    live.map_or_else(|| assessment.status.version.clone(), str::to_owned)
}

fn status_age(assessment: &Assessment<'_>, contradictions: Vec<String>) -> StatusAge {
    let changed = assessment.status_changed_at();
    let now = assessment.evidence.now;
    StatusAge {
        changed_at: changed.map(|time| time.to_string()),
        age_seconds: changed.map(|time| (now.as_second() - time.as_second()).max(0)),
        generation: assessment.evidence.cluster.metadata.generation,
        observed_generation: assessment.status.observed_generation,
        contradictions,
    }
}

impl OperatorStateReport {
    fn new(operator: &OperatorStatus) -> Self {
        match operator {
            OperatorStatus::Running(holder) => Self {
                running: Some(true),
                namespace: holder.namespace.clone(),
                identity: holder.identity.clone(),
                lease_age_seconds: Some(holder.renewed_seconds_ago),
                message: String::new(),
            },
            OperatorStatus::NotRunning { namespace, lease } => Self {
                running: Some(false),
                namespace: namespace.clone().unwrap_or_default(),
                identity: String::new(),
                lease_age_seconds: None,
                message: lease.clone(),
            },
            OperatorStatus::Unknown(reason) => Self {
                running: None,
                namespace: String::new(),
                identity: String::new(),
                lease_age_seconds: None,
                message: reason.clone(),
            },
        }
    }
}

impl EventReport {
    fn new(event: &LiveEvent) -> Self {
        Self {
            time: event.time.to_string(),
            r#type: if event.is_warning {
                "Warning"
            } else {
                "Normal"
            },
            reason: event.reason.clone(),
            message: event.message.clone(),
        }
    }
}

fn members(assessment: &Assessment<'_>) -> Vec<MemberReport> {
    let answers = || assessment.evidence.live.answers.iter();
    let committed = answers().filter_map(|(_, answer)| answer.metrics.committed);
    let newest = committed.max();
    // A leader that was cut off reports itself until its election timeout has passed, but serves no reads.
    let is_live_leader = |name: &str| {
        let answer = assessment.evidence.live.answer(name);
        answer.is_some_and(|answer| answer.metrics.is_leader == Some(1))
            && assessment
                .members
                .iter()
                .any(|member| member.name == name && member.state.is_serving())
    };
    let live_leader = answers()
        .map(|(name, _)| name)
        .find(|name| is_live_leader(name));
    let leader = match live_leader {
        None if !assessment.is_live() => &assessment.status.leader,
        None => "",
        Some(leader) => leader.as_str(),
    };
    assessment
        .members
        .iter()
        .map(|member| member_report(assessment, member, leader, newest))
        .collect()
}

fn member_report(
    assessment: &Assessment<'_>,
    member: &AssessedMember<'_>,
    leader: &str,
    newest: Option<u64>,
) -> MemberReport {
    let now = assessment.evidence.now;
    let metrics = member.answer.map(|answer| &answer.metrics);
    let applied = metrics.and_then(|metrics| metrics.applied);
    let pod_status = member.pod.and_then(|pod| pod.status.as_ref());
    let containers = || pod_status.into_iter().flat_map(container_statuses);
    let listed = member.listed;
    let live_version = metrics.and_then(|metrics| metrics.version.clone());
    let created = member.pod.and_then(ResourceExt::creation_timestamp);
    let image = member
        .pod
        .and_then(|pod| pod.spec.as_ref()?.containers.first()?.image.clone());
    MemberReport {
        name: member.name.clone(),
        role: role(member, leader).to_owned(),
        health: member.state,
        message: member
            .answer
            .map(|answer| answer.error.clone())
            .unwrap_or_default(),
        id: listed.map(|listed| listed.id.clone()).unwrap_or_default(),
        pod: pod_text(assessment, member),
        pod_age_seconds: created.map(|created| (now.as_second() - created.0.as_second()).max(0)),
        restarts: member
            .pod
            .map(|_| containers().map(|status| status.restart_count).sum()),
        raft_lag: newest
            .zip(applied)
            .map(|(newest, applied)| newest.saturating_sub(applied)),
        raft_index: applied,
        db_size_bytes: metrics.and_then(|metrics| metrics.db_size_bytes),
        version: live_version
            .or_else(|| listed.map(|listed| listed.version.clone()))
            .unwrap_or_default(),
        node: member.node.clone().unwrap_or_default(),
        node_problem: member
            .node_trouble
            .map(|trouble| format!("{:?}", trouble.problem)),
        zone: member.zone.clone().unwrap_or_default(),
        pod_ip: pod_status
            .and_then(|status| status.pod_ip.clone())
            .unwrap_or_default(),
        image: image.unwrap_or_default(),
    }
}

fn role(member: &AssessedMember<'_>, leader: &str) -> &'static str {
    let role = member.listed.map(|listed| listed.role);
    let is_terminating = member
        .pod
        .is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    match role {
        Some(MemberRole::Leaving) => "leaving",
        None if is_terminating => "leaving",
        _ if member.is_voter && leader.is_empty() => "voter",
        _ if member.is_voter && member.name == leader => "leader",
        _ if member.is_voter => "follower",
        Some(MemberRole::Learner | MemberRole::Voter) => "learner",
        Some(MemberRole::Joining) | None => "joining",
    }
}

/// Returns the state of a member's pod, as kubectl prints it.
fn pod_text(assessment: &Assessment<'_>, member: &AssessedMember<'_>) -> String {
    let Some(pod) = member.pod else {
        let is_known = assessment.evidence.live.pods.is_ok();
        return if is_known { "none" } else { "unknown" }.to_owned();
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.as_ref();
    let waiting = status
        .into_iter()
        .flat_map(container_statuses)
        .find_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let phase = status.and_then(|status| status.phase.clone());
    match waiting {
        Some(_) if pods::is_held(pod) => "Held".to_owned(),
        Some(reason) => reason,
        None => phase.unwrap_or_else(|| "Pending".to_owned()),
    }
}

fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

fn storage(assessment: &Assessment<'_>) -> StorageReport {
    let (spec, status) = (&assessment.evidence.cluster.spec, &assessment.status);
    let answers = assessment.evidence.live.answers.values();
    let sizes = answers.filter_map(|answer| {
        let metrics = &answer.metrics;
        Some((metrics.db_size_bytes?, metrics))
    });
    let largest = sizes.max_by_key(|(size, _)| *size);
    let parse = |text: &str| quantity::bytes(&Quantity(text.to_owned())).ok();
    let live_quota = largest.and_then(|(_, metrics)| metrics.quota_bytes);
    let volumes = status.retained_volumes.iter();
    StorageReport {
        db_size_bytes: largest
            .map(|(size, _)| size)
            .or_else(|| parse(&status.data_size)),
        db_size_source: match largest {
            Some(_) => ReportSource::Live,
            None => ReportSource::Operator,
        },
        db_in_use_bytes: largest.and_then(|(_, metrics)| metrics.db_in_use_bytes),
        quota_bytes: live_quota.or_else(|| parse(&status.quota)),
        ephemeral: spec.storage.ephemeral,
        volume_count: assessment.evidence.live.volume_count.as_ref().ok().copied(),
        volume_size: if status.volume_size.is_empty() {
            spec.storage.size.0.clone()
        } else {
            status.volume_size.clone()
        },
        storage_class: spec.storage.class.clone().unwrap_or_default(),
        retained_volumes: volumes
            .map(|volume| RetainedVolumeReport {
                claim: volume.claim.clone(),
                size: volume.size.clone(),
                delete_time: volume.delete_time.as_ref().map(|time| time.0.to_string()),
            })
            .collect(),
    }
}

impl StorageReport {
    /// Returns the used part of the quota, in percent.
    pub(crate) fn quota_percent(&self) -> Option<u64> {
        let (size, quota) = self.db_size_bytes.zip(self.quota_bytes)?;
        (quota > 0).then(|| size.saturating_mul(100) / quota)
    }
}

impl CertificateReport {
    /// Returns the time until the operator renews the certificate, in seconds.
    pub(crate) fn renewal_seconds(&self) -> i64 {
        let before: Duration = LEAF_LIFETIME / 3;
        let before = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
        self.remaining_seconds.saturating_sub(before).max(0)
    }
}

fn certificates(assessment: &Assessment<'_>) -> Vec<CertificateReport> {
    let now = assessment.evidence.now;
    let certificates = assessment.status.certificates.iter();
    certificates
        .map(|certificate| CertificateReport {
            secret: certificate.secret.clone(),
            is_ca: certificate.secret.ends_with("-ca"),
            expires: certificate.expires.0.to_string(),
            remaining_seconds: certificate.expires.0.as_second() - now.as_second(),
        })
        .collect()
}

fn maintenance(assessment: &Assessment<'_>) -> MaintenanceReport {
    let Ok(windows) = assessment.evidence.cluster.spec.maintenance.validate() else {
        return MaintenanceReport {
            open: None,
            until: None,
        };
    };
    let (open, until) = match windows.state(assessment.evidence.now) {
        WindowState::Open { until } => (true, until),
        WindowState::Closed { until } => (false, Some(until)),
    };
    MaintenanceReport {
        open: Some(open),
        until: until.map(|until: Timestamp| until.to_string()),
    }
}

fn notes(
    assessment: &Assessment<'_>,
    findings: &Findings,
    storage: &StorageReport,
    certificates: &[CertificateReport],
) -> Vec<String> {
    let mut notes = findings.contradictions.clone();
    let is_full = findings
        .problems
        .iter()
        .any(|problem| problem.reason == "NoSpace");
    if let (Some(percent), Some(quota)) = (storage.quota_percent(), storage.quota_bytes)
        && percent >= QUOTA_NOTE_PERCENT
        && !is_full
    {
        notes.push(format!(
            "the database uses {percent} % of its quota of {}; at 100 % etcd rejects writes. Delete keys, compact and \
             defragment, or raise spec.etcd.quota",
            format_bytes(quota)
        ));
    }
    let cas = certificates.iter().filter(|one| one.is_ca);
    for ca in cas.filter(|ca| ca.remaining_seconds < CA_EXPIRY_NOTE_SECONDS) {
        notes.push(format!(
            "the CA in Secret {} expires at {}, and the operator does not renew it",
            ca.secret, ca.expires
        ));
    }
    let pods_error = assessment.evidence.live.pods.as_ref().err();
    notes.extend(pods_error.map(|error| format!("the state of pods is unknown ({error})")));
    notes
}
