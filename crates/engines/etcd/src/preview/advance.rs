//! The changes of a simulated cluster that follow by themselves: pods are removed, scheduled and
//! started, members join, catch up and become Ready.

use std::collections::BTreeSet;

use evenkeel_runtime::Observed;

use super::simulate::{SimulatedCluster, listed_mut, voters, votes};
use crate::facts::{
    ClaimFacts, ListedMember, MemberHealth, Membership, OwnedBy, PodFacts, RestorePodState,
    StartMode, StorageKind, VolumeTopology,
};
use crate::identity::{ClusterId, MemberId, SeedStorage};
use crate::names::Serial;
use crate::view::quorum;

impl SimulatedCluster {
    /// Applies the changes that follow by themselves; returns false if nothing has changed.
    pub(super) fn advance(&mut self) -> bool {
        let before = self.facts.clone();
        if let Some(uid) = self.terminating.pop_front() {
            self.stop_etcd(uid);
            if let Some(pod) = self.pods().iter().find(|pod| pod.uid == uid).cloned() {
                self.scheduler.remember(&pod);
            }
            self.retain_pods(|pod| pod.uid != uid);
        }
        self.delete_previous_resource();
        self.run_restores();
        let can_run = |pod: &&PodFacts| {
            !pod.is_finished
                && !pod.is_terminating
                && !self.failing.contains(&pod.uid)
                && !self.is_stuck(pod.serial)
        };
        let running: Vec<PodFacts> = self.pods().iter().filter(can_run).cloned().collect();
        for pod in &running {
            if !self.schedule(pod) {
                continue;
            }
            if pod.start_mode != StartMode::Held && !self.answers(pod.serial) {
                self.start(pod);
            }
        }
        self.form_quorum();
        self.catch_up(&running);
        self.update_readiness();
        self.facts != before
    }

    /// Completes the deletion of the previous resource's objects.
    fn delete_previous_resource(&mut self) {
        if self.facts.identity_owner == OwnedBy::PreviousResource {
            self.facts.identity = Observed::Absent;
            self.facts.identity_owner = OwnedBy::Unowned;
            // The resource owns its pods and its PodDisruptionBudget as well.
            self.facts.membership = Observed::Unknown;
            self.remembered = None;
            self.facts.pdb_min_available = Observed::Absent;
        }
        self.retain_claims(|claim| !claim.is_terminating);
        if self.pods().is_empty() && self.claims().is_empty() {
            self.facts.lineages.clear();
        }
    }

    /// Assigns a node to the pod, and a volume on that node to its claim. Returns false if the pod
    /// stays Pending.
    fn schedule(&mut self, pod: &PodFacts) -> bool {
        let volume = self.next_uid();
        let made_up = self.next_uid();
        let is_own = |claim: &&ClaimFacts| claim.serial == pod.serial && claim.epoch == pod.epoch;
        let node = match pod.node {
            Some(node) => node,
            None => {
                let claim = self.claims().iter().find(is_own).cloned();
                let pods = self.facts.pods.present().map(Vec::as_slice);
                let pods = pods.unwrap_or_default();
                match self.scheduler.choose(pod, claim.as_ref(), pods, made_up) {
                    Some(node) => node,
                    None => {
                        self.leave_pending(pod);
                        return false;
                    }
                }
            }
        };
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        for claim in claims {
            if is_own(&&*claim) && claim.volume.is_none() {
                claim.volume = Some(volume);
                claim.topology = VolumeTopology::Node(node);
            }
        }
        self.on_pod(pod.uid, |pod| {
            pod.node = Some(node);
            pod.unschedulable_since = None;
        });
        true
    }

    /// Reports a pod as unschedulable. A member that has started is unreachable from now on.
    fn leave_pending(&mut self, pod: &PodFacts) {
        let now = self.facts.now;
        self.on_pod(pod.uid, |pod| {
            pod.unschedulable_since = pod.unschedulable_since.or(Some(now));
        });
        let listed = self.facts.membership.present();
        let mut listed = listed.into_iter().flat_map(|list| &list.members);
        if listed.any(|listed| listed.serial == pod.serial && listed.has_started) {
            self.facts
                .unreachable_since
                .entry(pod.serial)
                .or_insert(now);
        }
    }

    /// Ends the restores that run: each has a volume and succeeds.
    fn run_restores(&mut self) {
        if self.facts.restore_pods.is_empty() {
            return;
        }
        let volume = self.next_uid();
        for pod in &mut self.facts.restore_pods {
            if !matches!(pod.state, RestorePodState::Running(_)) || pod.is_terminating {
                continue;
            }
            let claims = self.facts.claims.present_mut().into_iter().flatten();
            for claim in claims.filter(|claim| claim.uid == pod.claim) {
                claim.volume.get_or_insert(volume);
            }
            pod.state = RestorePodState::Succeeded;
            pod.is_idle = false;
        }
        self.facts.restore_pods.retain(|pod| !pod.is_terminating);
    }

