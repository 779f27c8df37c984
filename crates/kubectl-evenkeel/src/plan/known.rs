//! What is known of a cluster without being its operator: its objects as they are now; what etcd said when the operator last wrote
//! down what it knew; and of that only what the status, which is kept true, does not contradict.

use std::collections::BTreeMap;

use evenkeel_api::{EtcdCluster, MemberStatus};
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::effective_spec::EffectiveSpec;
use evenkeel_etcd::facts::{
    Drift, EtcdFacts, MemberHealth, Membership, OwnedObject, VolumeTopology,
};
use evenkeel_etcd::names::{Lineage, Serial};
use evenkeel_etcd::observe::etcd::EtcdState;
use evenkeel_etcd::observe::objects::{self, ClusterObjects};
use evenkeel_etcd::observe::secrets::TlsState;
use evenkeel_etcd::observe::{MemberIndex, ObservedCluster};
use evenkeel_runtime::{Decision, Observed, UnixTime};
use jiff::Timestamp;

use crate::trouble::Trouble;

/// What the log of decisions tells.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The facts of the last decision.
    pub(super) facts: Option<EtcdFacts>,
    /// When that was.
    pub(super) at: Option<Timestamp>,
    /// Who the members were when etcd last told.
    pub(super) membership: Option<Membership>,
}

impl Known {
    /// From the log. Facts that cannot be read are of another release, and older ones would mislead.
    pub(super) fn of(decisions: &[Decision]) -> Result<Self, Trouble> {
        let mut noted = decisions
            .iter()
            .rev()
            .filter_map(|decision| Some((decision, decision.facts.as_ref()?)));
        let Some((last, text)) = noted.next() else {
            return Ok(Self::default());
        };
        let facts: EtcdFacts = serde_json::from_str(text).map_err(|why| {
            Trouble::new(format!("what the operator wrote down cannot be read: {why}")).help(
                "the plugin and the operator may be of different releases of Evenkeel: bring both up to date",
            )
        })?;
        let earlier = noted.filter_map(|(_, text)| serde_json::from_str::<EtcdFacts>(text).ok());
        let mut earlier = earlier.filter_map(|facts| facts.membership.present().cloned());
        let membership = facts
            .membership
            .present()
            .cloned()
            .or_else(|| earlier.next());
        Ok(Self {
            facts: Some(facts),
            at: last.at.parse().ok(),
            membership,
        })
    }

    /// Whether what was written down is what is there. In the middle of a change it may not be yet.
    pub(super) fn is_of_now(&self, objects: &ClusterObjects) -> bool {
        let noted = self
            .facts
            .as_ref()
            .and_then(|facts| facts.identity.present());
        let there = objects
            .identity
            .clone()
            .and_then(|object| objects::parse_identity(object).ok());
        !matches!((noted, there), (Some(noted), Some((_, there))) if *noted != there)
    }

    /// What would be found, and known, with the resource as it is to be.
    pub(super) fn applied_to(
        &self,
        objects: ClusterObjects,
        effective: EffectiveSpec,
        now: Timestamp,
    ) -> Result<(ObservedCluster, EtcdFacts), Trouble> {
        let now = UnixTime(now.as_second());
        let lineage = Lineage(0);
        let tls = TlsState {
            drift: self.certificates(&objects, &effective.desired),
            ..TlsState::default()
        };
        let resource = objects.resource.clone();
        let EffectiveSpec { desired, rejection } = effective;
        let observed = ObservedCluster::new(objects, desired, rejection, now, lineage)
            .map_err(|error| Trouble::new(error.to_string()))?;
        let found = ObservedCluster { tls, ..observed };
        let answers = self.answers(&resource, found.member_index().as_ref());
        let mut facts = found.facts(&answers);
        self.remember_places(&mut facts);
        Ok((found, facts))
    }

