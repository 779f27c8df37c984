//! Carrying out what was decided, each thing pinned to what it was decided on. Thin: whatever there is to know is decided before.

mod apply;
mod membership;
pub(crate) mod snapshot;
mod writer;

use evenkeel_api::{labels, quantity};
use evenkeel_runtime::{Action, Error, Observation, Outcome, ResourceKey};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::build::claim::{claim, joined_on, removed_at};
use crate::build::pod::{PodParams, pod};
use crate::build::{self, MemberRef, start_mode};
use crate::decide::Etcd;
use crate::desired::DesiredStorage;
use crate::facts::StartMode;
use crate::identity::{Identity, Uid};
use crate::names::{Epoch, Serial};
use crate::observe::{ObservedCluster, member_ref, uid};
use crate::plan::{DeleteReason, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};
use crate::reconciler::EtcdReconciler;
use snapshot::Renewed;
use writer::EtcdWriter;

/// Carries out one thing.
pub(crate) async fn execute(
    operator: &EtcdReconciler,
    observation: &Observation<EtcdReconciler>,
    action: &Action<'_, Etcd>,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let observed = &observation.objects;
    let key = ResourceKey {
        namespace: observed.desired.namespace.clone(),
        name: observed.desired.name.clone(),
    };
    let writer = EtcdWriter::new(operator, &key);
    match action {
        Action::Create(what) => create(&writer, observed, what).await,
        Action::Patch(what) => patch(&writer, observed, what).await,
        Action::Apply(what) => apply::apply(&writer, observed, **what).await,
        Action::Disruption(EtcdDisruption::UpdateIdentity { from, to, .. }) => {
            update_identity(&writer, observed, from, to).await
        }
        Action::Disruption(EtcdDisruption::ChangeMembership {
            from,
            intent,
            transfer_to,
        }) => {
            if let Some(goes) = intent.change.member() {
                membership::transfer_leadership(&writer, observation, (goes, *transfer_to), holds)
                    .await;
            }
            membership::change_membership(&writer, observation, from, intent, holds).await
        }
        Action::Disruption(EtcdDisruption::RestartMember {
            pod,
            serial,
            transfer_to,
            via_eviction,
        }) => {
            membership::transfer_leadership(&writer, observation, (*serial, *transfer_to), holds)
                .await;
            match observed.pods.get(pod) {
                // Handing over takes its time, and whoever lost the lease meanwhile disturbs nobody.
                _ if !holds() => Ok(Outcome::Conflict),
                Some(pod) if *via_eviction => writer.evict(pod).await,
                pod => writer.delete_if_observed(pod).await,
            }
        }
        Action::Disruption(EtcdDisruption::ForceSnapshot { from, to }) => {
            match snapshot::force_snapshot(&writer, observation, holds).await {
                Ok(Renewed::All) => update_identity(&writer, observed, from, to).await,
                Ok(Renewed::UpTo { applied, ends }) => Ok(Outcome::InProgress(format!(
                    "the log has got to {applied} of {ends}"
                ))),
                Err(why) => Ok(Outcome::RetryLater(why)),
            }
        }
        // One that runs, and is only not heard, leaves only if disruption budgets allow that.
        Action::Disruption(EtcdDisruption::DeletePod {
            pod,
            why: DeleteReason::Outdated,
            ..
        }) if !is_idle(observation, *pod) => match observed.pods.get(pod) {
            Some(pod) => writer.evict(pod).await,
            None => Ok(Outcome::Conflict),
        },
        Action::Disruption(EtcdDisruption::DeletePod { pod, .. }) => {
            writer.delete_if_observed(observed.pods.get(pod)).await
        }
        Action::Disruption(EtcdDisruption::DeleteClaim { claim, .. }) => {
            writer.delete_if_observed(observed.claims.get(claim)).await
        }
    }
}

/// Whether a pod does not run, by what was decided on: nobody's budget is about that. It is deleted as it was found, so that one that has
/// come up meanwhile is not.
fn is_idle(observation: &Observation<EtcdReconciler>, pod: Uid) -> bool {
    let pods = observation.facts.pods.present();
    pods.is_some_and(|pods| pods.iter().any(|one| one.uid == pod && one.is_idle))
}

fn build_error(error: build::BuildError) -> Error {
    Error::other("build an object", error)
}

