//! The facts for a preview outside of the operator: the objects as they are now, and etcd's state from the decision log,
//! corrected by the newer status of the resource.

use std::collections::BTreeMap;

use evenkeel_api::{EtcdCluster, MemberStatus};
use evenkeel_etcd::build::tls::SECRETS;
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::effective_spec::EffectiveSpec;
use evenkeel_etcd::facts::{
    Drift, EtcdFacts, MemberHealth, Membership, OwnedObject, VolumeTopology,
};
use evenkeel_etcd::names::{Lineage, Serial};
use evenkeel_etcd::observe::etcd::EtcdState;
use evenkeel_etcd::observe::objects::{self, ClusterObjects};
use evenkeel_etcd::observe::secrets::TlsState;
use evenkeel_etcd::observe::source::RestoreSource;
use evenkeel_etcd::observe::{MemberIndex, ObservedCluster};
use evenkeel_etcd::preview::node_states;
use evenkeel_runtime::{Decision, Observed, UnixTime};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::error::CliError;

/// The operator's last known facts, from the decision log.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The facts of the newest decision.
    pub(super) facts: Option<EtcdFacts>,
    /// The time of the newest decision.
    pub(super) at: Option<Timestamp>,
    /// The newest membership that etcd reported.
    pub(super) membership: Option<Membership>,
}

/// What is known now, and not from the log.
pub(super) struct Present<'n> {
    pub(super) now: Timestamp,
    /// The nodes; `None` if the user cannot list them.
    pub(super) nodes: Option<&'n [Node]>,
    /// The desired StorageClass, if it does not exist.
    pub(super) missing_class: Option<String>,
    /// The backup that a new cluster begins with.
    pub(super) source: Option<RestoreSource>,
}

impl Snapshot {
    /// Reads the newest facts. Facts that cannot be deserialized come from another release. They are an error, since
    /// older facts would mislead.
    pub(super) fn from_decisions(decisions: &[Decision]) -> Result<Self, CliError> {
        let mut with_facts = decisions
            .iter()
            .rev()
            .filter_map(|decision| Some((decision, decision.facts.as_ref()?)));
        let Some((newest, json)) = with_facts.next() else {
            return Ok(Self::default());
        };
        let facts: EtcdFacts = serde_json::from_str(json).map_err(|error| {
            CliError::new(format!(
                "cannot parse the facts in the decision log: {error}"
            ))
            .help("the plugin and the operator may be of different releases: update both")
        })?;
        let mut earlier_memberships = with_facts
            .filter_map(|(_, json)| serde_json::from_str::<EtcdFacts>(json).ok())
            .filter_map(|facts| facts.membership.present().cloned());
        let membership = facts
            .membership
            .present()
            .cloned()
            .or_else(|| earlier_memberships.next());
        Ok(Self {
            facts: Some(facts),
            at: newest.at.parse().ok(),
            membership,
        })
    }

    /// Returns whether the facts have the same identity as the objects. During a change the log may be behind.
    pub(super) fn matches(&self, objects: &ClusterObjects) -> bool {
        let logged = self
            .facts
            .as_ref()
            .and_then(|facts| facts.identity.present());
        let current = objects
            .identity
            .clone()
            .and_then(|object| objects::parse_identity(object).ok());
        match (logged, current) {
            (Some(logged), Some((_, current))) => *logged == current,
            _ => true,
        }
    }

    /// Returns the observation and the facts that the operator would have with the edited resource.
    pub(super) fn apply_to(
        &self,
        objects: ClusterObjects,
        effective: EffectiveSpec,
        present: Present<'_>,
    ) -> Result<(ObservedCluster, EtcdFacts), CliError> {
        let EffectiveSpec { desired, rejection } = effective;
        let tls = TlsState {
            drift: self.certificate_drift(&objects, &desired),
            ..TlsState::default()
        };
        let resource = objects.resource.clone();
        let now = UnixTime(present.now.as_second());
        let observed = ObservedCluster::new(objects, desired, rejection, now, Lineage(0))
            .map_err(|error| CliError::new(error.to_string()))?;
        let observed = ObservedCluster {
            tls,
            nodes: present.nodes.map(node_states),
            missing_class: present.missing_class,
            source: present.source,
            ..observed
        };
        let etcd = self.etcd_state(&resource, observed.member_index().as_ref());
        let mut facts = observed.facts(&etcd);
        self.copy_locations(&mut facts);
        Ok((observed, facts))
    }

