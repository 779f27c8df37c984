use super::*;
use crate::list::list;
use crate::tasks::FailureReason;
use crate::testing::{Faulty, archive, back_up, back_up_at, bytes, lineage, place};

fn task(delete: &[&BackupLocation]) -> PruneTask {
    let lineage = lineage();
    PruneTask {
        engine: lineage.engine().to_owned(),
        namespace: lineage.namespace().to_owned(),
        name: lineage.name().to_owned(),
        lineage: lineage.lineage().to_owned(),
        delete: delete.iter().map(|location| location.to_string()).collect(),
    }
}

#[tokio::test]
async fn requested_backups_are_deleted_and_others_stay() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (first, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let (second, _) = back_up(&store, "b", &bytes(1, 1000)).await.unwrap();
    let pruned = prune(&store, &task(&[&first, &first]), Timestamp::now())
        .await
        .unwrap();
    assert_eq!(
        pruned,
        Pruned {
            deleted: 1,
            ..Pruned::default()
        }
    );
    let keys = objects.keys().await;
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_eq!(list(&store).await.unwrap()[0].location, second);
    // A backup that does not exist any more counts as deleted.
    let pruned = prune(&store, &task(&[&first]), Timestamp::now())
        .await
        .unwrap();
    assert_eq!(pruned.deleted, 1);
}

#[tokio::test]
async fn one_backup_of_another_lineage_prevents_all_deletions() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (own, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let mut elsewhere = place("b");
    elsewhere.lineage = LineagePath::new("etcd", "shop", "orders", "00000000").unwrap();
    let (other, _) = back_up_at(&store, elsewhere, &bytes(1, 1000))
        .await
        .unwrap();
    let before = objects.keys().await;
    let error = prune(&store, &task(&[&own, &other]), Timestamp::now())
        .await
        .unwrap_err();
    assert_eq!(error.reason, FailureReason::InvalidRequest);
    let mut invalid = task(&[&own]);
    invalid.delete.push("evenkeel-v1/../x".to_owned());
    prune(&store, &invalid, Timestamp::now()).await.unwrap_err();
    assert_eq!(objects.keys().await, before);
}

#[tokio::test]
async fn locked_backups_stay_complete() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    objects.deny_deletes_of("");
    let pruned = prune(&store, &task(&[&location]), Timestamp::now())
        .await
        .unwrap();
    assert_eq!(
        pruned,
        Pruned {
            locked: vec![0],
            ..Pruned::default()
        }
    );
    crate::reader::read_manifest(&store, &location.to_string())
        .await
        .unwrap();
    objects.allow_deletes();
    let pruned = prune(&store, &task(&[&location]), Timestamp::now())
        .await
        .unwrap();
    assert_eq!(pruned.deleted, 1);
    assert_eq!(objects.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn other_backups_are_deleted_although_one_is_locked() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let mut places = Vec::new();
    for name in ["a", "b", "c", "d"] {
        places.push(back_up(&store, name, &bytes(1, 1000)).await.unwrap().0);
    }
    let all: Vec<_> = places.iter().collect();
    objects.deny_deletes_of(&places[1].manifest());
    // The data of the third is locked, so that its deletion ends without its manifest.
    objects.deny_deletes_of(&places[2].data());
    let pruned = prune(&store, &task(&all), Timestamp::now()).await.unwrap();
    assert_eq!((pruned.deleted, pruned.locked), (3, vec![1]));
    let states = list(&store).await.unwrap();
    let complete = states
        .iter()
        .filter(|it| matches!(it.state, crate::list::BackupState::Complete(_)));
    assert_eq!(
        complete.map(|it| &it.location).collect::<Vec<_>>(),
        [&places[1]]
    );
    objects.allow_deletes();
    let pruned = prune(&store, &task(&[]), Timestamp::now()).await.unwrap();
    assert_eq!(pruned.cleaned, 1, "the data of the third");
    assert_eq!(objects.keys().await.len(), 2);
}

#[tokio::test]
async fn data_without_a_manifest_is_deleted_after_two_days() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let mut elsewhere = place("b");
    elsewhere.lineage = LineagePath::new("etcd", "shop", "orders", "00000000").unwrap();
    let (other, _) = back_up_at(&store, elsewhere, &bytes(1, 1000))
        .await
        .unwrap();
    for location in [&location, &other] {
        store.delete(&location.manifest()).await.unwrap();
    }
    let soon = Timestamp::from_second(Timestamp::now().as_second() + 47 * 3600).unwrap();
    assert_eq!(
        prune(&store, &task(&[]), soon).await.unwrap(),
        Pruned::default()
    );
    let later = Timestamp::from_second(Timestamp::now().as_second() + 49 * 3600).unwrap();
    assert_eq!(prune(&store, &task(&[]), later).await.unwrap().cleaned, 1);
    let keys = objects.keys().await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].contains("/00000000/"));
}

#[test]
fn staged_files_of_crashed_uploads_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("epochs/1/bases/x");
    fs::create_dir_all(&base).unwrap();
    for name in ["data.zst#1", "data.zst", "data.zst#x", "other#1"] {
        fs::write(base.join(name), b"x").unwrap();
    }
    remove_staged_files(directory.path(), 3600);
    assert_eq!(entries(&base).len(), 4);
    std::thread::sleep(Duration::from_millis(20));
    remove_staged_files(directory.path(), 0);
    assert_eq!(entries(&base).len(), 3);
    assert!(!base.join("data.zst#1").exists());
}