async fn create(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    what: &EtcdCreate,
) -> Result<Outcome, Error> {
    let of = |serial: Serial, epoch: Epoch| {
        let (_, identity) = observed.identity.as_ref()?;
        Some((
            MemberRef {
                lineage: identity.lineage,
                epoch,
                serial,
            },
            identity,
        ))
    };
    match what {
        EtcdCreate::Identity(identity) => {
            writer
                .create(&build::identity(&observed.desired, identity).map_err(build_error)?)
                .await
        }
        EtcdCreate::Claim { serial, epoch } => {
            let Some((member, _)) = of(*serial, *epoch) else {
                return Ok(Outcome::Conflict);
            };
            match claim(&observed.desired, member).map_err(build_error)? {
                Some(claim) => create_or_find(writer, observed, &claim).await,
                None => Ok(Outcome::Conflict),
            }
        }
        EtcdCreate::Pod {
            serial,
            epoch,
            claim: on,
            start_mode,
            ..
        } => {
            let Some((member, identity)) = of(*serial, *epoch) else {
                return Ok(Outcome::Conflict);
            };
            if matches!(observed.desired.data, DesiredStorage::Persistent { .. })
                && !claim_unchanged(writer, observed, member, *on).await?
            {
                return Ok(Outcome::Conflict);
            }
            let seed = *start_mode == StartMode::Held
                && *serial == identity.seed
                && !identity.bootstrapped;
            let made = PodParams {
                member,
                start: start_mode.clone(),
                seed,
            };
            create_or_find(
                writer,
                observed,
                &pod(&observed.desired, &made).map_err(build_error)?,
            )
            .await
        }
    }
}

/// Creates an object of a member. Where that very object is there, and somebody took off the label by which it is found, it gets it back.
async fn create_or_find<K: evenkeel_runtime::KubeObject>(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    object: &K,
) -> Result<Outcome, Error> {
    let created = writer.create(object).await?;
    if created != Outcome::Conflict {
        return Ok(created);
    }
    let Some(there) = writer.find_by_name::<K>(&object.name_any()).await? else {
        return Ok(created);
    };
    let name = &observed.desired.name;
    let is_same = MemberRef::read(there.annotations())
        .is_some_and(|it| Some(it) == MemberRef::read(object.annotations()));
    if !is_same || there.labels().get(labels::CLUSTER) == Some(name) {
        return Ok(created);
    }
    writer
        .patch(
            &there,
            json!({ "metadata": { "labels": { labels::CLUSTER: name } } }),
        )
        .await
}

/// Whether the claim that a pod is to stand on is still that claim: a pod names its claim and cannot be pinned to it, so it
/// is looked at once more.
async fn claim_unchanged(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    member: MemberRef,
    on: Option<Uid>,
) -> Result<bool, Error> {
    let name = crate::names::member_name(&observed.desired.name, member.lineage, member.serial);
    let there: Option<PersistentVolumeClaim> = writer.read(&name).await?;
    let there = there.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(on.is_some() && there.and_then(|claim| uid(&claim.metadata)) == on)
}

