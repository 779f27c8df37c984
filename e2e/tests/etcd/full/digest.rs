//! An image that is named by its digest: the very image that a registry may not exchange behind a tag.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{formed, ids, until_right};
use crate::middle::{comes_to_rest, ends_well};
use crate::rolls::{each_was_restarted_once, pods};
use crate::upgrade::{claims, spec, uids};

const REPOSITORY: &str = "gcr.io/etcd-development/etcd";

/// The digest of an etcd's image, as nodes tell it.
fn digest_of(story: &Story, version: &str) -> String {
    let (tagged, with_digest) = (format!("{REPOSITORY}:v{version}"), format!("{REPOSITORY}@"));
    let mut found = None;
    // Nodes tell of their images now and then.
    story.eventually(&format!("nodes tell the digest of {tagged}"), || {
        found = digest_in(&story.get(&["nodes"]), &tagged, &with_digest);
        found.is_some()
    });
    found.expect("it was found")
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

/// The images that pods of `orders` are to run.
fn images(story: &Story) -> BTreeSet<String> {
    let image = |pod: &Value| {
        pod["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    pods(story).iter().map(image).collect()
}

/// Who the members are, and on which claims.
fn lived_on(cluster: &Cluster<'_>) -> (BTreeMap<String, u64>, BTreeMap<String, String>) {
    (ids(cluster), claims(cluster))
}

#[test]
fn an_image_by_its_digest_alone_and_together_with_a_version_restarts_each_member_once() {
    let story = Story::begin("digest");
    let operator = Operator::start(&story);
    let (earlier, later) = (digest_of(&story, "3.5.35"), digest_of(&story, "3.6.16"));
    assert_ne!(earlier, later);
    let cluster = formed(&story, &spec("3.5.35", 3), 3);
    let (workload, before) = (cluster.workload(), lived_on(&cluster));
    comes_to_rest(&operator);
    let edits = [
        (
            json!({ "image": { "digest": earlier } }),
            "3.5.35",
            format!("{REPOSITORY}:v3.5.35@{earlier}"),
        ),
        // Whoever pins digests changes both at once.
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
        until_right(&format!("all run {image}"), || {
            let now = images(&story);
            if now == BTreeSet::from([image.clone()]) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
        ends_well(&story, &cluster, 3);
        comes_to_rest(&operator);
        each_was_restarted_once(&operator.proxy().writes_since(began), 3);
        assert_eq!(cluster.status()["version"], version);
    }
    assert_eq!(
        lived_on(&cluster),
        before,
        "the same members, on the same volumes"
    );
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_digest_that_cannot_be_had_or_is_of_another_version_stops_at_one_member_and_can_be_taken_back()
{
    let story = Story::begin("digest-wrong");
    let operator = Operator::start(&story);
    let other = digest_of(&story, "3.5.35");
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, before) = (cluster.workload(), lived_on(&cluster));
    comes_to_rest(&operator);
    for wrong in [format!("sha256:{}", "0".repeat(64)), other] {
        let healthy = uids(&cluster);
        cluster.patch(&json!({ "image": { "digest": wrong } }));
        until_right("it stops, and says so", || {
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
        assert!(same >= 2, "the other two go on as they were");
        cluster.patch(&json!({ "image": { "digest": null } }));
        ends_well(&story, &cluster, 3);
        comes_to_rest(&operator);
        assert_eq!(
            images(&story),
            BTreeSet::from([format!("{REPOSITORY}:v3.6.16")])
        );
    }
    assert_eq!(
        lived_on(&cluster),
        before,
        "the same members, on the same volumes"
    );
    workload.finish();
    cluster.holds_the_same_everywhere();
}
