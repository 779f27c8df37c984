//! Reports of `plan`, and the snapshot. The texts are tested in `text_tests.rs`.

use evenkeel_api::labels;
use evenkeel_etcd::facts::{EtcdFacts, Membership};
use evenkeel_etcd::names::Serial;
use evenkeel_runtime::{Decision, Observed};
use serde_json::{Value, json};

use super::*;

fn cluster() -> EtcdCluster {
    let spec = json!({ "version": "3.6.16", "members": 3 });
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "0c9e8a1f-33aa-4bcd-9e01-0123456789ab",
            "creationTimestamp": "2026-11-16T12:00:00Z" }, "spec": spec });
    serde_json::from_value(resource).unwrap()
}

/// Returns the objects of a cluster that does not exist yet.
fn no_objects() -> ClusterObjects {
    ClusterObjects {
        resource: cluster(),
        identity: None,
        pods: Vec::new(),
        restore_pods: Vec::new(),
        claims: Vec::new(),
        peer_service: None,
        client_service: None,
        pdb: None,
        backup_schedule: None,
        restores: Vec::new(),
    }
}

fn report(include_bookkeeping: bool) -> Value {
    let reporter = Reporter {
        nodes: None,
        include_bookkeeping,
    };
    let report = reporter.report(
        &Snapshot::default(),
        inputs(no_objects(), ClassFacts::default()),
    );
    serde_json::to_value(report.unwrap()).unwrap()
}

fn inputs(objects: ClusterObjects, classes: ClassFacts) -> PlanInputs {
    PlanInputs {
        objects,
        classes,
        source: None,
        edits: Vec::new(),
        now: "2026-11-16T12:00:00Z".parse().unwrap(),
    }
}

/// Returns the objects of a cluster with data on volumes of the class `fast`, whose spec names another class.
fn with_other_class(class: &str) -> ClusterObjects {
    let mut accepted = cluster().spec;
    accepted.storage.class = Some("fast".to_owned());
    let uid = cluster().metadata.uid;
    let identity = json!({ "lineage": 7, "epoch": 1, "seed": 0, "cluster_id": 5, "bootstrapped": true,
        "next_serial": 3, "resource_uid": uid });
    let identity = json!({
        "metadata": { "name": "orders-etcd-identity", "namespace": "shop", "uid": "2c9e8a1f-33aa-4bcd-9e01-0123456789ab",
            "resourceVersion": "20", "labels": { labels::CLUSTER: "orders" } },
        "data": { "identity": identity.to_string(), "spec": serde_json::to_string(&accepted).unwrap() },
    });
    let mut objects = no_objects();
    objects.identity = serde_json::from_value(identity).unwrap();
    objects.resource.spec.storage.class = Some(class.to_owned());
    objects
}

#[test]
fn a_storage_class_that_does_not_exist_is_rejected_as_the_operator_rejects_it() {
    let reporter = Reporter {
        nodes: None,
        include_bookkeeping: false,
    };
    let report = |classes: ClassFacts| {
        let inputs = inputs(with_other_class("nosuch"), classes);
        reporter.report(&Snapshot::default(), inputs).unwrap()
    };
    let missing = report(ClassFacts {
        missing: Some("nosuch".to_owned()),
        ..ClassFacts::default()
    });
    let rejection = missing.rejection.unwrap_or_default();
    assert!(
        rejection.starts_with(
            "spec.storage.class: StorageClass nosuch does not exist. Create it, or set another one. "
        ),
        "{rejection}"
    );
    let unknown = report(ClassFacts {
        forbidden: vec!["nosuch".to_owned()],
        ..ClassFacts::default()
    });
    assert_eq!(unknown.rejection, None);
    assert!(
        unknown
            .notes
            .iter()
            .any(|note| note.contains("your user cannot read StorageClass nosuch")),
        "{:?}",
        unknown.notes
    );
}

#[test]
fn a_new_cluster_with_a_missing_storage_class_has_a_note() {
    let classes = ClassFacts {
        missing: Some("nosuch".to_owned()),
        ..ClassFacts::default()
    };
    let note = classes.note(None).unwrap();
    assert!(
        note.starts_with("StorageClass nosuch does not exist"),
        "{note}"
    );
    assert_eq!(ClassFacts::default().note(None), None);
}

#[test]
fn a_new_cluster_is_planned_without_objects() {
    let report = report(false);
    assert_eq!(report["finalSummary"], "Healthy");
    assert_eq!(report["actions"][0]["name"], "create-identity");
    let actions = report["actions"].as_array().unwrap();
    let describes = |text: &str| {
        let mut texts = actions.iter().map(|action| &action["description"]);
        texts.any(|description| description.as_str().unwrap().contains(text))
    };
    assert!(describes("Secret orders-etcd-server-tls"), "{report:#}");
    let kinds = report["steps"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "create-objects",
            "start-seed",
            "add-member",
            "add-member",
            "finish-bootstrap"
        ],
        "{report:#}"
    );
}

