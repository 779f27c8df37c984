//! The operator's eyes and hands: what Kubernetes has and what the members say, as facts; and what was decided, carried out,
//! each thing pinned to what it was decided on. Thin: whatever there is to know is in `decide.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_runtime::{
    Error, ObjectWriter, Observed, Outcome, OwnedObjects, Plan, Presence, SimpleEngine,
    SimpleReconciler,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use serde_json::json;

use crate::client::{PORT, ask};
use crate::decide::{decide, status};
use crate::facts::{Deed, Facts, Member};
use crate::member::{List, Reply, Request};
use crate::resource::Status;
use crate::{KillerNewDb, objects};

/// What runs killernewdb.
#[derive(Clone, Copy, Debug)]
pub struct Operator;

/// How long a member may take to say how it is.
const SHORT: Duration = Duration::from_secs(1);
/// How long it may take for a change, of which it tells all the others.
const LONG: Duration = Duration::from_secs(6);

impl SimpleEngine for Operator {
    const NAME: &'static str = "killernewdb.example/operator";
    const LABEL: &'static str = "killernewdb.example/database";
    type Resource = KillerNewDb;
    type ProbeResult = BTreeMap<String, Observed<List>>;
    type Facts = Facts;
    type Action = Deed;
    type Wait = String;
    type Status = Status;

    async fn probe(&self, objects: &OwnedObjects<KillerNewDb>) -> Self::ProbeResult {
        let asked = objects
            .pods
            .iter()
            .filter_map(|pod| Some((pod.name_any(), address(pod)?)));
        let answers = asked.map(async |(name, address)| {
            match ask(&address, &Request::Status, SHORT, &|| true).await {
                Ok(Reply::Status(list)) => (name, Observed::Present(list)),
                Ok(Reply::Empty) => (name, Observed::Absent),
                _ => (name, Observed::Unknown),
            }
        });
        join_all(answers).await.into_iter().collect()
    }

    fn facts(objects: &OwnedObjects<KillerNewDb>, answers: &Self::ProbeResult) -> Facts {
        let name = objects.resource.name_any();
        let ledger = objects
            .config_map(&name)
            .and_then(|map| map.data.as_ref()?.get(objects::LEDGER));
        let names = objects.pods.iter().map(ResourceExt::name_any);
        let members = names
            .chain(objects.claims.iter().map(ResourceExt::name_any))
            .map(|name| {
                let (pod, claim) = (objects.pod(&name), objects.claim(&name));
                let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
                let finished = matches!(phase, Some("Failed" | "Succeeded"));
                let list = answers
                    .get(&name)
                    .filter(|_| pod.is_some())
                    .cloned()
                    .unwrap_or_default();
                (
                    name,
                    Member {
                        claim: Presence::of(claim),
                        pod: Presence::of(pod),
                        finished,
                        list,
                    },
                )
            });
        Facts {
            wanted: objects.resource.spec.members,
            service: objects.service(&name).is_some(),
            ledger: ledger.and_then(|text| serde_json::from_str(text).ok()),
            members: members.collect(),
            name,
        }
    }

    fn decide(facts: &Facts) -> Plan<SimpleReconciler<Self>> {
        decide(facts)
    }

    fn status(facts: &Facts, plan: &Plan<SimpleReconciler<Self>>) -> Option<Status> {
        Some(status(facts, plan))
    }

    async fn execute(
        &self,
        hand: &ObjectWriter<'_>,
        objects: &OwnedObjects<KillerNewDb>,
        deed: &Deed,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        match deed.clone() {
            Deed::Service => hand.create_json::<Service>(objects::service(objects)).await,
            Deed::Ledger(ledger) => {
                hand.create_json::<ConfigMap>(objects::ledger(objects, &ledger))
                    .await
            }
            Deed::Claim(name) => {
                hand.create_json::<PersistentVolumeClaim>(objects::claim(objects, &name))
                    .await
            }
            Deed::Pod(name) => hand.create_json::<Pod>(objects::pod(objects, &name)).await,
            // Pinned to the resourceVersion that the ledger was read with.
            Deed::Swap { to, .. } => {
                let ledger = objects.config_map(&objects.resource.name_any());
                hand.patch_if_observed(ledger, json!({ "data": objects::noted(&to) }))
                    .await
            }
            Deed::DeletePod(name) => hand.delete_if_observed(objects.pod(&name)).await,
            Deed::DeleteClaim(name) => hand.delete_if_observed(objects.claim(&name)).await,
            Deed::Found(name) => call(objects.pod(&name), &Request::Found, holds).await,
            Deed::Change {
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
                    holds,
                )
                .await
            }
        }
    }
}

async fn call(
    pod: Option<&Pod>,
    request: &Request,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let Some(address) = pod.and_then(address) else {
        return Ok(Outcome::Conflict);
    };
    match ask(&address, request, LONG, holds).await {
        Ok(Reply::Done) => Ok(Outcome::Done),
        Ok(other) => Ok(Outcome::RetryLater(format!("{address} says {other:?}"))),
        Err(why) => Ok(Outcome::RetryLater(format!(
            "{address} says nothing: {why}"
        ))),
    }
}

/// Where a pod's member listens, once it has an address.
fn address(pod: &Pod) -> Option<String> {
    let address = pod
        .status
        .as_ref()?
        .pod_ip
        .as_ref()
        .filter(|_| Presence::of(Some(pod)) == Presence::Present)?;
    Some(format!("{address}:{PORT}"))
}
