//! Problems of a cluster: each has a reason, a message with fact and consequence, and the advice that resolves its
//! cause. The condition Degraded, warning events, the status and the plugin report the same problems.

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::Plan;

use super::cause::{self, Cause};
use super::conditions::Progress;
use super::rollout;
use crate::actions::{ActionContext, sentence};
use crate::availability::Alarm;
use crate::decide::Etcd;
use crate::facts::OwnedObject;
use crate::names::Serial;
use crate::plan::EtcdWait;
use crate::view::{ClusterView, MemberView};

/// A problem of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    /// The fact and its consequence, in sentences.
    pub(super) message: String,
    /// The action that is required from a user, in sentences; empty if none is.
    pub(super) advice: String,
    /// The member that the problem is about.
    pub(super) member: Option<Serial>,
}

impl Problem {
    /// Returns the problem of a wait that a user has to end.
    fn of_wait(context: &ActionContext<'_>, wait: &EtcdWait) -> Option<Self> {
        let text = wait.problem(context);
        Some(Self {
            reason: wait.degraded_reason(context)?,
            message: text.message,
            advice: text.advice,
            member: None,
        })
    }

    /// Returns true if clients are not served because of the problem. It comes before every other one.
    pub(super) fn is_outage(&self) -> bool {
        matches!(
            self.reason,
            Reason::QuorumLost
                | Reason::DataLost
                | Reason::NoSpace
                | Reason::DataCorrupt
                | Reason::NotServing
        )
    }

    /// Returns message and advice as one text.
    pub(super) fn text(&self) -> String {
        if self.advice.is_empty() {
            self.message.clone()
        } else {
            format!("{} {}", sentence(&self.message), self.advice)
        }
    }
}

/// Returns the problems of a cluster, the worst first: outages, then those that a user has to resolve, then members.
pub(super) fn problems(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    progress: Progress,
) -> Vec<Problem> {
    let is_planned = rollout::is_planned_outage(context);
    let is_paused = context.facts.cluster.is_paused;
    // A paused operator plans nothing, and does not wait for a quorum.
    let no_quorum = is_paused.then_some(&EtcdWait::NoQuorum);
    let waits = plan.waits.iter().chain(no_quorum);
    let waits = waits.filter_map(|wait| Problem::of_wait(context, wait));
    // The restart of a cluster of one or two members was announced by an event.
    let waits = waits.filter(|problem| !(is_planned && problem.reason == Reason::QuorumLost));
    let mut problems: Vec<_> = alarms(context)
        .chain(not_serving(context, progress))
        .chain(waits)
        .collect();
    // The sort is stable.
    problems.sort_by_key(|problem| !problem.is_outage());
    let lost_quorum = problems
        .iter()
        .any(|problem| problem.reason == Reason::QuorumLost);
    // A lost quorum names its members.
    if !lost_quorum {
        problems.extend(member_problems(context));
    }
    if is_paused {
        let cluster = &context.observed.desired.name;
        for problem in &mut problems {
            problem.advice = format!(
                "Resume the operator, which recovers no member while it is paused: `kubectl evenkeel resume {cluster}`. {}",
                problem.advice
            );
            problem.advice.truncate(problem.advice.trim_end().len());
        }
    }
    problems
}

/// Returns the problem of a converged cluster whose client Service does not lead to its members. During a change the
/// Service may still route to a member that has stopped.
fn not_serving(context: &ActionContext<'_>, progress: Progress) -> Option<Problem> {
    if progress.reason != Reason::Converged || !context.facts.client_read.is_absent() {
        return None;
    }
    let service = context.object(OwnedObject::ClientService);
    Some(Problem {
        reason: Reason::NotServing,
        message: format!("All members are healthy, but a read through {service} fails."),
        advice: format!(
            "Check the endpoints of {service}, and NetworkPolicies between clients and members."
        ),
        member: None,
    })
}

