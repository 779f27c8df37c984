//! The action that a degraded cluster requires from the user, by the reason of the condition.

use evenkeel_api::conditions::Reason;

/// Returns the advice for a reason of the condition Degraded. Other reasons need no action.
pub(crate) fn for_reason(reason: &str, cluster: &str) -> Option<String> {
    let reason = Reason::all().find(|known| known.as_str() == reason)?;
    let advice = match reason {
        Reason::QuorumLost => {
            "restore the members that do not respond: check their nodes, volumes and network. The operator replaces no \
             member without a quorum, so waiting loses no data"
                .to_owned()
        }
        Reason::MemberDown => format!(
            "none yet. The operator recovers the member, or replaces it after spec.heal.replaceAfter. See its log: \
             `kubectl evenkeel logs {cluster}`"
        ),
        Reason::Unschedulable => {
            "make the pod schedulable: add or uncordon a node, free resources, or create the StorageClass; or revert the \
             edit of the spec. `kubectl describe pod` shows the scheduler's message"
                .to_owned()
        }
        Reason::BootstrapStalled => {
            "fix the cause that the message names: a pod that does not start, a volume that is not provisioned, or objects \
             of a former cluster"
                .to_owned()
        }
        Reason::InconsistentObjects => {
            "decide which of the objects belong to this cluster. Restore its identity ConfigMap, or remove the label \
             etcd.evenkeel.dev/cluster from the other objects"
                .to_owned()
        }
        Reason::DataLost => {
            "restore the PersistentVolumeClaims if you can. To start with an empty cluster, delete the EtcdCluster and the \
             objects that the message names, and create it again"
                .to_owned()
        }
        Reason::UnknownMember => format!(
            "find out which client added the member. If it is not needed, remove it: `kubectl evenkeel etcdctl {cluster} \
             -- member remove <ID>`"
        ),
        Reason::RolloutStopped => format!(
            "fix the spec, or revert its last edit; the operator then restarts the member. If its container starts, `kubectl \
             evenkeel logs {cluster}` shows the error"
        ),
        Reason::TooManyReplacements => {
            "find out why members fail before more of them do: check their logs, nodes and disks".to_owned()
        }
        Reason::NameConflict => {
            "delete or rename the object that the message names, or create the cluster under another name".to_owned()
        }
        Reason::CAMissing => {
            "restore the Secret that the message names from a backup. The operator issues no certificates until then"
                .to_owned()
        }
        Reason::InvalidSpec => {
            "fix the field that the message names. Until then its last accepted value stays in effect; a cluster whose \
             spec was never accepted does not start"
                .to_owned()
        }
        Reason::ObserveFailed => {
            "none if the Kubernetes API was unavailable for a moment. Otherwise check the operator's permissions and log"
                .to_owned()
        }
        Reason::WriteRejected => {
            "fix the cause that the message names: a ResourceQuota, a policy, a webhook, or missing permissions of the \
             operator"
                .to_owned()
        }
        Reason::Serving
        | Reason::NotServing
        | Reason::ProbePending
        | Reason::Bootstrapping
        | Reason::Deleting
        | Reason::Converged
        | Reason::Paused
        | Reason::Scaling
        | Reason::Recovering
        | Reason::Upgrading
        | Reason::Updating
        | Reason::Waiting
        | Reason::AsExpected => return None,
    };
    Some(advice)
}

#[cfg(test)]
mod tests {
    use evenkeel_api::conditions::{ConditionStatus, ConditionType};

    use super::*;

    #[test]
    fn exactly_the_reasons_of_a_degraded_cluster_have_advice() {
        for reason in Reason::all() {
            let is_degraded = reason
                .conditions()
                .contains(&(ConditionType::Degraded, ConditionStatus::True));
            let advice = for_reason(reason.as_str(), "orders");
            assert_eq!(advice.is_some(), is_degraded, "{reason}");
        }
        assert_eq!(for_reason("SomethingNewer", "orders"), None);
    }
}
