//! Images with a digest, which a registry cannot exchange.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{create_orders, member_ids, wait_until_ok};
use crate::interrupts::{wait_converged, wait_idle};
use crate::rollouts::{assert_each_restarted_once, pods};
use crate::upgrade::{claims, spec, uids};

const REPOSITORY: &str = "gcr.io/etcd-development/etcd";

/// Returns the digest of an etcd image, which nodes report.
fn digest_of(story: &Story, version: &str) -> String {
    let (tagged, with_digest) = (format!("{REPOSITORY}:v{version}"), format!("{REPOSITORY}@"));
    let mut found = None;
    // Nodes report their images at intervals.
    story.eventually(&format!("a node reports the digest of {tagged}"), || {
        found = digest_in(&story.get(&["nodes"]), &tagged, &with_digest);
        found.is_some()
    });
    found.expect("the wait found the digest")
}

fn digest_in(nodes: &Value, tagged: &str, with_digest: &str) -> Option<String> {
    let images = nodes["items"].as_array().into_iter().flatten();
    let mut images =
        images.flat_map(|node| node["status"]["images"].as_array().into_iter().flatten());
    let names = |image: &Value| -> Vec<String> {
        let names = image["names"].as_array().into_iter().flatten();
        names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    let image = images.find(|image| names(image).iter().any(|name| name == tagged))?;
    names(image)
        .iter()
        .find_map(|name| Some(name.strip_prefix(with_digest)?.to_owned()))
}

/// Returns the images in the pods of `orders`.
fn images(story: &Story) -> BTreeSet<String> {
    let image = |pod: &Value| {
        pod["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    pods(story).iter().map(image).collect()
}

/// Returns the member IDs and the PVCs.
fn lived_on(cluster: &Cluster<'_>) -> (BTreeMap<String, u64>, BTreeMap<String, String>) {
    (member_ids(cluster), claims(cluster))
}

#[test]
fn an_image_digest_restarts_each_member_once() {
    let story = Story::begin("digest");
    let operator = Operator::start(&story);
    let (earlier_checkout, later) = (digest_of(&story, "3.5.35"), digest_of(&story, "3.6.16"));
    assert_ne!(earlier_checkout, later);
    let cluster = create_orders(&story, &spec("3.5.35", 3), 3);
    let (workload, before) = (cluster.workload(), lived_on(&cluster));
    wait_idle(&operator);
    let edits = [
        (
            json!({ "image": { "digest": earlier_checkout } }),
            "3.5.35",
            format!("{REPOSITORY}:v3.5.35@{earlier_checkout}"),
        ),
        // Users who pin digests change both at once.
        (
            json!({ "version": "3.6.16", "image": { "digest": later } }),
            "3.6.16",
            format!("{REPOSITORY}:v3.6.16@{later}"),
        ),
        (
            json!({ "image": { "digest": null } }),
            "3.6.16",
            format!("{REPOSITORY}:v3.6.16"),
        ),
    ];
    for (edit, version, image) in edits {
        let began = Instant::now();
        cluster.patch(&edit);
        wait_until_ok(&format!("all pods have {image}"), || {
            let now = images(&story);
            if now == BTreeSet::from([image.clone()]) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
        wait_converged(&story, &cluster, 3);
        wait_idle(&operator);
        assert_each_restarted_once(&operator.proxy().writes_since(began), 3);
        assert_eq!(cluster.status()["version"], version);
    }
    assert_eq!(lived_on(&cluster), before, "members or PVCs differ");
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_wrong_digest_stops_at_one_member_and_can_be_reverted() {
    let story = Story::begin("digest-wrong");
    let operator = Operator::start(&story);
    let other = digest_of(&story, "3.5.35");
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, before) = (cluster.workload(), lived_on(&cluster));
    wait_idle(&operator);
    for mismatch in [format!("sha256:{}", "0".repeat(64)), other] {
        let healthy = uids(&cluster);
        cluster.patch(&json!({ "image": { "digest": mismatch } }));
        wait_until_ok("Degraded has the reason RolloutStopped", || {
            let degraded = cluster.condition("Degraded");
            if degraded.1 == "RolloutStopped" {
                Ok(())
            } else {
                Err(format!("{degraded:?}"))
            }
        });
        let same = uids(&cluster)
            .into_iter()
            .filter(|(name, uid)| healthy.get(name) == Some(uid))
            .count();
        assert!(same >= 2, "more than one member was restarted");
        cluster.patch(&json!({ "image": { "digest": null } }));
        wait_converged(&story, &cluster, 3);
        wait_idle(&operator);
        assert_eq!(
            images(&story),
            BTreeSet::from([format!("{REPOSITORY}:v3.6.16")])
        );
    }
    assert_eq!(lived_on(&cluster), before, "members or PVCs differ");
    workload.finish();
    cluster.wait_same_data();
}
