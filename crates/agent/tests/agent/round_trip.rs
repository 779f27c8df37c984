//! Snapshot, fetch, verification, restore, installation and drill, under write load.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, PutOptions};
use evenkeel_archive::manifest::Manifest;
use evenkeel_archive::tasks::{
    EtcdDrillTask, FailureReason, FetchTask, InstallTask, PruneTask, Task, TaskResult,
};
use evenkeel_lab::command::Cmd;
use serde_json::Value;

use crate::crc::hash_of_all_buckets;
use crate::scene::{Process, Scene, random};

/// Writes keys with history, leases, large values and a compaction.
pub(crate) async fn write_history(client: &mut Client) {
    let lease = client.lease_grant(3600, None).await.unwrap().id();
    for round in 0..4 {
        for key in 0..150 {
            let options = (key % 10 == 0).then(|| PutOptions::new().with_lease(lease));
            let value = random(key + round * 1000, 200);
            client
                .put(format!("history/{key}"), value, options)
                .await
                .unwrap();
        }
        for key in (0..150).skip(round as usize).step_by(7) {
            client.delete(format!("history/{key}"), None).await.unwrap();
        }
        if round == 1 {
            let last = client.get("history/1", None).await.unwrap();
            let revision = last.header().unwrap().revision();
            // One revision is a deletion, which 3.6 keeps if the history is compacted there.
            client.compact(revision, None).await.unwrap();
        }
    }
    for key in 0..4 {
        let value = random(key, 300_000);
        client
            .put(format!("large/{key}"), value, None)
            .await
            .unwrap();
    }
    // A compaction is finished in the background.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Runs `work` while another client writes.
fn under_load<T>(scene: &Scene, work: impl FnOnce() -> T) -> T {
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut client, flag) = (scene.client.clone(), Arc::clone(&is_over));
    let writer = scene.runtime.spawn(async move {
        let mut writes = 0_u64;
        while !flag.load(Ordering::Relaxed) {
            let key = format!("load/{}", writes % 500);
            client
                .put(key.clone(), random(writes, 500), None)
                .await
                .unwrap();
            if writes.is_multiple_of(9) {
                client.delete(key, None).await.unwrap();
            }
            writes += 1;
        }
        writes
    });
    std::thread::sleep(Duration::from_millis(200));
    let result = work();
    is_over.store(true, Ordering::Relaxed);
    assert!(scene.runtime.block_on(writer).unwrap() > 10);
    result
}

pub(crate) fn fetch_task(scene: &Scene, location: &str) -> FetchTask {
    FetchTask {
        location: location.to_owned(),
        file: scene.path("snapshot.db"),
        engine: "etcd".to_owned(),
        version: scene.version.clone(),
        space_percent: 220,
        certificates: None,
    }
}

pub(crate) fn drill_task(location: &str, url: &str) -> Task {
    Task::DrillEtcd(EtcdDrillTask {
        location: location.to_owned(),
        endpoint: url.to_owned(),
        tls: None,
        started_at: jiff::Timestamp::now().to_string(),
    })
}

/// Fetches, restores and installs a backup, and starts etcd on it.
fn restored(scene: &Scene, location: &str) -> (Process, String) {
    let fetch = fetch_task(scene, location);
    assert_eq!(scene.run(Task::Fetch(fetch.clone())), TaskResult::Done);
    let install = InstallTask {
        from: scene.path("restoring"),
        to: scene.path("restored"),
        remove: vec![fetch.file.clone()],
    };
    scene.restore(&fetch.file, &install.from);
    assert_eq!(scene.run(Task::Install(install.clone())), TaskResult::Done);
    assert!(!fetch.file.exists());
    scene.start_restored(&install.to)
}

