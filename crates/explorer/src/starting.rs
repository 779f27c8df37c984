//! What comes of starting a container: what etcd does with its flags on its directory, as the real one does.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::names::{Epoch, Serial};

use crate::world::{Cluster, Disk, Inputs, Member, Violation, World, shown};

/// What comes of starting a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starting {
    /// etcd ends as soon as it is started, or does not even start.
    Ends,
    /// It runs on what is in its directory.
    OnItsData,
    /// It is a new cluster of itself.
    Founds(Epoch),
    /// It joins this cluster.
    Joins(usize),
}

impl World {
    /// A container of a pod starts, and etcd in it does what etcd does with these flags on this directory.
    pub fn start_etcd(&mut self, serial: Serial) -> Result<(), Violation> {
        match self.starting(serial)? {
            Starting::Ends => return Ok(()),
            Starting::OnItsData => {}
            Starting::Founds(epoch) => {
                let members = BTreeMap::from([(
                    serial,
                    Member {
                        learner: false,
                        started: true,
                    },
                )]);
                let founded = Cluster {
                    epoch,
                    members,
                    in_log: None,
                    orphaned: false,
                    served: false,
                    stranger: None,
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
                self.set_disk(serial, Disk::written(index, serial));
            }
            Starting::Joins(index) => self.set_disk(serial, Disk::written(index, serial)),
        }
        self.set_runs(serial, true);
        Ok(())
    }

    /// What comes of starting a pod's container now.
    pub fn starting(&self, serial: Serial) -> Result<Starting, Violation> {
        let Some(pod) = self.pods.get(&serial) else {
            return Ok(Starting::Ends);
        };
        let (Some((start, _)), Some(disk)) = (&pod.seen, self.disk(serial)) else {
            return Ok(Starting::Ends);
        };
        match (disk, start) {
            (_, StartMode::Held) => Ok(Starting::Ends),
            _ if pod.inputs == Inputs::Bad => Ok(Starting::Ends),
            (Disk::Data { cluster, stale, .. }, _) => {
                self.starting_on_data(serial, usize::from(cluster), stale)
            }
            (Disk::Empty, StartMode::Bootstrap) => self.founding(serial, pod.epoch),
            (Disk::Empty, StartMode::Join(list)) => self.joining(serial, pod.epoch, list),
            // With itself alone in the list, and `existing`, etcd refuses an empty directory.
            (Disk::Empty, StartMode::ExistingData) => Ok(Starting::Ends),
        }
    }

    fn starting_on_data(
        &self,
        serial: Serial,
        index: usize,
        stale: bool,
    ) -> Result<Starting, Violation> {
        match self.clusters[index].members.get(&serial).copied() {
            // Whoever is up tells it that it was removed, and it exits; alone it waits to be told.
            None if self.anyone_runs_in(index) => Ok(Starting::Ends),
            Some(member) if stale && !member.learner => Err(Violation(format!(
                "{} starts as a voter on a volume other than the one it joined on: what it acknowledged since is lost",
                shown(serial)
            ))),
            // The leader takes it to know more than it does: it panics, and panics again.
            Some(member) if stale && member.started && self.has_quorum(index) => Ok(Starting::Ends),
            _ => Ok(Starting::OnItsData),
        }
    }

    fn founding(&self, serial: Serial, epoch: Epoch) -> Result<Starting, Violation> {
        // An epoch that was given up was never sealed: its seed may still be on its way up, and on its way out.
        let allowed = self.identity.as_ref().is_some_and(|identity| {
            epoch < identity.epoch
                || (identity.epoch == epoch && identity.seed == serial && !identity.bootstrapped)
        });
        // An identity that somebody deleted is rebuilt as sealed, to be on the safe side, and may not have been: what counts is
        // whether anybody has written.
        let harmless = self.meddles
            && self
                .clusters
                .iter()
                .all(|cluster| cluster.epoch != epoch || !cluster.served);
        let allowed = allowed || harmless;
        if !allowed {
            return Err(Violation(format!(
                "{} starts as a new cluster although it is not the seed of an unsealed epoch",
                shown(serial)
            )));
        }
        match self
            .clusters
            .iter()
            .position(|cluster| cluster.epoch == epoch)
        {
            // Founded again, under the same IDs: of no consequence as long as nobody else was ever in it.
            Some(index) if !self.is_alone_in(index, serial) => Err(Violation(format!(
                "{} starts as a new cluster for the second time in one epoch: both have one cluster ID",
                shown(serial)
            ))),
            _ => Ok(Starting::Founds(epoch)),
        }
    }

    /// Whether no disk but this member's holds anything of a cluster.
    fn is_alone_in(&self, cluster: usize, serial: Serial) -> bool {
        let others = self
            .claims
            .keys()
            .chain(self.pods.keys())
            .filter(|other| **other != serial);
        !others.into_iter().any(|other| {
            matches!(self.disk(*other), Some(Disk::Data { cluster: on, .. }) if usize::from(on) == cluster)
        })
    }

    fn joining(
        &self,
        serial: Serial,
        epoch: Epoch,
        list: &BTreeSet<Serial>,
    ) -> Result<Starting, Violation> {
        // It asks those in its list who they are, and any of them answers, quorum or not.
        let mut of_epoch =
            (0..self.clusters.len()).filter(|index| self.clusters[*index].epoch == epoch);
        let Some(index) = of_epoch.find(|index| self.anyone_runs_in(*index)) else {
            return Ok(Starting::Ends);
        };
        let members = &self.clusters[index].members;
        let Some(member) = members.get(&serial).copied() else {
            return Ok(Starting::Ends);
        };
        if !list.iter().eq(members.keys()) || self.clusters[index].stranger.is_some() {
            // "member count is unequal": refused for as long as the list is old.
            return Ok(Starting::Ends);
        }
        if member.started && !member.learner {
            return Err(Violation(format!(
                "{} starts as a voter on an empty directory: it has forgotten what it acknowledged",
                shown(serial)
            )));
        }
        if member.started && self.has_quorum(index) {
            // A learner that forgets panics, and panics again, until there is another leader.
            return Ok(Starting::Ends);
        }
        Ok(Starting::Joins(index))
    }

    /// The cluster of a learner that crashes only because its leader takes it to know more than it does.
    pub fn waits_for_another_leader(&self, serial: Serial) -> Option<usize> {
        let pod = self
            .pods
            .get(&serial)
            .filter(|pod| !pod.runs && !pod.down && !pod.finished && !pod.deleting)?;
        let index = (0..self.clusters.len())
            .find(|index| self.clusters[*index].epoch == pod.epoch && self.has_quorum(*index))?;
        let members = &self.clusters[index].members;
        members
            .get(&serial)
            .filter(|member| member.learner && member.started)?;
        let (start, _) = pod.seen.as_ref()?;
        let forgot = match self.disk(serial)? {
            Disk::Empty => {
                let stranger = self.clusters[index].stranger.is_some();
                matches!(start, StartMode::Join(list) if list.iter().eq(members.keys()) && !stranger)
            }
            Disk::Data { stale, .. } => stale,
        };
        forgot.then_some(index)
    }

    /// It has another leader, which takes it for new.
    pub fn catch_up(&mut self, serial: Serial) {
        if let Some(index) = self.waits_for_another_leader(serial) {
            self.set_disk(serial, Disk::written(index, serial));
            self.set_runs(serial, true);
        }
    }
}