fn alarms<'c>(context: &'c ActionContext<'_>) -> impl Iterator<Item = Problem> + 'c {
    let cluster = &context.observed.desired.name;
    context.facts.alarms.iter().map(move |alarm| match alarm {
        Alarm::NoSpace => Problem {
            reason: Reason::NoSpace,
            message: "etcd has raised the alarm NOSPACE: a database has reached its quota. etcd rejects writes."
                .to_owned(),
            advice: format!(
                "Raise spec.etcd.quota; or delete keys, compact the history and defragment: `kubectl evenkeel etcdctl {cluster} \
                 -- defrag --cluster`. Then disarm the alarm: `kubectl evenkeel etcdctl {cluster} -- alarm disarm`."
            ),
            member: None,
        },
        Alarm::Corrupt => Problem {
            reason: Reason::DataCorrupt,
            message: "etcd has raised the alarm CORRUPT: the data of members differs. etcd rejects requests.".to_owned(),
            advice: format!(
                "Find the member whose hash differs: `kubectl evenkeel etcdctl {cluster} -- endpoint hashkv --cluster`. \
                 Delete its pod and its PersistentVolumeClaim, then disarm the alarm."
            ),
            member: None,
        },
    })
}

/// Returns the problems of members: pods that need a node or a volume before voters that are down before learners that
/// cannot start.
pub(super) fn member_problems(context: &ActionContext<'_>) -> Vec<Problem> {
    // The members of a deleted resource are expected to terminate.
    let Some(view) = context.view.filter(|view| !view.facts.cluster.is_deleted) else {
        return Vec::new();
    };
    let is_pending = |member: &&MemberView<'_>| {
        let details = view.facts.details.get(&member.serial);
        details.is_some_and(|details| details.node.is_none() && details.pod_problem.is_some())
    };
    let members = || {
        let members = view.members.values();
        members.filter(|member| !super::is_removed(view, member))
    };
    let pending = members()
        .filter(is_pending)
        .filter(|member| !rollout::is_harmless_restart(context, view, member))
        .map(|member| pending_pod(context, view, member));
    let down = members()
        .filter(|member| !is_pending(member) && member.is_voter())
        .filter_map(|member| voter_down(context, view, member));
    let learners = members()
        .filter(|member| !is_pending(member) && !member.is_voter())
        .filter_map(|member| learner_cannot_start(context, view, member));
    pending.chain(down).chain(learners).collect()
}

fn pending_pod(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Problem {
    let name = context.member(member.serial);
    let cause = cause::of(context, view, member);
    Problem {
        reason: cause.reason,
        message: sentence(&format!("Member {name} cannot start: {}", cause.text)),
        advice: cause.advice,
        member: Some(member.serial),
    }
}

/// A voter that restarts is not down yet.
fn voter_down(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<Problem> {
    // A member that answers without a leader takes part in an election. If that lasts, the kubelet reports it as not Ready.
    // A member that had a problem before the election has it until it serves: its pod may be Ready before the next probe.
    let is_electing = !rollout::had_problem(context, member)
        && member.health.is_some()
        && member
            .pod
            .is_some_and(|pod| pod.is_ready && !pod.is_terminating);
    if !view.identity.bootstrapped
        || member.is_serving()
        || is_electing
        || rollout::is_harmless_restart(context, view, member)
    {
        return None;
    }
    // A member that restarts after a problem has not failed with the current spec yet.
    if !rollout::is_restarting(view, member)
        && let Some(message) = rollout::stopped_message(context, view, member)
    {
        return Some(Problem {
            reason: Reason::RolloutStopped,
            message,
            advice: "Correct the spec, or revert its last change.".to_owned(),
            member: Some(member.serial),
        });
    }
    let Cause {
        reason,
        text,
        advice,
    } = cause::of(context, view, member);
    Some(Problem {
        reason,
        message: sentence(&format!(
            "Member {} is not healthy: {text}",
            context.member(member.serial)
        )),
        advice,
        member: Some(member.serial),
    })
}

fn learner_cannot_start(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<Problem> {
    let details = view.facts.details.get(&member.serial)?;
    if member.is_serving() || details.pod_problem.is_none() {
        return None;
    }
    let cause = cause::of(context, view, member);
    Some(Problem {
        reason: cause.reason,
        message: sentence(&format!(
            "Member {} cannot start: {}",
            context.member(member.serial),
            cause.text
        )),
        advice: cause.advice,
        member: Some(member.serial),
    })
}
