//! Members that a user added to etcd, and volumes that a user changed.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, events, follower, member_ids, wait_healthy};
use crate::drift::without_server_fields;
use crate::interrupts::{names, start_after_kill, wait_idle};

/// Returns the pod of an etcd that a user adds to the cluster, under a name below the peer Service.
fn guest_pod(story: &Story, list: &str, max_learners: &str) -> Value {
    let host = format!("guest.orders-etcd-peer.{}.svc", story.namespace());
    let secret = |name: &str, secret: &str| json!({"name": name, "secret": {"secretName": secret, "defaultMode": 0o444}});
    let tls = |prefix: &str, dir: &str| {
        [
            ("trusted-ca-file", "ca.crt"),
            ("cert-file", "tls.crt"),
            ("key-file", "tls.key"),
        ]
        .map(|(flag, file)| format!("--{prefix}{flag}=/{dir}/{file}"))
    };
    let mut args = vec![
        "--name=guest".to_owned(),
        "--data-dir=/data/etcd".to_owned(),
        "--listen-peer-urls=https://0.0.0.0:2380".to_owned(),
        "--listen-client-urls=https://0.0.0.0:2379".to_owned(),
        format!("--initial-advertise-peer-urls=https://{host}:2380"),
        format!("--advertise-client-urls=https://{host}:2379"),
        format!("--initial-cluster={list},guest=https://{host}:2380"),
        "--initial-cluster-state=existing".to_owned(),
        "--peer-skip-client-san-verification=true".to_owned(),
        // As in all members: this one reads in the log how the others joined.
        max_learners.to_owned(),
        "--client-cert-auth=true".to_owned(),
        "--peer-client-cert-auth=true".to_owned(),
    ];
    args.extend(tls("peer-", "peer"));
    args.extend(tls("", "server"));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest"},
        "spec": {
            "hostname": "guest", "subdomain": "orders-etcd-peer", "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "data", "emptyDir": {}}, secret("peer", "orders-etcd-peer-tls"),
                secret("server", "orders-etcd-server-tls")],
            "containers": [{
                "name": "etcd", "image": "gcr.io/etcd-development/etcd:v3.6.16", "command": ["/usr/local/bin/etcd"],
                "args": args,
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "peer", "mountPath": "/peer"},
                    {"name": "server", "mountPath": "/server"}],
            }],
        },
    })
}

/// Gives the guest a DNS name: no Service selects its pod.
fn create_dns_name(story: &Story) {
    let mut address = String::new();
    story.eventually("the guest has an address", || {
        address = story.field(&["pod", "guest"], ".status.podIP");
        !address.is_empty()
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "guest", "labels": {"kubernetes.io/service-name": "orders-etcd-peer"}},
        "endpoints": [{"addresses": [address], "hostname": "guest", "conditions": {"ready": true}}],
        "ports": [{"name": "peer", "port": 2380, "protocol": "TCP"}],
    });
    story.apply(&slice.to_string());
}

