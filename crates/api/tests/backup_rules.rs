//! Evaluates the CEL rules of the resources for backups. Only an API server can check the cost of the rules; the end-to-end
//! tests that install the definitions cover that.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use evenkeel_api::{Backup, BackupSchedule, BackupStore, Restore};
use kube::core::CustomResourceExt;
use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

struct Definition {
    schema: Value,
    compiled: CompiledSchema,
}

impl Definition {
    fn of<K: CustomResourceExt>() -> Self {
        let version = K::crd().spec.versions.remove(0);
        let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
        let schema = serde_json::to_value(schema).unwrap();
        let compiled = compile_schema(&schema);
        assert!(
            !compiled.has_errors(),
            "{:?}",
            compiled.compilation_errors()
        );
        Self { schema, compiled }
    }

    /// Returns the messages of the rules that reject a resource of this name.
    fn violations(&self, name: &str, spec: &Value, old: Option<&Value>) -> Vec<String> {
        let resource = |spec: &Value| {
            let resource = json!({ "metadata": { "name": name }, "spec": spec });
            apply_defaults(&self.schema, &resource)
        };
        let (new, old) = (resource(spec), old.map(resource));
        match Validator::new().validate_compiled(&self.compiled, &new, old.as_ref()) {
            Ok(()) => Vec::new(),
            Err(errors) => {
                let errors = errors.into_vec().into_iter();
                errors.map(|error| error.message).collect()
            }
        }
    }

    /// Requires that each spec is accepted, or rejected with one message that contains a text.
    fn check(&self, cases: &[(Value, Option<&str>)]) {
        for (spec, expected) in cases {
            let found = self.violations("prod", spec, None);
            match expected {
                None => assert!(found.is_empty(), "{spec}: {found:?}"),
                Some(text) => {
                    assert!(
                        found.iter().any(|it| it.contains(text)),
                        "{spec}: {found:?}"
                    );
                }
            }
        }
    }
}

fn s3(change: impl FnOnce(&mut Value)) -> Value {
    let mut s3 = json!({ "bucket": "prod-backups", "credentials": { "secret": "s3-keys" } });
    change(&mut s3);
    json!({ "s3": s3 })
}

#[test]
fn a_store_has_one_place_and_one_source_of_credentials() {
    let identity =
        json!({ "roleARN": "arn:aws:iam::123456789012:role/backup", "serviceAccount": "backup" });
    let place = Some("exactly one of s3 and volume");
    let credentials = Some("exactly one of secret and webIdentity");
    Definition::of::<BackupStore>().check(&[
        (s3(|_| ()), None),
        (
            json!({ "volume": { "claim": "backups", "path": "etcd/eu1" } }),
            None,
        ),
        (json!({}), place),
        (
            json!({ "s3": s3(|_| ())["s3"], "volume": { "claim": "backups" } }),
            place,
        ),
        (s3(|it| it["credentials"] = json!({})), credentials),
        (
            s3(|it| it["credentials"]["webIdentity"] = identity.clone()),
            credentials,
        ),
        (
            s3(|it| it["credentials"] = json!({ "webIdentity": identity })),
            None,
        ),
    ]);
}

#[test]
fn paths_and_endpoints_of_a_store_are_plain() {
    let prefix = |text: &str| s3(|it| it["prefix"] = json!(text));
    let endpoint = |text: &str| s3(|it| it["endpoint"] = json!(text));
    let path = Some("must be a path such as prod/eu1");
    let url = Some("must be a URL such as https://s3.example:9000");
    let http = |text: &str| {
        s3(|it| {
            it["endpoint"] = json!(text);
            it["allowHTTP"] = json!(true);
        })
    };
    Definition::of::<BackupStore>().check(&[
        (prefix("prod"), None),
        (prefix("prod/eu-1/a.b_c"), None),
        (prefix("/prod"), path),
        (prefix("prod/"), path),
        (prefix("prod//eu1"), path),
        (prefix(".."), path),
        (prefix("prod/../other"), path),
        (prefix("prod/.hidden"), path),
        (prefix("prod eu1"), path),
        (
            json!({ "volume": { "claim": "backups", "path": "../etc" } }),
            path,
        ),
        (endpoint("https://s3.example"), None),
        (endpoint("https://s3.example:9000/"), None),
        (endpoint("https://[2001:db8::1]:9000"), None),
        (endpoint("https://s3.example/path"), url),
        (endpoint("https://user:password@s3.example"), url),
        (endpoint("ftp://s3.example"), url),
        (
            endpoint("http://s3.example"),
            Some("must begin with https://"),
        ),
        (http("http://s3.example"), None),
        (
            s3(|it| it["bucket"] = json!("Prod")),
            Some("must be a bucket name"),
        ),
        (
            s3(|it| it["region"] = json!("eu central")),
            Some("must be a region"),
        ),
    ]);
}

