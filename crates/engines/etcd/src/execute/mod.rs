//! Execution of actions. Every write carries the uid and the resourceVersion that the action was decided on. The code is
//! thin: all knowledge is in `decide`.

mod apply;
mod context;
mod membership;
mod nudge;
mod snapshot;

use evenkeel_api::{labels, quantity};
use evenkeel_backup::agent_pod::StoreAccess;
use evenkeel_kit::claims::{joined_on, removed_at, replaced_until};
use evenkeel_kit::identity_object::{self, SPEC_KEY};
use evenkeel_kit::pods::data_sub_path;
use evenkeel_runtime::{Action, Error, KubeObject, Outcome};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::build::claim::claim;
use crate::build::pod::{PodParams, pod};
use crate::build::restore_pod::{RestorePodParams, restore_pod};
use crate::build::{self, MemberRef, start_mode};
use crate::decide::Etcd;
use crate::desired::DesiredStorage;
use crate::facts::{EtcdFacts, StartMode};
use crate::identity::{Identity, RestoreOrigin, Uid};
use crate::names::{Epoch, Serial, member_name};
use crate::observe::member_ref;
use crate::observe::restore::{bound_volume, restored_volume};
use crate::plan::{DeleteReason, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};
use snapshot::SnapshotResult;

pub(crate) use context::{ExecuteContext, ExecuteDeps};

/// Executes one action.
pub(crate) async fn execute(
    context: &ExecuteContext<'_>,
    action: &Action<'_, Etcd>,
) -> Result<Outcome, Error> {
    match action {
        Action::Create(create) => execute_create(context, create).await,
        Action::Patch(patch) => execute_patch(context, patch).await,
        Action::Apply(apply) => apply::apply(context, **apply).await,
        Action::Disruption(disruption) => execute_disruption(context, disruption).await,
    }
}

async fn execute_disruption(
    context: &ExecuteContext<'_>,
    disruption: &EtcdDisruption,
) -> Result<Outcome, Error> {
    let (writer, observed) = (&context.writer, context.observed);
    match disruption {
        EtcdDisruption::UpdateIdentity { from, to, .. } => update_identity(context, from, to).await,
        EtcdDisruption::ChangeMembership {
            from,
            intent,
            transfer_to,
        } => {
            if let Some(leaving) = intent.change.member() {
                membership::transfer_leadership(context, leaving, *transfer_to).await;
            }
            membership::change_membership(context, from, intent).await
        }
        EtcdDisruption::RestartMember {
            pod,
            serial,
            transfer_to,
            via_eviction,
        } => {
            membership::transfer_leadership(context, *serial, *transfer_to).await;
            match observed.pods.get(pod) {
                // The transfer takes time, in which the lease may have been lost.
                _ if !(context.holds_lease)() => Ok(Outcome::Conflict),
                Some(pod) if *via_eviction => writer.evict(pod).await,
                pod => writer.delete_if_observed(pod).await,
            }
        }
        EtcdDisruption::ForceSnapshot { from, to } => {
            match snapshot::force_snapshot(context).await {
                Ok(SnapshotResult::Done) => update_identity(context, from, to).await,
                Ok(SnapshotResult::InProgress {
                    applied_index,
                    target_index,
                }) => Ok(Outcome::InProgress(format!(
                    "the slowest member has applied {applied_index} of {target_index} raft log entries"
                ))),
                Err(error) => Ok(Outcome::RetryLater(format!(
                    "failed to force a snapshot: {error}"
                ))),
            }
        }
        // A pod that runs and does not answer is evicted, so that PodDisruptionBudgets are respected.
        EtcdDisruption::DeletePod {
            pod,
            why: DeleteReason::Outdated,
            ..
        } if !is_idle(context.facts, *pod) => match observed.pods.get(pod) {
            Some(pod) => writer.evict(pod).await,
            None => Ok(Outcome::Conflict),
        },
        EtcdDisruption::DeletePod { pod, .. } => {
            writer.delete_if_observed(observed.pods.get(pod)).await
        }
        EtcdDisruption::DeleteRestorePod { pod, .. } => {
            let pod = observed.restore_pods.get(pod);
            writer.delete_if_observed(pod).await
        }
        EtcdDisruption::DeleteClaim { claim, .. } => {
            writer.delete_if_observed(observed.claims.get(claim)).await
        }
    }
}

