//! Edits of a running cluster, one of each kind: an edit of objects beside the members restarts none; an edit of the members restarts
//! each once; a harmful edit is rejected with a remedy. Reverting an edit restores everything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{create_orders, member_ids, wait_healthy, wait_until_ok};
use crate::interrupts::{wait_converged, wait_idle};
use crate::rollouts::{
    assert_each_restarted_once, assert_no_pod_changes, name_of, pod_counts, pods,
};
use crate::upgrade::{claims, spec, uids};

/// Returns the client Service.
fn service(story: &Story) -> Value {
    story
        .read("/api/v1", "services/orders-etcd-client")
        .expect("the client Service exists")
}

/// Whether the server certificate contains a name: DER stores names as plain text.
fn certificate_has(story: &Story, name: &str) -> bool {
    let secret = story
        .read("/api/v1", "secrets/orders-etcd-server-tls")
        .unwrap_or_default();
    let certificate = secret["data"]["tls.crt"].as_str().unwrap_or_default();
    let certificate = String::from_utf8(STANDARD.decode(certificate).unwrap()).unwrap();
    let within: String = certificate
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let within = STANDARD.decode(within).expect("a PEM body is base64");
    within
        .windows(name.len())
        .any(|part| part == name.as_bytes())
}

/// Whether the resource owns the members' PVCs; `None` while it owns only some.
fn volumes_are_owned(story: &Story) -> Option<bool> {
    let path = "persistentvolumeclaims?labelSelector=etcd.evenkeel.dev%2Fcluster%3Dorders";
    let claims = story.read("/api/v1", path).unwrap_or_default();
    let claims = claims["items"].as_array().cloned().unwrap_or_default();
    let owned = claims
        .iter()
        .filter(|claim| claim["metadata"]["ownerReferences"].is_array())
        .count();
    [(0, false), (3, true)]
        .into_iter()
        .find(|(count, _)| *count == owned)
        .map(|(_, go)| go)
}

/// A field that does not affect members: an edit, its reverse, and a check which of the two is in effect.
struct OtherEdit {
    what: &'static str,
    edit: Value,
    back: Value,
    in_effect: fn(&Story) -> Option<bool>,
}

fn other_edits() -> [OtherEdit; 4] {
    [
        OtherEdit {
            what: "service.type",
            edit: json!({ "service": { "type": "NodePort" } }),
            back: json!({ "service": { "type": "ClusterIP" } }),
            in_effect: |story| {
                let spec = service(story)["spec"].clone();
                let (of_nodes, has_port) = (
                    spec["type"] == "NodePort",
                    spec["ports"][0]["nodePort"].is_u64(),
                );
                (of_nodes == has_port).then_some(of_nodes)
            },
        },
        OtherEdit {
            what: "service.annotations",
            edit: json!({ "service": { "annotations": { "example.com/zone": "a" } } }),
            back: json!({ "service": { "annotations": null } }),
            in_effect: |story| {
                Some(service(story)["metadata"]["annotations"]["example.com/zone"] == "a")
            },
        },
        OtherEdit {
            what: "tls.client.extraNames",
            edit: json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }),
            back: json!({ "tls": { "client": { "extraNames": null } } }),
            in_effect: |story| Some(certificate_has(story, "etcd.corp.example")),
        },
        OtherEdit {
            what: "storage.onDelete",
            edit: json!({ "storage": { "onDelete": "Delete" } }),
            back: json!({ "storage": { "onDelete": "Keep" } }),
            in_effect: volumes_are_owned,
        },
    ]
}

#[test]
fn edits_of_other_objects_take_effect_at_once_and_restart_no_member() {
    let story = Story::begin("edits-beside");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, before, address) = (cluster.workload(), uids(&cluster), cluster.service_ip());
    wait_idle(&operator);
    let (began, since) = (Instant::now(), workload.now());
    assert!(
        certificate_has(&story, "orders-etcd-client"),
        "the certificate does not contain the Service's name"
    );
    for OtherEdit {
        what,
        edit,
        back,
        in_effect,
    } in other_edits()
    {
        assert_eq!(
            in_effect(&story),
            Some(false),
            "{what} is in effect before the edit"
        );
        for (edit, expected) in [(edit, true), (back, false)] {
            cluster.patch(&edit);
            wait_until_ok(&format!("{what} is in effect"), || {
                if in_effect(&story) == Some(expected) {
                    Ok(())
                } else {
                    Err(format!("{edit}: {:#}", cluster.status()))
                }
            });
        }
    }
    wait_healthy(&story, &cluster, 3);
    assert_no_pod_changes(&cluster, Duration::from_secs(5));
    assert_eq!(uids(&cluster), before, "a member was restarted");
    assert_eq!(
        pod_counts(&operator.proxy().writes_since(began)),
        BTreeMap::new()
    );
    assert_eq!(
        cluster.service_ip(),
        address,
        "the Service's address changed"
    );
    assert!(
        workload.stats(since).acknowledged_writes > 0,
        "no write was acknowledged"
    );
    wait_idle(&operator);
    workload.finish();
}

