//! The stories of this topic that `make test-all` runs.

use super::*;

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
    let path = "persistentvolumeclaims?labelSelector=evenkeel.dev%2Fcluster%3Dorders";
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
    assert!(workload.stats(since).written > 0, "and write");
    comes_to_rest(&operator);
    workload.finish();
}
