//! The result of starting an etcd container, depending on its flags and its data directory. `tests/replay` compares
//! these rules with real etcd.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::names::{Epoch, Serial};

use crate::model::{
    BackupNumber, ClusterModel, DiskState, ModelCluster, ModelMember, NO_BACKUP, RuleViolation,
    TemplateVariant, member_label,
};

/// The result of starting a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartResult {
    /// etcd exits at once, or the container does not start.
    Exits,
    /// etcd runs on its existing data.
    ExistingData,
    /// etcd bootstraps a new single-member cluster.
    Bootstraps(Epoch),
    /// etcd forms a single-member cluster with the data of a backup.
    StartsFromBackup(Epoch, BackupNumber),
    /// etcd joins this cluster.
    Joins(usize),
}

impl ClusterModel {
    /// Starts the container of a pod.
    pub fn start_container(&mut self, serial: Serial) -> Result<(), RuleViolation> {
        match self.start_result(serial)? {
            StartResult::Exits => return Ok(()),
            StartResult::ExistingData => {}
            StartResult::Bootstraps(epoch) => self.form_cluster(serial, epoch, NO_BACKUP),
            StartResult::StartsFromBackup(epoch, backup) => {
                self.form_cluster(serial, epoch, backup);
            }
            StartResult::Joins(index) => self.set_disk(serial, DiskState::written(index, serial)),
        }
        self.set_running(serial, true);
        Ok(())
    }

    /// Forms a cluster of one member.
    fn form_cluster(&mut self, serial: Serial, epoch: Epoch, origin: BackupNumber) {
        let members = BTreeMap::from([(
            serial,
            ModelMember {
                is_learner: false,
                has_started: true,
            },
        )]);
        let founded = ModelCluster {
            epoch,
            origin,
            members,
            logged_change: None,
            identity_deleted: false,
            has_served_clients: false,
            unknown_voter: None,
        };
        let index = self
            .clusters
            .iter()
            .position(|cluster| cluster.epoch == epoch);
        let index = index.unwrap_or_else(|| {
            self.clusters.push(founded.clone());
            self.clusters.len() - 1
        });
        self.clusters[index] = founded;
        self.set_disk(serial, DiskState::written(index, serial));
    }

    /// Returns the result of starting a pod's container now.
    pub fn start_result(&self, serial: Serial) -> Result<StartResult, RuleViolation> {
        let Some(pod) = self.pods.get(&serial) else {
            return Ok(StartResult::Exits);
        };
        let (Some((start, _)), Some(disk)) = (&pod.kubelet_view, self.disk(serial)) else {
            return Ok(StartResult::Exits);
        };
        match (disk, start) {
            (_, StartMode::Held) => Ok(StartResult::Exits),
            _ if pod.template == TemplateVariant::Broken => Ok(StartResult::Exits),
            (DiskState::Data { cluster, stale, .. }, _) => {
                self.start_on_data(serial, usize::from(cluster), stale)
            }
            // With data, etcd ignores the flags for an empty directory.
            (DiskState::Restored(backup), _) => self.start_from_backup(serial, pod.epoch, backup),
            (DiskState::Empty, StartMode::Bootstrap) => self.start_bootstrap(serial, pod.epoch),
            (DiskState::Empty, StartMode::Join(list)) => self.start_join(serial, pod.epoch, list),
            // With only itself in `--initial-cluster` and state `existing`, etcd rejects an empty
            // directory.
            (DiskState::Empty, StartMode::ExistingData | StartMode::Restored) => {
                Ok(StartResult::Exits)
            }
        }
    }

    fn start_on_data(
        &self,
        serial: Serial,
        index: usize,
        stale: bool,
    ) -> Result<StartResult, RuleViolation> {
        match self.clusters[index].members.get(&serial).copied() {
            // A running member reports the removal to it, and it exits. Without one it keeps running.
            None if self.has_running_member(index) => Ok(StartResult::Exits),
            Some(member) if stale && !member.is_learner => Err(RuleViolation(format!(
                "{} starts as a voter on another volume than the one it joined on: writes that it acknowledged since are lost",
                member_label(serial)
            ))),
            // The leader expects entries that the member has lost. The member panics at every start.
            Some(member) if stale && member.has_started && self.has_quorum(index) => {
                Ok(StartResult::Exits)
            }
            _ => Ok(StartResult::ExistingData),
        }
    }

