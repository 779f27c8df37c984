//! The smallest operator: a `Greeting` has a ConfigMap with its text.

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

    fn facts(objects: &OwnedObjects<Greeting>, _probe_result: &()) -> Self::Facts {
        let config_map = objects.config_map(&objects.resource.name_any());
        (
            objects.resource.spec.text.clone(),
            config_map.and_then(|map| map.data.as_ref()?.get("text").cloned()),
        )
    }

    fn decide((desired, observed): &Self::Facts) -> Plan<SimpleReconciler<Self>> {
        let apply = if observed.as_ref() == Some(desired) {
            vec![]
        } else {
            vec![desired.clone()]
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
        writer: &ObjectWriter<'_>,
        objects: &OwnedObjects<Greeting>,
        text: &String,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let name = objects.resource.name_any();
        let desired =
            json!({ "metadata": objects.owned_metadata(&name), "data": { "text": text } });
        writer
            .apply_json::<ConfigMap>(desired, objects.config_map(&name))
            .await
    }
}

fn main() -> ExitCode {
    SimpleReconciler::main(
        ProgramInfo {
            name: "greeter",
            version: env!("CARGO_PKG_VERSION"),
            env_prefix: "GREETER",
            metrics_prefix: "greeter",
        },
        || Greeter,
    )
}
