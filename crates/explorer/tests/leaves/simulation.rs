//! A simulated cluster: the explorer's model without faults, together with the real Kubernetes objects.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_api::quantity::bytes;
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, OnDelete, labels};
use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_etcd::identity::Uid;
use evenkeel_etcd::names::{Serial, member_name};
use evenkeel_etcd::observe::ObservedCluster;
use evenkeel_etcd::status;
use evenkeel_explorer::Decider;
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::ClusterModel;
use evenkeel_explorer::observe::{Visibility, observe};
use evenkeel_runtime::{Plan, Requeue, UnixTime};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::objects::{KubeObjects, model_of, within_model};

/// A Friday morning, outside the maintenance windows of the cases.
pub(crate) const START_TIME: UnixTime = UnixTime(1_800_000_000);
/// The maximum number of events until the cluster must be converged.
const MAX_EVENTS: usize = 1000;

/// A simulated cluster.
#[derive(Clone)]
pub(crate) struct SimulatedCluster {
    pub(crate) kube: KubeObjects,
    model: ClusterModel,
}

/// How an edit was rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// No pod was touched.
    Unchanged,
    /// Every member was restarted once on its data, with a new pod.
    Restarted,
    /// Every member was replaced by a new one.
    Replaced,
    /// Members were added or removed, and the others were not touched.
    Scaled,
    /// Anything else.
    Other,
}

/// The result of an edit.
pub(crate) struct EditResult {
    before: BTreeMap<Serial, Uid>,
    after: BTreeMap<Serial, Uid>,
    /// The number of created pods.
    created: usize,
    /// The number of writes.
    pub(crate) writes: usize,
    /// The number of events.
    pub(crate) events: usize,
    /// The maximum number of previously serving members that did not serve at the same time.
    pub(crate) unavailable: usize,
    /// The time, in seconds, that passed while the operator only waited.
    pub(crate) waited: i64,
}

impl EditResult {
    pub(crate) fn rollout(&self) -> Rollout {
        let Self {
            before,
            after,
            created,
            ..
        } = self;
        let is_same_pod = |(serial, uid): &(&Serial, &Uid)| after.get(serial) == Some(uid);
        let (same, kept) = (
            before.len() == after.len(),
            before.iter().filter(is_same_pod).count(),
        );
        let retained = before
            .keys()
            .filter(|serial| after.contains_key(serial))
            .count();
        match (same, retained) {
            (true, _) if before == after && *created == 0 => Rollout::Unchanged,
            (true, retained) if retained == before.len() && kept == 0 && *created == retained => {
                Rollout::Restarted
            }
            (true, 0) if *created == after.len() => Rollout::Replaced,
            (false, retained) if retained == kept && *created == after.len() - kept => {
                Rollout::Scaled
            }
            _ => Rollout::Other,
        }
    }
}

impl fmt::Display for EditResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            after,
            created,
            writes,
            unavailable,
            waited,
            ..
        } = self;
        let (before, after) = (before.len(), after.len());
        write!(
            f,
            "{:?}: {before} to {after} members, {created} pods created, {writes} writes, ",
            self.rollout()
        )?;
        write!(f, "{unavailable} unavailable at once, {waited} s waited")
    }
}

/// A decider that returns a given plan, reduced to the actions that are part of the model.
struct FixedPlan<'p>(&'p Plan<Etcd>);

impl Decider for FixedPlan<'_> {
    fn decide(&self, _: &EtcdFacts) -> Plan<Etcd> {
        within_model(self.0)
    }
}

/// Returns true if the spec asks to delete the data with the resource.
fn owns_data(resource: &EtcdCluster) -> bool {
    let storage = &resource.spec.storage;
    storage.ephemeral || storage.on_delete == OnDelete::Delete
}

impl SimulatedCluster {
    /// Creates the cluster of a new resource.
    pub(crate) fn new(resource: EtcdCluster) -> Self {
        let model = model_of(&resource, START_TIME);
        Self {
            kube: KubeObjects::new(resource, START_TIME),
            model,
        }
    }

    fn facts(&self) -> EtcdFacts {
        observe(&self.model, Visibility::Full)
    }

    pub(crate) fn observe(&self) -> Result<(ObservedCluster, EtcdFacts), String> {
        self.kube.observe(&self.facts())
    }

