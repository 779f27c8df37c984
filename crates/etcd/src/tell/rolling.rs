//! Words about members that are brought up to date one by one.

use std::time::Duration;

use evenkeel::Time;
use evenkeel_api::conditions::Reason;

use super::words::Words;
use crate::names::Serial;
use crate::view::{Member, View};

/// What is done when the version changes, up or down.
const UPGRADING: &str = "Upgrading";

/// How far members have been brought up to date.
pub(super) struct Rolling {
    /// What is done, in a word.
    pub(super) what: &'static str,
    /// How many are, the one that is at it included.
    done: usize,
    /// Of how many.
    all: usize,
    /// Whether whoever leads is yet to come.
    leader_last: bool,
}

impl Rolling {
    /// Of a cluster in which some members are out of date; nothing if none is.
    pub(super) fn of(view: &View<'_>) -> Option<Self> {
        let (all, left) = (view.voters().count(), view.voters().filter(|one| view.is_behind(one)).count());
        let well = view.voters().filter(|one| one.serves() && !view.is_behind(one)).count();
        if left == 0 || !view.identity.sealed {
            return None;
        }
        let wanted = view.facts.cluster.version;
        let of_another = |member: &Member<'_>| {
            member.pod.and_then(|pod| pod.version).is_some_and(|version| version != wanted)
        };
        let leads = |member: &Member<'_>| member.voice.is_some_and(|voice| voice.leads);
        Some(Self {
            what: if view.voters().any(of_another) { UPGRADING } else { "Updating" },
            // Those that are well as they are wanted, and the one whose turn it is.
            done: (well + 1).min(all),
            all,
            leader_last: view.voters().any(|member| leads(member) && view.is_behind(member)) && left > 1,
        })
    }

    /// The same for programs.
    pub(super) fn reason(&self) -> Reason {
        if self.what == UPGRADING { Reason::Upgrading } else { Reason::Updating }
    }

    /// That nothing is done before a window opens, in a few words.
    pub(super) fn waits(&self, opens: Time) -> String {
        let what = if self.what == UPGRADING { "Upgrade" } else { "Update" };
        format!("{what} waits until {}", jiff::Timestamp::from_second(opens.0).unwrap_or_default())
    }

    /// In a few words.
    pub(super) fn phrase(&self) -> String {
        let leader_last = if self.leader_last { ", leader last" } else { "" };
        format!("{} {} of {}{leader_last}", self.what, self.done, self.all)
    }
}

/// Why a member is restarted.
pub(super) fn why(view: &View<'_>, serial: Serial, spared: bool) -> String {
    let pod = view.members.get(&serial).and_then(|member| member.pod);
    let (wanted, left) = (&view.facts.cluster, view.voters().filter(|one| view.is_behind(one)).count());
    let why = match pod {
        Some(pod) if pod.version.is_some_and(|version| version != wanted.version) => {
            let version = pod.version.map(|version| version.to_string()).unwrap_or_default();
            format!("it runs {version}, and {} is wanted", wanted.version)
        }
        Some(pod) if pod.inputs.is_some_and(|inputs| inputs != wanted.inputs) => {
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
pub(super) fn is_at_it(view: &View<'_>, member: &Member<'_>) -> bool {
    if view.facts.cluster.paused {
        // Nothing brings it back.
        return false;
    }
    let is_new = member.pod.is_none_or(|pod| pod.deleting || view.facts.now.since(pod.created) < COMES_BACK);
    Rolling::of(view).is_some() && is_new && trouble(view, member).is_none()
}

/// That a member does not come back as it is wanted now, and what to do.
pub(super) fn stopped(words: &Words<'_>, view: &View<'_>, member: &Member<'_>) -> Option<String> {
    Rolling::of(view)?;
    let pod =
        member.pod.filter(|pod| !pod.deleting && !view.is_outdated(member) && !view.suits_others(pod))?;
    let why = trouble(view, member).map(|trouble| format!(": {trouble}")).unwrap_or_default();
    let version = pod.version.map(|version| format!(", etcd {version}")).unwrap_or_default();
    Some(format!(
        "{} does not come back as the spec has it now{version}{why}. The others go on as they were: mend the spec, or put back what it \
         was",
        words.member(member.serial)
    ))
}

fn trouble<'v>(view: &'v View<'_>, member: &Member<'_>) -> Option<&'v str> {
    view.facts.about.get(&member.serial)?.trouble.as_deref()
}
