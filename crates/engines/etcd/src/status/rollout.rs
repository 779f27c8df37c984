//! Words about members that are brought up to date one by one.

use std::time::Duration;

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::UnixTime;

use super::messages::Messages;
use crate::names::Serial;
use crate::view::{ClusterView, MemberView};

/// What is done when the version changes, up or down.
const UPGRADING: &str = "Upgrading";

/// How far members have been brought up to date.
pub(super) struct RolloutProgress {
    /// What is done, in a word.
    pub(super) what: &'static str,
    /// How many are, the one that is at it included.
    done: usize,
    /// Of how many.
    all: usize,
    /// Whether whoever leads is yet to come.
    leader_last: bool,
}

impl RolloutProgress {
    /// Of a cluster in which some members are out of date; nothing if none is.
    pub(super) fn of(view: &ClusterView<'_>) -> Option<Self> {
        let (all, left) = (
            view.voters().count(),
            view.voters()
                .filter(|one| view.is_outdated_or_misplaced(one))
                .count(),
        );
        let well = view
            .voters()
            .filter(|one| one.is_serving() && !view.is_outdated_or_misplaced(one))
            .count();
        if left == 0 || !view.identity.bootstrapped {
            return None;
        }
        let desired = view.facts.cluster.version;
        let of_another = |member: &MemberView<'_>| {
            member
                .pod
                .and_then(|pod| pod.version)
                .is_some_and(|version| version != desired)
        };
        let leads = |member: &MemberView<'_>| member.health.is_some_and(|health| health.is_leader);
        Some(Self {
            what: if view.voters().any(of_another) {
                UPGRADING
            } else {
                "Updating"
            },
            // Those that are well as they are wanted, and the one whose turn it is.
            done: (well + 1).min(all),
            all,
            leader_last: view
                .voters()
                .any(|member| leads(member) && view.is_outdated_or_misplaced(member))
                && left > 1,
        })
    }

    /// The same for programs.
    pub(super) fn reason(&self) -> Reason {
        if self.what == UPGRADING {
            Reason::Upgrading
        } else {
            Reason::Updating
        }
    }

    /// That nothing is done before a window opens, in a few words.
    pub(super) fn waits(&self, opens: UnixTime) -> String {
        let what = if self.what == UPGRADING {
            "Upgrade"
        } else {
            "Update"
        };
        format!(
            "{what} waits until {}",
            jiff::Timestamp::from_second(opens.0).unwrap_or_default()
        )
    }

    /// In a few words.
    pub(super) fn phrase(&self) -> String {
        let leader_last = if self.leader_last {
            ", leader last"
        } else {
            ""
        };
        format!("{} {} of {}{leader_last}", self.what, self.done, self.all)
    }
}

/// Why a member is restarted.
pub(super) fn why(view: &ClusterView<'_>, serial: Serial, spared: bool) -> String {
    let pod = view.members.get(&serial).and_then(|member| member.pod);
    let (desired, left) = (
        &view.facts.cluster,
        view.voters()
            .filter(|one| view.is_outdated_or_misplaced(one))
            .count(),
    );
    let why = match pod {
        Some(pod)
            if pod
                .version
                .is_some_and(|version| version != desired.version) =>
        {
            let version = pod
                .version
                .map(|version| version.to_string())
                .unwrap_or_default();
            format!("it runs {version}, and {} is wanted", desired.version)
        }
        Some(pod)
            if pod
                .template_hash
                .is_some_and(|inputs| inputs != desired.pod_template_hash) =>
        {
            "the spec has changed since it was started".to_owned()
        }
        _ => "a restart was asked for".to_owned(),
    };
    let others = if spared {
        format!("everybody else is well ({left} to go)")
    } else {
        "clients cannot write meanwhile, since there is no majority without it".to_owned()
    };
    format!("{why}; {others}")
}

/// How long a member may take to come back until that is news.
const COMES_BACK: Duration = Duration::from_secs(60);

/// Whether one that does not serve is merely the one whose turn it is: it was restarted a moment ago, and nothing is known to be in
/// its way.
pub(super) fn is_at_it(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    if view.facts.cluster.is_paused {
        // Nothing brings it back.
        return false;
    }
    let is_new = member
        .pod
        .is_none_or(|pod| pod.is_terminating || view.facts.now.since(pod.created_at) < COMES_BACK);
    RolloutProgress::of(view).is_some() && is_new && trouble(view, member).is_none()
}

/// That a member does not come back as it is wanted now, and what to do.
pub(super) fn stopped(
    words: &Messages<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<String> {
    RolloutProgress::of(view)?;
    let pod = member.pod.filter(|pod| {
        !pod.is_terminating && !view.is_outdated(member) && !view.same_template_works_elsewhere(pod)
    })?;
    let why = trouble(view, member)
        .map(|trouble| format!(": {trouble}"))
        .unwrap_or_default();
    let version = pod
        .version
        .map(|version| format!(", etcd {version}"))
        .unwrap_or_default();
    Some(format!(
        "{} does not come back as the spec has it now{version}{why}. The others go on as they were: mend the spec, or put back what it \
         was",
        words.member(member.serial)
    ))
}

fn trouble<'v>(view: &'v ClusterView<'_>, member: &MemberView<'_>) -> Option<&'v str> {
    view.facts
        .details
        .get(&member.serial)?
        .pod_problem
        .as_deref()
}