#[test]
fn a_backup_has_a_deadline_and_never_changes() {
    let definition = Definition::of::<Backup>();
    let spec = |deadline: &str| json!({ "cluster": { "name": "orders" }, "store": "prod", "deadline": deadline });
    definition.check(&[
        (
            json!({ "cluster": { "name": "orders" }, "store": "prod" }),
            None,
        ),
        (spec("1m"), None),
        (spec("24h"), None),
        (spec("59s"), Some("at least 1m")),
        (spec("25h"), Some("at most 24h")),
        (spec("soon"), Some("must be a duration")),
    ]);
    let (old, new) = (spec("30m"), spec("1h"));
    assert!(definition.violations("a", &old, Some(&old)).is_empty());
    let found = definition.violations("a", &new, Some(&old));
    assert!(
        found.iter().any(|it| it.contains("is immutable")),
        "{found:?}"
    );
}

#[test]
fn a_schedule_is_a_cron_expression_or_a_word() {
    let definition = Definition::of::<BackupSchedule>();
    let spec = |schedule: &str| json!({ "cluster": { "name": "orders" }, "store": "prod", "schedule": schedule });
    let invalid = Some("must be a cron expression");
    definition.check(&[
        (spec("@hourly"), None),
        (spec("0 3 * * *"), None),
        (spec("*/10 1-5 * * Mon,Fri"), None),
        (spec("@never"), invalid),
        (spec("0 3 * *"), invalid),
        (spec("0 0 3 * * *"), invalid),
        (spec(" 0 3 * * *"), invalid),
    ]);
    let other = json!({ "cluster": { "name": "baskets" }, "store": "prod", "schedule": "@daily" });
    let found = definition.violations("a", &other, Some(&spec("@daily")));
    assert!(found.iter().any(|it| it.contains("immutable")), "{found:?}");
}

#[test]
fn a_restore_names_the_cluster_id_that_it_gives_up_and_keeps_its_source() {
    let definition = Definition::of::<Restore>();
    let spec = |change: fn(&mut Value)| {
        let mut spec = json!({ "cluster": { "name": "orders" }, "from": { "backup": "nightly" },
            "replaces": "9c1f4e5a0b7d2c11" });
        change(&mut spec);
        spec
    };
    let id = Some("must be the ID of the cluster that is given up");
    let backup = Some("must be the name of a Backup");
    let duration = Some("must be a duration");
    definition.check(&[
        (spec(|_| ()), None),
        (spec(|it| it["undo"] = json!(true)), None),
        (spec(|it| it["replaces"] = json!("5")), None),
        (spec(|it| it["replaces"] = json!("9C1F")), id),
        (spec(|it| it["replaces"] = json!("0x9c1f")), id),
        (spec(|it| it["replaces"] = json!("orders")), id),
        (spec(|it| it["from"]["backup"] = json!("Nightly")), backup),
        (spec(|it| it["from"]["backup"] = json!("a.b")), backup),
        (spec(|it| it["keepOldDataFor"] = json!("0")), duration),
        (spec(|it| it["keepOldDataFor"] = json!("8760h")), None),
        (
            spec(|it| it["keepOldDataFor"] = json!("8761h")),
            Some("must be at most 8760h"),
        ),
        (spec(|it| it["keepOldDataFor"] = json!("soon")), duration),
    ]);
    let old = spec(|_| ());
    let violations = |change: fn(&mut Value)| {
        let new = spec(change);
        definition.violations("back", &new, Some(&old))
    };
    assert!(violations(|_| ()).is_empty());
    assert!(violations(|it| it["undo"] = json!(true)).is_empty());
    assert!(violations(|it| it["keepOldDataFor"] = json!("96h")).is_empty());
    for found in [
        violations(|it| it["replaces"] = json!("77aa")),
        violations(|it| it["from"]["backup"] = json!("weekly")),
        violations(|it| it["cluster"]["name"] = json!("baskets")),
    ] {
        assert!(
            found.iter().any(|it| it.contains("are immutable")),
            "{found:?}"
        );
    }
}

#[test]
fn names_leave_room_for_the_pods_that_are_named_after_them() {
    let backup = json!({ "cluster": { "name": "orders" }, "store": "prod" });
    let schedule =
        json!({ "cluster": { "name": "orders" }, "store": "prod", "schedule": "@daily" });
    let store = json!({ "volume": { "claim": "backups" } });
    for (definition, spec, longest) in [
        (Definition::of::<Backup>(), backup, 63),
        (Definition::of::<BackupSchedule>(), schedule, 46),
        (Definition::of::<BackupStore>(), store, 40),
    ] {
        let violations = |name: &str| definition.violations(name, &spec, None);
        assert!(violations(&"a".repeat(longest)).is_empty());
        assert!(violations(&"a".repeat(longest + 1))[0].contains("must have at most"));
        assert!(violations("a.b")[0].contains("must not contain a dot"));
    }
    let restore = json!({ "cluster": { "name": "orders" }, "from": { "backup": "nightly" }, "replaces": "5" });
    let violations = |name: &str| Definition::of::<Restore>().violations(name, &restore, None);
    assert!(violations(&"a".repeat(63)).is_empty());
    assert!(violations(&"a".repeat(64))[0].contains("must have at most 63"));
}
