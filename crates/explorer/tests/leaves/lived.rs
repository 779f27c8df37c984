//! A cluster that is lived through: the explorer's world, in which nothing goes wrong, with the real objects beside it.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_api::quantity::bytes;
use evenkeel_api::{EtcdCluster, EtcdClusterStatus, labels};
use evenkeel_etcd::Etcd;
use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::facts::{EtcdFacts, StorageKind};
use evenkeel_etcd::identity::Uid;
use evenkeel_etcd::names::{Serial, member_name};
use evenkeel_etcd::observe::ObservedCluster;
use evenkeel_etcd::plan::{EtcdApply, EtcdCreate};
use evenkeel_etcd::status;
use evenkeel_explorer::Decider;
use evenkeel_explorer::event::Event;
use evenkeel_explorer::observe::{Sight, observe};
use evenkeel_explorer::world::{Budget, Inputs, World};
use evenkeel_runtime::{Plan, Requeue, UnixTime};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::kube_side::{Kube, is_beside};

/// A Friday morning. Nothing is special about it but that windows in the rows are closed.
pub(crate) const FRIDAY: UnixTime = UnixTime(1_800_000_000);
/// How many things may happen until it must be at rest.
const ENOUGH: usize = 1000;

/// A cluster.
#[derive(Clone)]
pub(crate) struct Lived {
    pub(crate) kube: Kube,
    world: World,
}

/// How an edit is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// No pod is touched.
    Nothing,
    /// Every member comes back once, on its own data, with a new pod.
    Restarted,
    /// Every member is replaced by another.
    Replaced,
    /// Members come or go, and those that stay are left alone.
    Scaled,
    /// Anything else.
    Muddled,
}

/// What came of an edit.
pub(crate) struct Came {
    before: BTreeMap<Serial, Uid>,
    after: BTreeMap<Serial, Uid>,
    /// How many pods were created on the way.
    created: usize,
    /// How many writes there were of any kind.
    pub(crate) writes: usize,
    /// How many things happened.
    pub(crate) events: usize,
    /// How many members that had served did not at the worst moment.
    pub(crate) missed: usize,
    /// For how long only time could change anything.
    pub(crate) waited: i64,
}

impl Came {
    pub(crate) fn rollout(&self) -> Rollout {
        let Self {
            before,
            after,
            created,
            ..
        } = self;
        let stays = |(serial, uid): &(&Serial, &Uid)| after.get(serial) == Some(uid);
        let (same, kept) = (
            before.len() == after.len(),
            before.iter().filter(stays).count(),
        );
        let known = before
            .keys()
            .filter(|serial| after.contains_key(serial))
            .count();
        match (same, known) {
            (true, _) if before == after && *created == 0 => Rollout::Nothing,
            (true, known) if known == before.len() && kept == 0 && *created == known => {
                Rollout::Restarted
            }
            (true, 0) if *created == after.len() => Rollout::Replaced,
            (false, known) if known == kept && *created == after.len() - kept => Rollout::Scaled,
            _ => Rollout::Muddled,
        }
    }
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            after,
            created,
            writes,
            missed,
            waited,
            ..
        } = self;
        let (before, after) = (before.len(), after.len());
        write!(
            f,
            "{:?}: {before} to {after} members, {created} pods created, {writes} writes, ",
            self.rollout()
        )?;
        write!(f, "{missed} missed at worst, {waited} s waited")
    }
}

/// Who decides: the real thing, on the real objects. Of what it decides the world gets to see what it holds.
struct Eyes<'p>(&'p Plan<Etcd>);

impl Decider for Eyes<'_> {
    fn decide(&self, _: &EtcdFacts) -> Plan<Etcd> {
        let mut plan = self.0.clone();
        plan.patch.retain(|mark| !is_beside(mark));
        plan.apply
            .retain(|apply| !matches!(apply, EtcdApply::Object(_)));
        for create in &mut plan.create {
            if let EtcdCreate::Pod { inputs, .. } = create {
                // With any of them etcd runs; what they are is written on the pods.
                *inputs = Inputs::First.uid();
            }
        }
        plan
    }
}

