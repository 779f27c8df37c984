//! Private keys are in Secrets and nowhere else: not in the log, however much is logged, nor in what people are shown.

mod full;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, Options};

use crate::look::{follower, formed, until_whole};

/// Pieces of every private key of a cluster, in the forms in which it could be told: a line of its PEM, and the same
/// stretch as a Secret carries it.
fn pieces(story: &Story, cluster: &Cluster<'_>) -> BTreeMap<String, Vec<String>> {
    let about = format!("etcd.evenkeel.dev/cluster={}", cluster.name());
    let list = story.get(&["secrets", "--selector", &about]);
    let keys = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|secret| {
            let encoded = secret["data"]["tls.key"].as_str()?;
            let pem = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
            let body: String = pem
                .lines()
                .filter(|line| !line.starts_with("-----"))
                .collect();
            let middle = body
                .get(body.len() / 3..body.len() / 3 + 40)
                .unwrap()
                .to_owned();
            let as_data = encoded
                .get(encoded.len() / 3..encoded.len() / 3 + 40)
                .unwrap()
                .to_owned();
            Some((
                secret["metadata"]["name"].as_str().unwrap().to_owned(),
                vec![middle, as_data],
            ))
        });
    keys.collect()
}

/// Which keys are in a text.
fn told<'k>(text: &str, keys: &'k BTreeMap<String, Vec<String>>) -> Vec<&'k str> {
    let told = |(name, pieces): (&'k String, &'k Vec<String>)| {
        pieces
            .iter()
            .any(|piece| text.contains(piece))
            .then_some(name.as_str())
    };
    keys.iter().filter_map(told).collect()
}

/// An operator that logs as much as it can.
pub(crate) fn loud(story: &Story) -> Operator {
    let env = vec![("EVENKEEL_LOG".to_owned(), "trace".to_owned())];
    Operator::with(
        story,
        Options {
            env,
            ..Options::default()
        },
    )
}

/// That each private key is in its Secret, and neither in the operator's log, which must be as loud as it gets, nor in what people
/// are shown.
pub(crate) fn are_told_nowhere(story: &Story, cluster: &Cluster<'_>, operator: &Operator) {
    let keys = pieces(story, cluster);
    let names: Vec<_> = keys.keys().map(String::as_str).collect();
    let all = [
        "client-ca",
        "client-tls",
        "operator-tls",
        "peer-ca",
        "peer-tls",
        "server-tls",
    ];
    assert_eq!(
        names,
        all.map(|name| format!("orders-etcd-{name}")),
        "each has a key of its own to look for"
    );
    let log = operator.log();
    assert!(
        log.contains("TRACE") && log.contains("secrets"),
        "the log is as loud as it gets, and Secrets are in it"
    );
    // That the pieces are what a leak would look like is seen where the keys are.
    let where_they_are = story.kubectl(&["get", "secrets", "--output=json"]);
    assert_eq!(told(&where_they_are, &keys), names);
    let shown = [
        ("the log", log),
        (
            "events",
            story.kubectl(&["get", "events.events.k8s.io", "--output=json"]),
        ),
        (
            "the resource",
            story.kubectl(&["get", "etcd", "--output=json"]),
        ),
        (
            "pods and the identity",
            story.kubectl(&["get", "pods,configmaps", "--output=json"]),
        ),
    ];
    for (what, text) in shown {
        assert_eq!(
            told(&text, &keys),
            Vec::<&str>::new(),
            "private keys are in {what}"
        );
        assert!(!text.contains("PRIVATE KEY"), "a private key is in {what}");
    }
}