/// Returns true if a pod did not run when the action was decided. It is deleted without an eviction; the precondition on its
/// resourceVersion protects a pod that has started meanwhile.
fn is_idle(facts: &EtcdFacts, pod: Uid) -> bool {
    let mut pods = facts.pods.present().into_iter().flatten();
    pods.any(|facts| facts.uid == pod && facts.is_idle)
}

async fn execute_create(
    context: &ExecuteContext<'_>,
    create: &EtcdCreate,
) -> Result<Outcome, Error> {
    let observed = context.observed;
    let member = |serial: Serial, epoch: Epoch| {
        let (_, identity) = observed.identity.as_ref()?;
        let member = MemberRef {
            lineage: identity.lineage,
            epoch,
            serial,
        };
        Some((member, identity))
    };
    match create {
        EtcdCreate::Identity(identity) => {
            let object = build::identity(&observed.desired, identity)?;
            context.writer.create(&object).await
        }
        EtcdCreate::Claim {
            serial,
            epoch,
            owned,
        } => {
            let Some((member, _)) = member(*serial, *epoch) else {
                return Ok(Outcome::Conflict);
            };
            match claim(&observed.desired, member, *owned)? {
                Some(claim) => create_or_relabel(context, &claim).await,
                None => Ok(Outcome::Conflict),
            }
        }
        EtcdCreate::Pod {
            serial,
            epoch,
            claim,
            start_mode,
            ..
        } => {
            let Some((member, identity)) = member(*serial, *epoch) else {
                return Ok(Outcome::Conflict);
            };
            let is_persistent = matches!(observed.desired.data, DesiredStorage::Persistent { .. });
            if is_persistent && !is_claim_unchanged(context, member, *claim).await? {
                return Ok(Outcome::Conflict);
            }
            let is_bootstrap_seed = *start_mode == StartMode::Held
                && *serial == identity.seed
                && !identity.bootstrapped
                && identity.restore.is_none();
            let params = PodParams {
                member,
                start: start_mode.clone(),
                seed: is_bootstrap_seed,
            };
            create_or_relabel(context, &pod(&observed.desired, &params)?).await
        }
        EtcdCreate::RestorePod {
            serial,
            epoch,
            claim,
            restore,
            ..
        } => {
            let Some((member, _)) = member(*serial, *epoch) else {
                return Ok(Outcome::Conflict);
            };
            if !is_claim_unchanged(context, member, Some(*claim)).await? {
                return Ok(Outcome::Conflict);
            }
            create_restore_pod(context, member, *claim, restore).await
        }
    }
}

/// Creates the pod that fills the volume of a seed from the backup and the store as they were observed.
async fn create_restore_pod(
    context: &ExecuteContext<'_>,
    member: MemberRef,
    claim: Uid,
    origin: &RestoreOrigin,
) -> Result<Outcome, Error> {
    let source = context.observed.source.as_ref();
    let status = source.and_then(|source| source.backup.as_ref()?.status.as_ref());
    let store = source.and_then(|source| StoreAccess::of(&source.store.as_ref()?.spec));
    let (Some(status), Some(store)) = (status, store) else {
        return Ok(Outcome::Conflict);
    };
    let Some(agent_image) = context.agent_image else {
        return Ok(Outcome::RetryLater(
            "cannot restore a backup: the operator was started without --agent-image".to_owned(),
        ));
    };
    let params = RestorePodParams {
        member,
        claim,
        origin,
        store: &store,
        location: &status.location,
        agent_image,
    };
    let pod = restore_pod(&context.observed.desired, &params)?;
    context.writer.create(&pod).await
}

/// Creates an object of a member. If the object exists and only lacks the cluster's label, which a user removed, the label
/// is restored.
async fn create_or_relabel<K: KubeObject>(
    context: &ExecuteContext<'_>,
    object: &K,
) -> Result<Outcome, Error> {
    let outcome = context.writer.create(object).await?;
    if outcome != Outcome::Conflict {
        return Ok(outcome);
    }
    let Some(existing) = context.writer.find_by_name::<K>(&object.name_any()).await? else {
        return Ok(outcome);
    };
    let cluster = &context.observed.desired.name;
    let member = member_ref(existing.meta());
    let is_same_member = member.is_some() && member == member_ref(object.meta());
    if !is_same_member || existing.labels().get(labels::CLUSTER) == Some(cluster) {
        return Ok(outcome);
    }
    let patch = json!({ "metadata": { "labels": { labels::CLUSTER: cluster } } });
    context.writer.patch(&existing, patch).await
}