pub(crate) fn round_trip(version: &str) {
    let scene = Scene::start(version);
    scene
        .runtime
        .block_on(write_history(&mut scene.client.clone()));
    let (location, summary) = under_load(&scene, || scene.snapshot("first"));
    assert_eq!(summary.engine_version, version);
    // The next run of the same attempt finds the backup.
    assert_eq!(scene.snapshot("first"), (location.clone(), summary.clone()));

    let fetch = fetch_task(&scene, &location);
    scene.run(Task::Fetch(fetch.clone()));
    let status = Cmd::new(scene.programs.join("etcdutl"))
        .args(["snapshot", "status", "--write-out", "json"])
        .arg(&fetch.file)
        .run()
        .unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(summary.position, format!("revision {}", status["revision"]));
    // `etcdutl` of 3.5 counts other items than keys.
    if !version.starts_with("3.5.") {
        assert_eq!(summary.keys, status["totalKey"].as_u64());
    }
    assert_eq!(summary.size - 32, status["totalSize"].as_u64().unwrap());
    let hash = hash_of_all_buckets(&std::fs::File::open(&fetch.file).unwrap());
    assert_eq!(u64::from(hash), status["hash"].as_u64().unwrap());
    let manifest = manifest(&scene);
    assert!(
        manifest["verification"]["hashKv"]["hash"].is_u64(),
        "{manifest}"
    );
    assert_eq!(
        manifest["verification"]["samples"]
            .as_array()
            .unwrap()
            .len(),
        32
    );
    assert_eq!(manifest["verification"]["leases"], 1);

    let (_etcd, url) = restored(&scene, &location);
    match scene.run(drill_task(&location, &url)) {
        TaskResult::Proven { keys, .. } => assert_eq!(Some(keys), summary.keys),
        other => panic!("{other:?}"),
    }
    // The same etcd with one more write is not the backup any more.
    scene.runtime.block_on(async {
        let mut client = Client::connect([&url], None).await.unwrap();
        client.put("another", "value", None).await.unwrap();
    });
    // With leases a higher revision is no difference, so the data at the manifest's revision is still proven.
    assert!(matches!(
        scene.run(drill_task(&location, &url)),
        TaskResult::Proven { .. }
    ));
}

