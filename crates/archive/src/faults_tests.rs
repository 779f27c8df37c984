//! Every operation on the store fails once, before or after its effect, alone or together with all later ones. No crash point
//! makes an incomplete backup count as complete, or loses a complete one that was not to be deleted.

use jiff::Timestamp;

use crate::list::{BackupState, list};
use crate::prune::prune;
use crate::reader::fetch;
use crate::store::ArchiveStore;
use crate::tasks::PruneTask;
use crate::testing::{FailAt, Faulty, archive, back_up, bytes, lineage};
use crate::writer::find_attempt;

const DATA_BYTES: usize = 200 << 10;
/// More operations than any of the tasks has.
const MAX_OPERATIONS: i64 = 60;

fn modes() -> impl Iterator<Item = (i64, FailAt, bool)> {
    (0..MAX_OPERATIONS).flat_map(|n| {
        [FailAt::Before, FailAt::After]
            .into_iter()
            .flat_map(move |at| [true, false].into_iter().map(move |once| (n, at, once)))
    })
}

/// Requires that each complete backup can be fetched, and returns the number of them.
async fn require_sound(store: &ArchiveStore, context: &str) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let mut complete = 0;
    for backup in list(store).await.unwrap() {
        match backup.state {
            BackupState::Complete(manifest) => {
                let file = directory.path().join("db");
                let location = backup.location.to_string();
                let fetched = fetch(store, &location, &file, |_, _| {})
                    .await
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(*manifest, fetched, "{context}");
                complete += 1;
            }
            BackupState::Unfinished | BackupState::BeingDeleted => {}
            BackupState::Damaged(error) | BackupState::NotSupported(error) => {
                panic!("{context}: {error}")
            }
        }
    }
    complete
}

fn task(delete: Vec<String>) -> PruneTask {
    let lineage = lineage();
    PruneTask {
        engine: lineage.engine().to_owned(),
        namespace: lineage.namespace().to_owned(),
        name: lineage.name().to_owned(),
        lineage: lineage.lineage().to_owned(),
        delete,
    }
}

#[tokio::test]
async fn a_writer_that_fails_anywhere_leaves_no_incomplete_backup() {
    for conditional in [true, false] {
        let mut failures = 0;
        for (n, at, once) in modes() {
            let objects = if conditional {
                Faulty::new()
            } else {
                Faulty::without_conditional_writes()
            };
            let store = archive(&objects);
            let data = bytes(1, DATA_BYTES);
            let context = format!("operation {n}, {at:?}, once {once}, conditional {conditional}");
            objects.fail(n, at, once);
            let result = back_up(&store, "a", &data).await;
            let was_reached = objects.has_failed();
            objects.recover();
            let complete = require_sound(&store, &context).await;
            assert!(complete <= 1, "{context}");
            if result.is_ok() {
                assert_eq!(complete, 1, "{context}");
            } else {
                failures += 1;
            }
            // The next attempt of the same name gives exactly one backup.
            let (location, _) = match find_attempt(&store, &crate::testing::place("a"))
                .await
                .unwrap()
            {
                Some(found) => found,
                None => back_up(&store, "a", &data).await.unwrap(),
            };
            assert_eq!(require_sound(&store, &context).await, 1, "{context}");
            if let Ok((first, _)) = result {
                assert_eq!(first, location, "{context}");
            }
            if !was_reached {
                break;
            }
        }
        assert!(failures >= 15, "only {failures} failures");
    }
}

#[tokio::test]
async fn a_prune_that_fails_anywhere_can_be_repeated() {
    let mut failures = 0;
    for (n, at, once) in modes() {
        let context = format!("operation {n}, {at:?}, once {once}");
        let objects = Faulty::new();
        let store = archive(&objects);
        let mut locations = Vec::new();
        for attempt in ["a", "b", "c"] {
            let (location, _) = back_up(&store, attempt, &bytes(2, 1000)).await.unwrap();
            locations.push(location.to_string());
        }
        let delete = task(locations[..2].to_vec());
        objects.fail(n, at, once);
        let result = prune(&store, &delete, Timestamp::now()).await;
        let was_reached = objects.has_failed();
        objects.recover();
        failures += u32::from(result.is_err());
        let complete = require_sound(&store, &context).await;
        assert!((1..=3).contains(&complete), "{context}");

        prune(&store, &delete, Timestamp::now()).await.unwrap();
        let keys = objects.keys().await;
        assert_eq!(keys.len(), 2, "{context}: {keys:?}");
        assert!(
            keys.iter().all(|key| key.contains(&locations[2])),
            "{context}"
        );
        assert_eq!(require_sound(&store, &context).await, 1, "{context}");
        if !was_reached {
            break;
        }
    }
    assert!(failures >= 20, "only {failures} failures");
}

#[tokio::test]
async fn a_prune_of_other_backups_settles_an_interrupted_deletion() {
    let mut undone = 0;
    let mut finished = 0;
    for n in 0..MAX_OPERATIONS {
        let objects = Faulty::new();
        let store = archive(&objects);
        let (location, _) = back_up(&store, "a", &bytes(3, 1000)).await.unwrap();
        objects.fail(n, FailAt::Before, false);
        let result = prune(&store, &task(vec![location.to_string()]), Timestamp::now()).await;
        objects.recover();
        if result.is_ok() {
            break;
        }
        let before = objects.keys().await;
        let had_manifest = before.iter().any(|key| key.ends_with("manifest.json"));
        prune(&store, &task(Vec::new()), Timestamp::now())
            .await
            .unwrap();
        let after = objects.keys().await;
        if had_manifest {
            assert_eq!(after.len(), 2, "operation {n}: {after:?}");
            assert_eq!(require_sound(&store, "undone").await, 1);
            undone += 1;
        } else {
            assert_eq!(after, Vec::<String>::new(), "operation {n}");
            finished += 1;
        }
    }
    assert!(undone >= 2 && finished >= 2, "{undone} {finished}");
}

#[tokio::test]
async fn a_fetch_that_fails_anywhere_leaves_no_file() {
    for n in 0..2 {
        let objects = Faulty::new();
        let store = archive(&objects);
        let (location, _) = back_up(&store, "a", &bytes(4, 1000)).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        objects.fail(n, FailAt::Before, true);
        fetch(
            &store,
            &location.to_string(),
            &directory.path().join("db"),
            |_, _| {},
        )
        .await
        .unwrap_err();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