    /// Which certificates are to be made: those that were amiss, all of them for a new cluster, and the members' own when it is to
    /// have other names.
    fn certificates(
        &self,
        objects: &ClusterObjects,
        wanted: &DesiredCluster,
    ) -> BTreeMap<OwnedObject, Drift> {
        const ALL: [OwnedObject; 6] = [
            OwnedObject::PeerCa,
            OwnedObject::ClientCa,
            OwnedObject::PeerTls,
            OwnedObject::ServerTls,
            OwnedObject::OperatorTls,
            OwnedObject::ClientTls,
        ];
        let Some(facts) = &self.facts else {
            return ALL.map(|object| (object, Drift::Missing)).into();
        };
        let known = facts
            .drift
            .iter()
            .filter(|(object, _)| ALL.contains(object));
        let mut amiss: BTreeMap<_, _> = known.map(|(object, how)| (*object, *how)).collect();
        let noted = objects
            .identity
            .as_ref()
            .and_then(evenkeel_etcd::effective_spec::recorded_spec);
        let before = noted.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let after = serde_json::from_str::<serde_json::Value>(&wanted.spec).ok();
        if let (Some(before), Some(after)) = (before, after)
            && before["tls"] != after["tls"]
        {
            amiss
                .entry(OwnedObject::ServerTls)
                .or_insert(Drift::Differs);
        }
        amiss
    }

    /// What etcd said, as far as the status since does not say otherwise.
    fn answers(&self, resource: &EtcdCluster, register: Option<&MemberIndex>) -> EtcdState {
        let Some(facts) = &self.facts else {
            return EtcdState::default();
        };
        let mut answers = EtcdState::from_facts(facts);
        let status = resource.status.clone().unwrap_or_default();
        for member in &status.member_list {
            let Some(serial) = register.and_then(|register| register.by_name(&member.name)) else {
                continue;
            };
            self.heed(&mut answers, (member, serial), member.name == status.leader);
            // Whom nobody hears is told to be replaced in time; everybody else is waited for.
            if status
                .next
                .contains(&format!("{} is replaced", member.name))
            {
                answers
                    .unreachable_since
                    .entry(serial)
                    .or_insert(UnixTime(0));
            }
        }
        answers
    }

    fn heed(
        &self,
        answers: &mut EtcdState,
        (member, serial): (&MemberStatus, Serial),
        leads: bool,
    ) {
        // Who leads changes without a decision, and is not written down then.
        if let Some(Observed::Present(voice)) = answers.health.get_mut(&serial) {
            voice.is_leader = leads;
            voice.version = member.version.parse().ok().or(voice.version);
            if leads {
                answers.leader = Some(voice.member_id);
            }
        }
        let serves =
            |voice: &Observed<MemberHealth>| voice.present().is_some_and(|voice| voice.is_serving);
        let said = answers.health.get(&serial).is_some_and(serves);
        if !member.healthy && said {
            answers.health.insert(serial, Observed::Unknown);
        }
        if member.healthy && !said {
            let told = self
                .membership
                .as_ref()
                .into_iter()
                .flat_map(|told| &told.members);
            let id = told
                .filter(|one| one.serial == serial)
                .map(|one| one.id)
                .next();
            let cluster = self
                .facts
                .as_ref()
                .and_then(|facts| facts.identity.present()?.cluster_id);
            if let (Some(id), Some(cluster)) = (id, cluster) {
                let version = member.version.parse().ok();
                let voice = MemberHealth {
                    cluster_id: cluster,
                    member_id: id,
                    is_serving: true,
                    is_caught_up: true,
                    is_leader: leads,
                    version,
                    db_size: 0,
                };
                answers.health.insert(serial, Observed::Present(voice));
                answers.unreachable_since.remove(&serial);
            }
        }
    }

    /// Where volumes and pods are, which only the operator may be allowed to see.
    fn remember_places(&self, facts: &mut EtcdFacts) {
        let Some(known) = &self.facts else { return };
        let claims = known
            .claims
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for claim in facts.claims.present_mut().into_iter().flatten() {
            if let Some(before) = claims.iter().find(|before| before.uid == claim.uid)
                && claim.topology == VolumeTopology::Unknown
            {
                (claim.topology, claim.is_lost) =
                    (before.topology, claim.is_lost || before.is_lost);
            }
        }
        let pods = known.pods.present().map(Vec::as_slice).unwrap_or_default();
        for pod in facts.pods.present_mut().into_iter().flatten() {
            let before = pods
                .iter()
                .find(|before| before.uid == pod.uid)
                .and_then(|before| before.node);
            pod.node = before.or(pod.node);
        }
    }
}
