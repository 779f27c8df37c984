//! What people are told is true: `Ready` is a read as clients make it, the status names who does what, events tell each
//! decision once, nothing is written when nothing happens, and no secret is told to anybody.

mod followed;
mod ready;
mod secret;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Proxy;
use serde_json::Value;

use crate::look::{LONG, clients_of, events, follower, leader, says, until_whole};
use followed::Followed;

/// How often each reason was told.
fn counted(events: &[(String, String)]) -> BTreeMap<&str, usize> {
    let mut counted = BTreeMap::new();
    for (reason, _) in events {
        *counted.entry(reason.as_str()).or_default() += 1;
    }
    counted
}

#[test]
fn status_and_events_tell_who_is_who_what_is_done_and_what_is_waited_for() {
    let story = Story::begin("told");
    let _operator = Operator::start(&story);
    let followed = Followed::begin(&story);
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}");
    cluster.wait_ready(LONG);
    until_whole(&story, &cluster, 3);
    members_are_named_as_they_are(&story, &cluster);
    let bootstrap = events(&story, &cluster);
    let expected = [
        ("ClaimCreated", 3),
        ("PodCreated", 3),
        ("MemberAdded", 2),
        ("MemberPromoted", 2),
        ("BootstrapDone", 1),
        ("ClientsRouted", 3),
    ];
    assert_eq!(counted(&bootstrap), BTreeMap::from(expected), "{bootstrap:#?}");

    let clients = clients_of(&cluster);
    let victim = follower(&story, &cluster).name;
    story.kubectl(&["delete", &format!("pvc/{victim}"), &format!("pod/{victim}"), "--timeout=120s"]);
    until_whole(&story, &cluster, 3);
    members_are_named_as_they_are(&story, &cluster);
    clients.finish();
    let all = events(&story, &cluster);
    let healed = counted(&all);
    for (reason, count) in [
        ("MemberRemoved", 1),
        ("ClaimCreated", 4),
        ("PodCreated", 4),
        ("MemberAdded", 3),
        ("MemberPromoted", 3),
        ("BootstrapDone", 1),
        ("ClientsRouted", 4),
    ] {
        assert_eq!(healed.get(reason), Some(&count), "{reason}: {all:#?}");
    }
    told_while_it_happened(&followed.end(), &victim);
}

/// The status against etcd's own word and the pods.
fn members_are_named_as_they_are(story: &Story, cluster: &Cluster<'_>) {
    let leads = leader(story, cluster);
    story.eventually("the status names the leader", || cluster.status()["leader"] == leads.name);
    let (status, pods) = (cluster.status(), cluster.pods());
    let listed = members(&cluster.etcdctl(&["member", "list", "--write-out=json"]));
    let told = status["memberList"].as_array().unwrap();
    assert_eq!(told.len(), pods.len(), "{status:#}");
    for member in told {
        let pod = pods.iter().find(|pod| member["name"] == pod.name).expect("a member has a pod of its name");
        let entry = listed.iter().find(|entry| member["name"] == entry.name).expect("etcd lists it");
        let said = says(cluster, pod).expect("a member answers");
        assert_eq!(member["role"], "Voter", "{member}");
        assert_eq!(member["healthy"], true, "{member}");
        assert_eq!(member["version"], said["version"], "{member}");
        assert_eq!(member["node"], pod.node, "{member}");
        assert_eq!(member["id"], format!("{:x}", entry.id), "{member}");
        assert_eq!(
            member["message"],
            Value::Null,
            "there is nothing to be said of one that is well: {member}"
        );
        let cluster_id = said["header"]["cluster_id"].as_u64().unwrap();
        assert_eq!(status["clusterId"], format!("{cluster_id:x}"));
    }
    for idle in ["doing", "waitingFor"] {
        assert_eq!(status[idle], Value::Null, "nothing goes on: {status:#}");
    }
    assert_eq!(status["observedGeneration"], story.get(&["etcd/orders"])["metadata"]["generation"]);
}

/// What the status said on the way: never ready before clients were let in, and never busy without a word about it.
fn told_while_it_happened(statuses: &[Value], replaced: &str) {
    let condition = |status: &Value, kind: &str| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
    };
    let phrases: Vec<_> = statuses.iter().map(|it| it["phrase"].as_str().unwrap_or_default()).collect();
    for status in statuses {
        let busy = [&status["doing"], &status["waitingFor"][0]].map(|it| it.as_str().unwrap_or("-"));
        println!(
            "told: {} | {} | doing: {} | waiting: {}",
            status["ready"], status["phrase"], busy[0], busy[1]
        );
        let (ready, progressing) = (condition(status, "Ready"), condition(status, "Progressing"));
        if status["phrase"].as_str().unwrap().starts_with("Bootstrapping") {
            assert_eq!(
                (&ready["status"], &ready["reason"]),
                (&"False".into(), &"Bootstrapping".into()),
                "{status:#}"
            );
        }
        let says_what = ["doing", "waitingFor"].iter().any(|field| !status[field].is_null());
        assert!(
            progressing["status"] == "False" || says_what,
            "it is busy and does not say with what: {status:#}"
        );
        let all_are_well = status["ready"] == "3/3";
        assert!(progressing["reason"] != "Converged" || all_are_well, "it is not over yet: {status:#}");
        // Kubernetes' complaint about a pod that waits, as it should, is nobody's business.
        assert!(!status.to_string().contains("absolute path"), "{status:#}");
    }
    assert!(phrases.iter().any(|phrase| phrase.starts_with("Bootstrapping")), "{phrases:#?}");
    let healing: Vec<_> = phrases.iter().skip_while(|phrase| **phrase != "Healthy").collect();
    assert!(
        healing.iter().any(|phrase| phrase.contains(replaced)),
        "nothing was said of {replaced}: {phrases:#?}"
    );
    assert!(healing.iter().any(|phrase| phrase.starts_with("Joining")), "{phrases:#?}");
    assert_eq!(phrases.last(), Some(&"Healthy"), "{phrases:#?}");
}

/// Requests by verb and path that came in a time, watches and the Lease apart.
fn asked_of(proxy: &Proxy, meanwhile: impl FnOnce()) -> BTreeMap<(String, String), usize> {
    let before = proxy.requests();
    meanwhile();
    let counts = proxy.requests().into_iter().map(|(what, count)| {
        let earlier = before.get(&what).copied().unwrap_or_default();
        (what, count - earlier)
    });
    counts
        .filter(|((verb, path), count)| *count > 0 && verb != "WATCH" && !path.contains("/leases"))
        .collect()
}

#[test]
fn once_all_is_well_nothing_is_written_for_two_minutes_and_next_to_nothing_asked() {
    let story = Story::begin("quiet");
    let operator = Operator::start(&story);
    let kept = Cluster::apply(&story, "kept", "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}");
    let ephemeral =
        Cluster::apply(&story, "ephemeral", "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}");
    for cluster in [&kept, &ephemeral] {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 3);
    }
    operator.proxy().becomes_quiet(Duration::from_secs(10), Duration::from_secs(90));
    let minutes = 2;
    let asked =
        asked_of(operator.proxy(), || operator.proxy().stays_quiet(Duration::from_secs(60 * minutes)));
    println!("in {minutes} quiet minutes the API server was asked, for two clusters: {asked:?}");
    let requests: usize = asked.values().sum();
    assert!(requests <= 2 * minutes as usize, "more than one a minute and cluster: {asked:#?}");
    for cluster in [&kept, &ephemeral] {
        until_whole(&story, cluster, 3);
    }
}
