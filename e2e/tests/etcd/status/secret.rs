//! Private keys are in Secrets only: not in the log, whatever its level, and not in status, events or other objects.

mod full;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, Options};

use crate::assertions::{create_orders, follower, wait_healthy};

/// Returns parts of every private key of a cluster, in the forms in which it could leak: a line of its PEM, and the same part in the
/// encoding of a Secret.
fn key_parts(story: &Story, cluster: &Cluster<'_>) -> BTreeMap<String, Vec<String>> {
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

/// Returns the keys that a text contains.
fn leaked<'k>(text: &str, keys: &'k BTreeMap<String, Vec<String>>) -> Vec<&'k str> {
    let leaked = |(name, key_parts): (&'k String, &'k Vec<String>)| {
        key_parts
            .iter()
            .any(|piece| text.contains(piece))
            .then_some(name.as_str())
    };
    keys.iter().filter_map(leaked).collect()
}

/// Starts an operator with the log level trace.
pub(crate) fn start_with_trace(story: &Story) -> Operator {
    let env = vec![("EVENKEEL_LOG".to_owned(), "trace".to_owned())];
    Operator::with(
        story,
        Options {
            env,
            ..Options::default()
        },
    )
}

/// Asserts that each private key is in its Secret, and neither in the operator's log, whose level must be trace, nor in other
/// objects.
pub(crate) fn assert_keys_only_in_secrets(
    story: &Story,
    cluster: &Cluster<'_>,
    operator: &Operator,
) {
    let keys = key_parts(story, cluster);
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
        "not each Secret has a key"
    );
    let log = operator.log();
    assert!(
        log.contains("TRACE") && log.contains("secrets"),
        "the log level is not trace, or no Secret is in the log"
    );
    // The parts are found in the Secrets, so a leak would be found, too.
    let where_they_are = story.kubectl(&["get", "secrets", "--output=json"]);
    assert_eq!(leaked(&where_they_are, &keys), names);
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
            leaked(&text, &keys),
            Vec::<&str>::new(),
            "private keys are in {what}"
        );
        assert!(!text.contains("PRIVATE KEY"), "a private key is in {what}");
    }
}
