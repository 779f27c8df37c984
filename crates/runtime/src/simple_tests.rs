//! What the keeper does for every application.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::clock::TestClock;
use crate::fake;
use crate::metrics::Metrics;
use crate::watches::Scope;

/// Wants one config map more than there are.
#[derive(Debug)]
struct Greeter;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Greet(String);

impl Display for Greet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "greet {}", self.0)
    }
}

impl SimpleEngine for Greeter {
    const NAME: &'static str = "greeter.example/operator";
    const LABEL: &'static str = "greeter.example/of";
    /// Any kind that lives in a namespace will do.
    type Resource = Service;
    type ProbeResult = u8;
    type Facts = Vec<String>;
    type Action = Greet;
    type Wait = String;
    type Status = Value;

    async fn probe(&self, _objects: &OwnedObjects<Service>) -> u8 {
        7
    }

    fn facts(objects: &OwnedObjects<Service>, answers: &u8) -> Vec<String> {
        objects
            .config_maps
            .iter()
            .map(ResourceExt::name_any)
            .chain([answers.to_string()])
            .collect()
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
        hand: &ObjectWriter<'_>,
        objects: &OwnedObjects<Service>,
        deed: &Greet,
        _holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let metadata = objects.owned_metadata(&deed.0.replace(' ', "-"));
        hand.create(&ConfigMap {
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

/// A keeper of the service `a`, which is as given, in a namespace with some config maps.
fn keeper(resource: Value) -> (SimpleReconciler<Greeter>, Writes) {
    let writes = Writes::default();
    let noted = writes.clone();
    let client = fake::client(move |head, body| {
        let path = head.uri.path().to_owned();
        let answer = match (
            head.method.as_str(),
            path.rsplit('/').next().unwrap_or_default(),
        ) {
            ("POST", _) => {
                noted.lock().unwrap().push(body.clone());
                body
            }
            (_, "a") => resource.clone(),
            (_, "configmaps") => json!({ "metadata": {}, "items": [
                object("ours", Some("uid-a")), object("nobodys", None), object("anothers", Some("uid-b")) ] }),
            _ => json!({ "metadata": {}, "items": [] }),
        };
        async move { (200, answer) }
    });
    let streams = Watches::new(client.clone(), Scope::All, Metrics::new());
    (
        SimpleReconciler::new(Greeter, client, TestClock::default().shared(), &streams).0,
        writes,
    )
}

fn resource() -> Value {
    json!({ "metadata": { "name": "a", "namespace": "shop", "uid": "uid-a", "resourceVersion": "3" } })
}

fn a() -> ResourceKey {
    ResourceKey {
        namespace: "shop".into(),
        name: "a".into(),
    }
}

#[tokio::test]
async fn facts_are_of_what_the_resource_controls_and_of_nobody_elses_objects() {
    let (keeper, _) = keeper(resource());
    let sight = keeper
        .observe(&a(), ObserveFrom::Live)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(sight.facts, ["ours", "7"]);
    assert!(sight.is_live);
}

#[tokio::test]
async fn before_the_watches_have_brought_everything_nothing_is_remembered() {
    let (keeper, _) = keeper(resource());
    let sight = keeper
        .observe(&a(), ObserveFrom::Cache(&3))
        .await
        .unwrap()
        .unwrap();
    assert!(sight.is_live);
    assert_eq!(
        keeper.probe(a()).await,
        None,
        "nothing can be told from what is not there yet"
    );
}

#[tokio::test]
async fn what_is_created_says_whose_it_is_and_goes_with_its_resource() {
    let (keeper, writes) = keeper(resource());
    let sight = keeper
        .observe(&a(), ObserveFrom::Live)
        .await
        .unwrap()
        .unwrap();
    let plan = SimpleReconciler::<Greeter>::decide(&sight.facts);
    for action in plan.actions() {
        assert_eq!(
            keeper.execute(&sight, &action, &|| true).await.unwrap(),
            Outcome::Done
        );
        assert_eq!(
            keeper.event_for(&sight, &action).unwrap().note,
            "greet ours and 7"
        );
    }
    let written = writes.lock().unwrap()[0].clone();
    assert_eq!(
        written["metadata"]["labels"],
        json!({ "greeter.example/of": "a" })
    );
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "uid-a");
    let explained = keeper.explain(&sight, &plan);
    assert_eq!(explained.actions, ["greet ours and 7"]);
    assert_eq!(explained.waits, ["ours", "7"]);
}

#[tokio::test]
async fn nothing_is_done_for_a_resource_that_goes() {
    let mut goes = resource();
    goes["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (keeper, _) = keeper(goes);
    assert!(
        keeper
            .observe(&a(), ObserveFrom::Live)
            .await
            .unwrap()
            .is_none()
    );
}
