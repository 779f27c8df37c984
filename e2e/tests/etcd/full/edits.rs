//! Edits of a cluster that runs, one of each kind: what is beside the members changes at once, and nobody is restarted; what members
//! are made of restarts each of them once; what would harm them is refused with what to do instead. Taken back, each leaves
//! everything as it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{formed, ids, until_right, until_whole};
use crate::middle::{comes_to_rest, ends_well};
use crate::rolls::{each_was_restarted_once, name_of, nobody_is_touched, pods, pods_lives};
use crate::upgrade::{claims, spec, uids};

/// The Service for clients.
fn service(story: &Story) -> Value {
    story
        .read("/api/v1", "services/orders-etcd-client")
        .expect("clients have a Service")
}

/// Whether the members' certificate has a name: in it names stand as they are.
fn is_certified(story: &Story, name: &str) -> bool {
    let secret = story
        .read("/api/v1", "secrets/orders-etcd-server-tls")
        .unwrap_or_default();
    let certificate = secret["data"]["tls.crt"].as_str().unwrap_or_default();
    let certificate = String::from_utf8(STANDARD.decode(certificate).unwrap()).unwrap();
    let within: String = certificate
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let within = STANDARD
        .decode(within)
        .expect("between its lines a certificate is base64");
    within
        .windows(name.len())
        .any(|part| part == name.as_bytes())
}

/// Whether the members' volumes go with the resource; nothing while some do and some do not.
fn volumes_go_along(story: &Story) -> Option<bool> {
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

/// A field beside the members: what it is set to, what it was, and how to see which of the two it is.
struct Beside {
    what: &'static str,
    edit: Value,
    back: Value,
    is_so: fn(&Story) -> Option<bool>,
}

fn beside() -> [Beside; 4] {
    [
        Beside {
            what: "service.type",
            edit: json!({ "service": { "type": "NodePort" } }),
            back: json!({ "service": { "type": "ClusterIP" } }),
            is_so: |story| {
                let spec = service(story)["spec"].clone();
                let (of_nodes, has_port) = (
                    spec["type"] == "NodePort",
                    spec["ports"][0]["nodePort"].is_u64(),
                );
                (of_nodes == has_port).then_some(of_nodes)
            },
        },
        Beside {
            what: "service.annotations",
            edit: json!({ "service": { "annotations": { "example.com/zone": "a" } } }),
            back: json!({ "service": { "annotations": null } }),
            is_so: |story| {
                Some(service(story)["metadata"]["annotations"]["example.com/zone"] == "a")
            },
        },
        Beside {
            what: "tls.client.extraNames",
            edit: json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }),
            back: json!({ "tls": { "client": { "extraNames": null } } }),
            is_so: |story| Some(is_certified(story, "etcd.corp.example")),
        },
        Beside {
            what: "storage.onDelete",
            edit: json!({ "storage": { "onDelete": "Delete" } }),
            back: json!({ "storage": { "onDelete": "Keep" } }),
            is_so: volumes_go_along,
        },
    ]
}

#[test]
fn what_is_beside_the_members_is_changed_at_once_and_back_and_nobody_is_restarted() {
    let story = Story::begin("edits-beside");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, before, address) = (cluster.workload(), uids(&cluster), cluster.service_ip());
    comes_to_rest(&operator);
    let (began, since) = (Instant::now(), workload.now());
    assert!(
        is_certified(&story, "orders-etcd-client"),
        "names are looked for where they are"
    );
    for Beside {
        what,
        edit,
        back,
        is_so,
    } in beside()
    {
        assert_eq!(
            is_so(&story),
            Some(false),
            "{what} is another one before it is changed"
        );
        for (edit, wanted) in [(edit, true), (back, false)] {
            cluster.patch(&edit);
            until_right(&format!("{what} is as it was set"), || {
                if is_so(&story) == Some(wanted) {
                    Ok(())
                } else {
                    Err(format!("{edit}: {:#}", cluster.status()))
                }
            });
        }
    }
    until_whole(&story, &cluster, 3);
    nobody_is_touched(&cluster, Duration::from_secs(5));
    assert_eq!(uids(&cluster), before, "nobody was restarted");
    assert_eq!(
        pods_lives(&operator.proxy().writes_since(began)),
        BTreeMap::new()
    );
    assert_eq!(
        cluster.service_ip(),
        address,
        "clients find it where it was"
    );
    assert!(workload.stats(since).acknowledged_writes > 0, "and write");
    comes_to_rest(&operator);
    workload.finish();
}

/// What each member's etcd is started with. In its first life the pod of the first member is told elsewhere whether to found a
/// cluster, and later as the others are: that flag is left out.
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

/// Edits that are refused, and what is advised.
fn refused() -> [(Value, &'static str); 6] {
    let options = |name: &str, value: &str| json!({ "etcd": { "options": { name: value } } });
    [
        (
            options("quota-backend-bytes", "1000000"),
            "use spec.etcd.quota",
        ),
        (
            options("force-new-cluster", "true"),
            "it makes two clusters of one, and both take writes",
        ),
        (
            options("heartbeat-interval", "300"),
            "Raise the one, or lower the other",
        ),
        (
            options("max-txn-ops", "many"),
            "a whole number from 1 to 65536",
        ),
        (options("frobnicate", "1"), "docs/tasks/options.md lists it"),
        (
            json!({ "maintenance": { "windows": [{ "start": "2:00", "duration": "1h" }] } }),
            "with all four digits",
        ),
    ]
}

#[test]
fn an_option_of_etcd_restarts_each_member_once_and_so_does_taking_it_back_and_a_bad_one_none() {
    let story = Story::begin("edits-option");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), ids(&cluster), claims(&cluster));
    comes_to_rest(&operator);
    let (before, untouched) = (flags(&story), uids(&cluster));
    let resource = || story.get(&["etcd/orders"]);
    let was = resource();
    for (edit, advice) in refused() {
        let patch = json!({ "spec": edit }).to_string();
        let said = story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
        let said = said.expect_err("it is refused");
        assert!(said.contains(advice), "{edit}: {said}");
    }
    let is = resource();
    assert_eq!(
        (&is["spec"], &is["metadata"]["generation"]),
        (&was["spec"], &was["metadata"]["generation"])
    );
    nobody_is_touched(&cluster, Duration::from_secs(3));
    assert_eq!(
        uids(&cluster),
        untouched,
        "of what is refused nothing is done"
    );

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
    for (edit, wanted) in edits {
        let began = Instant::now();
        cluster.patch(&edit);
        until_right(&format!("all are started as {edit} says"), || {
            let sorted = |flags: &BTreeMap<String, Vec<String>>| {
                let mut flags = flags.clone();
                flags.values_mut().for_each(|flags| flags.sort());
                flags
            };
            let now = flags(&story);
            if sorted(&now) == sorted(&wanted) {
                Ok(())
            } else {
                Err(format!("{now:#?}"))
            }
        });
        ends_well(&story, &cluster, 3);
        comes_to_rest(&operator);
        each_was_restarted_once(&operator.proxy().writes_since(began), 3);
    }
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    workload.finish();
    cluster.holds_the_same_everywhere();
}
