//! Members that somebody else added, and disks that somebody else has changed.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, ids, until_whole};
use crate::meddled::without_its_place;
use crate::middle::{comes_to_rest, lives_again, names};

/// An etcd of somebody else's that joins the cluster, under a name of the cluster's own peers.
fn guest(story: &Story, list: &str, max_learners: &str) -> Value {
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
        // As all members have it: this one reads in the log how the others joined.
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

/// Gives the guest its name: it is in no Service's selection.
fn name_it(story: &Story) {
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

/// Waits until the guest has run for ten seconds without an end: of four votes three are needed, and one of the others is about
/// to go.
fn stays_up(story: &Story) {
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
                .unwrap_or_else(|said| said)
        };
        assert!(
            began.elapsed() < LONG,
            "the guest does not stay up:\n{}",
            logs()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_stranger_that_has_started_is_told_and_left_alone_and_healing_goes_on() {
    let story = Story::begin("guest");
    let operator = Operator::start(&story);
    // Time enough to start: one that has not is sent away, as it should be.
    let cluster = formed(&story, &SPEC.replace("30s", "10m"), 3);
    let url = format!(
        "https://guest.orders-etcd-peer.{}.svc:2380",
        story.namespace()
    );
    let entry =
        |member: &evenkeel_e2e::etcd::Member| format!("{}={}", member.name, member.peer_urls[0]);
    let list: Vec<_> = cluster.member_list().iter().map(entry).collect();
    // A member first: an etcd that is none yet ends, and is started again later and later.
    add(&story, &cluster, "guest", &url);
    let flags = story.field(&["pod", &cluster.pods()[0].name], ".spec.containers[0]");
    let flag = flags
        .split('"')
        .find(|text| text.starts_with("--max-learners="))
        .expect("it has the flag");
    story.apply(&guest(&story, &list.join(","), flag).to_string());
    name_it(&story);
    story.within(LONG, "the guest has joined", || {
        cluster
            .try_etcdctl(&["member", "list"])
            .is_ok_and(|list| list.contains(", started, guest,"))
    });
    stays_up(&story);
    cluster.patch(&json!({"heal": {"replaceAfter": "30s"}}));
    let workload = cluster.workload();
    let is_told = || {
        let status = cluster.status();
        let told = status["waitingFor"].to_string();
        cluster.condition("Degraded").1 == "UnknownMember" && told.contains("etcdctl member remove")
    };
    story.within(LONG, "it is told, with what to do", is_told);

    // A pod comes back, and whose data is gone is removed; nobody can join who does not know the guest.
    let victim = follower(&story, &cluster);
    let taken = [
        format!("pod/{}", victim.name),
        format!("pvc/{}", victim.name),
    ];
    story.kubectl(&["delete", &taken[0], &taken[1], "--wait=false"]);
    story.within(LONG, "it is removed", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        list.is_ok_and(|list| {
            evenkeel_e2e::etcd::members(&list)
                .iter()
                .all(|one| one.name != victim.name)
        })
    });
    // Longer than one that never started is given.
    std::thread::sleep(Duration::from_secs(45));
    assert_eq!(
        is_listed(&cluster, &url),
        Some(true),
        "it holds data, and is nobody's to remove"
    );
    comes_to_rest(&operator);

    // As it says.
    let guest = cluster
        .member_list()
        .into_iter()
        .find(|member| member.name == "guest")
        .unwrap();
    let id = format!("{:x}", guest.id);
    story.eventually("etcd removes the guest", || {
        let _ = cluster.try_etcdctl(&["member", "remove", &id]);
        is_listed(&cluster, &url) == Some(false)
    });
    until_whole(&story, &cluster, 3);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

/// Empties a follower's volume under it: it crashes at every start from now on. Says who it is.
fn empty_one(story: &Story, cluster: &Cluster<'_>) -> String {
    let victim = follower(story, cluster).name;
    let pod = story.lab().pod(story.namespace(), &victim).unwrap();
    pod.wipe_volume(None).unwrap();
    pod.kill(Some("etcd"), None).unwrap();
    victim
}

#[test]
fn members_whose_volumes_were_emptied_are_replaced_when_their_time_is_over_but_not_many_within_an_hour()
 {
    let story = Story::begin("emptied");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, SPEC, 3);
    let workload = cluster.workload();
    let mut replaced = Vec::new();
    for _ in 0..3 {
        let victim = empty_one(&story, &cluster);
        story.within(LONG, "somebody else is in its place", || {
            let names = names(&story, "orders", "pods");
            names.len() == 3 && !names.contains(&victim)
        });
        until_whole(&story, &cluster, 3);
        replaced.push(victim);
    }
    let told = events(&story, &cluster);
    let mut notes = told
        .iter()
        .filter(|(reason, _)| reason == "MemberReplaced")
        .map(|(_, note)| note);
    assert!(
        notes.all(|note| replaced.iter().any(|victim| note.contains(victim))),
        "{told:?}"
    );

    // Whatever does that is not mended by one more, and the others would be next.
    let victim = empty_one(&story, &cluster);
    let stays = || {
        story.within(LONG, "it is told that this is enough", || {
            cluster.condition("Degraded").1 == "TooManyReplacements"
                && cluster.status()["waitingFor"].to_string().contains(&victim)
        });
        assert!(
            cluster
                .member_list()
                .iter()
                .any(|member| member.name == victim),
            "it is still a member"
        );
    };
    stays();
    // Another operator knows of them, too.
    operator.kill();
    lives_again(&story, &mut operator);
    comes_to_rest(&operator);
    stays();
    workload.finish();
}

#[test]
fn a_claim_that_was_put_back_from_something_older_is_not_started_on() {
    let story = Story::begin("older");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, SPEC, 3);
    let workload = cluster.workload();
    let victim = follower(&story, &cluster);
    let id = ids(&cluster)[&victim.name];
    // As a backup tool does it, while nobody looks: what was written on the claim comes back with it.
    operator.kill();
    let mut claim = without_its_place(story.get(&["pvc", &victim.claim]));
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
    lives_again(&story, &mut operator);
    story.within(LONG, "somebody else is in its place", || {
        let names = names(&story, "orders", "pods");
        names.len() == 3 && !names.contains(&victim.name)
    });
    until_whole(&story, &cluster, 3);
    assert!(
        !ids(&cluster).values().any(|other| *other == id),
        "the member never came back"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

/// Patience as short as it may be.
const SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 30s}";

/// Adds a member as people do.
fn add(story: &Story, cluster: &Cluster<'_>, name: &str, url: &str) {
    // etcd refuses for five seconds after the last change.
    story.eventually(&format!("etcd takes {name}"), || {
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
fn a_stranger_that_never_starts_goes_after_a_while_and_healing_goes_on_meanwhile() {
    let story = Story::begin("ghost");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &SPEC.replace("30s", "60s"), 3);
    let workload = cluster.workload();
    let (members, url) = (ids(&cluster), "https://ghost.example:2380");
    add(&story, &cluster, "ghost", url);
    story.within(LONG, "it is told", || {
        cluster.condition("Degraded").1 == "UnknownMember"
    });
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name, "--wait=false"]);
    story.within(LONG, "the member is back", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.uid != victim.uid && pod.ready)
    });
    story.within(LONG, "the stranger is gone", || {
        is_listed(&cluster, url) == Some(false)
    });
    until_whole(&story, &cluster, 3);
    assert_eq!(ids(&cluster), members, "and nobody else");
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