#[test]
fn the_report_has_a_version_a_kind_and_effects() {
    let report = report(false);
    assert_eq!(report["apiVersion"], "plugin.evenkeel.dev/v1alpha1");
    assert_eq!(report["kind"], "PlanReport");
    let effects = &report["effects"];
    assert_eq!(effects["restarts"], 0);
    assert_eq!(effects["membersAdded"], 2);
    assert_eq!(effects["clients"], "New");
    assert_eq!(effects["failureTolerance"]["before"], Value::Null);
    assert_eq!(effects["failureTolerance"]["after"]["members"], 1);
    assert!(effects["expectedSeconds"].as_i64() > Some(0), "{effects:#}");
    assert_eq!(
        report["notes"].as_array().unwrap().len(),
        1,
        "only that nodes cannot be listed: {report:#}"
    );
}

#[test]
fn every_action_belongs_to_a_step_and_bookkeeping_is_left_out_by_default() {
    let count = |report: &Value| report["actions"].as_array().unwrap().len();
    let (short, all) = (report(false), report(true));
    assert!(count(&short) < count(&all), "{short:#}");
    let names = |name: &str, report: &Value| {
        let actions = report["actions"].as_array().unwrap().iter();
        actions.filter(|action| action["name"] == name).count()
    };
    assert_eq!(
        (names("mark-joined", &short), names("create-pod", &short)),
        (0, 3)
    );
    assert!(names("mark-joined", &all) > 0);
    let steps = all["steps"].as_array().unwrap().len();
    for action in all["actions"].as_array().unwrap() {
        let step = action["step"].as_u64().unwrap_or_default();
        assert!((1..=steps as u64).contains(&step), "{action:#}");
    }
}

#[test]
fn the_newest_facts_and_the_newest_membership_are_used() {
    let effective = effective_spec(&cluster(), &ClusterHistory::default()).unwrap();
    let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    let present = Present {
        now,
        nodes: None,
        missing_class: None,
        source: None,
    };
    let (_, mut facts) = Snapshot::default()
        .apply_to(no_objects(), effective, present)
        .unwrap();
    let decision = |facts: &EtcdFacts, at: &str| Decision {
        at: at.to_owned(),
        facts: serde_json::to_string(facts).ok(),
        ..Decision::default()
    };
    facts.membership = Observed::Present(Membership {
        reported_by: Serial(0),
        members: Vec::new(),
        unknown: Vec::new(),
    });
    let older = decision(&facts, "2026-11-16T11:00:00Z");
    facts.membership = Observed::Unknown;
    facts.cluster.members = 5;
    let newer = decision(&facts, "2026-11-16T11:30:00Z");
    let invalid = Decision {
        facts: Some("{}".to_owned()),
        ..Decision::default()
    };
    let error = Snapshot::from_decisions(&[older.clone(), newer.clone(), invalid]).unwrap_err();
    assert!(
        error.message.contains("cannot parse the facts"),
        "older facts would mislead: {error}"
    );
    let snapshot = Snapshot::from_decisions(&[older, newer]).unwrap();
    assert_eq!(snapshot.facts.unwrap().cluster.members, 5);
    assert_eq!(snapshot.at, "2026-11-16T11:30:00Z".parse().ok());
    assert!(snapshot.membership.is_some(), "from the older decision");
}

#[test]
fn errors_of_kubectl_have_specific_exit_codes() {
    let code = |stderr: &str| edit::apply_error(stderr).exit_code;
    assert_eq!(
        code("Error from server (Forbidden): etcdclusters is forbidden"),
        crate::error::EXIT_FORBIDDEN
    );
    assert_eq!(
        code("Unable to connect to the server: dial tcp: refused"),
        crate::error::EXIT_UNREACHABLE
    );
    assert_eq!(
        code("error: the path \"/nowhere\" does not exist"),
        EXIT_FAILED
    );
    let error = edit::apply_error("error: error validating data");
    assert_eq!(
        error.message,
        "the manifest would be rejected: error validating data"
    );
    let error = edit::apply_error(
        "error: error validating \"new.yaml\": error validating data: [kind not set]; if you choose to ignore these errors, \
         turn validation off with --validate=false\n",
    );
    assert_eq!(
        error.to_string(),
        "error: the manifest would be rejected: [kind not set]"
    );
    let error =
        edit::apply_error("patch: {\"a\":1}: strict decoding error: unknown field \"spec.x\"");
    assert_eq!(
        error.message,
        "the manifest would be rejected: unknown field \"spec.x\""
    );
}
