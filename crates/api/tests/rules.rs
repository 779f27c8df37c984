//! The rules of the schema, evaluated: they refuse what the rules in Rust refuse, with the same words.
//!
//! What only an API server can tell (what the rules cost, and that they are well typed) is seen by the stories that
//! install the definition and apply `tests/cases`.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use evenkeel_api::options::Options;
use evenkeel_api::releases::{bad, may_follow, runnable};
use evenkeel_api::{EtcdCluster, EtcdClusterSpec, Version};
use kube::core::CustomResourceExt;
use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

/// The schema, without the rules that `oldSelf` is optional for: an API server knows those, and this does not.
fn schema() -> Value {
    let version = EtcdCluster::crd().spec.versions.remove(0);
    let mut schema =
        serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
    let rules = schema["x-kubernetes-validations"].as_array_mut().unwrap();
    rules.retain(|rule| rule["optionalOldSelf"] != true);
    schema
}

/// Only these rules of the resource, and these fields of the spec.
fn part(fields: &[&str]) -> CompiledSchema {
    let mut schema = schema();
    schema["x-kubernetes-validations"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| {
            rule["fieldPath"]
                .as_str()
                .is_some_and(|path| fields.iter().any(|field| path.contains(field)))
        });
    let spec = &mut schema["properties"]["spec"];
    spec["properties"]
        .as_object_mut()
        .unwrap()
        .retain(|name, _| fields.contains(&name.as_str()));
    spec["x-kubernetes-validations"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| {
            rule["fieldPath"]
                .as_str()
                .is_some_and(|path| fields.iter().any(|field| path.contains(field)))
                && !rule["rule"].to_string().contains("storage")
        });
    compile_schema(&schema)
}

fn refusals(schema: &CompiledSchema, new: &Value, old: Option<&Value>) -> Vec<String> {
    match Validator::new().validate_compiled(schema, new, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            .map(|error| error.message)
            .collect(),
    }
}

#[test]
fn every_rule_can_be_read() {
    let schema = compile_schema(&schema());
    assert!(!schema.has_errors(), "{:?}", schema.compilation_errors());
}

#[test]
fn versions_are_refused_by_the_schema_as_they_are_in_rust() {
    let schema = part(&["version"]);
    let numbers = [2, 3, 4].into_iter().flat_map(|major| {
        [0, 3, 4, 5, 6, 7, 8, 50]
            .into_iter()
            .map(move |minor| (major, minor))
    });
    let numbers = numbers.flat_map(|(major, minor)| {
        (0..=12)
            .chain([35, 100, 9999])
            .map(move |patch| (major, minor, patch))
    });
    for (major, minor, patch) in numbers {
        let version = Version::new(major, minor, patch);
        let said = refusals(
            &schema,
            &json!({ "metadata": {}, "spec": { "version": version.to_string() } }),
            None,
        );
        assert_eq!(
            said,
            runnable(version).err().into_iter().collect::<Vec<_>>(),
            "{version}"
        );
    }
    for odd in [
        "",
        "3",
        "3.6",
        "3.6.x",
        "3.6.1.1",
        "v3.6.16",
        "3.06.1",
        "3.6.10000",
        "latest",
        "3.4.",
        "3.5.-1",
    ] {
        let said = refusals(
            &schema,
            &json!({ "metadata": {}, "spec": { "version": odd } }),
            None,
        );
        assert!(
            !said.is_empty() && odd.parse::<Version>().is_err(),
            "{odd}: {said:?}"
        );
    }
}

