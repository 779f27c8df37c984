//! Sentences about what is waited for, and what comes after.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::messages::{Messages, format_duration};
use crate::decide::replace;
use crate::facts::{EtcdFacts, UnknownMember};
use crate::names::Serial;
use crate::plan::{EtcdWait, UnreadableObjects};
use crate::view::{ClusterView, DataState};

impl Messages<'_> {
    /// What is waited for, and what ends the wait.
    pub(super) fn wait(
        &self,
        facts: &EtcdFacts,
        view: Option<&ClusterView<'_>>,
        wait: &EtcdWait,
    ) -> String {
        match wait {
            EtcdWait::Unreadable(UnreadableObjects::Identity) => "the identity cannot be read".to_owned(),
            EtcdWait::Unreadable(UnreadableObjects::Objects) => "pods and claims cannot be read".to_owned(),
            EtcdWait::Paused => "spec.paused is set: nothing is changed until it is false".to_owned(),
            EtcdWait::InconsistentObjects => format!(
                "claims and pods labelled for this cluster do not say the same about which cluster they are of: put the \
                 ConfigMap {} back, or take the label off those that are not its own",
                self.observed.desired.names().identity()
            ),
            EtcdWait::DataLost(cluster) => format!(
                "etcd cluster {:x} has lost all its data: no empty one is put in its place. Delete the resource and \
                 create it again to begin anew",
                cluster.0
            ),
            EtcdWait::OldEpochDeletion => "pods of a bootstrap that was given up must be gone first".to_owned(),
            EtcdWait::PreviousResourceDeletion(until) => self.former(*until <= facts.now),
            EtcdWait::SeedStart(serial) => {
                format!("{} must start and answer{}", self.member(*serial), self.held(view, *serial))
            }
            EtcdWait::NoQuorum => self.quorum(view),
            EtcdWait::OpenIntent(intent) => {
                format!("{} was begun, and etcd does not say yet what became of it", self.change(intent))
            }
            EtcdWait::MemberJoin(serials) => {
                let first = serials.first().map(|serial| self.held(view, *serial)).unwrap_or_default();
                let was_there = serials.iter().all(|serial| is_voter(facts, *serial));
                let what = if was_there { "come back" } else { "join" };
                format!("{} must {what}{first}", self.members(serials))
            }
            EtcdWait::LearnerCatchUp(serial) => {
                format!("{} must catch up before it gets its vote", self.member(*serial))
            }
            EtcdWait::UnsafeToAdd => "all members must be in place before another is added".to_owned(),
            EtcdWait::BootstrapTimeout(_) => format!(
                "all {} members should be there before clients are let in; those that do not start are not waited for \
                 much longer",
                facts.cluster.members
            ),
            EtcdWait::NameConflict(object) => format!(
                "{} exists and is not this cluster's: delete or rename it, or give the cluster another name",
                self.object(*object)
            ),
            EtcdWait::CaMissing(object) => format!(
                "{} is gone or of no use, and members run on certificates that it signed: put it back. No other is made while any of \
                 them runs; none can be renewed meanwhile",
                self.object(*object)
            ),
            EtcdWait::UnknownMembers(unknown_members) => {
                let told: Vec<_> = unknown_members.iter().map(|one| unknown(one, facts)).collect();
                format!("{}. No member can be added while it is there", told.join("; "))
            }
            EtcdWait::MaintenanceWindow(opens) => format!(
                "members are restarted in the next maintenance window, which opens at {}",
                jiff::Timestamp::from_second(opens.0).unwrap_or_default()
            ),
            EtcdWait::UnhealthyMember(serial) => {
                let held = self.held(view, *serial);
                let moves = view.is_some_and(|view| view.voters().any(|voter| view.must_be_replaced(voter)));
                let what = if moves { "replaced" } else { "restarted" };
                format!("{} must be well before the next member is {what}{held}", self.member(*serial))
            }
            EtcdWait::TooFewVoters => {
                "members that are out of date are not restarted while the others could not agree without them"
                    .to_owned()
            }
            EtcdWait::VersionMismatch(serial, says) => format!(
                "{} is up to date, and says that it is etcd {says}, where {} is wanted: no other member follows it. Its image holds \
                 something else than spec.version says: mend spec.image, or spec.version",
                self.member(*serial),
                facts.cluster.version
            ),
            EtcdWait::VolumeResize(serial) => format!(
                "the volume of {} must have grown before members are restarted: see its claim for what is in the way",
                self.member(*serial)
            ),
            EtcdWait::SnapshotBlocked(serial) => {
                let (held, next) = (self.held(view, *serial), facts.cluster.next_version);
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                let runs = facts.cluster.version;
                format!(
                    "{} must be well and run {runs} before the members' logs are renewed, and {next} follows{held}",
                    self.member(*serial)
                )
            }
            EtcdWait::ReplacementJoin(serial) => {
                format!("{} must join first: members are replaced one at a time", self.member(*serial))
            }
            EtcdWait::ReplacementLimit(serial, until) => format!(
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
        let pods = self
            .observed
            .pods
            .values()
            .map(|pod| named("pod", &pod.metadata));
        let claims = self
            .observed
            .claims
            .values()
            .map(|claim| named("claim", &claim.metadata));
        let left: Vec<_> = pods.chain(claims).collect();
        let left = if left.is_empty() {
            String::new()
        } else {
            format!(" ({} left)", left.join(", "))
        };
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
    pub(super) fn waited_for(&self, view: Option<&ClusterView<'_>>) -> Option<String> {
        let (serial, _) = replace::next_replacement(view?)?;
        let after = format_duration(self.observed.desired.replace_after);
        Some(format!(
            "{} is replaced unless it comes back within {after}",
            self.member(serial)
        ))
    }

    /// What is done next, once a wait has ended.
    pub(super) fn next(&self, facts: &EtcdFacts, wait: &EtcdWait) -> Option<String> {
        let next = match wait {
            EtcdWait::Paused | EtcdWait::InconsistentObjects | EtcdWait::DataLost(_) => {
                return None;
            }
            EtcdWait::UnknownMembers(unknown_members) => {
                return unknown_members
                    .iter()
                    .find(|one| !one.has_started)
                    .map(|one| format!("the unknown member {:x} is removed", one.id.0));
            }
            EtcdWait::SnapshotBlocked(_) => "the members' logs are renewed",
            EtcdWait::MaintenanceWindow(_)
            | EtcdWait::UnhealthyMember(_)
            | EtcdWait::TooFewVoters
            | EtcdWait::VolumeResize(_)
            | EtcdWait::VersionMismatch(..) => "the next member that is out of date is restarted",
            EtcdWait::ReplacementJoin(_) => "the next member that does not come back is replaced",
            EtcdWait::ReplacementLimit(serial, _) => {
                return Some(format!("{} is replaced", self.member(*serial)));
            }
            EtcdWait::OldEpochDeletion => "the bootstrap begins again, under new names",
            EtcdWait::PreviousResourceDeletion(_) => "a new cluster is formed",
            EtcdWait::SeedStart(_) if facts.cluster.members > 1 => "the other members join it",
            EtcdWait::SeedStart(_) | EtcdWait::BootstrapTimeout(_) => "clients are let in",
            EtcdWait::NoQuorum | EtcdWait::Unreadable(_) => {
                "members that are missing are brought back or replaced"
            }
            EtcdWait::OpenIntent(_) => "the next change of the membership, if one is needed",
            EtcdWait::MemberJoin(serials) => {
                if serials.iter().all(|serial| is_voter(facts, *serial)) {
                    return None;
                }
                let plural = if serials.len() > 1 {
                    "they get their votes"
                } else {
                    "it gets its vote"
                };
                return Some(plural.to_owned());
            }
            EtcdWait::LearnerCatchUp(serial) => {
                return Some(format!("{} gets its vote", self.member(*serial)));
            }
            EtcdWait::UnsafeToAdd => "another member is added",
            EtcdWait::NameConflict(_) => "what is missing is created",
            EtcdWait::CaMissing(_) => "certificates are renewed in time again",
        };
        Some(next.to_owned())
    }

    fn held(&self, view: Option<&ClusterView<'_>>, serial: Serial) -> String {
        let trouble = view.and_then(|view| view.facts.details.get(&serial)?.pod_problem.clone());
        trouble
            .map(|trouble| format!(": {trouble}"))
            .unwrap_or_default()
    }

    fn quorum(&self, view: Option<&ClusterView<'_>>) -> String {
        let Some(view) = view else {
            return "a majority of voters must answer".to_owned();
        };
        if view.membership_known {
            // A majority answers, and a step that takes one away would leave too few.
            let down = view
                .voters()
                .filter(|member| !member.is_serving() && member.data != DataState::Lost);
            let down: BTreeSet<_> = down.map(|member| member.serial).collect();
            let who = if down.is_empty() {
                "more voters".to_owned()
            } else {
                self.members(&down)
            };
            return format!(
                "{who} must serve again before a member is removed, or too few would be left to agree"
            );
        }
        if view.members.is_empty() && !view.retained_claims.is_empty() {
            let kept: BTreeSet<_> = view
                .retained_claims
                .iter()
                .map(|claim| claim.serial)
                .collect();
            return format!(
                "no pod and no volume of a member is left. The volumes of {}, which were removed before, hold older data: put the \
                 members' claims back if you can; to begin anew, delete the resource, those claims and the ConfigMap {}, and \
                 create it again",
                self.members(&kept),
                self.observed.desired.names().identity()
            );
        }
        if view.members.is_empty() {
            return format!(
                "no pod and no volume of this cluster is left, and no empty one is put in its place: put the volumes' \
                 claims back if you can; to begin anew, delete the resource and the ConfigMap {}, and create it again",
                self.observed.desired.names().identity()
            );
        }
        let silent = view
            .members
            .values()
            .filter(|member| member.health.is_none());
        let silent: BTreeSet<_> = silent.map(|member| member.serial).collect();
        if silent.is_empty() {
            "the members answer, and must agree on a leader; if they do not, they cannot reach each other"
                .to_owned()
        } else {
            let why = |serial: &Serial| {
                format!("{}{}", self.member(*serial), self.held(Some(view), *serial))
            };
            let silent: Vec<_> = silent.iter().map(why).collect();
            format!(
                "a majority of voters must answer; silent: {}",
                silent.join(", ")
            )
        }
    }
}

/// Whether etcd lists it with a vote.
fn is_voter(facts: &EtcdFacts, serial: Serial) -> bool {
    let members = facts
        .membership
        .present()
        .map(|told| told.members.as_slice())
        .unwrap_or_default();
    members
        .iter()
        .any(|entry| entry.serial == serial && !entry.is_learner)
}

/// What is to be known of a member that somebody else added.
fn unknown(one: &UnknownMember, facts: &EtcdFacts) -> String {
    let id = one.id.0;
    if one.has_started {
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and has started: it is left alone. If nobody needs it, \
             remove it with etcdctl member remove {id:x}"
        )
    } else {
        let grace = format_duration(facts.cluster.replace_after);
        format!(
            "etcd lists the member {id:x}, which is not this cluster's and never started: it is removed unless it starts \
             within {grace}"
        )
    }
}