impl Lived {
    /// Before anything was done for a resource.
    pub(crate) fn new(resource: EtcdCluster) -> Self {
        let spec = &resource.spec;
        let storage = if spec.storage.ephemeral {
            StorageKind::Ephemeral
        } else {
            StorageKind::Persistent
        };
        let wanted = DesiredCluster::of(&resource).unwrap().facts(FRIDAY);
        let world = World::new(
            wanted.members,
            storage,
            wanted.max_learners,
            Budget::NOTHING,
        );
        Self {
            kube: Kube::with(resource, FRIDAY),
            world,
        }
    }

    fn told(&self) -> EtcdFacts {
        observe(&self.world, Sight::Clear)
    }

    pub(crate) fn look(&self) -> Result<(ObservedCluster, EtcdFacts), String> {
        self.kube.look(&self.told())
    }

    /// What people are told now.
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        let (found, facts) = self.look().unwrap();
        status::status(&found, &facts, &self.kube.plan(&self.told()).unwrap(), None)
    }

    /// The resource is something else now.
    pub(crate) fn edit(&mut self, resource: EtcdCluster) {
        let status = self.kube.resource.status.take();
        self.kube.resource = EtcdCluster { status, ..resource };
    }

    /// The resource was deleted and created again, and with it went all but what is kept.
    pub(crate) fn is_created_again(&mut self, resource: EtcdCluster) {
        self.world.budget.edits = 1;
        let nothing = Plan::default();
        Event::Recreated
            .happen(&mut self.world, &Eyes(&nothing))
            .unwrap();
        self.kube.is_created_again(resource);
    }

    fn pods(&self) -> BTreeMap<Serial, Uid> {
        self.world
            .pods
            .iter()
            .map(|(serial, pod)| (*serial, pod.uid))
            .collect()
    }

    /// Lets everything happen that does by itself, and time pass, until nothing more does.
    pub(crate) fn rest(&mut self) -> Result<Came, String> {
        self.live(ENOUGH)?
            .ok_or_else(|| "it never comes to rest".to_owned())
    }

    /// The same, but for no more than so many things.
    pub(crate) fn live(&mut self, most: usize) -> Result<Option<Came>, String> {
        let (before, began) = (self.pods(), self.kube.now);
        let served: Vec<Serial> = before
            .keys()
            .copied()
            .filter(|one| self.world.serves(*one))
            .collect();
        let (mut created, mut writes, mut missed) = (0, 0, 0);
        for events in 0..most {
            let told = self.told();
            // In the middle of a plan nothing is decided.
            let idle = self.world.pending.is_empty();
            let plan = if idle {
                self.kube.plan(&told)?
            } else {
                Plan::default()
            };
            let next = Event::by_itself(&self.world, &Eyes(&plan))
                .into_iter()
                .next();
            match next {
                Some(event) => {
                    if matches!(event, Event::Decide(_)) {
                        self.kube.decides(&told)?;
                        writes += self.kube.carry_out(&told, &plan)?;
                    }
                    writes += usize::from(matches!(event, Event::Write(_)));
                    let there = self.pods();
                    let happened = event.happen(&mut self.world, &Eyes(&plan));
                    happened.map_err(|violation| format!("{}, by {event:?}", violation.0))?;
                    created += self
                        .pods()
                        .values()
                        .filter(|uid| !there.values().any(|it| it == *uid))
                        .count();
                    self.kube.follow(&self.told());
                    // Whoever is no member any more is missed by nobody.
                    let members: Vec<Serial> = self.members();
                    let gone = served
                        .iter()
                        .filter(|one| members.contains(one) && !self.world.serves(**one));
                    missed = missed.max(gone.count());
                }
                None if !plan.is_noop() => {
                    self.kube.decides(&told)?;
                    let done = self.kube.carry_out(&told, &plan)?;
                    if done == 0 {
                        return Err(format!("nothing comes of {plan:?}"));
                    }
                    writes += done;
                }
                None => match plan.requeue {
                    Requeue::At(time) if time > self.kube.now => self.kube.now = time,
                    _ => {
                        let waited = self.kube.now.0 - began.0;
                        self.kube.resource.status = Some(self.status());
                        return Ok(Some(Came {
                            before,
                            after: self.pods(),
                            created,
                            writes,
                            events,
                            missed,
                            waited,
                        }));
                    }
                },
            }
        }
        Ok(None)
    }

    fn members(&self) -> Vec<Serial> {
        let cluster = self.world.true_cluster();
        cluster
            .map(|it| self.world.clusters[it].members.keys().copied().collect())
            .unwrap_or_default()
    }

    /// What is not as it should be of a cluster at rest.
    pub(crate) fn is_unwell(&self) -> Option<String> {
        let (found, facts) = match self.look() {
            Ok(looked) => looked,
            Err(why) => return Some(why),
        };
        let identity = self.world.identity.as_ref()?;
        let members = self.members();
        let wanted = usize::from(found.desired.members);
        let ill = |serial: &&Serial| {
            let routed = self
                .world
                .pods
                .get(serial)
                .is_some_and(|pod| pod.routed && pod.gate);
            !routed || !self.world.serves(**serial)
        };
        let waits = self
            .kube
            .plan(&self.told())
            .map(|plan| plan.waits)
            .unwrap_or_default();
        if !identity.bootstrapped || identity.intent.is_some() {
            return Some("the identity is not settled".to_owned());
        }
        if members.len() != wanted || self.world.pods.len() != wanted {
            return Some(format!(
                "{} members, {} pods",
                members.len(),
                self.world.pods.len()
            ));
        }
        if members.iter().any(|serial| ill(&serial)) {
            return Some("not every member serves and is routed to".to_owned());
        }
        let at_rest = waits.is_empty() && facts.spec_recorded && facts.drift.is_empty();
        if !found.desired.paused && !at_rest {
            return Some(format!(
                "it waits for {waits:?}; amiss is {:?}",
                facts.drift
            ));
        }
        None
    }

    /// All that there is, but for names, numbers and uids, as text of many lines. What is in force stands in it, too.
    pub(crate) fn state(&self) -> String {
        let (found, _) = self.look().unwrap();
        let mut wanted = found.desired.clone();
        wanted.generation = 0;
        let objects = self.kube.objects(&self.told());
        let identity = objects.identity.as_ref().map(|object| {
            let noted = object
                .data
                .as_ref()
                .and_then(|data| data.get("spec").cloned());
            json!({ "noted": noted, "owners": object.metadata.owner_references })
        });
        let mut pods: Vec<Value> = objects.pods.iter().map(|pod| self.bare(pod)).collect();
        let mut claims: Vec<Value> = objects
            .claims
            .iter()
            .map(|claim| self.bare(claim))
            .collect();
        pods.sort_by_key(Value::to_string);
        claims.sort_by_key(Value::to_string);
        let whole = json!({
            "wanted": format!("{wanted:#?}").lines().collect::<Vec<_>>(),
            "server names": self.kube.server_names(&wanted),
            "identity": identity,
            "pods": pods,
            "claims": claims,
            "services": [objects.peer_service, objects.client_service],
            "budget": objects.pdb,
        });
        serde_json::to_string_pretty(&whole).unwrap()
    }

    /// The same without what stands for the spec as it is written: what has come of it.
    pub(crate) fn made(&self) -> Value {
        let mut whole: Value = serde_json::from_str(&self.state()).unwrap();
        for part in ["wanted", "identity"] {
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

    /// An object without what tells one member from another, and without what only the first one to found a cluster has.
    fn bare(&self, object: &impl serde::Serialize) -> Value {
        let mut text = serde_json::to_string(object).unwrap();
        if let Some(identity) = &self.world.identity {
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
        // An amount can be written in many ways.
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
