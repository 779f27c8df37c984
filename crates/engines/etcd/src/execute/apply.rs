//! Objects that should exist as described: Services, TLS Secrets, the PodDisruptionBudget, the BackupSchedule.

use evenkeel_kit::tls_secrets;
use evenkeel_runtime::{Error, Outcome};
use serde_json::json;

use super::context::ExecuteContext;
use crate::build::{self, service, tls};
use crate::facts::OwnedObject;
use crate::plan::EtcdApply;

/// Brings one object to its desired state.
pub(super) async fn apply(
    context: &ExecuteContext<'_>,
    apply: EtcdApply,
) -> Result<Outcome, Error> {
    let (writer, observed) = (&context.writer, context.observed);
    let desired = &observed.desired;
    match apply {
        EtcdApply::PodDisruptionBudget { min, .. } => {
            let pdb = build::pod_disruption_budget(desired, min)?;
            writer.apply(&pdb, observed.pdb.as_ref()).await
        }
        EtcdApply::Object(OwnedObject::PeerService) => {
            let service = service::peer(desired)?;
            writer.apply(&service, observed.peer_service.as_ref()).await
        }
        EtcdApply::Object(OwnedObject::ClientService) => apply_client_service(context).await,
        EtcdApply::Object(OwnedObject::BackupSchedule) => apply_backup_schedule(context).await,
        EtcdApply::Object(OwnedObject::PodDisruptionBudget | OwnedObject::Identity) => {
            Ok(Outcome::Conflict)
        }
        EtcdApply::Object(secret) => {
            let spec = tls::spec(desired);
            let outcome = tls_secrets::apply(writer, &spec, secret, observed.now).await?;
            context.memory.tls.forget();
            Ok(outcome)
        }
    }
}

/// Applies the client Service. Stale annotations are removed first, by a patch: server-side apply does not remove fields
/// that the Service was created with.
async fn apply_client_service(context: &ExecuteContext<'_>) -> Result<Outcome, Error> {
    let desired = service::client(&context.observed.desired)?;
    let observed = context.observed.client_service.as_ref();
    if let Some(observed) = observed
        && let Some(stale) = service::stale_annotations(&observed.metadata, &desired.metadata)
    {
        let patch = json!({ "metadata": { "annotations": stale } });
        return context.writer.patch(observed, patch).await;
    }
    context.writer.apply(&desired, observed).await
}

/// Creates, replaces or deletes the BackupSchedule. It is replaced, because server-side apply does not remove fields that it
/// was created with.
async fn apply_backup_schedule(context: &ExecuteContext<'_>) -> Result<Outcome, Error> {
    let (writer, observed) = (&context.writer, context.observed);
    let desired = build::backup_schedule(&observed.desired)?;
    match (desired, &observed.backup_schedule) {
        (Some(desired), None) => writer.create(&desired).await,
        (Some(desired), Some(observed)) => {
            let mut changed = observed.clone();
            changed.spec = desired.spec;
            changed.metadata.owner_references = desired.metadata.owner_references;
            let labels = changed.metadata.labels.get_or_insert_default();
            labels.extend(desired.metadata.labels.into_iter().flatten());
            writer.replace(&changed).await
        }
        (None, observed) => writer.delete_if_observed(observed.as_ref()).await,
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "backup_schedule_tests.rs"]
mod backup_schedule_tests;