#[test]
fn what_may_follow_is_told_by_the_schema_as_it_is_in_rust() {
    let schema = part(&["version"]);
    let patches = [
        (5, [11, 31, 32, 35]),
        (6, [0, 4, 10, 11]),
        (7, [0, 1, 3, 4]),
    ];
    let versions: Vec<_> = patches
        .into_iter()
        .flat_map(|(minor, patches)| patches.map(|patch| Version::new(3, minor, patch)))
        .collect();
    for from in &versions {
        for to in versions.iter().filter(|to| bad(**to).is_none()) {
            let at = |version: &Version| json!({ "metadata": {}, "spec": { "version": version.to_string() }, "status": { "version": from.to_string() } });
            let said = refusals(&schema, &at(to), Some(&at(from)));
            let known = may_follow(*from, *from, *to).err();
            assert_eq!(
                said,
                known.into_iter().collect::<Vec<_>>(),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn edits_of_anything_else_and_statuses_pass_whatever_members_run() {
    let schema = part(&["version", "paused"]);
    let at = |paused: bool, status: Value| json!({ "metadata": {}, "spec": { "version": "3.7.3", "paused": paused }, "status": status });
    for status in [
        json!({}),
        json!({ "version": "3.5.11" }),
        json!({ "version": "?" }),
        json!({ "version": "3.9.0" }),
    ] {
        let old = at(false, status.clone());
        assert_eq!(
            refusals(&schema, &at(true, status.clone()), Some(&old)),
            [""; 0],
            "an edit at {status}"
        );
        assert_eq!(
            refusals(
                &schema,
                &at(false, json!({ "version": "3.6.2" })),
                Some(&old)
            ),
            [""; 0],
            "a status"
        );
    }
    // And while nothing is known of members, or nothing that makes sense, the operator decides.
    let before = |status: Value| json!({ "metadata": {}, "spec": { "version": "3.5.11" }, "status": status });
    for status in [json!({}), json!({ "version": "?" })] {
        assert_eq!(
            refusals(&schema, &at(false, status.clone()), Some(&before(status))),
            [""; 0]
        );
    }
}

#[test]
fn options_are_refused_by_the_schema_when_they_are_in_rust() {
    let schema = part(&["version", "etcd"]);
    let names = [
        "auth-token-ttl",
        "backend-batch-interval",
        "backend-bbolt-freelist-type",
        "compaction-sleep-interval",
        "election-timeout",
        "enable-grpc-gateway",
        "heartbeat-interval",
        "log-level",
        "max-concurrent-streams",
        "warning-unary-request-duration",
        "tls-min-version",
        "--log-level",
        "data-dir",
        "peer-auto-tls",
        "frobnicate",
        "initial-cluster",
        "experimental-corrupt-check-time",
        "max-learners",
        "quota-backend-bytes",
        "",
    ];
    let values = [
        "",
        "0",
        "1",
        "9",
        "10",
        "100",
        "199",
        "500",
        "50000",
        "50001",
        "86401",
        "4294967295",
        "4294967296",
        "99999999999",
        "0s",
        "1ms",
        "10ms",
        "10s",
        "11s",
        "1h",
        "24h",
        "25h",
        "1h1m",
        "1.5s",
        "-1",
        "010",
        "true",
        "info",
        "map",
        "TLS1.3",
    ];
    for version in ["3.5.15", "3.5.35", "3.7.3"] {
        for name in names {
            for value in values {
                agree(&schema, version, &[(name, value)]);
            }
        }
    }
    for (heartbeat, election) in [
        ("200", "1000"),
        ("201", "1000"),
        ("10", "50"),
        ("x", "60"),
        ("5000", "x"),
    ] {
        agree(
            &schema,
            "3.6.16",
            &[
                ("heartbeat-interval", heartbeat),
                ("election-timeout", election),
            ],
        );
    }
}

/// On whether these options are good, and on the words where those name no option in particular.
fn agree(schema: &CompiledSchema, version: &str, options: &[(&str, &str)]) {
    let options: BTreeMap<String, String> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let spec = json!({ "version": version, "etcd": { "options": options } });
    let said = refusals(schema, &json!({ "metadata": {}, "spec": spec }), None);
    match Options::checked(&options, version.parse().unwrap()) {
        Ok(_) => assert_eq!(said, [""; 0], "{version}: {options:?}"),
        Err(why) => {
            let reason = why.rsplit_once(": ").map_or(&*why, |(_, reason)| reason);
            assert!(
                said.iter().any(|said| said.contains(reason)),
                "{version}: {options:?}: {why}: {said:?}"
            );
        }
    }
}

#[test]
fn every_case_that_is_accepted_passes_the_rules_of_the_schema() {
    let (schema, mut passed) = (schema(), 0);
    let compiled = compile_schema(&schema);
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (expected, documents) = text.split_once('\n').unwrap();
        let mut old = None;
        for document in documents
            .split("---\n")
            .filter(|_| expected == "# accepted" && !text.contains("null"))
        {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let object = apply_defaults(&schema, &object);
            assert_eq!(
                refusals(&compiled, &object, old.as_ref()),
                [""; 0],
                "{}",
                path.display()
            );
            old = Some(object);
            passed += 1;
        }
    }
    assert!(passed > 30, "only {passed}");
}

#[test]
fn less_may_be_asked_for_before_there_is_a_cluster_and_down_to_what_was_given() {
    let compiled = compile_schema(&schema());
    let sized = |size: &str, status: Value| {
        let mut spec = EtcdClusterSpec::of_version("3.6.16");
        spec.storage.size.0 = size.to_owned();
        let mut object = serde_json::to_value(EtcdCluster::new("orders", spec)).unwrap();
        object["status"] = status;
        object
    };
    let shrinks = |status: Value, to: &str| {
        let said = refusals(
            &compiled,
            &sized(to, status.clone()),
            Some(&sized("8Gi", status)),
        );
        said.iter()
            .any(|said| said.contains("volumes never shrink"))
    };
    assert!(!shrinks(json!({}), "2Gi"), "nobody has a volume yet");
    assert!(
        shrinks(json!({ "clusterId": "1f" }), "2Gi"),
        "an operator of before did not tell what was given"
    );
    let given = json!({ "clusterId": "1f", "volumeSize": "4Gi" });
    assert!(!shrinks(given.clone(), "4Gi") && shrinks(given, "2Gi"));
}

#[test]
fn a_spec_as_it_is_written_by_us_passes() {
    let cluster = EtcdCluster::new("orders", EtcdClusterSpec::of_version("3.6.16"));
    let object = serde_json::to_value(cluster).unwrap();
    assert_eq!(refusals(&compile_schema(&schema()), &object, None), [""; 0]);
}
