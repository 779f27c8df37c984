//! Phrases and sentences about a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel::{Action, Plan, Seen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::named;
use super::rolling::Rolling;
use crate::decide::{Etcd, dead};
use crate::facts::{Facts, Object, Start, Stranger};
use crate::identity::{Change, Intent, Uid};
use crate::names::Serial;
use crate::observe::Found;
use crate::plan::{Apply, Create, Mark, Owned, Step, Turn, Wait, What};
use crate::view::{Data, Member, View};

/// That nothing is amiss, in the fewest words.
pub(super) const HEALTHY: &str = "Healthy";

/// How much of somebody else's complaint fits into a column, in letters.
const COLUMN: usize = 80;

/// Speaks of one cluster.
pub(super) struct Words<'f> {
    found: &'f Found,
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

    fn members(&self, serials: &BTreeSet<Serial>) -> String {
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
        let rolling = Rolling::of(view)?.phrase();
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
            Step::DeletePod { serial, .. } => {
                format!("deleting the pod of {}: {}", self.member(*serial), super::why(step))
            }
            Step::DeleteClaim { serial, .. } => {
                format!("deleting the volume of {}: {}", self.member(*serial), super::why(step))
            }
        }
    }

    fn change(&self, intent: &Intent) -> String {
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

    /// What is waited for, and what ends the wait.
    pub(super) fn wait(&self, facts: &Facts, view: Option<&View<'_>>, wait: &Wait) -> String {
        match wait {
            Wait::Reading(What::Identity) => "the identity cannot be read".to_owned(),
            Wait::Reading(What::Objects) => "pods and claims cannot be read".to_owned(),
            Wait::Paused => "spec.paused is set: nothing is changed until it is false".to_owned(),
            Wait::Contradiction => format!(
                "claims and pods labelled for this cluster do not say the same about which cluster they are of: put the \
                 ConfigMap {} back, or take the label off those that are not its own",
                self.found.wanted.names().identity()
            ),
            Wait::NothingLeft(cluster) => format!(
                "etcd cluster {:x} has lost all its data: no empty one is put in its place. Delete the resource and \
                 create it again to begin anew",
                cluster.0
            ),
            Wait::OldEpochGoes => "pods of a bootstrap that was given up must be gone first".to_owned(),
            Wait::FormerGoes(until) => self.former(*until <= facts.now),
            Wait::SeedStarts(serial) => {
                format!("{} must start and answer{}", self.member(*serial), self.held(view, *serial))
            }
            Wait::NoQuorum => self.quorum(view),
            Wait::Settling(intent) => {
                format!("{} was begun, and etcd does not say yet what became of it", self.change(intent))
            }
            Wait::Joining(serials) => {
                let first = serials.first().map(|serial| self.held(view, *serial)).unwrap_or_default();
                let was_there = serials.iter().all(|serial| is_voter(facts, *serial));
                let what = if was_there { "come back" } else { "join" };
                format!("{} must {what}{first}", self.members(serials))
            }
            Wait::CatchingUp(serial) => {
                format!("{} must catch up before it gets its vote", self.member(*serial))
            }
            Wait::AddUnsafe => "all members must be in place before another is added".to_owned(),
            Wait::Patience(_) => format!(
                "all {} members should be there before clients are let in; those that do not start are not waited for \
                 much longer",
                facts.cluster.members
            ),
            Wait::NameTaken(object) => format!(
                "{} exists and is not this cluster's: delete or rename it, or give the cluster another name",
                self.object(*object)
            ),
            Wait::AuthorityLost(object) => format!(
                "{} is gone or of no use, and members run on certificates that it signed: put it back. No other is made while any of \
                 them runs; none can be renewed meanwhile",
                self.object(*object)
            ),
            Wait::Strangers(strangers) => {
                let told: Vec<_> = strangers.iter().map(|one| stranger(one, facts)).collect();
                format!("{}. No member can be added while it is there", told.join("; "))
            }
            Wait::Window(opens) => format!(
                "members are restarted in the next maintenance window, which opens at {}",
                jiff::Timestamp::from_second(opens.0).unwrap_or_default()
            ),
            Wait::Unwell(serial) => {
                let held = self.held(view, *serial);
                format!("{} must be well before the next member is restarted{held}", self.member(*serial))
            }
            Wait::TooFew => {
                "members that are out of date are not restarted while the others could not agree without them"
                    .to_owned()
            }
            Wait::Replacing(serial) => {
                format!("{} must join first: members are replaced one at a time", self.member(*serial))
            }
            Wait::Enough(serial, until) => format!(
                "{} would be replaced, but three members were within an hour, and it waits until {}: find out why members \
                 fail before more of them do",
                self.member(*serial),
                jiff::Timestamp::from_second(until.0).unwrap_or_default()
            ),
        }
    }

    /// That what went with a former resource goes, what of it is left, and, when that takes long, what to do.
    fn former(&self, late: bool) -> String {
        let named = |kind: &str, metadata: &ObjectMeta| {
            format!("{kind} {}", metadata.name.as_deref().unwrap_or_default())
        };
        let pods = self.found.pods.values().map(|pod| named("pod", &pod.metadata));
        let claims = self.found.claims.values().map(|claim| named("claim", &claim.metadata));
        let left: Vec<_> = pods.chain(claims).collect();
        let left = if left.is_empty() { String::new() } else { format!(" ({} left)", left.join(", ")) };
        let what = "what belonged to the resource of this name that was deleted must be gone first";
        let help = if late {
            ", but it takes long. A pod whose node is gone for good goes with `kubectl delete pod --force`; a claim when no pod uses it \
             and nobody's finalizer holds it"
        } else {
            ""
        };
        format!("{what}{left}: Kubernetes deletes it{help}")
    }

    /// What is done about a member that may come back, and has not yet.
    pub(super) fn waited_for(&self, view: Option<&View<'_>>) -> Option<String> {
        let (serial, _) = dead::waited_for(view?)?;
        let after = span(self.found.wanted.replace_after);
        Some(format!("{} is replaced unless it comes back within {after}", self.member(serial)))
    }

    /// What is done next, once a wait has ended.
    pub(super) fn next(&self, facts: &Facts, wait: &Wait) -> Option<String> {
        let next = match wait {
            Wait::Paused | Wait::Contradiction | Wait::NothingLeft(_) => return None,
            Wait::Strangers(strangers) => {
                return strangers
                    .iter()
                    .find(|one| !one.started)
                    .map(|one| format!("the unknown member {:x} is removed", one.id.0));
            }
            Wait::Window(_) | Wait::Unwell(_) | Wait::TooFew => {
                "the next member that is out of date is restarted"
            }
            Wait::Replacing(_) => "the next member that does not come back is replaced",
            Wait::Enough(serial, _) => return Some(format!("{} is replaced", self.member(*serial))),
            Wait::OldEpochGoes => "the bootstrap begins again, under new names",
            Wait::FormerGoes(_) => "a new cluster is formed",
            Wait::SeedStarts(_) if facts.cluster.members > 1 => "the other members join it",
            Wait::SeedStarts(_) | Wait::Patience(_) => "clients are let in",
            Wait::NoQuorum | Wait::Reading(_) => "members that are missing are brought back or replaced",
            Wait::Settling(_) => "the next change of the membership, if one is needed",
            Wait::Joining(serials) => {
                if serials.iter().all(|serial| is_voter(facts, *serial)) {
                    return None;
                }
                let plural = if serials.len() > 1 { "they get their votes" } else { "it gets its vote" };
                return Some(plural.to_owned());
            }
            Wait::CatchingUp(serial) => return Some(format!("{} gets its vote", self.member(*serial))),
            Wait::AddUnsafe => "another member is added",
            Wait::NameTaken(_) => "what is missing is created",
            Wait::AuthorityLost(_) => "certificates are renewed in time again",
        };
        Some(next.to_owned())
    }

    fn held(&self, view: Option<&View<'_>>, serial: Serial) -> String {
        let trouble = view.and_then(|view| view.facts.about.get(&serial)?.trouble.clone());
        trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default()
    }

    fn quorum(&self, view: Option<&View<'_>>) -> String {
        let Some(view) = view else { return "a majority of voters must answer".to_owned() };
        if view.registry {
            // A majority answers, and a step that takes one away would leave too few.
            let down = view.voters().filter(|member| !member.serves() && member.data != Data::Gone);
            let down: BTreeSet<_> = down.map(|member| member.serial).collect();
            let who = if down.is_empty() { "more voters".to_owned() } else { self.members(&down) };
            return format!(
                "{who} must serve again before a member is removed, or too few would be left to agree"
            );
        }
        if view.members.is_empty() && !view.kept.is_empty() {
            let kept: BTreeSet<_> = view.kept.iter().map(|claim| claim.serial).collect();
            return format!(
                "no pod and no volume of a member is left. The volumes of {}, which were removed before, hold older data: put the \
                 members' claims back if you can; to begin anew, delete the resource, those claims and the ConfigMap {}, and \
                 create it again",
                self.members(&kept),
                self.found.wanted.names().identity()
            );
        }
        if view.members.is_empty() {
            return format!(
                "no pod and no volume of this cluster is left, and no empty one is put in its place: put the volumes' \
                 claims back if you can; to begin anew, delete the resource and the ConfigMap {}, and create it again",
                self.found.wanted.names().identity()
            );
        }
        let silent = view.members.values().filter(|member| member.voice.is_none());
        let silent: BTreeSet<_> = silent.map(|member| member.serial).collect();
        if silent.is_empty() {
            "the members answer, and must agree on a leader; if they do not, they cannot reach each other"
                .to_owned()
        } else {
            let why = |serial: &Serial| format!("{}{}", self.member(*serial), self.held(Some(view), *serial));
            let silent: Vec<_> = silent.iter().map(why).collect();
            format!("a majority of voters must answer; silent: {}", silent.join(", "))
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

/// Whether etcd lists it with a vote.
fn is_voter(facts: &Facts, serial: Serial) -> bool {
    let members = facts.membership.present().map(|told| told.members.as_slice()).unwrap_or_default();
    members.iter().any(|entry| entry.serial == serial && !entry.learner)
}

/// What is to be known of a member that somebody else added.
fn stranger(one: &Stranger, facts: &Facts) -> String {
    let id = one.id.0;
    if one.started {
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and has started: it is left alone. If nobody needs it, \
             remove it with etcdctl member remove {id:x}"
        )
    } else {
        let grace = span(facts.cluster.replace_after);
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and never started: it is removed unless it starts \
             within {grace}"
        )
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
        Turn::ResourceReplaced => "beginning the bootstrap again: the resource was created anew",
        Turn::Adopt => "taking up the cluster that is there: the resource was created anew",
        Turn::PassOver => "bringing the identity up to date: it is an older one",
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
