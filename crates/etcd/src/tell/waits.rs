//! Sentences about what is waited for, and what comes after.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::words::{Words, span};
use crate::decide::dead;
use crate::facts::{Facts, Stranger};
use crate::names::Serial;
use crate::plan::{Wait, What};
use crate::view::{Data, View};

impl Words<'_> {
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
                let moves = view.is_some_and(|view| view.voters().any(|voter| view.must_be_replaced(voter)));
                let what = if moves { "replaced" } else { "restarted" };
                format!("{} must be well before the next member is {what}{held}", self.member(*serial))
            }
            Wait::TooFew => {
                "members that are out of date are not restarted while the others could not agree without them"
                    .to_owned()
            }
            Wait::Misnamed(serial, says) => format!(
                "{} is up to date, and says that it is etcd {says}, where {} is wanted: no other member follows it. Its image holds \
                 something else than spec.version says: mend spec.image, or spec.version",
                self.member(*serial),
                facts.cluster.version
            ),
            Wait::Growing(serial) => format!(
                "the volume of {} must have grown before members are restarted: see its claim for what is in the way",
                self.member(*serial)
            ),
            Wait::NotRenewed(serial) => {
                let (held, next) = (self.held(view, *serial), facts.cluster.next);
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                let runs = facts.cluster.version;
                format!(
                    "{} must be well and run {runs} before the members' logs are renewed, and {next} follows{held}",
                    self.member(*serial)
                )
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
            Wait::NotRenewed(_) => "the members' logs are renewed",
            Wait::Window(_) | Wait::Unwell(_) | Wait::TooFew | Wait::Growing(_) | Wait::Misnamed(..) => {
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
