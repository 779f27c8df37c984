//! Without a reachable quorum the membership is unknown, and no rule changes it. Known failures of
//! other operators: they report a healthy cluster after the loss of all members, or rebuild a
//! cluster that is only partitioned.

use super::RuleResult;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Blocks every rule that depends on etcd's member list while it is unknown.
pub(super) fn check_quorum(view: &ClusterView<'_>) -> RuleResult {
    if view.membership_known {
        return RuleResult::Pass;
    }
    let was_formed = view.identity.bootstrapped || view.identity.cluster_id.is_some();
    RuleResult::Block(if was_formed {
        EtcdWait::NoQuorum
    } else {
        EtcdWait::SeedStart(view.identity.seed)
    })
}
