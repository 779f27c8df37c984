//! The action that a problem requires from the user, by its reason. The operator's status has more exact advice, which
//! depends on the cause; this one is for the reference page, for problems that only the plugin has found yet, and for the
//! status of an older operator.

use evenkeel_api::conditions::Reason;

/// Returns the advice for a reason of the condition Degraded. Other reasons need no action.
pub(crate) fn for_reason(reason: &str, cluster: &str) -> Option<String> {
    let reason = Reason::all().find(|known| known.as_str() == reason)?;
    let advice = match reason {
        Reason::QuorumLost => {
            "Restore the members that do not answer: check their nodes, volumes and network. The operator replaces no member \
             without a quorum, so waiting loses no data."
                .to_owned()
        }
        Reason::NotServing => {
            "Check the endpoints of the client Service, and NetworkPolicies between clients and members.".to_owned()
        }
        Reason::NoSpace => format!(
            "Delete keys that are not needed, or raise spec.etcd.quota. Then compact, defragment and disarm the alarm with \
             `kubectl evenkeel etcdctl {cluster}`."
        ),
        Reason::DataCorrupt => format!(
            "Find the member whose hash differs: `kubectl evenkeel etcdctl {cluster} -- endpoint hashkv --cluster`. Delete \
             its pod and its PersistentVolumeClaim, then disarm the alarm."
        ),
        Reason::MemberDown => format!(
            "None yet: the operator recovers the member, or replaces it after spec.heal.replaceAfter. See its log: `kubectl \
             evenkeel logs {cluster}`."
        ),
        Reason::NodeNotReady => {
            "Bring the node back. If it is gone for good, delete it: `kubectl delete node <name>`.".to_owned()
        }
        Reason::NodeCordoned => {
            "Uncordon the node when its maintenance is done: `kubectl uncordon <name>`.".to_owned()
        }
        Reason::VolumeFull => {
            "Raise spec.storage.size. If the StorageClass cannot resize volumes, delete the pod and the PersistentVolumeClaim \
             of the member while the other members have a quorum."
                .to_owned()
        }
        Reason::StorageClassNotFound => {
            "Create the StorageClass or set a default one, or set spec.storage.class to an existing one.".to_owned()
        }
        Reason::VolumeNotProvisioned => {
            "Resolve the error of the provisioner. `kubectl describe pvc` shows all its events.".to_owned()
        }
        Reason::Unschedulable => {
            "Add or uncordon a node, free resources on one, or change spec.resources or spec.scheduling. `kubectl describe \
             pod` shows the scheduler's message."
                .to_owned()
        }
        Reason::BootstrapStalled => {
            "Resolve the cause that the message names: a pod that does not start, a volume that is not provisioned, or objects \
             of a former cluster."
                .to_owned()
        }
        Reason::RestoreFailed => {
            "Resolve the cause that the message names, or name another backup in spec.bootstrap.from.backup.".to_owned()
        }
        Reason::InconsistentObjects => {
            "Decide which of the objects belong to this cluster. Restore its identity ConfigMap, or remove the label \
             etcd.evenkeel.dev/cluster from the other objects."
                .to_owned()
        }
        Reason::DataLost => {
            "Restore the PersistentVolumeClaims if you can. To start with an empty cluster, delete the EtcdCluster and the \
             objects that the message names, and create it again."
                .to_owned()
        }
        Reason::UnknownMember => format!(
            "Find out which client added the member. If it is not needed, remove it: `kubectl evenkeel etcdctl {cluster} \
             -- member remove <ID>`."
        ),
        Reason::RolloutStopped => format!(
            "Correct the spec, or revert its last change; the operator then restarts the member. If its container starts, \
             `kubectl evenkeel logs {cluster}` shows the error."
        ),
        Reason::TooManyReplacements => {
            "Find out why members fail before more of them do: check their logs, nodes and disks.".to_owned()
        }
        Reason::NameConflict => {
            "Delete or rename the object that the message names, or create the cluster under another name.".to_owned()
        }
        Reason::CAMissing => {
            "Restore the Secret that the message names from a backup. The operator issues no certificates until then."
                .to_owned()
        }
        Reason::InvalidSpec => {
            "Correct the field that the message names. Until then its last accepted value stays in effect; a cluster whose \
             spec was never accepted does not start."
                .to_owned()
        }
        Reason::ObserveFailed => {
            "None if the Kubernetes API was unavailable for a moment. Otherwise check the operator's permissions and log."
                .to_owned()
        }
        Reason::WriteRejected => {
            "Resolve the cause that the message names: a ResourceQuota, a policy, a webhook, or missing permissions of the \
             operator."
                .to_owned()
        }
        Reason::Serving
        | Reason::ProbePending
        | Reason::Restarting
        | Reason::Bootstrapping
        | Reason::Restoring
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
