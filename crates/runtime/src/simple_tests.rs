//! The reconciler of simple engines.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::clock::TestClock;
use crate::fake;
use crate::metrics::Metrics;
use crate::watches::Scope;

/// Creates one ConfigMap more than there are.
#[derive(Debug)]
pub(crate) struct Greeter;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greet(String);

impl Display for Greet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "greet {}", self.0)
    }
}

impl SimpleEngine for Greeter {
    const NAME: &'static str = "greeter.example/operator";
    const LABEL: &'static str = "greeter.example/of";
    /// Any namespaced kind can be the resource.
    type Resource = Service;
    type ProbeResult = u8;
    type Facts = Vec<String>;
    type Action = Greet;
    type Wait = String;
    type Status = Value;

    async fn probe(&self, _objects: &OwnedObjects<Service>) -> u8 {
        7
    }

    fn facts(objects: &OwnedObjects<Service>, probe_result: &u8) -> Vec<String> {
        let names = objects.config_maps.iter().map(ResourceExt::name_any);
        names.chain([probe_result.to_string()]).collect()
    }

    fn decide(facts: &Vec<String>) -> Plan<SimpleReconciler<Self>> {
        Plan {
            disruption: Some(Greet(facts.join(" and "))),
            waits: facts.clone(),
            ..Plan::default()
        }
    }

    fn status(facts: &Vec<String>, _plan: &Plan<SimpleReconciler<Self>>) -> Option<Value> {
        Some(json!({ "waitingFor": facts }))
    }

    async fn execute(
        &self,
        writer: &ObjectWriter<'_>,
        objects: &OwnedObjects<Service>,
        action: &Greet,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let metadata = objects.owned_metadata(&action.0.replace(' ', "-"));
        writer
            .create(&ConfigMap {
                metadata,
                ..ConfigMap::default()
            })
            .await
    }
}

fn object(name: &str, owner: Option<&str>) -> Value {
    let owners = owner
        .map(|uid| json!([{ "apiVersion": "v1", "kind": "Service", "name": "a", "uid": uid }]));
    json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
        "ownerReferences": owners.unwrap_or(json!([])) } })
}

type Writes = Arc<Mutex<Vec<Value>>>;

/// Returns a reconciler for the Service `a`, in a namespace with some ConfigMaps, and the writes.
fn reconciler(resource: Value) -> (SimpleReconciler<Greeter>, Writes) {
    let writes = Writes::default();
    let recorded = writes.clone();
    let client = fake::client(move |head, body| {
        let path = head.uri.path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        let answer = match (head.method.as_str(), name) {
            ("POST", _) => {
                recorded.lock().push(body.clone());
                body
            }
            (_, "a") => resource.clone(),
            (_, "configmaps") => json!({ "metadata": {}, "items": [
                object("owned", Some("uid-a")), object("orphan", None), object("other", Some("uid-b")) ] }),
            _ => json!({ "metadata": {}, "items": [] }),
        };
        async move { (200, answer) }
    });
    let watches = Watches::new(client.clone(), Scope::All, Metrics::new("test"));
    let clock = TestClock::default().shared();
    let (reconciler, _) = SimpleReconciler::new(Greeter, client, clock, &watches);
    (reconciler, writes)
}

fn resource() -> Value {
    json!({ "metadata": { "name": "a", "namespace": "shop", "uid": "uid-a", "resourceVersion": "3" } })
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".into(),
        name: "a".into(),
    }
}

#[tokio::test]
async fn facts_contain_only_objects_that_the_resource_owns() {
    let (reconciler, _) = reconciler(resource());
    let observation = reconciler.observe(&key(), ObserveFrom::Live).await;
    let observation = observation.unwrap().unwrap();
    assert_eq!(observation.facts, ["owned", "7"]);
    assert!(observation.is_live);
}

#[tokio::test]
async fn observations_are_live_until_the_caches_have_synced() {
    let (reconciler, _) = reconciler(resource());
    let observation = reconciler.observe(&key(), ObserveFrom::Cache(&3)).await;
    assert!(observation.unwrap().unwrap().is_live);
    assert_eq!(reconciler.probe(key()).await, None, "no probe either");
}

#[tokio::test]
async fn a_created_object_has_the_label_and_the_owner_reference() {
    let (reconciler, writes) = reconciler(resource());
    let observation = reconciler.observe(&key(), ObserveFrom::Live).await;
    let observation = observation.unwrap().unwrap();
    let plan = SimpleReconciler::<Greeter>::decide(&observation.facts);
    for action in plan.actions() {
        let outcome = reconciler.execute(&observation, &action, &|| true).await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
        let event = reconciler.event_for(&observation, &action).unwrap();
        assert_eq!(event.note, "greet owned and 7");
    }
    let written = writes.lock()[0].clone();
    assert_eq!(
        written["metadata"]["labels"],
        json!({ "greeter.example/of": "a" })
    );
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "uid-a");
    let explanation = reconciler.explain(&observation, &plan);
    assert_eq!(explanation.actions, ["greet owned and 7"]);
    assert_eq!(explanation.waits, ["owned", "7"]);
}

#[tokio::test]
async fn nothing_is_planned_for_a_terminating_resource() {
    let mut terminating = resource();
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (reconciler, _) = reconciler(terminating);
    let observation = reconciler.observe(&key(), ObserveFrom::Live).await;
    assert!(observation.unwrap().is_none());
}
