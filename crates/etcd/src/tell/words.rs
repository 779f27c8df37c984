//! Phrases and sentences about a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel::{Action, Plan, Seen};
use evenkeel_api::quantity;

use super::named;
use super::rolling::Rolling;
use crate::decide::Etcd;
use crate::facts::{Facts, Object, Start};
use crate::identity::{Change, Intent, Uid};
use crate::names::Serial;
use crate::observe::Found;
use crate::plan::{Apply, Create, Mark, Owned, Step, Turn, Wait};
use crate::view::{Data, Member, View};

/// That nothing is amiss, in the fewest words.
pub(super) const HEALTHY: &str = "Healthy";

/// How much of somebody else's complaint fits into a column, in letters.
const COLUMN: usize = 80;

/// Speaks of one cluster.
pub(super) struct Words<'f> {
    pub(super) found: &'f Found,
    facts: &'f Facts,
}

impl<'f> Words<'f> {
    pub(super) fn of(found: &'f Found, facts: &'f Facts) -> Self {
        Self { found, facts }
    }

    /// The member whose pod this is.
    fn pod(&self, uid: Uid) -> String {
        let pods = self.facts.pods.present().into_iter().flatten();
        let serial = pods.filter(|pod| pod.uid == uid).map(|pod| pod.serial).next();
        serial.map_or_else(|| "a pod".to_owned(), |serial| self.member(serial))
    }

    /// The member whose claim this is.
    fn claim(&self, uid: Uid) -> String {
        let claims = self.facts.claims.present().into_iter().flatten();
        let serial = claims.filter(|claim| claim.uid == uid).map(|claim| claim.serial).next();
        serial.map_or_else(|| "a member".to_owned(), |serial| self.member(serial))
    }

    pub(super) fn member(&self, serial: Serial) -> String {
        named(self.found, serial)
    }

    pub(super) fn members(&self, serials: &BTreeSet<Serial>) -> String {
        serials.iter().map(|serial| self.member(*serial)).collect::<Vec<_>>().join(", ")
    }

    /// A few words: what is being done, or how the cluster is.
    pub(super) fn phrase(&self, facts: &Facts, view: Option<&View<'_>>, plan: &Plan<Etcd>) -> String {
        if facts.cluster.deleted {
            return "Being deleted".to_owned();
        }
        let first = plan.status.waits.first();
        match (view, first) {
            (_, Some(Wait::Paused)) => "Paused".to_owned(),
            (_, Some(Wait::Reading(_))) => "Cannot read its objects".to_owned(),
            (_, Some(Wait::Contradiction)) => "Volumes and pods contradict each other".to_owned(),
            (_, Some(Wait::NothingLeft(_))) => "All data is gone".to_owned(),
            (_, Some(Wait::FormerGoes(_))) => "Waiting until the former cluster is gone".to_owned(),
            // Nothing is worse for whoever uses the cluster.
            (Some(view), _) if view.identity.sealed && !view.registry => self.no_quorum(view),
            (_, Some(Wait::NameTaken(object))) => format!("Name taken: {}", self.object(*object)),
            (_, Some(Wait::AuthorityLost(object))) => format!("Gone or of no use: {}", self.object(*object)),
            (_, Some(Wait::Strangers(strangers))) => format!("Unknown members in etcd: {}", strangers.len()),
            (Some(view), _) if !view.identity.sealed => self.bootstrap(facts, view),
            (Some(view), _) => self.running(facts, view),
            (None, _) if !facts.written.is_empty() => "Rebuilding its identity".to_owned(),
            (None, _) => "Beginning".to_owned(),
        }
    }

    fn bootstrap(&self, facts: &Facts, view: &View<'_>) -> String {
        let up = view.registered().filter(|member| member.serves()).count();
        let held_up = view.members.values().find(|member| self.trouble(view, member).is_some());
        match held_up {
            Some(member) => {
                let trouble = self.trouble(view, member).unwrap_or_default();
                format!(
                    "Bootstrapping {up} of {}: {}: {trouble}",
                    facts.cluster.members,
                    self.member(member.serial)
                )
            }
            None => format!("Bootstrapping {up} of {}", facts.cluster.members),
        }
    }

    fn no_quorum(&self, view: &View<'_>) -> String {
        let up = view.members.values().filter(|member| member.voice.is_some()).count();
        match view.members.len() {
            0 => "All pods and volumes are gone".to_owned(),
            all if up == all => format!("No quorum: all {all} answer, and agree on no leader"),
            all => format!("No quorum: {up} of {all} answer"),
        }
    }

