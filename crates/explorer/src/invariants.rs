//! What must be so in every state of the world: the design's invariants, as far as a state alone shows them.

use std::collections::BTreeSet;

use evenkeel_etcd::view::quorum;

use crate::world::{Violation, World};

impl World {
    /// What must be so in every state.
    pub fn check(&self) -> Result<(), Violation> {
        let serving: BTreeSet<usize> = self
            .pods
            .keys()
            .filter(|serial| self.serves(**serial))
            .filter_map(|serial| self.running_in(*serial))
            .collect();
        if serving.len() > 1 {
            return Err(Violation("two clusters serve at once".to_owned()));
        }
        // Until the identity is there again nothing can be said of it.
        let Some(identity) = &self.identity else {
            return Ok(());
        };
        let sealed = identity.bootstrapped;
        if !sealed && self.pods.values().any(|pod| pod.routed) {
            return Err(Violation("clients are routed before the seal".to_owned()));
        }
        if let Some(cluster) = self.true_cluster().filter(|_| sealed) {
            let learners = self.clusters[cluster]
                .members
                .values()
                .filter(|member| member.learner)
                .count();
            // An identity that was rebuilt is sealed, whether or not it had been: learners of a bootstrap may be left.
            if learners > 1 && !self.clusters[cluster].orphaned {
                return Err(Violation(format!(
                    "{learners} learners at once after the seal"
                )));
            }
            let voters = self.clusters[cluster].members.len() - learners;
            if self
                .budget_min
                .is_none_or(|min| usize::from(min) < quorum(voters))
            {
                return Err(Violation("evictions may cost the quorum".to_owned()));
            }
        }
        Ok(())
    }
}
