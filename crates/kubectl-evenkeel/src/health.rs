//! Whether clients are served, in one word and a sentence.

use evenkeel_api::conditions::Reason;
use evenkeel_etcd::availability::{Alarm, Availability};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::assess::{AssessedMember, Assessment, MAX_SECONDS_WITHOUT_STATUS};
use crate::live::ReadError;
use crate::problems::{Findings, is_outage};
use crate::report::{HealthReport, HealthState, MemberHealthState};
use crate::terminal::format_elapsed;

/// Which requests are served. `None` means unknown.
#[derive(Clone, Copy)]
struct Service {
    reads: Option<bool>,
    writes: Option<bool>,
}

impl Service {
    const NONE: Self = Self {
        reads: Some(false),
        writes: Some(false),
    };

    fn text(self) -> &'static str {
        match (self.reads, self.writes) {
            (Some(true), Some(true)) => "reads and writes are served",
            (Some(true), _) => "reads are served, writes are rejected",
            (Some(false), _) => "reads and writes are not served",
            (None, _) => "unknown whether clients are served",
        }
    }
}

impl Assessment<'_> {
    /// Returns whether clients are served, given the problems.
    pub(crate) fn health(&self, findings: &Findings) -> HealthReport {
        let service = self.service();
        let (state, message, service) = match self.lifecycle_state(service) {
            Some((state @ HealthState::Deleting, message)) => (state, message, service),
            Some((state, message)) => (state, message, Service::NONE),
            None => {
                let (state, message) = self.running_state(service, findings.has_problems());
                (state, message, service)
            }
        };
        HealthReport {
            state,
            message,
            reads: service.reads,
            writes: service.writes,
            since: self
                .health_since(state, findings)
                .map(|since| since.to_string()),
            alarms: self.alarms.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns which requests are served, according to the answers of the members.
    fn service(&self) -> Service {
        let (reads, writes) = match self.availability {
            // The plugin cannot check the Service, and the operator's check may be some seconds old.
            Availability::ReadWrite if self.is_service_broken() => (None, None),
            Availability::ReadWrite => (Some(true), Some(true)),
            Availability::WritesRejected(Alarm::NoSpace) => (Some(true), Some(false)),
            Availability::WritesRejected(Alarm::Corrupt) | Availability::Unavailable => {
                (Some(false), Some(false))
            }
            Availability::Unknown => (None, None),
        };
        Service { reads, writes }
    }

    /// Returns the state of a cluster that is being created or deleted.
    fn lifecycle_state(&self, service: Service) -> Option<(HealthState, String)> {
        let cluster = self.evidence.cluster;
        if cluster.metadata.deletion_timestamp.is_some() {
            return Some((HealthState::Deleting, service.text().to_owned()));
        }
        let is_old = self.age_seconds() > MAX_SECONDS_WITHOUT_STATUS;
        if cluster.status.is_none() && is_old && self.evidence.live.answers.is_empty() {
            let message = "clients are not served: the cluster has no members";
            return Some((HealthState::Unavailable, message.to_owned()));
        }
        // Members that serve without a status belong to a cluster whose status was deleted.
        let is_new =
            !self.is_bootstrapped() && (cluster.status.is_some() || service.reads != Some(true));
        let message = "clients are not served until bootstrap is finished";
        is_new.then(|| (HealthState::Creating, message.to_owned()))
    }

    /// Returns the state of a cluster that should serve clients.
    fn running_state(&self, service: Service, has_problems: bool) -> (HealthState, String) {
        let text = service.text();
        match self.availability {
            Availability::Unknown => (HealthState::Unknown, self.unknown_message()),
            Availability::WritesRejected(alarm @ Alarm::NoSpace) => (
                HealthState::ReadOnly,
                format!("{text}: the alarm {alarm} is raised"),
            ),
            Availability::WritesRejected(alarm @ Alarm::Corrupt) => (
                HealthState::Unavailable,
                format!("etcd rejects requests: the alarm {alarm} is raised"),
            ),
            Availability::Unavailable if self.is_planned_outage() => (
                HealthState::Restarting,
                format!("{text} while the member restarts"),
            ),
            Availability::Unavailable => (HealthState::Unavailable, text.to_owned()),
            Availability::ReadWrite if self.is_service_broken() => (
                HealthState::Unavailable,
                "the members answer, but the operator does not reach them through the client Service"
                    .to_owned(),
            ),
            Availability::ReadWrite => {
                let state = if has_problems {
                    HealthState::Degraded
                } else if self.evidence.operator.is_not_running() {
                    HealthState::Unmanaged
                } else if self.evidence.cluster.spec.paused {
                    HealthState::Paused
                } else {
                    HealthState::Ok
                };
                (state, format!("{text}{}", self.restarting_text()))
            }
        }
    }

    /// Returns the members that restart, or else that the statement is about this moment.
    fn restarting_text(&self) -> String {
        let is_restarting = |one: &&AssessedMember<'_>| one.state == MemberHealthState::Restarting;
        match self.members.iter().filter(is_restarting).count() {
            0 => "; checked now".to_owned(),
            1 => " (1 member restarts)".to_owned(),
            count => format!(" ({count} members restart)"),
        }
    }

    /// Returns why no member could be queried, and what the operator reports.
    fn unknown_message(&self) -> String {
        let live = self.evidence.live;
        let namespace = self.evidence.cluster.namespace().unwrap_or_default();
        let cause = match &live.pods {
            Err(ReadError::Failed(error)) => error.clone(),
            _ if live.answers.is_empty() => "no member is known".to_owned(),
            _ => format!("needs get on pods/proxy in namespace {namespace}"),
        };
        let Some(ready) = self.condition("Ready") else {
            return format!("({cause})");
        };
        let elapsed = self.evidence.now.as_second() - ready.last_transition_time.0.as_second();
        let verb = if self.evidence.operator.is_not_running() {
            "The last report of the operator is"
        } else {
            "The operator reports"
        };
        format!(
            "({cause}). {verb} Ready={} for {}",
            ready.status,
            format_elapsed(elapsed)
        )
    }

    /// Returns since when the operator has reported an outage. The condition Ready may be False since an earlier outage with
    /// another reason, so the problem of this outage counts.
    fn outage_since(&self, state: HealthState, findings: &Findings) -> Option<Timestamp> {
        let explains = |reason: &str| {
            let is_no_space = reason == Reason::NoSpace.as_str();
            is_no_space == (state == HealthState::ReadOnly)
        };
        let mut outages = findings
            .problems
            .iter()
            .filter(|problem| is_outage(problem) && explains(&problem.reason));
        if let Some(outage) = outages.next() {
            return outage.since.as_ref()?.parse().ok();
        }
        let ready = self.condition("Ready")?;
        let is_reported = ready.status == "False" && explains(&ready.reason);
        is_reported.then_some(ready.last_transition_time.0)
    }

    /// Returns since when the operator has reported a state.
    fn health_since(&self, state: HealthState, findings: &Findings) -> Option<Timestamp> {
        match state {
            HealthState::Degraded => {
                let since = findings
                    .problems
                    .iter()
                    .map(|problem| problem.since.as_ref());
                since.flatten().filter_map(|since| since.parse().ok()).min()
            }
            HealthState::ReadOnly | HealthState::Unavailable | HealthState::Restarting => {
                self.outage_since(state, findings)
            }
            HealthState::Creating => {
                let created = self.evidence.cluster.metadata.creation_timestamp.as_ref();
                created.map(|created| created.0)
            }
            HealthState::Deleting => {
                let deleted = self.evidence.cluster.metadata.deletion_timestamp.as_ref();
                deleted.map(|deleted| deleted.0)
            }
            HealthState::Ok
            | HealthState::Paused
            | HealthState::Unmanaged
            | HealthState::Unknown => None,
        }
    }
}