    fn running(&self, facts: &Facts, view: &View<'_>) -> String {
        if let Some(member) = view.registered().find(|member| member.data == Data::Gone) {
            return format!("Replacing {}: its data is gone", self.member(member.serial));
        }
        if let Some(phrase) = self.rolling(view) {
            return phrase;
        }
        if let Some(next) = facts.cluster.next.filter(|_| view.registered().all(Member::serves)) {
            return format!("Preparing {next}: renewing the log");
        }
        if let Some(member) = view.learners().next() {
            let held_up =
                self.trouble(view, member).map(|trouble| format!(": {trouble}")).unwrap_or_default();
            return format!("Joining {}{held_up}", self.member(member.serial));
        }
        let (there, wanted) = (view.registered().count(), usize::from(facts.cluster.members));
        if there < wanted {
            return format!("Adding a member: {there} of {wanted}");
        }
        if there > wanted {
            return format!("Removing a member: {there} there, {wanted} wanted");
        }
        match view.registered().find(|member| !member.serves()) {
            Some(member) => {
                let held_up =
                    self.trouble(view, member).map(|trouble| format!(": {trouble}")).unwrap_or_default();
                format!("Bringing back {}{held_up}", self.member(member.serial))
            }
            None => match facts.served {
                Seen::Present(()) => HEALTHY.to_owned(),
                Seen::Absent => "Not serving".to_owned(),
                Seen::Unknown => "All members are up: not asked as clients do yet".to_owned(),
            },
        }
    }

    /// How far members have been brought up to date, and what is in the way of that.
    fn rolling(&self, view: &View<'_>) -> Option<String> {
        let rolling = Rolling::of(view)?;
        let opens = view.facts.cluster.disrupt.waits_until(view.facts.now);
        if let Some(opens) = opens.filter(|_| view.registered().all(Member::serves)) {
            return Some(rolling.waits(opens));
        }
        let rolling = rolling.phrase();
        let held_up = view.registered().filter(|member| !member.serves()).find_map(|member| {
            let trouble = self.trouble(view, member)?;
            Some(format!(": {}: {trouble}", self.member(member.serial)))
        });
        Some(format!("{rolling}{}", held_up.unwrap_or_default()))
    }

    /// What holds a member's pod up, cut to what fits into a column.
    fn trouble(&self, view: &View<'_>, member: &Member<'_>) -> Option<String> {
        let trouble = view.facts.about.get(&member.serial)?.trouble.as_ref()?;
        // Its first sentence; dots within words, as in the name of an image, do not end one.
        let first = trouble.lines().next().unwrap_or_default();
        let short = first.split(". ").next().unwrap_or_default().trim_end_matches('.');
        if short.chars().count() <= COLUMN {
            return Some(short.to_owned());
        }
        Some(short.chars().take(COLUMN - 1).chain(['…']).collect())
    }

    /// What is to be said of a member.
    pub(super) fn about(&self, member: &Member<'_>, trouble: Option<String>) -> String {
        match (member.data, trouble) {
            (Data::Gone, _) => "its data is gone; it is being replaced".to_owned(),
            (_, Some(trouble)) => trouble,
            (_, None) if member.pod.is_none() => "it has no pod".to_owned(),
            (_, None) if member.pod.is_some_and(|pod| pod.deleting) => "its pod is going".to_owned(),
            (_, None) if member.pod.is_some_and(|pod| pod.finished) => "its pod has ended".to_owned(),
            (_, None) if member.pod.is_some_and(|pod| pod.start == Start::Held) => {
                "it waits for its turn".to_owned()
            }
            (_, None) if member.voice.is_none() => "etcd does not answer".to_owned(),
            (_, None) => String::new(),
        }
    }

    /// What the plan does, as a sentence; nothing if it does nothing.
    pub(super) fn doing(&self, plan: &Plan<Etcd>) -> String {
        if let Some(step) = &plan.step {
            return self.step(step);
        }
        match plan.create.first() {
            Some(create) => self.create(create),
            None if !plan.apply.is_empty() => "bringing services and certificates up to date".to_owned(),
            None => plan.mark.first().map(|mark| self.mark(mark)).unwrap_or_default(),
        }
    }

    /// What one thing of a plan does.
    pub(super) fn action(&self, action: &Action<'_, Etcd>) -> String {
        match action {
            Action::Create(create) => self.create(create),
            Action::Mark(mark) => self.mark(mark),
            Action::Apply(Apply::Object(object)) => format!("bringing {} up to date", self.object(*object)),
            Action::Apply(Apply::Budget { min, .. }) => format!("having evictions leave {min} with a vote"),
            Action::Step(step) => self.step(step),
        }
    }

    fn create(&self, create: &Create) -> String {
        match create {
            Create::Identity(_) => "giving the cluster its identity".to_owned(),
            Create::Claim { serial, .. } => format!("creating the volume of {}", self.member(*serial)),
            Create::Pod { serial, .. } => format!("creating the pod of {}", self.member(*serial)),
        }
    }