    fn start_bootstrap(&self, serial: Serial, epoch: Epoch) -> Result<StartResult, RuleViolation> {
        // An abandoned epoch never finished its bootstrap. Its seed may still start before its pod
        // is deleted.
        let allowed = self.identity.as_ref().is_some_and(|identity| {
            epoch < identity.epoch
                || (identity.epoch == epoch && identity.seed == serial && !identity.bootstrapped)
        });
        // A deleted identity is rebuilt as bootstrapped, to be safe, even if the bootstrap was not finished. Only
        // whether clients were routed to the cluster counts.
        let harmless = self.allows_tampering
            && self
                .clusters
                .iter()
                .all(|cluster| cluster.epoch != epoch || !cluster.has_served_clients);
        let allowed = allowed || harmless;
        let is_restored = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.epoch == epoch && identity.restore.is_some());
        if is_restored {
            return Err(RuleViolation(format!(
                "{} bootstraps an empty cluster in an epoch that begins with the data of a backup",
                member_label(serial)
            )));
        }
        if !allowed {
            return Err(RuleViolation(format!(
                "{} bootstraps a cluster although it is not the seed of an epoch in bootstrap",
                member_label(serial)
            )));
        }
        match self
            .clusters
            .iter()
            .position(|cluster| cluster.epoch == epoch)
        {
            // A second bootstrap under the same IDs is harmless as long as no other member was in the cluster.
            Some(index) if !self.is_only_disk_of(index, serial) => Err(RuleViolation(format!(
                "{} bootstraps a second cluster in the same epoch: both have the same cluster ID",
                member_label(serial)
            ))),
            _ => Ok(StartResult::Bootstraps(epoch)),
        }
    }

    fn start_from_backup(
        &self,
        serial: Serial,
        epoch: Epoch,
        backup: BackupNumber,
    ) -> Result<StartResult, RuleViolation> {
        let is_finished = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.epoch == epoch && identity.bootstrapped);
        if is_finished {
            return Err(RuleViolation(format!(
                "{} starts on the data of a backup after the bootstrap is finished: writes that it acknowledged are lost",
                member_label(serial)
            )));
        }
        let mut clusters = self.clusters.iter();
        match clusters.position(|cluster| cluster.epoch == epoch) {
            Some(index) if !self.is_only_disk_of(index, serial) => Err(RuleViolation(format!(
                "{} starts on the data of a backup beside other members of the same epoch",
                member_label(serial)
            ))),
            _ => Ok(StartResult::StartsFromBackup(epoch, backup)),
        }
    }

    /// Returns true if no other disk holds data of the cluster.
    fn is_only_disk_of(&self, cluster: usize, serial: Serial) -> bool {
        let others = self
            .claims
            .keys()
            .chain(self.pods.keys())
            .filter(|other| **other != serial);
        !others.into_iter().any(|other| {
            matches!(self.disk(*other), Some(DiskState::Data { cluster: on, .. }) if usize::from(on) == cluster)
        })
    }

    fn start_join(
        &self,
        serial: Serial,
        epoch: Epoch,
        list: &BTreeSet<Serial>,
    ) -> Result<StartResult, RuleViolation> {
        // The joining member queries the members in its list; any of them answers, with or without a quorum.
        let mut of_epoch =
            (0..self.clusters.len()).filter(|index| self.clusters[*index].epoch == epoch);
        let Some(index) = of_epoch.find(|index| self.has_running_member(*index)) else {
            return Ok(StartResult::Exits);
        };
        let members = &self.clusters[index].members;
        let Some(member) = members.get(&serial).copied() else {
            return Ok(StartResult::Exits);
        };
        if !list.iter().eq(members.keys()) || self.clusters[index].unknown_voter.is_some() {
            // etcd rejects the list ("member count is unequal") until it is corrected.
            return Ok(StartResult::Exits);
        }
        if member.has_started && !member.is_learner {
            return Err(RuleViolation(format!(
                "{} starts as a voter on an empty directory: writes that it acknowledged are lost",
                member_label(serial)
            )));
        }
        if member.has_started && self.has_quorum(index) {
            // A learner that lost its data panics at every start until there is another leader.
            return Ok(StartResult::Exits);
        }
        Ok(StartResult::Joins(index))
    }

    /// Returns the cluster of a learner that crashes only because its leader expects entries that the learner has
    /// lost.
    pub fn needs_new_leader(&self, serial: Serial) -> Option<usize> {
        let pod = self.pods.get(&serial).filter(|pod| {
            !pod.is_running && !pod.node_down && !pod.is_finished && !pod.is_terminating
        })?;
        let index = (0..self.clusters.len())
            .find(|index| self.clusters[*index].epoch == pod.epoch && self.has_quorum(*index))?;
        let members = &self.clusters[index].members;
        members
            .get(&serial)
            .filter(|member| member.is_learner && member.has_started)?;
        let (start, _) = pod.kubelet_view.as_ref()?;
        let forgot = match self.disk(serial)? {
            DiskState::Empty => {
                let unknown_voter = self.clusters[index].unknown_voter.is_some();
                matches!(start, StartMode::Join(list) if list.iter().eq(members.keys()) && !unknown_voter)
            }
            DiskState::Restored(_) => false,
            DiskState::Data { stale, .. } => stale,
        };
        forgot.then_some(index)
    }

    /// Starts a learner under another leader, which treats it as new.
    pub fn catch_up(&mut self, serial: Serial) {
        if let Some(index) = self.needs_new_leader(serial) {
            self.set_disk(serial, DiskState::written(index, serial));
            self.set_running(serial, true);
        }
    }
}
