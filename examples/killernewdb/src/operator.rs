//! The observation and execution of the operator: objects and answers of members as facts, and actions as writes with
//! preconditions. All decisions are in `decide.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_kit::pods;
use evenkeel_runtime::{
    Error, ObjectWriter, Observed, Outcome, OwnedObjects, Plan, Presence, SimpleEngine,
    SimpleReconciler,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use serde_json::json;

use crate::client::{PORT, request as send};
use crate::decide::{decide, status};
use crate::facts::{DbAction, DbFacts, MemberFacts};
use crate::member::{MemberList, Reply, Request};
use crate::resource::KillerNewDbStatus;
use crate::{KillerNewDb, objects};

/// The engine of killernewdb.
#[derive(Clone, Copy, Debug)]
pub struct KillerNewDbEngine;

/// The timeout of a status request.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of a change, which the member sends to all others.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(6);

impl SimpleEngine for KillerNewDbEngine {
    const NAME: &'static str = "killernewdb.example/operator";
    const LABEL: &'static str = "killernewdb.example/database";
    type Resource = KillerNewDb;
    type ProbeResult = BTreeMap<String, Observed<MemberList>>;
    type Facts = DbFacts;
    type Action = DbAction;
    type Wait = String;
    type Status = KillerNewDbStatus;

    async fn probe(&self, objects: &OwnedObjects<KillerNewDb>) -> Self::ProbeResult {
        let targets = objects
            .pods
            .iter()
            .filter_map(|pod| Some((pod.name_any(), address(pod)?)));
        let answers = targets.map(async |(name, address)| {
            match send(&address, &Request::Status, STATUS_TIMEOUT, &|| true).await {
                Ok(Reply::Status(list)) => (name, Observed::Present(list)),
                Ok(Reply::Empty) => (name, Observed::Absent),
                _ => (name, Observed::Unknown),
            }
        });
        join_all(answers).await.into_iter().collect()
    }

    fn facts(objects: &OwnedObjects<KillerNewDb>, probe_result: &Self::ProbeResult) -> DbFacts {
        let name = objects.resource.name_any();
        let ledger = objects
            .config_map(&name)
            .and_then(|map| map.data.as_ref()?.get(objects::LEDGER_KEY));
        let names = objects.pods.iter().map(ResourceExt::name_any);
        let members = names
            .chain(objects.claims.iter().map(ResourceExt::name_any))
            .map(|name| {
                let (pod, claim) = (objects.pod(&name), objects.claim(&name));
                let list = probe_result
                    .get(&name)
                    .filter(|_| pod.is_some())
                    .cloned()
                    .unwrap_or_default();
                (
                    name,
                    MemberFacts {
                        claim: Presence::of(claim),
                        pod: Presence::of(pod),
                        is_finished: pod.is_some_and(pods::is_finished),
                        list,
                    },
                )
            });
        DbFacts {
            desired: objects.resource.spec.members,
            has_service: objects.service(&name).is_some(),
            ledger: ledger.and_then(|text| serde_json::from_str(text).ok()),
            members: members.collect(),
            name,
        }
    }

    fn decide(facts: &DbFacts) -> Plan<SimpleReconciler<Self>> {
        decide(facts)
    }

    fn status(facts: &DbFacts, plan: &Plan<SimpleReconciler<Self>>) -> Option<KillerNewDbStatus> {
        Some(status(facts, plan))
    }

    async fn execute(
        &self,
        writer: &ObjectWriter<'_>,
        objects: &OwnedObjects<KillerNewDb>,
        action: &DbAction,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        match action.clone() {
            DbAction::CreateService => {
                writer
                    .create_json::<Service>(objects::service(objects))
                    .await
            }
            DbAction::CreateLedger(ledger) => {
                writer
                    .create_json::<ConfigMap>(objects::ledger(objects, &ledger))
                    .await
            }
            DbAction::CreateClaim(name) => {
                writer
                    .create_json::<PersistentVolumeClaim>(objects::claim(objects, &name))
                    .await
            }
            DbAction::CreatePod(name) => {
                writer
                    .create_json::<Pod>(objects::pod(objects, &name))
                    .await
            }
            // With the resourceVersion of the observed ledger as precondition.
            DbAction::UpdateLedger { to, .. } => {
                let ledger = objects.config_map(&objects.resource.name_any());
                writer
                    .patch_if_observed(ledger, json!({ "data": objects::ledger_data(&to) }))
                    .await
            }
            DbAction::DeletePod(name) => writer.delete_if_observed(objects.pod(&name)).await,
            DbAction::DeleteClaim(name) => writer.delete_if_observed(objects.claim(&name)).await,
            DbAction::Bootstrap(name) => {
                call(objects.pod(&name), &Request::Bootstrap, may_write).await
            }
            DbAction::ChangeMembers {
                version,
                members,
                lost,
            } => {
                let primary = members.first().and_then(|name| objects.pod(name));
                call(
                    primary,
                    &Request::Change {
                        version,
                        members,
                        lost,
                    },
                    may_write,
                )
                .await
            }
        }
    }
}

async fn call(
    pod: Option<&Pod>,
    request: &Request,
    may_write: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let Some(address) = pod.and_then(address) else {
        return Ok(Outcome::Conflict);
    };
    match send(&address, request, CHANGE_TIMEOUT, may_write).await {
        Ok(Reply::Done) => Ok(Outcome::Done),
        Ok(other) => Ok(Outcome::RetryLater(format!(
            "the member at {address} answered {other:?}"
        ))),
        Err(error) => Ok(Outcome::RetryLater(format!(
            "the member at {address} did not answer: {error}"
        ))),
    }
}

/// Returns the address of the member in a Pod, once the Pod has one.
fn address(pod: &Pod) -> Option<String> {
    let address = pod
        .status
        .as_ref()?
        .pod_ip
        .as_ref()
        .filter(|_| Presence::of(Some(pod)) == Presence::Present)?;
    Some(format!("{address}:{PORT}"))
}
