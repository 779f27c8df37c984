//! Evaluates a cluster: which members serve, whether clients are served, which failures are tolerated, and which problems
//! exist. Pure.
//!
//! The answers of the members at this moment decide. The operator's status adds causes, operations and deadlines; what the
//! answers contradict is reported as a note, and what the operator has not reported yet as a problem.

use std::collections::BTreeSet;

use evenkeel_api::conditions::Reason;
use evenkeel_api::{
    EtcdCluster, EtcdClusterStatus, MemberRole, MemberStatus, NodeProblem, OperationType,
    ProblemStatus,
};
use evenkeel_etcd::availability::{Alarm, Availability, FailureTolerance, Voter};
use evenkeel_kit::pods::{self, PodRestart};
use evenkeel_runtime::UnixTime;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::live::LiveView;
use crate::member_metrics::{LiveAnswer, LiveHealth};
use crate::operator_status::OperatorStatus;
use crate::report::{MemberCount, MemberHealthState, ReportSource, ToleranceReport};

/// How long a new resource may have no status.
pub(crate) const MAX_SECONDS_WITHOUT_STATUS: i64 = 10;
/// The number of members up to which a restart interrupts service.
const MAX_MEMBERS_WITHOUT_REDUNDANCY: i32 = 2;
/// The name of the program in the pods.
pub(crate) const APPLICATION: &str = "etcd";

/// Everything that is known about a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'e> {
    pub(crate) cluster: &'e EtcdCluster,
    pub(crate) live: &'e LiveView,
    pub(crate) operator: &'e OperatorStatus,
    pub(crate) now: Timestamp,
}

/// A member with everything that is known about it.
pub(crate) struct AssessedMember<'e> {
    pub(crate) name: String,
    /// The entry in the operator's status.
    pub(crate) listed: Option<&'e MemberStatus>,
    pub(crate) answer: Option<&'e LiveAnswer>,
    pub(crate) pod: Option<&'e Pod>,
    pub(crate) is_voter: bool,
    pub(crate) state: MemberHealthState,
    pub(crate) node: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) node_trouble: Option<NodeTroubleReport>,
}

/// The problem of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTroubleReport {
    pub(crate) problem: NodeProblem,
    pub(crate) since: Option<Timestamp>,
}

/// The evaluation of a cluster.
pub(crate) struct Assessment<'e> {
    pub(crate) evidence: Evidence<'e>,
    pub(crate) status: EtcdClusterStatus,
    pub(crate) members: Vec<AssessedMember<'e>>,
    pub(crate) alarms: BTreeSet<Alarm>,
    pub(crate) availability: Availability,
}

impl<'e> Assessment<'e> {
    /// Evaluates a cluster.
    pub(crate) fn new(evidence: Evidence<'e>) -> Self {
        let status = evidence.cluster.status.clone().unwrap_or_default();
        let answers = || evidence.live.answers.values();
        let alarms: BTreeSet<_> = answers()
            .flat_map(|answer| &answer.alarms)
            .copied()
            .collect();
        let has = |health| answers().any(|answer| answer.health == health);
        let answers_reads = if has(LiveHealth::Ok) {
            Some(true)
        } else if answers().next().is_none() || has(LiveHealth::Unknown) {
            None
        } else {
            Some(false)
        };
        let mut assessment = Self {
            evidence,
            status,
            members: Vec::new(),
            availability: Availability::new(answers_reads, alarms.iter().copied()),
            alarms,
        };
        assessment.members = assessment.assess_members();
        assessment
    }