/// Reads a member's PVC and returns true if it is the one that the pod was decided for. A pod names its PVC and cannot carry
/// a precondition on it.
async fn is_claim_unchanged(
    context: &ExecuteContext<'_>,
    member: MemberRef,
    expected: Option<Uid>,
) -> Result<bool, Error> {
    let cluster = &context.observed.desired.name;
    let name = member_name(cluster, member.lineage, member.serial);
    let claim: Option<PersistentVolumeClaim> = context.writer.read(&name).await?;
    let claim = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(expected.is_some() && claim.and_then(|claim| Uid::of(&claim.metadata)) == expected)
}

async fn execute_patch(context: &ExecuteContext<'_>, patch: &EtcdPatch) -> Result<Outcome, Error> {
    let observed = context.observed;
    match patch {
        EtcdPatch::SetStartMode { pod, to, .. } => {
            let pod = observed.pods.get(pod);
            let patch = pod.map(|pod| start_mode_patch(context, pod, to));
            patch_or_conflict(context, pod, patch).await
        }
        EtcdPatch::RecordJoinedVolume { claim, volume } => {
            let object = observed.claims.get(claim);
            let volume_name = object
                .and_then(evenkeel_kit::claims::volume_name)
                .filter(|name| Uid::of_name(name) == *volume);
            let patch = volume_name.map(|name| {
                annotation_patch(labels::JOINED_VOLUME, json!(joined_on(*claim, name)))
            });
            patch_or_conflict(context, object, patch).await
        }
        EtcdPatch::ReleaseRestorePod { pod } => {
            let patch = annotation_patch(labels::DATA_SUB_PATH, json!(data_sub_path(false)));
            patch_or_conflict(context, observed.restore_pods.get(pod), Some(patch)).await
        }
        EtcdPatch::RecordRestored {
            claim,
            volume,
            restore,
        } => {
            let object = observed.claims.get(claim);
            let volume_name = object.and_then(|object| bound_volume(object, *volume));
            // The version that wrote the data: an earlier one must not start on it.
            let patch = volume_name.map(|name| {
                let annotations = json!({
                    labels::RESTORED_VOLUME: restored_volume(*restore, *claim, name),
                    labels::VERSION: observed.desired.version,
                });
                json!({ "metadata": { "annotations": annotations } })
            });
            patch_or_conflict(context, object, patch).await
        }
        EtcdPatch::MarkJoined { pod, .. } => match observed.pods.get(pod) {
            Some(pod) => {
                let patch = joined_patch(context, pod);
                context.writer.patch_status(pod, patch).await
            }
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::AttachClients { pod } => {
            let patch = role_patch(json!(labels::ROLE_VOTER));
            patch_or_conflict(context, observed.pods.get(pod), Some(patch)).await
        }
        EtcdPatch::DetachClients { pod } => {
            let patch = role_patch(Value::Null);
            patch_or_conflict(context, observed.pods.get(pod), Some(patch)).await
        }
        EtcdPatch::RecordRemoval { claim, at } => {
            let removed_at = at.map(|at| removed_at(*claim, at));
            let is_removed = at.map(|_| "true");
            let patch = json!({ "metadata": {
                "annotations": { labels::REMOVED_AT: removed_at },
                "labels": { labels::REMOVED: is_removed },
            } });
            patch_or_conflict(context, observed.claims.get(claim), Some(patch)).await
        }
        EtcdPatch::RecordReplaced { claim, until } => {
            let replaced = until.map(|until| replaced_until(*claim, until));
            let is_replaced = until.map(|_| "true");
            let patch = json!({ "metadata": {
                "annotations": { labels::REPLACED_UNTIL: replaced },
                "labels": { labels::REPLACED: is_replaced },
            } });
            patch_or_conflict(context, observed.claims.get(claim), Some(patch)).await
        }
        EtcdPatch::RecordVersion { claim, version } => {
            let patch = annotation_patch(labels::VERSION, json!(version));
            patch_or_conflict(context, observed.claims.get(claim), Some(patch)).await
        }
        EtcdPatch::RecordTemplateHash {
            pod,
            template_hash,
            version,
        } => {
            let annotations =
                json!({ labels::POD_TEMPLATE_HASH: template_hash, labels::VERSION: version });
            let patch = json!({ "metadata": { "annotations": annotations } });
            patch_or_conflict(context, observed.pods.get(pod), Some(patch)).await
        }
        EtcdPatch::ResizeVolume { claim, to } => {
            let resources = json!({ "requests": { "storage": quantity::binary(*to) } });
            let patch = json!({ "spec": { "resources": resources } });
            patch_or_conflict(context, observed.claims.get(claim), Some(patch)).await
        }
        EtcdPatch::RecordSpec => {
            let object = observed.identity.as_ref().map(|(object, _)| object);
            let patch = json!({ "data": { SPEC_KEY: observed.desired.spec } });
            patch_or_conflict(context, object, Some(patch)).await
        }
        EtcdPatch::SetOwner { target, owned } => set_owner(context, *target, *owned).await,
        EtcdPatch::NudgeMember { member } => nudge::nudge_member(context, *member).await,
    }
}

/// Patches an object. An object that was not observed, or a patch that does not fit it, is a conflict.
async fn patch_or_conflict<K: KubeObject>(
    context: &ExecuteContext<'_>,
    object: Option<&K>,
    patch: Option<Value>,
) -> Result<Outcome, Error> {
    match (object, patch) {
        (Some(object), Some(patch)) => context.writer.patch(object, patch).await,
        _ => Ok(Outcome::Conflict),
    }
}

fn annotation_patch(key: &str, value: Value) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn role_patch(role: Value) -> Value {
    json!({ "metadata": { "labels": { labels::ROLE: role } } })
}

/// Returns a patch that sets the start mode, and releases a held pod.
fn start_mode_patch(context: &ExecuteContext<'_>, pod: &Pod, to: &StartMode) -> Value {
    let desired = &context.observed.desired;
    let Some(member) = member_ref(&pod.metadata) else {
        return json!({});
    };
    let annotations = start_mode::annotations(desired, member.lineage, member.serial, to);
    json!({ "metadata": { "annotations": annotations } })
}

/// Returns a patch of the status that sets the readiness gate and the start mode in one write: a write of a pod's status can
/// change its annotations, too.
fn joined_patch(context: &ExecuteContext<'_>, pod: &Pod) -> Value {
    let now = jiff::Timestamp::from_second(context.clock.now().0).unwrap_or_default();
    let mut patch = start_mode_patch(context, pod, &StartMode::ExistingData);
    patch["status"]["conditions"] = json!([{
        "type": labels::GATE_JOINED,
        "status": "True",
        "reason": "Joined",
        "message": "The member has joined the cluster. etcd starts only on its existing data from now on.",
        "lastTransitionTime": now.to_string(),
    }]);
    patch
}

async fn set_owner(
    context: &ExecuteContext<'_>,
    target: OwnerTarget,
    is_owned: bool,
) -> Result<Outcome, Error> {
    let observed = context.observed;
    let owners = if is_owned {
        json!([build::owner_reference(&observed.desired)])
    } else {
        json!([])
    };
    let patch = Some(json!({ "metadata": { "ownerReferences": owners } }));
    match target {
        OwnerTarget::Identity => {
            let object = observed.identity.as_ref().map(|(object, _)| object);
            patch_or_conflict(context, object, patch).await
        }
        OwnerTarget::Claim(uid) => {
            patch_or_conflict(context, observed.claims.get(&uid), patch).await
        }
        OwnerTarget::Pod(uid) => patch_or_conflict(context, observed.pods.get(&uid), patch).await,
    }
}

/// Replaces the identity by compare-and-swap: only if it is still the one that the change was decided on.
async fn update_identity(
    context: &ExecuteContext<'_>,
    from: &Identity,
    to: &Identity,
) -> Result<Outcome, Error> {
    let observed = context.observed;
    match &observed.identity {
        Some((object, identity)) if identity == from => {
            tracing::debug!(identity = %object.name_any(), ?to, "updating identity");
            identity_object::replace(&context.writer, object, to, &observed.desired.spec).await
        }
        _ => Ok(Outcome::Conflict),
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
