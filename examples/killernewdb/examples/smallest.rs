//! The smallest operator: a resource and a loop. A `Greeting` has a config map with its text, whatever becomes of that.

use std::process::ExitCode;

use evenkeel::program::Name;
use evenkeel::{Application, Error, Hand, Keeper, Objects, Outcome, Plan};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(group = "greeter.example", version = "v1", kind = "Greeting", namespaced)]
struct GreetingSpec {
    text: String,
}

struct Greeter;

impl Application for Greeter {
    const NAME: &'static str = "greeter.example/operator";
    const LABEL: &'static str = "greeter.example/greeting";
    type Resource = Greeting;
    type Answers = ();
    type Facts = (String, Option<String>);
    type Deed = String;
    type Status = ();

    fn facts(objects: &Objects<Greeting>, _answers: &()) -> Self::Facts {
        let there = objects.config_map(&objects.resource.name_any());
        (objects.resource.spec.text.clone(), there.and_then(|map| map.data.as_ref()?.get("text").cloned()))
    }

    fn decide((wanted, there): &Self::Facts) -> Plan<Keeper<Self>> {
        let apply = if there.as_ref() == Some(wanted) { vec![] } else { vec![wanted.clone()] };
        Plan { apply, ..Plan::nothing(()) }
    }

    async fn act(
        &self,
        hand: &Hand<'_>,
        objects: &Objects<Greeting>,
        text: &String,
        _holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let name = objects.resource.name_any();
        let wanted = json!({ "metadata": objects.own(&name), "data": { "text": text } });
        hand.apply_as::<ConfigMap>(wanted, objects.config_map(&name)).await
    }
}

fn main() -> ExitCode {
    Keeper::main(Name { program: "greeter", version: env!("CARGO_PKG_VERSION") }, || Greeter)
}
