use super::*;
use crate::list::{BackupState, list};
use crate::reader::fetch;
use crate::testing::{Faulty, archive, back_up, back_up_at, bytes, draft, place};

#[tokio::test]
async fn a_backup_of_several_parts_is_fetched_unchanged() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let data = bytes(1, 40 << 20);
    let (location, manifest) = back_up(&store, "a", &data).await.unwrap();
    assert!(
        manifest.stored.size > 2 * PART_BYTES as u64,
        "{}",
        manifest.stored.size
    );
    assert_eq!(manifest.plain.size, data.len() as u64);
    assert_eq!(manifest.plain.sha256, hex(&Sha256::digest(&data)));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("db");
    let mut progress = Vec::new();
    let fetched = fetch(&store, &location.to_string(), &file, |done, total| {
        progress.push((done, total));
    })
    .await
    .unwrap();
    assert_eq!(fetched, manifest);
    assert!(std::fs::read(&file).unwrap() == data);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(
        progress.last(),
        Some(&(manifest.stored.size, manifest.stored.size))
    );
}

#[tokio::test]
async fn data_of_any_size_is_stored() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let directory = tempfile::tempdir().unwrap();
    for size in [1, 31, 32, 512, 131_071, 131_072, 131_073, 1 << 20] {
        let data = bytes(size as u64, size);
        let (location, _) = back_up(&store, &format!("a{size}"), &data).await.unwrap();
        let file = directory.path().join("db");
        fetch(&store, &location.to_string(), &file, |_, _| {})
            .await
            .unwrap();
        assert!(std::fs::read(&file).unwrap() == data, "{size}");
    }
}

#[tokio::test]
async fn an_empty_backup_is_rejected_and_leaves_nothing() {
    let objects = Faulty::new();
    let error = back_up(&archive(&objects), "a", &[]).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::InvalidRequest);
    assert_eq!(objects.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_aborted_backup_leaves_nothing() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let mut writer = BackupWriter::begin(&store, place("a")).await.unwrap();
    writer.write(&bytes(1, 10 << 20)).await.unwrap();
    assert_eq!(writer.sizes().0, 10 << 20);
    writer.abort().await;
    assert_eq!(objects.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_second_run_of_an_attempt_returns_the_first_backup() {
    let objects = Faulty::new();
    let store = archive(&objects);
    assert_eq!(find_attempt(&store, &place("a")).await.unwrap(), None);
    let first = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    let again = back_up(&store, "a", &bytes(2, 2000)).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(
        find_attempt(&store, &place("a")).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(objects.keys().await.len(), 2);
    let other = back_up(&store, "b", &bytes(2, 2000)).await.unwrap();
    assert_ne!(other.0, first.0);
    // The same name in another epoch is another attempt.
    let mut elsewhere = place("a");
    elsewhere.epoch = 2;
    let third = back_up_at(&store, elsewhere, &bytes(2, 2000))
        .await
        .unwrap();
    assert_ne!(third.0, first.0);
    assert_eq!(list(&store).await.unwrap().len(), 3);
}

#[tokio::test]
async fn of_two_simultaneous_runs_one_backup_remains() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let mut first = BackupWriter::begin(&store, place("a")).await.unwrap();
    let mut second = BackupWriter::begin(&store, place("a")).await.unwrap();
    first.write(&bytes(1, 1000)).await.unwrap();
    second.write(&bytes(2, 1000)).await.unwrap();
    let (a, b) = tokio::join!(first.commit(draft()), second.commit(draft()));
    let complete: Vec<_> = list(&store)
        .await
        .unwrap()
        .into_iter()
        .filter(|backup| matches!(backup.state, BackupState::Complete(_)))
        .map(|backup| backup.location)
        .collect();
    let results = [a.unwrap().0, b.unwrap().0];
    assert!(
        results.iter().all(|location| complete.contains(location)),
        "{results:?} {complete:?}"
    );
}

#[tokio::test]
async fn a_damaged_backup_does_not_count_as_the_attempt() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (first, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    store
        .put(&first.manifest(), Bytes::from_static(b"{}"))
        .await
        .unwrap();
    let (second, _) = back_up(&store, "a", &bytes(1, 1000)).await.unwrap();
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_draft_that_no_reader_accepts_is_rejected() {
    let objects = Faulty::new();
    let store = archive(&objects);
    for change in [
        (|draft: &mut ManifestDraft| draft.member = "../x".to_owned()) as fn(&mut ManifestDraft),
        |draft| draft.engine_version = String::new(),
        |draft| draft.position_text = "x".repeat(1000),
        |draft| draft.resource = Value::String("x".repeat(2 << 20)),
    ] {
        let mut draft = draft();
        change(&mut draft);
        let mut writer = BackupWriter::begin(&store, place("a")).await.unwrap();
        writer.write(b"data").await.unwrap();
        let error = writer.commit(draft).await.unwrap_err();
        assert_eq!(error.reason, FailureReason::InvalidRequest, "{error}");
        assert_eq!(objects.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_same_plain_data_gives_the_documented_frame() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let data = bytes(9, 300_000);
    let (location, manifest) = back_up(&store, "a", &data).await.unwrap();
    let stored = store
        .get_small(&location.data(), 1 << 20)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.len() as u64, manifest.stored.size);
    assert_eq!(stored[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    assert!(zstd::stream::decode_all(&stored[..]).unwrap() == data);
}

#[test]
fn a_writer_can_be_moved_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    async fn run(store: ArchiveStore) {
        let writer = BackupWriter::begin(&store, place("a")).await.unwrap();
        writer.commit(draft()).await.unwrap();
    }
    is_send(&run(archive(&Faulty::new())));
}
