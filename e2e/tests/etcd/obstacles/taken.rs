//! Objects of names that a cluster needs, and that are not its own.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use super::{complaint, substance, until_replaced};
use crate::look::{LONG, events, follower, formed, until_whole};
use crate::middle::{comes_to_rest, lives_again, spec};
use crate::noted::{dies_once_noting, take_pod_and_claim};

/// Objects that somebody else has made, and how the operator calls each.
fn foreign() -> Vec<(&'static str, &'static str, Value)> {
    let object = |kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "labels": {"app": "somebody-elses"}}});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let port = json!({"spec": {"selector": {"app": "somebody-elses"}, "ports": [{"port": 80}]}});
    let secret = json!({"stringData": {"password": "secret"}});
    let budget = json!({"apiVersion": "policy/v1",
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "somebody-elses"}}}});
    vec![
        (
            "service/orders-etcd-client",
            "the Service orders-etcd-client",
            object("Service", "orders-etcd-client", port.clone()),
        ),
        (
            "service/orders-etcd-peer",
            "the Service orders-etcd-peer",
            object("Service", "orders-etcd-peer", port),
        ),
        (
            "secret/orders-etcd-client-tls",
            "the Secret orders-etcd-client-tls",
            object("Secret", "orders-etcd-client-tls", secret),
        ),
        (
            "pdb/orders-etcd",
            "the PodDisruptionBudget orders-etcd",
            object("PodDisruptionBudget", "orders-etcd", budget),
        ),
    ]
}

#[test]
fn an_object_in_the_way_of_a_new_cluster_is_told_and_left_alone_and_once_gone_the_cluster_comes_up()
{
    let story = Story::begin("taken-new");
    let operator = Operator::start(&story);
    let mut objects = foreign();
    objects
        .iter()
        .for_each(|(_, _, object)| story.apply(&object.to_string()));
    let was: Vec<Value> = objects
        .iter()
        .map(|(path, ..)| substance(story.get(&[path])))
        .collect();
    let mut was: Vec<_> = objects.iter().map(|(path, ..)| *path).zip(was).collect();
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    while !objects.is_empty() {
        // Which is told first is the operator's affair; each is, in the end, and by its name.
        let mut told = None;
        story.within(LONG, "the next one is told", || {
            let said = complaint(&cluster);
            let one = |(_, words, _): &(_, &str, _)| {
                said.contains(&format!("{words} exists and is not this"))
            };
            told = objects
                .iter()
                .position(one)
                .filter(|_| said.contains("NameConflict"));
            told.is_some()
        });
        for (path, before) in &was {
            assert_eq!(
                substance(story.get(&[path])),
                *before,
                "{path} is somebody else's"
            );
        }
        assert_eq!(
            cluster.pods(),
            [],
            "nobody is started on what is not the cluster's"
        );
        let said = complaint(&cluster);
        assert!(
            said.contains("delete or rename it, or give the cluster another name"),
            "{said}"
        );
        let (path, ..) = objects.remove(told.unwrap());
        was.retain(|(other, _)| *other != path);
        story.kubectl(&["delete", path]);
    }
    until_whole(&story, &cluster, 1);
    comes_to_rest(&operator);
}
