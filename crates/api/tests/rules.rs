//! Evaluates the CEL rules of the schema: they reject the same values as the validation in Rust, with the same messages.
//!
//! Only an API server can check the types and the cost of the rules. The end-to-end tests that install the definition
//! and apply `tests/cases` cover that.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use evenkeel_api::options::Options;
use evenkeel_api::releases::{check_supported, check_upgrade, known_defect};
use evenkeel_api::{EtcdCluster, EtcdClusterSpec, Version, admission_validations};
use kube::core::CustomResourceExt;
use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

/// Returns the schema without the rules for which `oldSelf` is optional, since the evaluator does not support those.
fn schema() -> Value {
    let version = EtcdCluster::crd().spec.versions.remove(0);
    let mut schema =
        serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
    let rules = schema["x-kubernetes-validations"].as_array_mut().unwrap();
    rules.retain(|rule| rule["optionalOldSelf"] != true);
    schema
}

/// Compiles the schema with only these fields of the spec, and the resource's rules about them.
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

/// Returns the messages of the rules that reject the value.
fn violations(schema: &CompiledSchema, new: &Value, old: Option<&Value>) -> Vec<String> {
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
fn every_rule_compiles() {
    let schema = compile_schema(&schema());
    assert!(!schema.has_errors(), "{:?}", schema.compilation_errors());
}

#[test]
fn the_schema_and_rust_agree_on_versions() {
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
        let messages = violations(
            &schema,
            &json!({ "metadata": {}, "spec": { "version": version.to_string() } }),
            None,
        );
        assert_eq!(
            messages,
            check_supported(version)
                .err()
                .into_iter()
                .collect::<Vec<_>>(),
            "{version}"
        );
    }
    for invalid in [
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
        let messages = violations(
            &schema,
            &json!({ "metadata": {}, "spec": { "version": invalid } }),
            None,
        );
        assert!(
            !messages.is_empty() && invalid.parse::<Version>().is_err(),
            "{invalid}: {messages:?}"
        );
    }
}

#[test]
fn the_schema_and_rust_agree_on_upgrades() {
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
        for to in versions.iter().filter(|to| known_defect(**to).is_none()) {
            let at = |version: &Version| json!({ "metadata": {}, "spec": { "version": version.to_string() }, "status": { "version": from.to_string() } });
            let messages = violations(&schema, &at(to), Some(&at(from)));
            let expected = check_upgrade(*from, *from, *to).err();
            assert_eq!(
                messages,
                expected.into_iter().collect::<Vec<_>>(),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn edits_of_other_fields_and_of_the_status_pass_with_any_version() {
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
            violations(&schema, &at(true, status.clone()), Some(&old)),
            [""; 0],
            "an edit at {status}"
        );
        assert_eq!(
            violations(
                &schema,
                &at(false, json!({ "version": "3.6.2" })),
                Some(&old)
            ),
            [""; 0],
            "a status"
        );
    }
    // Without a valid version in the status, the operator decides.
    let before = |status: Value| json!({ "metadata": {}, "spec": { "version": "3.5.11" }, "status": status });
    for status in [json!({}), json!({ "version": "?" })] {
        assert_eq!(
            violations(&schema, &at(false, status.clone()), Some(&before(status))),
            [""; 0]
        );
    }
}

#[test]
fn the_schema_and_rust_agree_on_options() {
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
                assert_agreement(&schema, version, &[(name, value)]);
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
        assert_agreement(
            &schema,
            "3.6.16",
            &[
                ("heartbeat-interval", heartbeat),
                ("election-timeout", election),
            ],
        );
    }
}

/// Asserts that the schema and the validation in Rust agree on whether these options are valid, and on the reason.
fn assert_agreement(schema: &CompiledSchema, version: &str, options: &[(&str, &str)]) {
    let options: BTreeMap<String, String> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let spec = json!({ "version": version, "etcd": { "options": options } });
    let messages = violations(schema, &json!({ "metadata": {}, "spec": spec }), None);
    match Options::validate(&options, version.parse().unwrap()) {
        Ok(_) => assert_eq!(messages, [""; 0], "{version}: {options:?}"),
        Err(error) => assert!(
            messages.contains(&error),
            "{version}: {options:?}: {error}: {messages:?}"
        ),
    }
}

