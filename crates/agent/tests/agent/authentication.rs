//! Clusters that require authentication: the drill knows no password.

use etcd_client::Client;
use evenkeel_archive::tasks::{EtcdDrillTask, FailureReason, Task, TaskResult};
use serde_json::Value;

use crate::round_trip::{drill_task, fetch_task, manifest, manifest_file, write_manifest};
use crate::scene::Scene;

/// Creates the user root and one with no permission, and enables authentication.
async fn require_authentication(client: &mut Client) {
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("app", "secret", None).await.unwrap();
    client.auth_enable().await.unwrap();
}

pub(crate) fn drill_without_password(version: &str) {
    let scene = Scene::start(version);
    scene.fill(50, 100);
    scene
        .runtime
        .block_on(require_authentication(&mut scene.client.clone()));
    let (location, summary) = scene.snapshot("first");
    let (path, good) = (manifest_file(&scene), manifest(&scene));
    assert_eq!(good["verification"]["hasAuth"], true);
    assert_eq!(good["verification"]["users"], 2);

    let certificates = scene.path("certificates");
    let mut fetch = fetch_task(&scene, &location);
    fetch.certificates = Some(certificates.clone());
    scene.run(Task::Fetch(fetch.clone()));
    let data = scene.path("restored");
    scene.restore(&fetch.file, &data);
    let (_etcd, url) = scene.start_drilled(&data, &certificates);
    let drill = Task::DrillEtcd(EtcdDrillTask {
        location: location.clone(),
        endpoint: url.clone(),
        tls: Some(certificates),
        started_at: jiff::Timestamp::now().to_string(),
    });
    match scene.run(drill.clone()) {
        TaskResult::Proven { keys, .. } => assert_eq!(Some(keys), summary.keys),
        other => panic!("{other:?}"),
    }
    // The hash, the number of keys and the samples are compared as without authentication.
    let cases: [(&str, Value); 3] = [
        ("/verification/keys", 51.into()),
        ("/verification/hashKv/hash", 1.into()),
        (
            "/verification/samples/3/valueSha256",
            "00".repeat(32).into(),
        ),
    ];
    for (pointer, value) in cases {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        write_manifest(&path, changed);
        let (reason, message) = scene.fail(drill.clone());
        assert_eq!(reason, FailureReason::DataDiffers, "{message}");
    }
    write_manifest(&path, good);
    let (reason, message) = scene.fail(drill_task(&location, &url));
    assert_eq!(reason, FailureReason::NotSupported, "{message}");
}

#[test]
fn a_backup_of_a_cluster_with_authentication_is_proven() {
    drill_without_password("3.6.16");
}
