//! Foreign objects with names that a cluster needs.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use super::{operator_independent_parts, problem_report, wait_replaced};
use crate::assertions::{CLUSTER_LIMIT, create_orders, events, follower, wait_healthy};
use crate::intents::{delete_pod_and_claim, kill_after_intent_and_restart};
use crate::interrupts::{spec, start_after_kill, wait_idle};

/// Returns foreign objects, and the operator's name for each.
fn foreign_objects() -> Vec<(&'static str, &'static str, Value)> {
    let object = |kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "labels": {"app": "foreign"}}});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let port = json!({"spec": {"selector": {"app": "foreign"}, "ports": [{"port": 80}]}});
    let secret = json!({"stringData": {"password": "secret"}});
    let budget = json!({"apiVersion": "policy/v1",
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "foreign"}}}});
    vec![
        (
            "service/orders-etcd-client",
            "Service orders-etcd-client",
            object("Service", "orders-etcd-client", port.clone()),
        ),
        (
            "service/orders-etcd-peer",
            "Service orders-etcd-peer",
            object("Service", "orders-etcd-peer", port),
        ),
        (
            "secret/orders-etcd-client-tls",
            "Secret orders-etcd-client-tls",
            object("Secret", "orders-etcd-client-tls", secret),
        ),
        (
            "pdb/orders-etcd",
            "PodDisruptionBudget orders-etcd",
            object("PodDisruptionBudget", "orders-etcd", budget),
        ),
    ]
}

#[test]
fn a_foreign_object_blocks_a_new_cluster_and_is_not_changed() {
    let story = Story::begin("conflict-new");
    let operator = Operator::start(&story);
    let mut objects = foreign_objects();
    objects
        .iter()
        .for_each(|(_, _, object)| story.apply(&object.to_string()));
    let was: Vec<Value> = objects
        .iter()
        .map(|(path, ..)| operator_independent_parts(story.get(&[path])))
        .collect();
    let mut was: Vec<_> = objects.iter().map(|(path, ..)| *path).zip(was).collect();
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    while !objects.is_empty() {
        // The order of the reports is the operator's choice; each object is reported in the end, by name.
        let mut reported = None;
        story.within(CLUSTER_LIMIT, "the next object is reported", || {
            let output = problem_report(&cluster);
            let one = |(_, words, _): &(_, &str, _)| {
                output.contains(&format!(
                    "{words} exists and does not belong to this cluster"
                ))
            };
            reported = objects
                .iter()
                .position(one)
                .filter(|_| output.contains("NameConflict"));
            reported.is_some()
        });
        for (path, before) in &was {
            assert_eq!(
                operator_independent_parts(story.get(&[path])),
                *before,
                "{path} was changed"
            );
        }
        assert_eq!(cluster.pods(), [], "a pod was started");
        let output = problem_report(&cluster);
        assert!(
            output.contains("Delete it, or create the EtcdCluster under another name"),
            "{output}"
        );
        let (path, ..) = objects.remove(reported.unwrap());
        was.retain(|(other, _)| *other != path);
        story.kubectl(&["delete", path]);
    }
    wait_healthy(&story, &cluster, 1);
    wait_idle(&operator);
}