pub(crate) fn manifest_file(scene: &Scene) -> PathBuf {
    let mut files = scene.stored_files();
    files.retain(|path| path.ends_with("manifest.json"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

pub(crate) fn manifest(scene: &Scene) -> Value {
    serde_json::from_slice(&std::fs::read(manifest_file(scene)).unwrap()).unwrap()
}

/// Writes a changed manifest with a right checksum.
pub(crate) fn write_manifest(path: &Path, mut manifest: Value) {
    manifest.as_object_mut().unwrap().remove("sha256");
    let manifest: Manifest = serde_json::from_value(manifest).unwrap();
    std::fs::write(path, manifest.encode().unwrap()).unwrap();
}

#[test]
fn a_snapshot_under_load_is_restored_and_proven() {
    round_trip("3.6.16");
}

#[test]
fn a_drill_reports_each_difference() {
    let scene = Scene::start("3.6.16");
    scene.fill(50, 100);
    let (location, _) = scene.snapshot("first");
    let (_etcd, url) = restored(&scene, &location);
    let (path, good) = (manifest_file(&scene), manifest(&scene));
    let cases: [(&str, Value, &str); 4] = [
        ("/verification/keys", 51.into(), "50 keys instead of 51"),
        (
            "/verification/hashKv/hash",
            1.into(),
            "the hash over all keys",
        ),
        (
            "/verification/samples/3/valueSha256",
            "00".repeat(32).into(),
            "1 sampled keys have another value",
        ),
        (
            "/verification/samples/3/keySha256",
            "00".repeat(32).into(),
            "1 sampled keys are missing",
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        write_manifest(&path, changed);
        let (reason, message) = scene.fail(drill_task(&location, &url));
        assert_eq!(reason, FailureReason::DataDiffers, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    write_manifest(&path, good.clone());
    scene.run(drill_task(&location, &url));
    scene.runtime.block_on(async {
        let mut client = Client::connect([&url], None).await.unwrap();
        client.put("another", "value", None).await.unwrap();
    });
    let (reason, message) = scene.fail(drill_task(&location, &url));
    assert_eq!(reason, FailureReason::DataDiffers, "{message}");
    assert!(message.contains("its revision is"), "{message}");
}

#[test]
fn a_damaged_backup_is_never_fetched() {
    let scene = Scene::start("3.6.16");
    scene.fill(50, 1000);
    let (location, _) = scene.snapshot("first");
    let fetch = fetch_task(&scene, &location);
    let fails = |expected: FailureReason, fetch: &FetchTask| {
        let (reason, message) = scene.fail(Task::Fetch(fetch.clone()));
        assert_eq!(reason, expected, "{message}");
        assert!(!fetch.file.exists());
        message
    };
    // The manifest says another revision than the data has.
    let (path, good) = (manifest_file(&scene), manifest(&scene));
    let mut changed = good.clone();
    changed["verification"]["revision"] = 7.into();
    write_manifest(&path, changed);
    let message = fails(FailureReason::BackupDamaged, &fetch);
    assert!(message.contains("instead of 7"), "{message}");
    // A newer format, another engine, a newer version, not enough space.
    let mut changed = good.clone();
    changed["formatVersion"] = 99.into();
    write_manifest(&path, changed);
    fails(FailureReason::NotSupported, &fetch);
    write_manifest(&path, good.clone());
    let mut other = fetch.clone();
    other.engine = "postgres".to_owned();
    fails(FailureReason::NotSupported, &other);
    let mut other = fetch.clone();
    other.version = "3.5.35".to_owned();
    fails(FailureReason::NotSupported, &other);
    let mut other = fetch.clone();
    other.space_percent = u32::MAX;
    fails(FailureReason::NoSpace, &other);
    let mut other = fetch.clone();
    other.location.pop();
    fails(FailureReason::InvalidRequest, &other);
    // One changed byte of the data.
    let data = path.with_file_name("data.zst");
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    fails(FailureReason::BackupDamaged, &fetch);
}

#[test]
fn the_store_is_checked_listed_and_pruned() {
    let scene = Scene::start("3.6.16");
    scene.fill(10, 100);
    let checked = scene.run(Task::CheckStore);
    let conditional_writes = true;
    assert_eq!(checked, TaskResult::StoreChecked { conditional_writes });
    let (first, summary) = scene.snapshot("first");
    let (second, _) = scene.snapshot("second");
    assert_ne!(first, second);
    let (location, read) = (
        first.clone(),
        Task::ReadManifest {
            location: first.clone(),
        },
    );
    assert_eq!(scene.run(read), TaskResult::Backup { location, summary });
    let list = || {
        let lines = scene.agent(&scene.request(Task::List)).run().unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    let listed = list();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.iter().all(|line| line["state"] == "Complete"));
    assert!(listed.iter().any(|line| line["location"] == first.as_str()));
    let prune = PruneTask {
        engine: "etcd".to_owned(),
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
        lineage: "k7f2x".to_owned(),
        delete: vec![first.clone()],
    };
    let pruned = scene.run(Task::Prune(prune));
    assert_eq!(
        pruned,
        TaskResult::Pruned {
            deleted: 1,
            locked: Vec::new(),
            locked_until: None,
        }
    );
    let listed = list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["location"], second.as_str());
    let (reason, _) = scene.fail(Task::ReadManifest { location: first });
    assert_eq!(reason, FailureReason::BackupNotFound);
}

#[test]
fn a_drill_waits_for_etcd_until_its_deadline() {
    let scene = Scene::start("3.6.16");
    scene.fill(3, 10);
    let (location, _) = scene.snapshot("first");
    let mut request = scene.request(drill_task(&location, "http://127.0.0.1:9"));
    request.deadline_seconds = 1;
    let begin = Instant::now();
    let (reason, _) = scene.fail_request(&request);
    assert_eq!(reason, FailureReason::DeadlineExceeded);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let (reason, _) = scene.fail(drill_task(&location, "http://10.0.0.1:2379"));
    assert_eq!(reason, FailureReason::InvalidRequest);
}

/// Returns true if the work directory of the agent is empty.
pub(crate) fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}