/// Returns the arguments of each member's etcd, without `--initial-cluster-state`: the first pod of the seed has another value than
/// its later ones.
fn flags(story: &Story) -> BTreeMap<String, Vec<String>> {
    let flags = |pod: &Value| {
        let all = pod["spec"]["containers"][0]["args"]
            .as_array()
            .into_iter()
            .flatten();
        let all = all.filter_map(|flag| flag.as_str().map(str::to_owned));
        all.filter(|flag| !flag.starts_with("--initial-cluster-state="))
            .collect::<Vec<_>>()
    };
    pods(story)
        .iter()
        .map(|pod| (name_of(pod), flags(pod)))
        .collect()
}

/// Returns edits that are rejected, and the remedy in the message.
fn rejected_edits() -> [(Value, &'static str); 6] {
    let options = |name: &str, value: &str| json!({ "etcd": { "options": { name: value } } });
    [
        (
            options("quota-backend-bytes", "1000000"),
            "is not supported. Use spec.etcd.quota",
        ),
        (
            options("force-new-cluster", "true"),
            "it would split the cluster into two, and both would accept writes",
        ),
        (
            options("heartbeat-interval", "300"),
            "Increase election-timeout, or decrease heartbeat-interval",
        ),
        (
            options("max-txn-ops", "many"),
            "must be a whole number from 1 to 65536",
        ),
        (
            options("frobnicate", "1"),
            "See docs/configuration/options.md for the supported options",
        ),
        (
            json!({ "maintenance": { "windows": [{ "start": "2:00", "duration": "1h" }] } }),
            "with four digits",
        ),
    ]
}

#[test]
fn a_valid_etcd_option_restarts_each_member_once_and_an_invalid_one_none() {
    let story = Story::begin("edits-option");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), member_ids(&cluster), claims(&cluster));
    wait_idle(&operator);
    let (before, untouched) = (flags(&story), uids(&cluster));
    let resource = || story.get(&["etcd/orders"]);
    let was = resource();
    for (edit, advice) in rejected_edits() {
        let patch = json!({ "spec": edit }).to_string();
        let output =
            story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
        let output = output.expect_err("the edit is rejected");
        assert!(output.contains(advice), "{edit}: {output}");
    }
    let now = resource();
    assert_eq!(
        (&now["spec"], &now["metadata"]["generation"]),
        (&was["spec"], &was["metadata"]["generation"])
    );
    assert_no_pod_changes(&cluster, Duration::from_secs(3));
    assert_eq!(uids(&cluster), untouched, "a rejected edit had an effect");

    let option = "--max-txn-ops=256".to_owned();
    let mut with_it = before.clone();
    with_it
        .values_mut()
        .for_each(|flags| flags.push(option.clone()));
    let edits = [
        (
            json!({ "etcd": { "options": { "max-txn-ops": "256" } } }),
            with_it,
        ),
        (json!({ "etcd": { "options": null } }), before),
    ];
    for (edit, expected) in edits {
        let began = Instant::now();
        cluster.patch(&edit);
        wait_until_ok(&format!("all pods have the arguments of {edit}"), || {
            let sorted = |flags: &BTreeMap<String, Vec<String>>| {
                let mut flags = flags.clone();
                flags.values_mut().for_each(|flags| flags.sort());
                flags
            };
            let now = flags(&story);
            if sorted(&now) == sorted(&expected) {
                Ok(())
            } else {
                Err(format!("{now:#?}"))
            }
        });
        wait_converged(&story, &cluster, 3);
        wait_idle(&operator);
        assert_each_restarted_once(&operator.proxy().writes_since(began), 3);
    }
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(claims(&cluster), volumes, "the PVCs differ");
    workload.finish();
    cluster.wait_same_data();
}
