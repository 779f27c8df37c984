//! The client of a cluster, tested on an etcd that has the names that the operator gives.

mod full;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::etcd::{Cluster, manifest, members};
use evenkeel_e2e::operator::install;
use evenkeel_e2e::{RESTRICTED, Story};
use evenkeel_history::ClientKind;
use evenkeel_lab::pki::{CertificateFiles, Holder, Pki};
use serde_json::{Value, json};

#[test]
fn a_manifest_has_the_fields_of_the_readme() {
    let expected = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": "orders"},
        "spec": {"version": "3.6.16", "members": 3}});
    assert_eq!(manifest("orders", 3, "3.6.16", None), expected);
    assert_eq!(
        manifest("orders", 5, "3.6.16", Some("2Gi"))["spec"]["storage"],
        json!({"size": "2Gi"})
    );
}

#[test]
fn a_member_that_was_added_but_has_not_started_has_no_name() {
    let printed = r#"{"header":{"cluster_id":1},"members":[
        {"ID":9372538179322589801,"name":"a","peerURLs":["https://a:2380"],"clientURLs":["https://a:2379"]},
        {"ID":7,"peerURLs":["https://b:2380"],"isLearner":true}]}"#;
    let members = members(printed);
    assert_eq!(
        (members[0].id, members[0].name.as_str(), members[0].learner),
        (9372538179322589801, "a", false)
    );
    assert_eq!((members[1].name.as_str(), members[1].learner), ("", true));
    assert_eq!(members[1].peer_urls, ["https://b:2380"]);
}