    /// Returns the certificates that the operator would issue: those with a known drift, all for a new cluster, and the
    /// server certificates if their host names change.
    fn certificate_drift(
        &self,
        objects: &ClusterObjects,
        desired: &DesiredCluster,
    ) -> BTreeMap<OwnedObject, Drift> {
        let Some(facts) = &self.facts else {
            return SECRETS.map(|object| (object, Drift::Missing)).into();
        };
        let mut drift: BTreeMap<_, _> = facts
            .drift
            .iter()
            .filter(|(object, _)| SECRETS.contains(object))
            .map(|(object, drift)| (*object, *drift))
            .collect();
        let parse = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        let before = objects
            .identity
            .as_ref()
            .and_then(evenkeel_etcd::effective_spec::recorded_spec)
            .and_then(parse);
        let after = parse(&desired.spec);
        if let (Some(before), Some(after)) = (before, after)
            && before["tls"] != after["tls"]
        {
            drift
                .entry(OwnedObject::ServerTls)
                .or_insert(Drift::Differs);
        }
        drift
    }

    /// Returns the logged state of etcd, corrected by the status.
    fn etcd_state(&self, resource: &EtcdCluster, index: Option<&MemberIndex>) -> EtcdState {
        let Some(facts) = &self.facts else {
            return EtcdState::default();
        };
        let mut state = EtcdState::from_facts(facts);
        let status = resource.status.clone().unwrap_or_default();
        for member in &status.member_list {
            let Some(serial) = index.and_then(|index| index.by_name(&member.name)) else {
                continue;
            };
            self.correct_member(&mut state, serial, member, member.name == status.leader);
            match &member.unreachable_since {
                Some(since) => {
                    let since = UnixTime(since.0.as_second());
                    state.unreachable_since.insert(serial, since);
                }
                None => {
                    state.unreachable_since.remove(&serial);
                }
            }
        }
        state
    }

    fn correct_member(
        &self,
        state: &mut EtcdState,
        serial: Serial,
        member: &MemberStatus,
        is_leader: bool,
    ) {
        // The leader changes without a decision, so the log may name an earlier one.
        if let Some(Observed::Present(health)) = state.health.get_mut(&serial) {
            health.is_leader = is_leader;
            health.version = member.version.parse().ok().or(health.version);
            if is_leader {
                state.leader = Some(health.member_id);
            }
        }
        let was_serving = state
            .health
            .get(&serial)
            .and_then(Observed::present)
            .is_some_and(|health| health.is_serving);
        if was_serving && !member.healthy {
            state.health.insert(serial, Observed::Unknown);
        }
        if !was_serving
            && member.healthy
            && let Some(health) = self.serving_health(serial, member, is_leader)
        {
            state.health.insert(serial, Observed::Present(health));
            state.stuck = state.stuck.filter(|stuck| stuck.serial != serial);
        }
    }

    /// Returns the health of a member that serves according to the status, but not according to the log.
    fn serving_health(
        &self,
        serial: Serial,
        member: &MemberStatus,
        is_leader: bool,
    ) -> Option<MemberHealth> {
        let listed = &self.membership.as_ref()?.members;
        let member_id = listed.iter().find(|listed| listed.serial == serial)?.id;
        let cluster_id = self.facts.as_ref()?.identity.present()?.cluster_id?;
        Some(MemberHealth {
            cluster_id,
            member_id,
            is_serving: true,
            is_caught_up: true,
            is_leader,
            version: member.version.parse().ok(),
            db_size: 0,
        })
    }

    /// Copies the locations of volumes and pods and the problems of nodes from the log, since the user may not be allowed to
    /// read PersistentVolumes and Nodes.
    fn copy_locations(&self, facts: &mut EtcdFacts) {
        let Some(logged) = &self.facts else { return };
        let logged_claims = logged
            .claims
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for claim in facts.claims.present_mut().into_iter().flatten() {
            if let Some(before) = logged_claims.iter().find(|before| before.uid == claim.uid)
                && claim.topology == VolumeTopology::Unknown
            {
                claim.topology = before.topology;
                claim.on_cordoned_node = before.on_cordoned_node;
                claim.is_lost |= before.is_lost;
            }
        }
        let logged_pods = logged.pods.present().map(Vec::as_slice).unwrap_or_default();
        for pod in facts.pods.present_mut().into_iter().flatten() {
            let Some(before) = logged_pods.iter().find(|before| before.uid == pod.uid) else {
                continue;
            };
            pod.node = before.node.or(pod.node);
            pod.on_cordoned_node |= before.on_cordoned_node;
        }
        for (serial, details) in &mut facts.details {
            if let Some(before) = logged.details.get(serial)
                && before.node == details.node
            {
                details.node_problem = details.node_problem.or(before.node_problem);
            }
        }
    }
}
