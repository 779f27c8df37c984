//! The invariants of the design that can be checked on a single state.

use std::collections::BTreeSet;

use evenkeel_etcd::view::quorum;

use crate::model::{ClusterModel, ModelRestoreState, RuleViolation, backup_of, member_label};

impl ClusterModel {
    /// Checks the invariants.
    pub fn check(&self) -> Result<(), RuleViolation> {
        let serving: BTreeSet<usize> = self
            .pods
            .keys()
            .filter(|serial| self.is_serving(**serial))
            .filter_map(|serial| self.running_cluster(*serial))
            .collect();
        if serving.len() > 1 {
            return Err(RuleViolation(
                "two clusters serve at the same time".to_owned(),
            ));
        }
        // Without an identity the remaining invariants do not apply.
        let Some(identity) = &self.identity else {
            return Ok(());
        };
        let bootstrapped = identity.bootstrapped;
        // The pods of an epoch that a restore has replaced serve until they are deleted, before the next seed starts.
        let mut pods = self.pods.values();
        if !bootstrapped && pods.any(|pod| pod.is_routed && pod.epoch == identity.epoch) {
            return Err(RuleViolation(
                "clients are routed before the bootstrap is finished".to_owned(),
            ));
        }
        self.check_restores()?;
        self.check_ownership()?;
        if let Some(cluster) = self.current_cluster().filter(|_| bootstrapped) {
            let learners = self.clusters[cluster]
                .members
                .values()
                .filter(|member| member.is_learner)
                .count();
            // A rebuilt identity is marked bootstrapped even if the bootstrap was not finished, so learners of the
            // bootstrap may remain.
            if learners > 1 && !self.clusters[cluster].identity_deleted {
                return Err(RuleViolation(format!(
                    "{learners} learners at the same time after the bootstrap"
                )));
            }
            let voters = self.clusters[cluster].members.len() - learners;
            if self
                .pdb_min_available
                .is_none_or(|min| usize::from(min) < quorum(voters))
            {
                return Err(RuleViolation(
                    "the PodDisruptionBudget allows evictions that cost the quorum".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Checks that a restored epoch has the data of its backup, and that a restore pod never runs beside etcd on one volume.
    fn check_restores(&self) -> Result<(), RuleViolation> {
        if !self.restores {
            return Ok(());
        }
        let beside = self.restore_pods.iter().find(|(serial, pod)| {
            pod.state == ModelRestoreState::Running
                && self.pods.get(serial).is_some_and(|pod| pod.is_running)
        });
        if let Some((serial, _)) = beside {
            return Err(RuleViolation(format!(
                "a restore runs on the volume of {} while its etcd runs",
                member_label(*serial)
            )));
        }
        let (Some(identity), Some(cluster)) = (&self.identity, self.current_cluster()) else {
            return Ok(());
        };
        let cluster = &self.clusters[cluster];
        // The origin of data is not known to a rebuilt identity.
        if !cluster.identity_deleted && cluster.origin != backup_of(identity.restore.as_ref()) {
            return Err(RuleViolation(
                "the cluster did not begin with the data that its epoch begins with".to_owned(),
            ));
        }
        if let Some(replaced) = identity.replaced.as_ref()
            && identity.bootstrapped
            && !replaced.is_undone(identity.epoch)
            && cluster.origin != backup_of(Some(&replaced.replaced_by))
        {
            return Err(RuleViolation(
                "clients are served from other data than that of the backup that they asked for"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks that data of clients is not deleted with the resource, unless the spec says so. There is data once clients are
    /// routed; a claim has it once its member has joined on it. An identity that was rebuilt is marked bootstrapped even if
    /// the bootstrap was not finished, and clients are not routed then.
    fn check_ownership(&self) -> Result<(), RuleViolation> {
        let Some(cluster) = self.current_cluster().filter(|_| !self.owns_data) else {
            return Ok(());
        };
        if !self.pods.values().any(|pod| pod.is_routed) {
            return Ok(());
        }
        let owned = self.claims.iter().find(|(serial, claim)| {
            claim.is_owned && claim.joined_on.is_some() && self.is_voter(cluster, **serial)
        });
        match owned {
            Some((serial, _)) => Err(RuleViolation(format!(
                "clients are routed, and the volume of {} would be deleted with the resource although the spec \
                 asks to keep it",
                member_label(*serial)
            ))),
            None if self.identity_owned => Err(RuleViolation(
                "clients are routed, and the identity would be deleted with the resource although the spec asks to \
                 keep it"
                    .to_owned(),
            )),
            None => Ok(()),
        }
    }
}
