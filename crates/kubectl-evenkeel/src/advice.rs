//! What a user can do about a degraded cluster, by the reason of the condition.

use evenkeel_api::conditions::Reason;

/// Returns the advice for a reason of the condition Degraded. Other reasons need no action.
pub(crate) fn for_reason(reason: &str, cluster: &str) -> Option<String> {
    let reason = Reason::all().find(|known| known.as_str() == reason)?;
    let advice = match reason {
        Reason::QuorumLost => {
            "bring the members that are named back: their nodes, their volumes, the network between them. Nothing is \
             rebuilt meanwhile, so nothing is lost by waiting"
                .to_owned()
        }
        Reason::MemberDown => format!(
            "nothing at once: it is brought back, or replaced after spec.heal.replaceAfter. Its log tells more: `kubectl \
             evenkeel logs {cluster}`"
        ),
        Reason::Unschedulable => {
            "give it room: add a node or free one; or take back the edit that asks for it. `kubectl describe pod` has the \
             scheduler's words"
                .to_owned()
        }
        Reason::BootstrapStalled => {
            "see to what is named: a pod that cannot start, a volume that is not made, or what is left of a former cluster"
                .to_owned()
        }
        Reason::InconsistentObjects => {
            "decide which of them are this cluster's: put its identity back, or take the label etcd.evenkeel.dev/cluster off \
             the others"
                .to_owned()
        }
        Reason::DataLost => {
            "put the volumes' claims back if you can. To begin anew, with nothing in it, delete the resource and whatever the \
             blocker names, and create it again"
                .to_owned()
        }
        Reason::UnknownMember => format!(
            "find out who added it. If nobody needs it: `kubectl evenkeel etcdctl {cluster} -- member remove` and its ID"
        ),
        Reason::RolloutStopped => format!(
            "put back what the last edit of the spec changed, and the member comes back as it was; or mend it. `kubectl evenkeel logs \
             {cluster}` has what its etcd says, if it starts at all"
        ),
        Reason::TooManyReplacements => {
            "find out why members fail before more of them do: their logs, their nodes, their disks".to_owned()
        }
        Reason::NameConflict => "delete or rename the object that is named, or give the cluster another name".to_owned(),
        Reason::CAMissing => "put the Secret that is named back, from wherever you keep copies of it".to_owned(),
        Reason::InvalidSpec => {
            "mend the field that is named. Everything else goes on with what was accepted last".to_owned()
        }
        Reason::ObserveFailed => {
            "nothing, if the API server was away for a moment. Else look at the operator's rights and its log".to_owned()
        }
        Reason::WriteRejected => {
            "see to what refuses it: a quota, a policy, a webhook, or rights that the operator lacks".to_owned()
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