    /// Starts the etcd of a pod: it forms a cluster, joins or continues on its data.
    fn start(&mut self, pod: &PodFacts) {
        let serial = pod.serial;
        let identity = self.facts.identity.present();
        let recorded_cluster = identity.and_then(|identity| identity.cluster_id);
        let may_form = matches!(pod.start_mode, StartMode::Bootstrap | StartMode::Restored);
        let forms_cluster = may_form && recorded_cluster.is_none();
        let new_member = MemberId(self.next_id());
        let new_cluster = ClusterId(self.next_id());
        let mut reported = self.facts.health.values().filter_map(Observed::present);
        let reported_cluster = reported.next().map(|health| health.cluster_id);
        if forms_cluster {
            self.facts.membership = Observed::Present(Membership {
                reported_by: serial,
                members: vec![ListedMember {
                    serial,
                    id: new_member,
                    is_learner: false,
                    has_started: true,
                }],
                unknown: Vec::new(),
            });
        }
        let membership = self.facts.membership.present().or(self.remembered.as_ref());
        let mut listed = membership.into_iter().flat_map(|list| &list.members);
        let Some(listed) = listed.find(|listed| listed.serial == serial) else {
            return;
        };
        let member_id = listed.id;
        // etcd rejects a list of members other than its own.
        if let StartMode::Join(list) = &pod.start_mode
            && !listed.has_started
            && !membership.is_some_and(|membership| is_listed_as(membership, list))
        {
            return;
        }
        // A joining member gets its data from the others.
        if pod.start_mode == StartMode::ExistingData && !self.has_data(serial) {
            return;
        }
        let health = MemberHealth {
            cluster_id: recorded_cluster
                .or(reported_cluster.filter(|_| !forms_cluster))
                .unwrap_or(new_cluster),
            member_id,
            is_serving: self.facts.membership.is_present(),
            is_caught_up: true,
            is_leader: forms_cluster,
            version: pod.version,
            db_size: 0,
        };
        self.facts.health.insert(serial, Observed::Present(health));
        self.facts.unreachable_since.remove(&serial);
        if let Observed::Present(membership) = &mut self.facts.membership
            && let Some(listed) = listed_mut(membership, serial)
        {
            listed.has_started = true;
        }
    }

    fn has_data(&self, serial: Serial) -> bool {
        let identity = self.facts.identity.present();
        let seed_storage = identity.and_then(|identity| identity.seed_storage);
        self.facts.cluster.storage == StorageKind::Ephemeral
            || self.claims().iter().any(|claim| {
                let is_seed = seed_storage == Some(SeedStorage::Claim(claim.uid));
                claim.serial == serial && (claim.is_joined_volume() || is_seed)
            })
    }

    /// Lets the members that answer serve and catch up with the leader, once there is a quorum.
    fn catch_up(&mut self, running: &[PodFacts]) {
        if !self.facts.membership.is_present() {
            return;
        }
        for pod in running {
            if let Some(Observed::Present(health)) = self.facts.health.get_mut(&pod.serial) {
                (health.is_serving, health.is_caught_up) = (true, true);
            }
        }
    }

    /// Restores the last known membership once a quorum of its voters is back. All members that
    /// answer serve then.
    fn form_quorum(&mut self) {
        if !self.facts.membership.is_present()
            && let Some(restored) = self.restored_membership()
        {
            self.facts.membership = Observed::Present(restored);
            for health in self.facts.health.values_mut() {
                if let Observed::Present(health) = health {
                    (health.is_serving, health.is_caught_up) = (true, true);
                }
            }
        }
        self.elect();
    }

    fn restored_membership(&self) -> Option<Membership> {
        let mut restored = self.remembered.clone()?;
        let voters = voters(&restored);
        let mut reachable = voters.iter().filter(|serial| self.answers(**serial));
        if reachable.clone().count() < quorum(votes(&restored)) {
            return None;
        }
        restored.reported_by = *reachable.next()?;
        for listed in &mut restored.members {
            listed.has_started |= self.answers(listed.serial);
        }
        Some(restored)
    }

    fn answers(&self, serial: Serial) -> bool {
        self.health_of(serial).is_some()
    }

    /// Reports pods as Ready that serve and have joined, and answers the client read if one of them
    /// is routed.
    fn update_readiness(&mut self) {
        let identity = self.facts.identity.present();
        let is_bootstrapped = identity.is_some_and(|identity| identity.bootstrapped);
        let mut is_served = false;
        for pod in self.facts.pods.present_mut().into_iter().flatten() {
            let health = self.facts.health.get(&pod.serial);
            let health = health.and_then(|health| health.present());
            let is_serving = health.is_some_and(|health| health.is_serving);
            pod.is_idle &= health.is_none();
            if is_serving && pod.joined_gate {
                pod.is_ready = true;
                pod.unready_since = None;
            }
            is_served |= is_serving && pod.is_routed && pod.is_ready;
        }
        if is_bootstrapped && is_served {
            self.facts.client_read = Observed::Present(());
        }
    }
}

fn is_listed_as(membership: &Membership, list: &BTreeSet<Serial>) -> bool {
    let listed: BTreeSet<_> = membership
        .members
        .iter()
        .map(|listed| listed.serial)
        .collect();
    membership.unknown.is_empty() && listed == *list
}
