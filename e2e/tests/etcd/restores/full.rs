//! In-place restores of clusters without a quorum, and of backups that cannot be restored.

use evenkeel_e2e::Story;
use evenkeel_e2e::s3::S3Server;
use serde_json::json;

use super::{apply_restore, cluster_id, keys, pod_uids, wait_phase};
use crate::assertions::{CLUSTER_LIMIT, create_orders, wait_healthy};
use crate::backup::{apply_backup, start_operator, take_backup};
use crate::interrupts::spec;

#[test]
fn a_cluster_that_has_lost_most_volumes_is_restored_in_place() {
    let story = Story::begin("lost-most");
    let server = S3Server::start(&story);
    let _operator = start_operator(&story);
    story.apply(&server.access().store_manifest("prod"));
    let cluster = create_orders(&story, &spec(3), 3);
    cluster.etcdctl(&["put", "before", "1"]);
    take_backup(&story, "good", "orders", "prod");
    let old_id = cluster_id(&cluster);
    let lost: Vec<_> = cluster.pods().into_iter().take(2).collect();
    for pod in &lost {
        story.kubectl(&["delete", "pvc", &pod.claim, "--wait=false"]);
    }
    let names: Vec<_> = lost.iter().map(|pod| pod.name.as_str()).collect();
    story.kubectl(
        &[
            &["delete", "pod", "--force", "--grace-period=0"],
            names.as_slice(),
        ]
        .concat(),
    );
    story.within(CLUSTER_LIMIT, "the quorum is lost", || {
        cluster.condition("Ready").0 == "False"
    });
    apply_restore(&story, "back", json!({ "replaces": old_id }));
    wait_phase(&story, "back", "Complete");
    wait_healthy(&story, &cluster, 3);
    assert_eq!(keys(&cluster), ["before"]);
    cluster.wait_same_data();
}

#[test]
fn a_restore_that_cannot_begin_changes_nothing() {
    let story = Story::begin("no-restore");
    let server = S3Server::start(&story);
    let _operator = start_operator(&story);
    story.apply(&server.access().store_manifest("prod"));
    let cluster = create_orders(&story, &spec(1), 1);
    cluster.etcdctl(&["put", "before", "1"]);
    let (id, pods) = (cluster_id(&cluster), pod_uids(&cluster));
    apply_restore(&story, "back", json!({ "replaces": id }));
    let pending = |reason: &str| {
        story.within(CLUSTER_LIMIT, reason, || {
            let restore = story.get(&["ekr", "back"]);
            let conditions = restore["status"]["conditions"].as_array().cloned();
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["reason"] == reason)
        });
    };
    pending("BackupNotFound");
    // The backup has another place than its manifest says.
    apply_backup(
        &story,
        "good",
        json!({"cluster": {"name": "orders"}, "store": "prod", "existing": "nowhere/at/all"}),
    );
    pending("BackupFailed");
    assert_eq!(
        (cluster_id(&cluster), pod_uids(&cluster)),
        (id.clone(), pods)
    );
    // Deleted and created again with a complete backup, it runs.
    story.kubectl(&["delete", "ekr", "back"]);
    story.kubectl(&["delete", "ekb", "good"]);
    take_backup(&story, "good", "orders", "prod");
    cluster.etcdctl(&["put", "after", "2"]);
    apply_restore(&story, "back", json!({ "replaces": id }));
    wait_phase(&story, "back", "Complete");
    wait_healthy(&story, &cluster, 1);
    assert_eq!(keys(&cluster), ["before"]);
}
