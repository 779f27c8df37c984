use bytes::Bytes;

use super::*;
use crate::prune::delete_backup;
use crate::testing::{Faulty, archive, back_up, back_up_at, bytes, lineage, place};

#[tokio::test]
async fn an_empty_store_has_no_backups() {
    assert_eq!(list(&archive(&Faulty::new())).await.unwrap(), []);
}

#[tokio::test]
async fn a_bare_store_is_listed_in_spite_of_garbage() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (first, manifest) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let mut other = place("b");
    other.lineage = LineagePath::new("etcd", "shop", "invoices", "11111111").unwrap();
    let (second, _) = back_up_at(&store, other, &bytes(2, 1000)).await.unwrap();
    for garbage in [
        "evenkeel-v1/readme.txt",
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/epochs/1/bases/x/manifest.json",
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/epochs/one/bases/20261118T112345Z-0-0123456789abcdef01234567/manifest.json",
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/tombstones/x",
        "evenkeel-v2/etcd/x",
        "other",
    ] {
        store
            .put(garbage, Bytes::from_static(b"garbage"))
            .await
            .unwrap();
    }
    let listed = list(&store).await.unwrap();
    let locations: Vec<_> = listed
        .iter()
        .map(|backup| backup.location.clone())
        .collect();
    assert_eq!(locations, [second.clone(), first.clone()]);
    assert_eq!(listed[1].state, BackupState::Complete(Box::new(manifest)));
    let own = list_lineage(&store, &lineage()).await.unwrap();
    assert_eq!(own.len(), 1);
}

#[tokio::test]
async fn states_of_backups_are_told_apart() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let mut locations = Vec::new();
    for attempt in ["a", "b", "c", "d", "e", "f"] {
        let (location, _) = back_up(&store, attempt, &bytes(1, 1000)).await.unwrap();
        locations.push(location);
    }
    store.delete(&locations[0].manifest()).await.unwrap();
    store.delete(&locations[1].data()).await.unwrap();
    store
        .put(&locations[2].manifest(), Bytes::from_static(b"{}"))
        .await
        .unwrap();
    store
        .put(
            &locations[3].manifest(),
            Bytes::from_static(b"{\"formatVersion\":2}"),
        )
        .await
        .unwrap();
    store
        .put(&locations[4].tombstone(), Bytes::from_static(b"{}\n"))
        .await
        .unwrap();
    delete_backup(&store, &locations[5]).await.unwrap();
    let listed = list(&store).await.unwrap();
    let state = |location: &BackupLocation| {
        listed
            .iter()
            .find(|backup| backup.location == *location)
            .map(|backup| &backup.state)
    };
    assert_eq!(state(&locations[0]), Some(&BackupState::Unfinished));
    assert!(matches!(
        state(&locations[1]),
        Some(BackupState::Damaged(_))
    ));
    assert!(matches!(
        state(&locations[2]),
        Some(BackupState::Damaged(_))
    ));
    assert!(matches!(
        state(&locations[3]),
        Some(BackupState::NotSupported(_))
    ));
    assert_eq!(state(&locations[4]), Some(&BackupState::BeingDeleted));
    assert_eq!(state(&locations[5]), None);
}