    /// Returns the members of the status, then those that only have a pod yet.
    fn assess_members(&self) -> Vec<AssessedMember<'e>> {
        let listed: &[MemberStatus] = self
            .evidence
            .cluster
            .status
            .as_ref()
            .map(|status| status.member_list.as_slice())
            .unwrap_or_default();
        let known = listed.iter().map(|one| one.name.as_str());
        let queried = self.evidence.live.answers.keys().map(String::as_str);
        let new = queried.filter(|name| listed.iter().all(|one| one.name != *name));
        let names: Vec<&str> = known.chain(new).collect();
        names
            .into_iter()
            .map(|name| self.assess_member(name, listed.iter().find(|one| one.name == name)))
            .collect()
    }

    fn assess_member(&self, name: &str, listed: Option<&'e MemberStatus>) -> AssessedMember<'e> {
        let live = self.evidence.live;
        let (answer, pod) = (live.answer(name), live.pod(name));
        let of_status = |text: &String| (!text.is_empty()).then(|| text.clone());
        let node = pod.and_then(pods::node).map(str::to_owned);
        let node = node.or_else(|| listed.and_then(|listed| of_status(&listed.node)));
        let live_node = live
            .nodes
            .as_ref()
            .and_then(|nodes| nodes.get(node.as_deref()?));
        let zone = live_node.and_then(|node| node.as_ref()?.zone.clone());
        let node_trouble = match live_node {
            Some(None) => Some(NodeTroubleReport {
                problem: NodeProblem::Missing,
                since: None,
            }),
            Some(Some(state)) if !state.is_ready => Some(NodeTroubleReport {
                problem: NodeProblem::NotReady,
                since: state.unready_since.and_then(timestamp),
            }),
            Some(Some(state)) => state.is_cordoned.then_some(NodeTroubleReport {
                problem: NodeProblem::Cordoned,
                since: None,
            }),
            None => listed
                .and_then(|listed| listed.node_status)
                .map(|problem| NodeTroubleReport {
                    problem,
                    since: None,
                }),
        };
        // etcd lists a member that has an ID, also while it is being removed.
        let listed_voter = listed.is_some_and(|listed| match listed.role {
            MemberRole::Voter => true,
            MemberRole::Leaving => !listed.id.is_empty(),
            MemberRole::Learner | MemberRole::Joining => false,
        });
        let is_learner = answer.and_then(|answer| answer.metrics.is_learner);
        let mut member = AssessedMember {
            name: name.to_owned(),
            listed,
            answer,
            pod,
            is_voter: is_learner.map_or(listed_voter, |is_learner| is_learner == 0),
            state: MemberHealthState::Unknown,
            node,
            zone: zone.or_else(|| listed.and_then(|listed| of_status(&listed.zone))),
            node_trouble,
        };
        member.state = self.member_state(&member);
        member
    }

    fn member_state(&self, member: &AssessedMember<'_>) -> MemberHealthState {
        let Some(answer) = member.answer else {
            return MemberHealthState::Unknown;
        };
        let down = match answer.health {
            LiveHealth::Unknown => return MemberHealthState::Unknown,
            LiveHealth::Ok if answer.alarms.is_empty() => return MemberHealthState::Ok,
            LiveHealth::Ok => return MemberHealthState::Alarm,
            LiveHealth::NoQuorum => MemberHealthState::NoQuorum,
            LiveHealth::NoAnswer => MemberHealthState::NoAnswer,
        };
        let is_joining = member
            .listed
            .is_none_or(|listed| matches!(listed.role, MemberRole::Joining | MemberRole::Learner));
        let is_leaving = member
            .listed
            .is_some_and(|listed| listed.role == MemberRole::Leaving);
        if is_leaving {
            MemberHealthState::Stopping
        } else if self.reported_problem(&member.name).is_some() || self.reports_lost_quorum() {
            down
        } else if !self.is_bootstrapped() || is_joining {
            MemberHealthState::Starting
        } else if self.is_restarting(member, answer) {
            MemberHealthState::Restarting
        } else {
            down
        }
    }

    /// Returns whether a member that does not serve was restarted within the last minute, and neither its pod nor
    /// its node nor the operator reports a problem. Kubernetes and the operator bring it back within seconds.
    fn is_restarting(&self, member: &AssessedMember<'_>, answer: &LiveAnswer) -> bool {
        let Evidence {
            cluster,
            live,
            operator,
            now,
        } = self.evidence;
        // A member that answers and reaches no quorum is restarting only if there is a quorum to join.
        let waits_for_others =
            answer.health == LiveHealth::NoQuorum && self.availability == Availability::Unavailable;
        let node_is_down = member
            .node_trouble
            .is_some_and(|trouble| trouble.problem != NodeProblem::Cordoned);
        if cluster.spec.paused || operator.is_not_running() || waits_for_others || node_is_down {
            return false;
        }
        match member.pod {
            // The operator recreates the pod at once, unless a problem prevents that.
            None => live.pods.is_ok() && self.status.problems.is_empty(),
            // It waits for the end of a drain, until the operator replaces it.
            Some(pod) if pods::node(pod).is_none() && member.node_trouble.is_some() => true,
            Some(pod) => {
                let now = UnixTime(now.as_second());
                let restart = PodRestart::of(pod, APPLICATION, now);
                // The scheduler may find no node for a moment, for example until the volume is detached.
                let has_problem =
                    pods::node(pod).is_some() && pods::problem(pod, APPLICATION).is_some();
                !has_problem && restart.is_in_progress(now)
            }
        }
    }

    /// Returns the operator's problem about a member.
    pub(crate) fn reported_problem(&self, member: &str) -> Option<&ProblemStatus> {
        let mut problems = self.status.problems.iter();
        problems.find(|problem| problem.member == member)
    }

    /// Returns whether the operator reports that the quorum is lost. This problem names all members that do not answer.
    fn reports_lost_quorum(&self) -> bool {
        let lost = Reason::QuorumLost.as_str();
        let mut problems = self.status.problems.iter();
        problems.any(|problem| problem.reason == lost)
    }

    /// Returns the condition of this type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    }

    fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|ready| ready.status == "True")
    }

    /// Returns whether clients have been routed to the cluster.
    pub(crate) fn is_bootstrapped(&self) -> bool {
        // While a restore replaces the cluster, the status names the old one.
        let restoring = Reason::Restoring.as_str();
        let is_restoring = self
            .condition("Ready")
            .is_some_and(|ready| ready.reason == restoring);
        (!self.status.cluster_id.is_empty() && !is_restoring) || self.is_ready()
    }

    /// Returns whether the cluster is known to serve reads, or not.
    pub(crate) fn is_live(&self) -> bool {
        self.availability != Availability::Unknown
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = &AssessedMember<'e>> {
        self.members.iter().filter(|member| member.is_voter)
    }

    /// Returns the number of members that serve, and of those that should.
    pub(crate) fn member_count(&self) -> MemberCount {
        let serving = self.voters().filter(|one| one.state.is_serving()).count();
        MemberCount {
            serving: self.is_live().then_some(serving),
            voters: self.voters().count(),
            desired: self.evidence.cluster.spec.members,
            reported: self.status.ready.clone(),
        }
    }

    /// Returns whether a rollout restarts a cluster of one or two members, as a user asked for.
    pub(crate) fn is_planned_outage(&self) -> bool {
        let cluster = self.evidence.cluster;
        let is_rollout = self.status.operation.as_ref().is_some_and(|operation| {
            matches!(
                operation.r#type,
                OperationType::Upgrade | OperationType::Restart | OperationType::Update
            )
        });
        let is_restarting = |state| {
            matches!(
                state,
                MemberHealthState::Restarting | MemberHealthState::NoQuorum | MemberHealthState::Ok
            )
        };
        let mut states = self.members.iter().map(|member| member.state);
        cluster.spec.members <= MAX_MEMBERS_WITHOUT_REDUNDANCY
            && is_rollout
            && self
                .members
                .iter()
                .any(|one| one.state == MemberHealthState::Restarting)
            && states.all(is_restarting)
    }

    /// Returns whether the operator reports that the client Service does not lead to the members. Only it can check that.
    pub(crate) fn is_service_broken(&self) -> bool {
        let not_serving = Reason::NotServing.as_str();
        let mut problems = self.status.problems.iter();
        let is_problem = problems.any(|problem| problem.reason == not_serving);
        // An older operator reports no problems. Ready alone may be False for a moment during a change.
        let is_degraded = self.status.problems.is_empty()
            && self.condition("Degraded").is_some_and(|degraded| {
                degraded.status == "True" && degraded.reason == not_serving
            });
        !self.evidence.operator.is_not_running() && (is_problem || is_degraded)
    }

    /// Returns when the operator last changed the status. It does not write an unchanged status.
    pub(crate) fn status_changed_at(&self) -> Option<Timestamp> {
        let fields = self.evidence.cluster.metadata.managed_fields.iter();
        let of_status = fields
            .flatten()
            .filter(|entry| entry.subresource.as_deref() == Some("status"));
        let written = of_status
            .filter_map(|entry| entry.time.as_ref())
            .map(|time| time.0);
        let conditions = self.status.conditions.iter();
        let changed = conditions.map(|condition| condition.last_transition_time.0);
        written.max().or(changed.max())
    }

    /// Returns the age of the resource, in seconds.
    pub(crate) fn age_seconds(&self) -> i64 {
        let created = self.evidence.cluster.metadata.creation_timestamp.as_ref();
        created.map_or(0, |created| {
            self.evidence.now.as_second() - created.0.as_second()
        })
    }

    /// Returns which further failures the cluster tolerates; `None` if unknown or without a quorum.
    pub(crate) fn tolerance(&self) -> Option<ToleranceReport> {
        if !self.is_live() {
            return self.reported_tolerance();
        }
        if !self.is_bootstrapped() {
            return None;
        }
        let voters: Vec<_> = self
            .voters()
            .map(|member| Voter {
                is_serving: member.state.is_serving(),
                node: member.node.clone(),
                zone: member.zone.clone(),
            })
            .collect();
        let mut tolerance = FailureTolerance::of(&voters, 0)?;
        // Only the operator knows voters that it did not add.
        let has_unknown_voters = self
            .status
            .problems
            .iter()
            .any(|problem| problem.reason == "UnknownMember");
        if let Some(reported) = self.status.failure_tolerance.as_ref()
            && has_unknown_voters
        {
            let reported = usize::try_from(reported.members).unwrap_or_default();
            tolerance.members = tolerance.members.min(reported);
        }
        let zones = tolerance.zones.as_ref();
        let nodes = tolerance.nodes.as_ref();
        Some(ToleranceReport {
            source: ReportSource::Live,
            summary: tolerance.summary(),
            members: tolerance.members,
            nodes: nodes.map(|nodes| nodes.failures.min(tolerance.members)),
            zones: zones.map(|zones| zones.failures.min(tolerance.members)),
            node_count: nodes.map(|nodes| nodes.domains),
            zone_count: zones.map(|zones| zones.domains),
            critical_nodes: nodes
                .map(|nodes| nodes.critical.clone())
                .unwrap_or_default(),
            critical_zones: zones
                .filter(|zones| zones.domains > 1)
                .map(|zones| zones.critical.clone())
                .unwrap_or_default(),
        })
    }

    fn reported_tolerance(&self) -> Option<ToleranceReport> {
        let reported = self.status.failure_tolerance.as_ref()?;
        let count = |number: i32| usize::try_from(number).unwrap_or_default();
        Some(ToleranceReport {
            source: ReportSource::Operator,
            summary: reported.summary.clone(),
            members: count(reported.members),
            nodes: reported.nodes.map(count),
            zones: reported.zones.map(count),
            node_count: None,
            zone_count: None,
            critical_nodes: reported.critical_nodes.clone(),
            critical_zones: reported.critical_zones.clone(),
        })
    }
}

fn timestamp(time: UnixTime) -> Option<Timestamp> {
    Timestamp::from_second(time.0).ok()
}