    fn mark(&self, mark: &Mark) -> String {
        let pod = |uid: &Uid| self.pod(*uid);
        match mark {
            Mark::Start { pod: uid, to: Start::Join(_), .. } => format!("letting {} join", pod(uid)),
            Mark::Start { pod: uid, .. } => format!("starting {}", pod(uid)),
            Mark::JoinedOn { claim, .. } => {
                format!("noting on which volume {} has joined", self.claim(*claim))
            }
            Mark::Turn { pod: uid, .. } => format!("noting that {} has joined", pod(uid)),
            Mark::Route { pod: uid } => format!("letting clients reach {}", pod(uid)),
            Mark::Unroute { pod: uid } => format!("leading clients away from {}, which goes", pod(uid)),
            Mark::Removed { claim, at } => {
                let name = self.claim(*claim);
                if at.is_none() {
                    return format!("noting that {name} is a member");
                }
                format!("keeping the volume of {name} for {}", span(self.found.wanted.keep_removed_for))
            }
            Mark::Version { claim, version } => {
                format!("noting that {} runs {version}", self.claim(*claim))
            }
            Mark::Inputs { pod: uid, .. } => format!("noting from what the pod of {} was built", pod(uid)),
            Mark::Grow { claim, to } => {
                format!("growing the volume of {} to {}", self.claim(*claim), quantity::binary(*to))
            }
            Mark::Accept => "noting the spec".to_owned(),
            Mark::Own { what, owned } => {
                let what = match what {
                    Owned::Identity => "the identity".to_owned(),
                    Owned::Claim(claim) => format!("the volume of {}", self.claim(*claim)),
                    Owned::Pod(uid) => format!("the pod of {}", pod(uid)),
                };
                if *owned {
                    format!("having {what} go with the resource")
                } else {
                    format!("having {what} stay when the resource goes")
                }
            }
        }
    }

    fn step(&self, step: &Step) -> String {
        match step {
            Step::Identity { why, .. } => turn(*why).to_owned(),
            Step::Call { intent, .. } => self.change(intent),
            Step::Restart { serial, heir: Some(heir), .. } => {
                format!("restarting {}, which hands the lead to {}", self.member(*serial), self.member(*heir))
            }
            Step::Restart { serial, .. } => format!("restarting {}", self.member(*serial)),
            Step::Renew { .. } => {
                let next = self.facts.cluster.next.map(|next| next.to_string()).unwrap_or_default();
                format!("renewing the members' logs, before {next} is entered")
            }
            Step::DeletePod { serial, .. } => {
                format!("deleting the pod of {}: {}", self.member(*serial), super::why(step))
            }
            Step::DeleteClaim { serial, .. } => {
                format!("deleting the volume of {}: {}", self.member(*serial), super::why(step))
            }
        }
    }

    pub(super) fn change(&self, intent: &Intent) -> String {
        match intent.change {
            Change::Add(serial) => format!("adding {} as a learner", self.member(serial)),
            Change::Promote(serial) => format!("giving {} its vote", self.member(serial)),
            Change::Remove(serial) if intent.replaces => {
                format!("replacing {}, which has not come back", self.member(serial))
            }
            Change::Remove(serial) => format!("removing {}", self.member(serial)),
            Change::Expel(id) => format!("removing the unknown member {:x}, which never started", id.0),
        }
    }

    pub(super) fn object(&self, object: Object) -> String {
        let names = self.found.wanted.names();
        match object {
            Object::Identity => format!("the ConfigMap {}", names.identity()),
            Object::PeerService => format!("the Service {}", names.peer_service()),
            Object::ClientService => format!("the Service {}", names.client_service()),
            Object::Budget => format!("the PodDisruptionBudget {}", self.found.wanted.name),
            secret => {
                let name = crate::build::tls::secret_name(&self.found.wanted, secret).unwrap_or_default();
                format!("the Secret {name}")
            }
        }
    }
}

/// A duration as users write it.
pub(super) fn span(length: Duration) -> String {
    let (hours, minutes, seconds) =
        (length.as_secs() / 3600, length.as_secs() / 60 % 60, length.as_secs() % 60);
    let parts = [(hours, 'h'), (minutes, 'm'), (seconds, 's')];
    let parts: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if parts.is_empty() { "0s".to_owned() } else { parts }
}

/// What is done when an identity is changed.
fn turn(why: Turn) -> &'static str {
    match why {
        Turn::SeedStarts => "letting the first member start",
        Turn::Formed(_) => "noting which cluster the first member has formed",
        Turn::Seal => "letting clients in",
        Turn::Settle => "closing a change of the membership",
        Turn::SeedLost => "beginning the bootstrap again: its first member is lost",
        Turn::SeedMoves => "beginning the bootstrap again: spec.storage was changed",
        Turn::ResourceReplaced => "beginning the bootstrap again: the resource was created anew",
        Turn::Adopt => "taking up the cluster that is there: the resource was created anew",
        Turn::PassOver => "bringing the identity up to date: it is an older one",
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
