use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::check::check;
use crate::list::{BackupState, list};
use crate::prune::prune;
use crate::reader::fetch;
use crate::tasks::PruneTask;
use crate::testing::{Faulty, back_up, bytes, lineage};

const DEADLINE: Duration = Duration::from_secs(60);

fn open(path: &FilePath) -> Result<ArchiveStore, StoreError> {
    ArchiveStore::open(&StoreConfig::Directory(path.to_owned()), DEADLINE)
}

/// Returns all files and directories below a path.
fn tree(path: &FilePath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found
}

#[tokio::test]
async fn a_directory_holds_backups_from_write_to_prune() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    assert!(check(&store).await.unwrap().conditional_writes);
    assert_eq!(tree(directory.path()), Vec::<PathBuf>::new());

    let data = bytes(1, 20 << 20);
    let (location, manifest) = back_up(&store, "a", &data).await.unwrap();
    let path = directory.path().join(location.to_string());
    let stored = std::fs::read(path.join("data.zst")).unwrap();
    assert_eq!(stored.len() as u64, manifest.stored.size);

    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("db");
    fetch(&store, &location.to_string(), &file, |_, _| {})
        .await
        .unwrap();
    assert!(std::fs::read(&file).unwrap() == data);

    // Files of other programs, unfinished uploads and files with impossible names do not disturb a listing.
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    std::fs::write(path.join("data.zst#1"), b"x").unwrap();
    std::fs::write(directory.path().join("evenkeel-v1/no te%.txt"), b"x").unwrap();
    let listed = list(&store).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(matches!(listed[0].state, BackupState::Complete(_)));

    let lineage = lineage();
    let task = PruneTask {
        engine: lineage.engine().to_owned(),
        namespace: lineage.namespace().to_owned(),
        name: lineage.name().to_owned(),
        lineage: lineage.lineage().to_owned(),
        delete: vec![location.to_string()],
    };
    let pruned = prune(&store, &task, Timestamp::now()).await.unwrap();
    assert_eq!(pruned.deleted, 1);
    assert_eq!(list(&store).await.unwrap(), []);
}

/// Returns a store whose directories cannot be synchronized after a deletion.
fn without_sync(store: &ArchiveStore) -> ArchiveStore {
    let mut store = store.clone();
    store.directory.as_mut().unwrap().sync = |_| Err(io::ErrorKind::Other.into());
    store
}

#[tokio::test]
async fn data_stays_until_the_deletion_of_its_manifest_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let (location, _) = back_up(&store, "a", b"data").await.unwrap();
    let data = directory.path().join(location.data());
    // The second time, the manifest does not exist any more, and its deletion is still not on the disk.
    for attempt in 1..=2 {
        let error = crate::prune::delete_backup(&without_sync(&store), &location).await;
        let message = error.unwrap_err().message;
        assert!(message.contains("synchronize the deletion of"), "{message}");
        assert!(data.exists(), "attempt {attempt}");
    }
    crate::prune::delete_backup(&store, &location)
        .await
        .unwrap();
    assert!(!data.exists());
}

#[test]
fn writes_on_a_volume_are_synchronized() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    assert!(format!("{:?}", store.objects).contains("fsync: true"));
    sync_directory(directory.path()).unwrap();
    sync_directory(&directory.path().join("missing")).unwrap();
}

#[tokio::test]
async fn an_aborted_upload_leaves_no_file_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let mut writer = crate::writer::BackupWriter::begin(&store, crate::testing::place("a"))
        .await
        .unwrap();
    writer.write(&bytes(1, 20 << 20)).await.unwrap();
    writer.abort().await;
    assert!(tree(directory.path()).iter().all(|path| path.is_dir()));
}

#[test]
fn a_missing_directory_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(&directory.path().join("missing")).unwrap_err();
    assert_eq!(error.reason, FailureReason::BucketNotFound);
    assert!(error.message.contains("spec.volume.path"), "{error}");
}

#[tokio::test]
async fn a_directory_that_is_a_file_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    // A file in the way of the layout: root ignores permissions, so they cannot be tested here.
    std::fs::write(directory.path().join("evenkeel-v1"), b"x").unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let error = back_up(&store, "a", b"data").await.unwrap_err();
    assert_eq!(error.reason, FailureReason::StoreFailed, "{error}");
}

#[test]
fn only_paths_are_prefixes() {
    for prefix in ["", "a", "prod/eu1", "a.b/c_d/E-1"] {
        assert_eq!(valid_prefix(prefix).unwrap(), prefix);
    }
    for prefix in [
        "/", "/a", "a/", "a//b", "..", "a/../b", ".a", "a b", "a%2fb", "ä",
    ] {
        assert!(valid_prefix(prefix).is_err(), "{prefix}");
    }
    assert!(valid_prefix(&"a/".repeat(200)).is_err());
}

#[test]
fn keys_are_relative_to_the_prefix() {
    let store = ArchiveStore::on(Faulty::new(), "prod/eu1").unwrap();
    let path = store.path("evenkeel-v1/x");
    assert_eq!(path.as_ref(), "prod/eu1/evenkeel-v1/x");
    assert_eq!(store.key(&path), Some("evenkeel-v1/x"));
    assert_eq!(store.key(&Path::from("prod/eu10/x")), None);
    assert_eq!(store.key(&Path::from("prod/eu2/x")), None);
}

#[tokio::test]
async fn objects_are_created_once() {
    for objects in [Faulty::new(), Faulty::without_conditional_writes()] {
        let store = ArchiveStore::on(objects, "").unwrap();
        let create = |bytes: &'static [u8]| store.create("x", Bytes::from_static(bytes));
        assert_eq!(create(b"1").await.unwrap(), Created::New);
        assert_eq!(create(b"2").await.unwrap(), Created::Existed);
        assert_eq!(store.get_small("x", 10).await.unwrap().unwrap(), "1");
    }
}

#[tokio::test]
async fn a_conditional_write_that_conflicts_is_repeated() {
    let objects = Faulty::new();
    let store = crate::testing::archive(&objects);
    objects.conflict(2);
    let bytes = || Bytes::from_static(b"1");
    assert_eq!(store.create("x", bytes()).await.unwrap(), Created::New);
    objects.conflict(1);
    assert_eq!(store.create("x", bytes()).await.unwrap(), Created::Existed);
}

#[tokio::test]
async fn objects_larger_than_the_limit_are_not_read() {
    let store = ArchiveStore::on(Faulty::new(), "").unwrap();
    store.put("x", Bytes::from(vec![0; 11])).await.unwrap();
    assert_eq!(
        store.get_small("x", 10).await.unwrap_err().reason,
        FailureReason::BackupDamaged
    );
    assert!(store.get_small("x", 11).await.unwrap().is_some());
    assert_eq!(store.get_small("y", 11).await.unwrap(), None);
}
