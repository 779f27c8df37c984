//! The smallest operator: a resource and a loop. A `Greeting` has a config map with its text, whatever becomes of that.

use std::process::ExitCode;

use evenkeel_runtime::program::ProgramInfo;
use evenkeel_runtime::{
    Error, ObjectWriter, Outcome, OwnedObjects, Plan, SimpleEngine, SimpleReconciler,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "greeter.example",
    version = "v1",
    kind = "Greeting",
    namespaced
)]
struct GreetingSpec {
    text: String,
}

struct Greeter;

impl SimpleEngine for Greeter {
    const NAME: &'static str = "greeter.example/operator";
    const LABEL: &'static str = "greeter.example/greeting";
    type Resource = Greeting;
    type ProbeResult = ();
    type Facts = (String, Option<String>);
    type Action = String;
    type Wait = String;
    type Status = ();

    fn facts(objects: &OwnedObjects<Greeting>, _answers: &()) -> Self::Facts {
        let there = objects.config_map(&objects.resource.name_any());
        (
            objects.resource.spec.text.clone(),
            there.and_then(|map| map.data.as_ref()?.get("text").cloned()),
        )
    }

    fn decide((wanted, there): &Self::Facts) -> Plan<SimpleReconciler<Self>> {
        let apply = if there.as_ref() == Some(wanted) {
            vec![]
        } else {
            vec![wanted.clone()]
        };
        Plan {
            apply,
            ..Plan::default()
        }
    }

    fn status(_facts: &Self::Facts, _plan: &Plan<SimpleReconciler<Self>>) -> Option<()> {
        None
    }

    async fn execute(
        &self,
        hand: &ObjectWriter<'_>,
        objects: &OwnedObjects<Greeting>,
        text: &String,
        _holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let name = objects.resource.name_any();
        let wanted = json!({ "metadata": objects.owned_metadata(&name), "data": { "text": text } });
        hand.apply_json::<ConfigMap>(wanted, objects.config_map(&name))
            .await
    }
}

fn main() -> ExitCode {
    SimpleReconciler::main(
        ProgramInfo {
            program: "greeter",
            version: env!("CARGO_PKG_VERSION"),
        },
        || Greeter,
    )
}
