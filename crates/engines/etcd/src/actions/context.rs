//! The names of members and objects, and the facts by member, for descriptions.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::build::tls;
use crate::facts::{EtcdFacts, OwnedObject};
use crate::identity::Uid;
use crate::names::{Serial, member_name};
use crate::observe::ObservedCluster;
use crate::status::cause;
use crate::view::ClusterView;

/// The name of an object that is not among the facts.
const UNKNOWN_NAME: &str = "(name unknown)";

/// The parts of a cluster that descriptions of its actions and waits use.
#[derive(Clone, Copy)]
pub struct ActionContext<'f> {
    pub(crate) observed: &'f ObservedCluster,
    pub(crate) facts: &'f EtcdFacts,
    /// The facts by member; `None` without an identity.
    pub(crate) view: Option<&'f ClusterView<'f>>,
}

impl<'f> ActionContext<'f> {
    pub(crate) fn new(
        observed: &'f ObservedCluster,
        facts: &'f EtcdFacts,
        view: Option<&'f ClusterView<'f>>,
    ) -> Self {
        Self {
            observed,
            facts,
            view,
        }
    }

    /// Returns true if a member has joined before, as its claim records.
    pub(crate) fn has_joined(&self, serial: Serial) -> bool {
        let member = self.view.and_then(|view| view.members.get(&serial));
        let claim = member.and_then(|member| member.claim);
        claim.is_some_and(|claim| claim.joined_on.is_some())
    }

    pub(crate) fn member(&self, serial: Serial) -> String {
        member_display_name(self.observed, serial)
    }

    pub(crate) fn members(&self, serials: &BTreeSet<Serial>) -> String {
        let names: Vec<_> = serials.iter().map(|serial| self.member(*serial)).collect();
        names.join(", ")
    }

    /// Returns the names of members after "member" or "members".
    pub(crate) fn counted_members(&self, serials: &BTreeSet<Serial>) -> String {
        let noun = if serials.len() == 1 {
            "member"
        } else {
            "members"
        };
        format!("{noun} {}", self.members(serials))
    }

    /// Returns the name of the member that a pod belongs to.
    pub(crate) fn pod_member(&self, uid: Uid) -> String {
        let mut pods = self.facts.pods.present().into_iter().flatten();
        match pods.find(|pod| pod.uid == uid) {
            Some(pod) => self.member(pod.serial),
            None => UNKNOWN_NAME.to_owned(),
        }
    }

    /// Returns the name of the member that a claim belongs to.
    pub(crate) fn claim_member(&self, uid: Uid) -> String {
        let mut claims = self.facts.claims.present().into_iter().flatten();
        match claims.find(|claim| claim.uid == uid) {
            Some(claim) => self.member(claim.serial),
            None => UNKNOWN_NAME.to_owned(),
        }
    }

    /// Returns kind and name of an object.
    pub(crate) fn object(&self, object: OwnedObject) -> String {
        let names = self.observed.desired.names();
        match object {
            OwnedObject::Identity => format!("ConfigMap {}", names.identity()),
            OwnedObject::PeerService => format!("Service {}", names.peer_service()),
            OwnedObject::ClientService => format!("Service {}", names.client_service()),
            OwnedObject::PodDisruptionBudget => {
                format!("PodDisruptionBudget {}", names.pod_disruption_budget())
            }
            OwnedObject::BackupSchedule => format!("BackupSchedule {}", names.backup_schedule()),
            secret => {
                let name = tls::secret_name(&self.observed.desired, secret).unwrap_or_default();
                format!("Secret {name}")
            }
        }
    }

    /// Returns the problem of a member's node, or that of its pod in Kubernetes' words, with a colon before it; empty if
    /// there is none.
    pub(crate) fn pod_problem_suffix(&self, serial: Serial) -> String {
        let details = self.view.and_then(|view| view.facts.details.get(&serial));
        let of_node = details.and_then(|details| cause::node(details, true));
        let problem = of_node
            .map(|cause| cause.text)
            .or_else(|| details?.pod_problem.clone());
        match problem {
            Some(problem) => format!(": {problem}"),
            None => String::new(),
        }
    }
}

/// Returns the name of a member; a placeholder with its serial while its lineage is not known.
pub(crate) fn member_display_name(observed: &ObservedCluster, serial: Serial) -> String {
    match &observed.identity {
        Some((_, identity)) => member_name(&observed.desired.name, identity.lineage, serial),
        None => format!("{}-<{}>", observed.desired.name, serial.0),
    }
}

/// Formats a duration as users write it.
pub(crate) fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3600, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let parts: String = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts
    }
}

/// Ends a text with a period, unless it ends a sentence already.
pub(crate) fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}