/// Waits until the guest has run for ten seconds without a restart: of four voters three are needed, and one of the others is about
/// to be deleted.
fn wait_stable(story: &Story) {
    let (mut run, mut since) = (String::new(), Instant::now());
    let mut is_up = || {
        let now = story.field(
            &["pod", "guest"],
            ".status.containerStatuses[0].state.running.startedAt",
        );
        if now != run {
            (run, since) = (now, Instant::now());
        }
        !run.is_empty() && since.elapsed() > Duration::from_secs(10)
    };
    let began = Instant::now();
    while !is_up() {
        let logs = || {
            story
                .try_kubectl(&["logs", "guest", "--previous", "--tail=20"])
                .unwrap_or_else(|output| output)
        };
        assert!(
            began.elapsed() < CLUSTER_LIMIT,
            "the guest does not keep running:\n{}",
            logs()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn an_unknown_started_member_is_reported_and_not_removed() {
    let story = Story::begin("guest");
    let operator = Operator::start(&story);
    // Long enough for the guest to start: an unknown member that has not started is removed.
    let cluster = create_orders(&story, &SPEC.replace("30s", "10m"), 3);
    let url = format!(
        "https://guest.orders-etcd-peer.{}.svc:2380",
        story.namespace()
    );
    let entry =
        |member: &evenkeel_e2e::etcd::Member| format!("{}={}", member.name, member.peer_urls[0]);
    let list: Vec<_> = cluster.member_list().iter().map(entry).collect();
    // Added before it starts: an etcd that is not a member exits, and restarts with growing delays.
    add(&story, &cluster, "guest", &url);
    let flags = story.field(&["pod", &cluster.pods()[0].name], ".spec.containers[0]");
    let flag = flags
        .split('"')
        .find(|text| text.starts_with("--max-learners="))
        .expect("a member's pod has the flag");
    story.apply(&guest_pod(&story, &list.join(","), flag).to_string());
    create_dns_name(&story);
    story.within(CLUSTER_LIMIT, "the guest has joined", || {
        cluster
            .try_etcdctl(&["member", "list"])
            .is_ok_and(|list| list.contains(", started, guest,"))
    });
    wait_stable(&story);
    cluster.patch(&json!({"heal": {"replaceAfter": "30s"}}));
    let workload = cluster.workload();
    let is_reported = || {
        let message = cluster.condition_message("Degraded");
        cluster.condition("Degraded").1 == "UnknownMember" && message.contains("-- member remove")
    };
    story.within(
        CLUSTER_LIMIT,
        "the status reports the unknown member and the remedy",
        is_reported,
    );

    // A pod is recreated, and a member without data is removed; no member can join that does not know the guest.
    let victim = follower(&story, &cluster);
    let deleted = [
        format!("pod/{}", victim.name),
        format!("pvc/{}", victim.name),
    ];
    story.kubectl(&["delete", &deleted[0], &deleted[1], "--wait=false"]);
    story.within(CLUSTER_LIMIT, "the member without data is removed", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        list.is_ok_and(|list| {
            evenkeel_e2e::etcd::members(&list)
                .iter()
                .all(|one| one.name != victim.name)
        })
    });
    // Longer than an unstarted member is kept.
    std::thread::sleep(Duration::from_secs(45));
    assert_eq!(
        is_listed(&cluster, &url),
        Some(true),
        "the guest was removed although it has data"
    );
    wait_idle(&operator);

    // The remedy of the status.
    let guest_pod = cluster
        .member_list()
        .into_iter()
        .find(|member| member.name == "guest")
        .unwrap();
    let id = format!("{:x}", guest_pod.id);
    story.eventually("etcd removes the guest", || {
        let _ = cluster.try_etcdctl(&["member", "remove", &id]);
        is_listed(&cluster, &url) == Some(false)
    });
    wait_healthy(&story, &cluster, 3);
    workload.finish();
    cluster.wait_same_data();
}

/// Empties the volume of a follower, which then crashes at every start. Returns its name.
fn empty_follower_volume(story: &Story, cluster: &Cluster<'_>) -> String {
    let victim = follower(story, cluster).name;
    let pod = story.lab().pod(story.namespace(), &victim).unwrap();
    pod.wipe_volume(None).unwrap();
    pod.kill(Some("etcd"), None).unwrap();
    victim
}

#[test]
fn members_with_emptied_volumes_are_replaced_up_to_an_hourly_limit() {
    let story = Story::begin("emptied");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 3);
    let workload = cluster.workload();
    let mut replaced = Vec::new();
    for _ in 0..3 {
        let victim = empty_follower_volume(&story, &cluster);
        story.within(CLUSTER_LIMIT, "another member replaces it", || {
            let names = names(&story, "orders", "pods");
            names.len() == 3 && !names.contains(&victim)
        });
        wait_healthy(&story, &cluster, 3);
        replaced.push(victim);
    }
    let reported = events(&story, &cluster);
    let mut notes = reported
        .iter()
        .filter(|(reason, _)| reason == "MemberReplaced")
        .map(|(_, note)| note);
    assert!(
        notes.all(|note| replaced.iter().any(|victim| note.contains(victim))),
        "{reported:?}"
    );

    // One more replacement would not fix the cause, and the other members would be next.
    let victim = empty_follower_volume(&story, &cluster);
    let assert_unchanged = || {
        story.within(
            CLUSTER_LIMIT,
            "Degraded has the reason TooManyReplacements",
            || {
                cluster.condition("Degraded").1 == "TooManyReplacements"
                    && cluster.status()["waitingFor"].to_string().contains(&victim)
            },
        );
        assert!(
            cluster
                .member_list()
                .iter()
                .any(|member| member.name == victim),
            "the member was removed"
        );
    };
    assert_unchanged();
    // A restarted operator counts the earlier replacements.
    operator.kill();
    start_after_kill(&story, &mut operator);
    wait_idle(&operator);
    assert_unchanged();
    workload.finish();
}

#[test]
fn a_claim_restored_from_older_data_is_not_used() {
    let story = Story::begin("older");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 3);
    let workload = cluster.workload();
    let victim = follower(&story, &cluster);
    let id = member_ids(&cluster)[&victim.name];
    // As a backup tool does it while the operator is stopped: the annotations are restored together with the PVC.
    operator.kill();
    let mut claim = without_server_fields(story.get(&["pvc", &victim.claim]));
    claim["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key.starts_with("evenkeel.dev/"));
    claim["spec"].as_object_mut().unwrap().remove("volumeName");
    claim.as_object_mut().unwrap().remove("status");
    story.kubectl(&[
        "delete",
        &format!("pod/{}", victim.name),
        &format!("pvc/{}", victim.claim),
    ]);
    story.apply(&claim.to_string());
    start_after_kill(&story, &mut operator);
    story.within(CLUSTER_LIMIT, "another member replaces it", || {
        let names = names(&story, "orders", "pods");
        names.len() == 3 && !names.contains(&victim.name)
    });
    wait_healthy(&story, &cluster, 3);
    assert!(
        !member_ids(&cluster).values().any(|other| *other == id),
        "the member came back"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

/// The shortest `replaceAfter`.
const SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 30s}";

/// Adds a member with etcdctl.
fn add(story: &Story, cluster: &Cluster<'_>, name: &str, url: &str) {
    // etcd rejects changes for five seconds after the last one.
    story.eventually(&format!("etcd accepts {name}"), || {
        is_listed(cluster, url) == Some(true)
            || cluster
                .try_etcdctl(&["member", "add", name, &format!("--peer-urls={url}")])
                .is_ok()
    });
}

fn is_listed(cluster: &Cluster<'_>, url: &str) -> Option<bool> {
    let list = cluster
        .try_etcdctl(&["member", "list", "--write-out=json"])
        .ok()?;
    let list = evenkeel_e2e::etcd::members(&list);
    Some(
        list.iter()
            .any(|member| member.peer_urls.contains(&url.to_owned())),
    )
}

#[test]
fn an_unknown_member_that_never_starts_is_removed() {
    let story = Story::begin("ghost");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &SPEC.replace("30s", "60s"), 3);
    let workload = cluster.workload();
    let (members, url) = (member_ids(&cluster), "https://ghost.example:2380");
    add(&story, &cluster, "ghost", url);
    story.within(
        CLUSTER_LIMIT,
        "Degraded has the reason UnknownMember",
        || cluster.condition("Degraded").1 == "UnknownMember",
    );
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name, "--wait=false"]);
    story.within(CLUSTER_LIMIT, "the member is back", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.uid != victim.uid && pod.ready)
    });
    story.within(CLUSTER_LIMIT, "the unknown member is removed", || {
        is_listed(&cluster, url) == Some(false)
    });
    wait_healthy(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), members, "other members changed");
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
