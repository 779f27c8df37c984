//! Without a quorum that answers nothing about the membership is known, and nothing is done about it. Other operators
//! reported health over the total loss of members, or rebuilt a cluster that was only cut off.

use super::RuleResult;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Stops everything that rests on etcd's list of members while it cannot be read.
pub(super) fn check_quorum(view: &ClusterView<'_>) -> RuleResult {
    match (view.membership_known, view.identity.cluster_id) {
        (true, _) => RuleResult::Pass,
        (false, None) if view.identity.bootstrapped => RuleResult::Block(EtcdWait::NoQuorum),
        (false, None) => RuleResult::Block(EtcdWait::SeedStart(view.identity.seed)),
        (false, Some(_)) => RuleResult::Block(EtcdWait::NoQuorum),
    }
}