    /// Returns the current status.
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        let (observed, facts) = self.observe().unwrap();
        status::status(
            &observed,
            &facts,
            &self.kube.plan(&self.facts()).unwrap(),
            None,
        )
    }

    /// Replaces the spec. Until the cluster has converged, the resource may own data that an edit asks to keep.
    pub(crate) fn edit(&mut self, resource: EtcdCluster) {
        self.model.owns_data |= owns_data(&resource);
        let status = self.kube.resource.status.take();
        self.kube.resource = EtcdCluster { status, ..resource };
    }

    /// Deletes the resource with everything it owns, and creates it again.
    pub(crate) fn recreate(&mut self, resource: EtcdCluster) {
        self.model.budget.edits = 1;
        let no_plan = Plan::default();
        ModelEvent::ResourceRecreated
            .apply(&mut self.model, &FixedPlan(&no_plan))
            .unwrap();
        self.kube.recreate(resource);
    }

    fn pods(&self) -> BTreeMap<Serial, Uid> {
        self.model
            .pods
            .iter()
            .map(|(serial, pod)| (*serial, pod.uid))
            .collect()
    }

    /// Runs until the cluster has converged.
    pub(crate) fn converge(&mut self) -> Result<EditResult, String> {
        self.run(MAX_EVENTS)?
            .ok_or_else(|| "the cluster never converges".to_owned())
    }

    /// Runs at most `max_events` events. Returns `None` if the cluster has not converged by then.
    pub(crate) fn run(&mut self, max_events: usize) -> Result<Option<EditResult>, String> {
        let (before, began) = (self.pods(), self.kube.now);
        let serving_before: Vec<Serial> = before
            .keys()
            .copied()
            .filter(|one| self.model.is_serving(*one))
            .collect();
        let (mut created, mut writes, mut unavailable) = (0, 0, 0);
        for events in 0..max_events {
            let facts = self.facts();
            // The operator does not decide while writes are pending.
            let idle = self.model.pending_writes.is_empty();
            let plan = if idle {
                self.kube.plan(&facts)?
            } else {
                Plan::default()
            };
            let next = ModelEvent::enabled(&self.model, &FixedPlan(&plan))
                .into_iter()
                .next();
            match next {
                Some(event) => {
                    if matches!(event, ModelEvent::Decide(_)) {
                        self.kube.record_desired(&facts)?;
                        writes += self.kube.execute(&facts, &plan)?;
                    }
                    writes += usize::from(matches!(event, ModelEvent::Write(_)));
                    let there = self.pods();
                    let applied = event.apply(&mut self.model, &FixedPlan(&plan));
                    applied.map_err(|violation| format!("{}, by {event:?}", violation.0))?;
                    created += self
                        .pods()
                        .values()
                        .filter(|uid| !there.values().any(|it| it == *uid))
                        .count();
                    self.kube.sync(&self.facts());
                    // A removed member is not counted.
                    let members: Vec<Serial> = self.members();
                    let gone = serving_before
                        .iter()
                        .filter(|one| members.contains(one) && !self.model.is_serving(**one));
                    unavailable = unavailable.max(gone.count());
                }
                None if !plan.is_noop() => {
                    self.kube.record_desired(&facts)?;
                    let done = self.kube.execute(&facts, &plan)?;
                    if done == 0 {
                        return Err(format!("the plan has no effect: {plan:?}"));
                    }
                    writes += done;
                }
                None => match plan.requeue {
                    Requeue::At(time) if time > self.kube.now => self.kube.now = time,
                    _ => {
                        let waited = self.kube.now.0 - began.0;
                        self.model.owns_data = owns_data(&self.kube.resource);
                        self.kube.resource.status = Some(self.status());
                        return Ok(Some(EditResult {
                            before,
                            after: self.pods(),
                            created,
                            writes,
                            events,
                            unavailable,
                            waited,
                        }));
                    }
                },
            }
        }
        Ok(None)
    }

    fn members(&self) -> Vec<Serial> {
        let cluster = self.model.current_cluster();
        cluster
            .map(|it| self.model.clusters[it].members.keys().copied().collect())
            .unwrap_or_default()
    }

    /// Returns the first problem of a converged cluster.
    pub(crate) fn problem(&self) -> Option<String> {
        let (observed, facts) = match self.observe() {
            Ok(observed) => observed,
            Err(why) => return Some(why),
        };
        let identity = self.model.identity.as_ref()?;
        let members = self.members();
        let desired = usize::from(observed.desired.members);
        let is_unhealthy = |serial: &&Serial| {
            let routed = self
                .model
                .pods
                .get(serial)
                .is_some_and(|pod| pod.is_routed && pod.joined_gate);
            !routed || !self.model.is_serving(**serial)
        };
        let waits = self
            .kube
            .plan(&self.facts())
            .map(|plan| plan.waits)
            .unwrap_or_default();
        if !identity.bootstrapped || identity.intent.is_some() {
            return Some("the bootstrap or an intent is not finished".to_owned());
        }
        if members.len() != desired || self.model.pods.len() != desired {
            return Some(format!(
                "{} members, {} pods",
                members.len(),
                self.model.pods.len()
            ));
        }
        if members.iter().any(|serial| is_unhealthy(&serial)) {
            return Some("a member does not serve or is not routed".to_owned());
        }
        let is_idle = waits.is_empty() && facts.spec_recorded && facts.drift.is_empty();
        if !observed.desired.paused && !is_idle {
            return Some(format!(
                "the operator waits for {waits:?}; drift: {:?}",
                facts.drift
            ));
        }
        None
    }

    /// Returns all objects and the desired cluster as text, without names, serials and uids.
    pub(crate) fn state(&self) -> String {
        let (observed, _) = self.observe().unwrap();
        let mut desired = observed.desired.clone();
        desired.generation = 0;
        let objects = self.kube.objects(&self.facts());
        let identity = objects.identity.as_ref().map(|object| {
            let recorded = object
                .data
                .as_ref()
                .and_then(|data| data.get("spec").cloned());
            json!({ "recorded": recorded, "owners": object.metadata.owner_references })
        });
        let mut pods: Vec<Value> = objects
            .pods
            .iter()
            .map(|pod| self.normalized(pod))
            .collect();
        let mut claims: Vec<Value> = objects
            .claims
            .iter()
            .map(|claim| self.normalized(claim))
            .collect();
        pods.sort_by_key(Value::to_string);
        claims.sort_by_key(Value::to_string);
        let whole = json!({
            "desired": format!("{desired:#?}").lines().collect::<Vec<_>>(),
            "server names": self.kube.server_names(&desired),
            "identity": identity,
            "pods": pods,
            "claims": claims,
            "services": [objects.peer_service, objects.client_service],
            "budget": objects.pdb,
            "backup schedule": objects.backup_schedule,
        });
        serde_json::to_string_pretty(&whole).unwrap()
    }

    /// Returns the same without recorded copies of the spec.
    pub(crate) fn built_state(&self) -> Value {
        let mut whole: Value = serde_json::from_str(&self.state()).unwrap();
        for part in ["desired", "identity"] {
            let owners = whole[part].get("owners").cloned();
            whole[part] = json!(owners);
        }
        for pod in whole["pods"].as_array_mut().into_iter().flatten() {
            pod["metadata"]["annotations"]
                .as_object_mut()
                .and_then(|all| all.remove(labels::POD_TEMPLATE_HASH));
        }
        whole
    }

    /// Returns an object without the fields that differ between members, and without those that only a seed has.
    fn normalized(&self, object: &impl serde::Serialize) -> Value {
        let mut text = serde_json::to_string(object).unwrap();
        if let Some(identity) = &self.model.identity {
            for serial in (0..identity.next_serial.0).map(Serial) {
                text = text.replace(&member_name("orders", identity.lineage, serial), "member");
            }
        }
        let text = text.replace("$(INITIAL_CLUSTER_STATE)", "existing");
        let mut object: Value = serde_json::from_str(&text).unwrap();
        for (at, key) in [
            ("/metadata", "uid"),
            ("/metadata", "creationTimestamp"),
            ("/metadata/annotations", labels::SERIAL),
            ("/metadata/annotations", labels::JOINED_VOLUME),
            ("/spec", "nodeName"),
            ("/spec", "volumeName"),
            ("", "status"),
        ] {
            object
                .pointer_mut(at)
                .and_then(Value::as_object_mut)
                .and_then(|fields| fields.remove(key));
        }
        // Equal quantities can be written differently.
        if let Some(size) = object.pointer_mut("/spec/resources/requests/storage") {
            *size = json!(bytes(&Quantity(size.as_str().unwrap().to_owned())).unwrap());
        }
        if let Some(env) = object
            .pointer_mut("/spec/containers/0/env")
            .and_then(Value::as_array_mut)
        {
            env.retain(|variable| variable["name"] != "INITIAL_CLUSTER_STATE");
        }
        object
    }
}
