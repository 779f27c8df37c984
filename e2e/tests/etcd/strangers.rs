//! Members that somebody else added, and disks that somebody else has changed.

mod full;

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, ids, until_whole};
use crate::meddled::without_its_place;
use crate::middle::{comes_to_rest, lives_again, names};

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