#[test]
fn the_schema_accepts_every_case_marked_as_accepted() {
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
                violations(&compiled, &object, old.as_ref()),
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
fn a_size_may_shrink_before_bootstrap_and_down_to_the_provisioned_size() {
    let compiled = compile_schema(&schema());
    let sized = |size: &str, status: Value| {
        let mut spec = EtcdClusterSpec::with_version("3.6.16");
        spec.storage.size.0 = size.to_owned();
        let mut object = serde_json::to_value(EtcdCluster::new("orders", spec)).unwrap();
        object["status"] = status;
        object
    };
    let shrinks = |status: Value, to: &str| {
        let messages = violations(
            &compiled,
            &sized(to, status.clone()),
            Some(&sized("8Gi", status)),
        );
        messages
            .iter()
            .any(|message| message.contains("volumes never shrink"))
    };
    assert!(!shrinks(json!({}), "2Gi"), "there is no volume yet");
    assert!(
        shrinks(json!({ "clusterId": "1f" }), "2Gi"),
        "an earlier operator did not report the provisioned size"
    );
    let provisioned = json!({ "clusterId": "1f", "volumeSize": "4Gi" });
    assert!(!shrinks(provisioned.clone(), "4Gi") && shrinks(provisioned, "2Gi"));
}

#[test]
fn the_api_server_writes_the_default_resources_into_the_object() {
    let stored = |resources: Value| {
        let object = json!({ "metadata": { "name": "orders" }, "spec": { "version": "3.6.16", "resources": resources } });
        apply_defaults(&schema(), &object)["spec"]["resources"].take()
    };
    let defaults =
        json!({ "requests": { "cpu": "100m", "memory": "256Mi" }, "limits": { "memory": "2Gi" } });
    assert_eq!(stored(json!({})), defaults);
    let smallest = json!({ "metadata": { "name": "orders" }, "spec": { "version": "3.6.16" } });
    assert_eq!(
        apply_defaults(&schema(), &smallest)["spec"]["resources"],
        defaults
    );
    assert_eq!(
        stored(json!({ "requests": { "memory": "1Gi" } })),
        json!({ "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "memory": "2Gi" } })
    );
}

/// Compiles the policy that warns of doubtful specs as the rules of a schema, since the evaluator knows no policies.
fn policy() -> CompiledSchema {
    let in_rule = |expression: &str| expression.replace("object.", "self.");
    let rules: Vec<_> = admission_validations()
        .into_iter()
        .map(|validation| {
            let mut rule = json!({ "rule": in_rule(&validation.expression) });
            match (validation.message, validation.message_expression) {
                (Some(message), None) => rule["message"] = json!(message),
                (None, Some(expression)) => rule["messageExpression"] = json!(in_rule(&expression)),
                other => unreachable!("{other:?}"),
            }
            rule
        })
        .collect();
    let mut schema = schema();
    let spec = schema["properties"]["spec"].as_object_mut().unwrap();
    spec.remove("x-kubernetes-validations");
    for field in spec["properties"].as_object_mut().unwrap().values_mut() {
        field
            .as_object_mut()
            .unwrap()
            .remove("x-kubernetes-validations");
    }
    schema["x-kubernetes-validations"] = json!(rules);
    let compiled = compile_schema(&schema);
    assert!(
        !compiled.has_errors(),
        "{:?}",
        compiled.compilation_errors()
    );
    compiled
}

#[test]
fn the_policy_and_rust_agree_on_warnings() {
    let policy = policy();
    for version in ["3.5.35", "3.5.36", "3.6.16", "3.6.99", "3.7.3", "3.7.4"] {
        for members in 1..=7 {
            for (cpu, ephemeral) in [(None, false), (Some("1"), false), (None, true)] {
                let mut spec = EtcdClusterSpec::with_version(version);
                spec.members = members;
                spec.storage.ephemeral = ephemeral;
                spec.resources.limits.cpu =
                    cpu.map(|cpu| serde_json::from_value(json!(cpu)).unwrap());
                let object =
                    serde_json::to_value(EtcdCluster::new("orders", spec.clone())).unwrap();
                assert_eq!(
                    violations(&policy, &object, None),
                    spec.warnings(),
                    "{version}, {members} members, {cpu:?}, {ephemeral}"
                );
            }
        }
    }
    // An object that an older schema admitted may lack fields.
    let bare = json!({ "metadata": { "name": "orders" }, "spec": { "version": "3.6.16" } });
    assert_eq!(violations(&policy, &bare, None), [""; 0]);
}

#[test]
fn a_spec_that_rust_serializes_passes() {
    let cluster = EtcdCluster::new("orders", EtcdClusterSpec::with_version("3.6.16"));
    let object = serde_json::to_value(cluster).unwrap();
    assert_eq!(
        violations(&compile_schema(&schema()), &object, None),
        [""; 0]
    );
}