async fn patch(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    what: &EtcdPatch,
) -> Result<Outcome, Error> {
    match what {
        EtcdPatch::SetStartMode { pod, to, .. } => match observed.pods.get(pod) {
            Some(pod) => writer.patch(pod, start_mode_patch(observed, pod, to)).await,
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::RecordJoinedVolume { claim: on, volume } => match observed.claims.get(on) {
            Some(claim) => {
                let name = claim
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.volume_name.clone())
                    .unwrap_or_default();
                if Uid::of_name(&name) != *volume {
                    return Ok(Outcome::Conflict);
                }
                let text = joined_on(*on, &name);
                writer
                    .patch(
                        claim,
                        json!({ "metadata": { "annotations": { labels::JOINED_VOLUME: text } } }),
                    )
                    .await
            }
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::MarkJoined { pod, .. } => match observed.pods.get(pod) {
            Some(pod) => {
                writer
                    .patch_status(pod, joined_patch(writer, observed, pod))
                    .await
            }
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::AttachClients { pod } => {
            let label = json!({ labels::ROLE: labels::ROLE_VOTER });
            writer
                .patch_if_observed(
                    observed.pods.get(pod),
                    json!({ "metadata": { "labels": label } }),
                )
                .await
        }
        EtcdPatch::DetachClients { pod } => {
            let no_label = json!({ labels::ROLE: null });
            writer
                .patch_if_observed(
                    observed.pods.get(pod),
                    json!({ "metadata": { "labels": no_label } }),
                )
                .await
        }
        EtcdPatch::RecordRemoval { claim, at } => match observed.claims.get(claim) {
            Some(claim) => {
                let at = at.and_then(|at| Some(removed_at(uid(&claim.metadata)?, at)));
                writer
                    .patch(
                        claim,
                        json!({ "metadata": { "annotations": { labels::REMOVED_AT: at } } }),
                    )
                    .await
            }
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::RecordVersion { claim, version } => {
            let written = json!({ labels::VERSION: version });
            writer
                .patch_if_observed(
                    observed.claims.get(claim),
                    json!({ "metadata": { "annotations": written } }),
                )
                .await
        }
        EtcdPatch::RecordTemplateHash {
            pod,
            template_hash,
            version,
        } => {
            let written =
                json!({ labels::POD_TEMPLATE_HASH: template_hash, labels::VERSION: version });
            writer
                .patch_if_observed(
                    observed.pods.get(pod),
                    json!({ "metadata": { "annotations": written } }),
                )
                .await
        }
        EtcdPatch::ResizeVolume { claim, to } => {
            let larger = json!({ "requests": { "storage": quantity::binary(*to) } });
            writer
                .patch_if_observed(
                    observed.claims.get(claim),
                    json!({ "spec": { "resources": larger } }),
                )
                .await
        }
        EtcdPatch::RecordSpec => match &observed.identity {
            Some((object, _)) => {
                writer
                    .patch(
                        object,
                        json!({ "data": { build::SPEC_KEY: observed.desired.spec } }),
                    )
                    .await
            }
            None => Ok(Outcome::Conflict),
        },
        EtcdPatch::SetOwner { target, owned } => set_owner(writer, observed, *target, *owned).await,
    }
}

/// Tells a pod how its etcd finds its cluster, and lets one that waits go.
fn start_mode_patch(observed: &ObservedCluster, pod: &Pod, to: &StartMode) -> Value {
    let Some(member) = member_ref(&pod.metadata) else {
        return json!({});
    };
    let annotations = start_mode::annotations(&observed.desired, member.lineage, member.serial, to);
    json!({ "metadata": { "annotations": annotations } })
}

/// How to start, and the gate, in one write: a pod's annotations can be written together with its status.
fn joined_patch(writer: &EtcdWriter<'_>, observed: &ObservedCluster, pod: &Pod) -> Value {
    let mut change = joined_condition(writer);
    if let Some(member) = member_ref(&pod.metadata) {
        let own = start_mode::annotations(
            &observed.desired,
            member.lineage,
            member.serial,
            &StartMode::ExistingData,
        );
        change["metadata"]["annotations"] = json!(own);
    }
    change
}

fn joined_condition(writer: &EtcdWriter<'_>) -> Value {
    let now = writer.reconciler.clock.now();
    let now = jiff::Timestamp::from_second(now.0).unwrap_or_default();
    json!({ "status": { "conditions": [{
        "type": labels::GATE_JOINED,
        "status": "True",
        "reason": "Joined",
        "message": "etcd has joined, and starts on its own data only from now on",
        "lastTransitionTime": now.to_string(),
    }] } })
}

async fn set_owner(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    what: OwnerTarget,
    owned: bool,
) -> Result<Outcome, Error> {
    let owners = if owned {
        json!([build::owner_reference(&observed.desired)])
    } else {
        json!([])
    };
    let patch = json!({ "metadata": { "ownerReferences": owners } });
    match what {
        OwnerTarget::Identity => match &observed.identity {
            Some((object, _)) => writer.patch(object, patch).await,
            None => Ok(Outcome::Conflict),
        },
        OwnerTarget::Claim(uid) => {
            writer
                .patch_if_observed(observed.claims.get(&uid), patch)
                .await
        }
        OwnerTarget::Pod(uid) => {
            writer
                .patch_if_observed(observed.pods.get(&uid), patch)
                .await
        }
    }
}

/// Swaps the identity for another, if it is still what it was.
async fn update_identity(
    writer: &EtcdWriter<'_>,
    observed: &ObservedCluster,
    from: &Identity,
    to: &Identity,
) -> Result<Outcome, Error> {
    let Some((object, there)) = &observed.identity else {
        return Ok(Outcome::Conflict);
    };
    if there != from {
        return Ok(Outcome::Conflict);
    }
    let mut changed: ConfigMap = object.clone();
    let text = serde_json::to_string(to).map_err(|why| Error::other("write the identity", why))?;
    let data = changed.data.get_or_insert_default();
    data.insert(build::IDENTITY_KEY.to_owned(), text);
    data.insert(build::SPEC_KEY.to_owned(), observed.desired.spec.clone());
    tracing::debug!(identity = %object.name_any(), ?to, "identity");
    writer.replace(&changed).await
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
