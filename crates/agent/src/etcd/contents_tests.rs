use super::super::testing::{Builder, Items, delete, etcd, put, revision as revision_key};
use super::*;

fn read(file: &Vec<u8>) -> Result<SnapshotContents, BoltError> {
    SnapshotContents::read(file, file.len() as u64)
}

fn compacted(scheduled: i64, finished: i64) -> Items {
    vec![
        (b"finishedCompactRev".to_vec(), revision_key(finished, 0)),
        (b"scheduledCompactRev".to_vec(), revision_key(scheduled, 0)),
    ]
}

#[test]
fn revision_and_counts_come_from_the_data() {
    let records = vec![
        put(2, "a", 1, b"1"),
        put(3, "b", 1, b"1"),
        put(4, "a", 2, b"2"),
        delete(5, "b"),
        put(6, "b", 1, b"3"),
        put(7, "c", 1, b"4"),
        delete(8, "c"),
    ];
    let contents = read(&etcd(&records, &Items::new())).unwrap();
    assert_eq!(contents.revision, 8);
    assert_eq!(contents.compact_revision, 0);
    assert_eq!(contents.records, 7);
    assert_eq!(contents.keys, Some(2));
    assert_eq!((contents.leases, contents.users, contents.roles), (1, 1, 0));
    assert!(!contents.has_auth);
}

#[test]
fn keys_are_counted_after_a_compaction() {
    // `a` was last changed before the compaction; `b` lived then and was deleted later; `c` is newer. The deletion at the
    // revision of the compaction remains in the data.
    let records = vec![
        put(4, "a", 3, b"1"),
        put(5, "b", 2, b"1"),
        delete(6, "d"),
        put(7, "b", 3, b"2"),
        delete(8, "b"),
        put(9, "c", 1, b"2"),
        put(10, "a", 4, b"2"),
    ];
    let contents = read(&etcd(&records, &compacted(6, 6))).unwrap();
    assert_eq!((contents.revision, contents.compact_revision), (10, 6));
    assert_eq!(contents.keys, Some(2));
}

#[test]
fn keys_are_unknown_while_a_compaction_runs() {
    let records = vec![put(4, "a", 1, b"1"), put(5, "a", 2, b"1")];
    let contents = read(&etcd(&records, &compacted(5, 3))).unwrap();
    assert_eq!((contents.keys, contents.compact_revision), (None, 5));
}

#[test]
fn a_compaction_of_the_last_record_keeps_the_revision() {
    let records = vec![put(4, "a", 1, b"1")];
    let contents = read(&etcd(&records, &compacted(9, 9))).unwrap();
    assert_eq!(contents.revision, 9);
}

#[test]
fn an_empty_store_is_at_revision_1() {
    let mut builder = Builder::new();
    builder.inline_bucket("key", &Items::new());
    builder.inline_bucket("meta", &Items::new());
    let contents = read(&builder.finish()).unwrap();
    assert_eq!((contents.revision, contents.keys), (1, Some(0)));
}

#[test]
fn the_empty_record_of_a_bumped_restore_is_no_key() {
    let records = vec![
        put(4, "a", 1, b"1"),
        (revision_key(1_000_004, 0), Vec::new()),
    ];
    let contents = read(&etcd(&records, &compacted(1_000_004, 1_000_004))).unwrap();
    assert_eq!((contents.revision, contents.keys), (1_000_004, Some(1)));
}

#[test]
fn samples_are_the_last_values_of_living_keys() {
    let mut records = Items::new();
    for round in 0..3 {
        for key in 0..100 {
            let main = 2 + round * 100 + key;
            let value = format!("value {round} {key}");
            records.push(put(main, &format!("key{key}"), round + 1, value.as_bytes()));
        }
    }
    records.extend((0..50).map(|key| delete(302 + key, &format!("key{key}"))));
    let contents = read(&etcd(&records, &Items::new())).unwrap();
    assert_eq!(contents.keys, Some(50));
    let living: Vec<KeySample> = (50..100)
        .map(|key| KeySample {
            key_sha256: hex(&Sha256::digest(format!("key{key}"))),
            mod_revision: 202 + key,
            value_sha256: hex(&Sha256::digest(format!("value 2 {key}"))),
        })
        .collect();
    assert!(
        contents
            .samples
            .iter()
            .all(|sample| living.contains(sample))
    );
    assert!(contents.samples.len() >= 10 && contents.samples.len() <= MAX_SAMPLES);
    let text = serde_json::to_string(&contents).unwrap();
    assert!(
        !text.contains("value 2") && !text.contains("key5"),
        "{text}"
    );
}

#[test]
fn inconsistent_records_are_damage() {
    let wrong_revision = (revision_key(5, 0), put(4, "a", 1, b"1").1);
    let no_key = (revision_key(5, 0), put(5, "", 1, b"1").1);
    let short = (revision_key(5, 0)[..16].to_vec(), put(5, "a", 1, b"1").1);
    let mark = (
        [revision_key(5, 0), b"x".to_vec()].concat(),
        put(5, "a", 1, b"1").1,
    );
    let mut cut = put(5, "a", 1, b"1");
    cut.1.pop();
    for record in [wrong_revision, no_key, short, mark, cut] {
        assert!(read(&etcd(&vec![record], &Items::new())).is_err());
    }
}

#[test]
fn another_database_is_rejected() {
    let mut builder = Builder::new();
    builder.inline_bucket("meta", &Items::new());
    assert!(read(&builder.finish()).is_err());
}
