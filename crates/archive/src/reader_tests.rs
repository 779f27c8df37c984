use std::sync::Arc;

use object_store::ObjectStore;

use super::*;
use crate::testing::{Faulty, archive, back_up, bytes};

#[tokio::test]
async fn a_missing_backup_is_not_found() {
    let store = archive(&Faulty::new());
    let location = "evenkeel-v1/etcd/shop/orders/7f3a9c01/epochs/1/bases/20261118T112345Z-0-0123456789abcdef01234567";
    let error = read_manifest(&store, location).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::BackupNotFound);
    let error = read_manifest(&store, "../../x").await.unwrap_err();
    assert_eq!(error.reason, FailureReason::InvalidRequest);
}

#[tokio::test]
async fn a_manifest_in_another_place_is_rejected() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    for (from, to) in [
        ("/orders/", "/invoices/"),
        ("/shop/", "/other/"),
        ("/7f3a9c01/", "/00000000/"),
        ("/epochs/1/", "/epochs/2/"),
        ("/etcd/", "/postgres/"),
    ] {
        let elsewhere = BackupLocation::parse(&location.to_string().replace(from, to)).unwrap();
        for (from, to) in [
            (location.manifest(), elsewhere.manifest()),
            (location.data(), elsewhere.data()),
        ] {
            objects
                .copy_opts(
                    &store.path(&from),
                    &store.path(&to),
                    object_store::CopyOptions::default(),
                )
                .await
                .unwrap();
        }
        let error = read_manifest(&store, &elsewhere.to_string())
            .await
            .unwrap_err();
        assert_eq!(error.reason, FailureReason::BackupDamaged, "{to}");
    }
}

#[tokio::test]
async fn a_fetch_replaces_a_partial_file_of_an_earlier_one() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let data = bytes(1, 5000);
    let (location, _) = back_up(&store, "a", &data).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(".db.partial"), b"rest").unwrap();
    let file = directory.path().join("db");
    fetch(&store, &location.to_string(), &file, |_, _| {})
        .await
        .unwrap();
    assert!(fs::read(&file).unwrap() == data);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_cancelled_fetch_leaves_nothing() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, _) = back_up(&store, "a", &bytes(1, 8 << 20)).await.unwrap();
    let throttled = object_store::throttle::ThrottledStore::new(
        Arc::clone(&objects),
        object_store::throttle::ThrottleConfig {
            wait_get_per_byte: std::time::Duration::from_micros(1),
            ..object_store::throttle::ThrottleConfig::default()
        },
    );
    let slow = ArchiveStore::on(Arc::new(throttled), "prod/eu1").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("db");
    let location = location.to_string();
    let fetching = fetch(&slow, &location, &file, |_, _| {});
    tokio::time::timeout(std::time::Duration::from_millis(100), fetching)
        .await
        .unwrap_err();
    for _ in 0..100 {
        if fs::read_dir(directory.path()).unwrap().count() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a file remains");
}

#[tokio::test]
async fn a_fetch_into_a_missing_directory_fails() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("missing/db");
    let error = fetch(&store, &location.to_string(), &file, |_, _| {})
        .await
        .unwrap_err();
    assert_eq!(error.reason, FailureReason::Other, "{error}");
}
