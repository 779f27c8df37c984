//! A thousand damaged backups. Each is rejected with a clear reason before the destination file appears.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::layout::{BackupLocation, hex};
use crate::manifest::{Content, MAX_MANIFEST_BYTES, Manifest};
use crate::reader::{fetch, fuzz_fetch};
use crate::store::ArchiveStore;
use crate::tasks::FailureReason;
use crate::testing::{Faulty, Random, archive, back_up, bytes};

/// A backup whose objects can be changed.
#[derive(Clone)]
struct Case {
    name: String,
    manifest: Vec<u8>,
    data: Vec<u8>,
}

struct Original {
    manifest: Manifest,
    data: Vec<u8>,
    plain: Vec<u8>,
}

impl Original {
    fn case(&self, name: impl Into<String>) -> Case {
        Case {
            name: name.into(),
            manifest: self.manifest.encode().unwrap(),
            data: self.data.clone(),
        }
    }

    /// Returns a case with a changed manifest whose checksum is right.
    fn with_manifest(&self, name: impl Into<String>, change: impl FnOnce(&mut Value)) -> Case {
        let mut value = serde_json::to_value(&self.manifest).unwrap();
        change(&mut value);
        Case {
            manifest: seal(&serde_json::to_vec(&value).unwrap()),
            ..self.case(name)
        }
    }

    /// Returns a case with other data, whose stored size and hash are right.
    fn with_data(&self, name: impl Into<String>, data: Vec<u8>) -> Case {
        let mut manifest = self.manifest.clone();
        manifest.stored = content(&data);
        Case {
            name: name.into(),
            manifest: manifest.encode().unwrap(),
            data,
        }
    }
}

fn content(data: &[u8]) -> Content {
    Content {
        size: data.len() as u64,
        sha256: hex(&Sha256::digest(data)),
    }
}

/// Adds a right checksum to any JSON object.
fn seal(json: &[u8]) -> Vec<u8> {
    let mut bytes = json[..json.len() - 1].to_vec();
    let hash = hex(&Sha256::digest(&bytes));
    bytes.extend_from_slice(format!(",\"sha256\":\"{hash}\"}}\n").as_bytes());
    bytes
}

fn compress(data: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(data, 3).unwrap()
}

async fn original(store: &ArchiveStore, seed: u64, len: usize) -> (BackupLocation, Original) {
    let plain = bytes(seed, len);
    let (location, manifest) = back_up(store, &format!("attempt-{seed}"), &plain)
        .await
        .unwrap();
    let data = store
        .get_small(&location.data(), 64 << 20)
        .await
        .unwrap()
        .unwrap();
    let original = Original {
        manifest,
        data: data.to_vec(),
        plain,
    };
    (location, original)
}

/// Requires that a case is rejected, and returns the reason.
async fn require_rejected(
    store: &ArchiveStore,
    location: &BackupLocation,
    case: Case,
    directory: &Path,
) -> FailureReason {
    let Case {
        name,
        manifest,
        data,
    } = case;
    store
        .put(&location.manifest(), Bytes::from(manifest))
        .await
        .unwrap();
    store
        .put(&location.data(), Bytes::from(data))
        .await
        .unwrap();
    let result = fetch(
        store,
        &location.to_string(),
        &directory.join("db"),
        |_, _| {},
    )
    .await;
    let error = match result {
        Ok(_) => panic!("{name}: accepted"),
        Err(error) => error,
    };
    assert!(
        matches!(
            error.reason,
            FailureReason::BackupDamaged | FailureReason::NotSupported
        ),
        "{name}: {error:?}"
    );
    assert!(!error.message.is_empty(), "{name}");
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "{name}");
    error.reason
}

fn truncations(original: &Original, random: &mut Random) -> Vec<Case> {
    let manifest_len = original.manifest.encode().unwrap().len();
    let mut cases = Vec::new();
    let len = original.data.len();
    let mut cuts: Vec<usize> = vec![0, 1, 4, 5, len / 2, len - 5, len - 4, len - 1];
    cuts.extend((0..60).map(|_| random.below(len)));
    for cut in cuts {
        let mut case = original.case(format!("data cut to {cut}"));
        case.data.truncate(cut);
        cases.push(case);
        if cut > 0 {
            // The checksum of the cut data is right: the frame is what is wrong.
            let data = original.data[..cut].to_vec();
            cases.push(original.with_data(format!("data cut to {cut}, right checksum"), data));
        }
    }
    for _ in 0..40 {
        let cut = random.below(manifest_len);
        let mut case = original.case(format!("manifest cut to {cut}"));
        case.manifest.truncate(cut);
        cases.push(case);
    }
    cases
}

fn bit_flips(original: &Original, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let len = original.data.len();
    let blocks = (0..len)
        .step_by(64 << 10)
        .flat_map(|start| [start, start + (64 << 10) - 1]);
    let mut positions: Vec<usize> = (0..32).chain(len - 32..len).chain(blocks).collect();
    positions.extend((0..200).map(|_| random.below(len)));
    for position in positions.into_iter().filter(|position| *position < len) {
        let bit = random.below(8);
        let mut case = original.case(format!("bit {bit} of data byte {position}"));
        case.data[position] ^= 1 << bit;
        cases.push(case);
    }
    let manifest = original.manifest.encode().unwrap();
    for _ in 0..150 {
        let position = random.below(manifest.len());
        let bit = random.below(8);
        let mut case = original.case(format!("bit {bit} of manifest byte {position}"));
        case.manifest[position] ^= 1 << bit;
        cases.push(case);
    }
    cases
}

/// Damage that the hash of the stored data does not show: the frame or the plain hash must.
fn sealed_bit_flips(original: &Original, random: &mut Random) -> Vec<Case> {
    (0..150)
        .map(|_| {
            let position = random.below(original.data.len());
            let bit = random.below(8);
            let mut data = original.data.clone();
            data[position] ^= 1 << bit;
            original.with_data(
                format!("bit {bit} of byte {position}, right stored hash"),
                data,
            )
        })
        .collect()
}

fn wrong_contents(original: &Original, other: &Original) -> Vec<Case> {
    let mut cases = vec![
        Case {
            data: other.data.clone(),
            ..original.case("data of another backup")
        },
        original.with_data(
            "data of another backup, right stored hash",
            other.data.clone(),
        ),
        original.with_data("garbage", bytes(99, 5000)),
        original.with_data("gzip header", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0]),
        original.with_data("empty frame", compress(&[])),
        original.with_data("plain bytes", original.plain.clone()),
        original.with_data(
            "two frames",
            [original.data.clone(), original.data.clone()].concat(),
        ),
        original.with_data(
            "bytes after the frame",
            [original.data.clone(), vec![0]].concat(),
        ),
        original.with_data(
            "skippable frame before",
            [
                vec![0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4],
                original.data.clone(),
            ]
            .concat(),
        ),
    ];
    for (size, name) in [
        (-1_i64, "one less"),
        (1, "one more"),
        (1 << 40, "huge"),
        (-1000, "small"),
    ] {
        for field in ["plain", "stored"] {
            cases.push(
                original.with_manifest(format!("{field} size {name}"), |value| {
                    let old = value[field]["size"].as_i64().unwrap();
                    value[field]["size"] = json!(old + size);
                }),
            );
        }
    }
    for field in ["plain", "stored"] {
        for digit in 0..64 {
            cases.push(
                original.with_manifest(format!("{field} hash digit {digit}"), |value| {
                    let mut hash = value[field]["sha256"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                        .into_bytes();
                    hash[digit] = if hash[digit] == b'0' { b'1' } else { b'0' };
                    value[field]["sha256"] = json!(String::from_utf8(hash).unwrap());
                }),
            );
        }
    }
    cases
}

fn wrong_manifests(original: &Original) -> Vec<Case> {
    let mut cases = Vec::new();
    let paths = [
        "../../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "..",
        "..\\..\\x",
        "~/.ssh/x",
        "a\u{0}b",
        "a\nb",
        "",
    ];
    for pointer in [
        "/engine",
        "/engineVersion",
        "/cluster/namespace",
        "/cluster/name",
        "/cluster/lineage",
        "/cluster/clusterId",
        "/cluster/member",
        "/positionText",
        "/startedAt",
        "/finishedAt",
        "/compression",
        "/writtenBy",
        "/plain/sha256",
        "/stored/sha256",
    ] {
        for path in paths {
            cases.push(
                original.with_manifest(format!("{pointer} = {path:?}"), |value| {
                    *value.pointer_mut(pointer).unwrap() = json!(path);
                }),
            );
        }
    }
    let numbers = [
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!("1"),
        json!(null),
        json!([]),
    ];
    for pointer in ["/formatVersion", "/epoch", "/plain/size", "/stored/size"] {
        for number in &numbers {
            cases.push(
                original.with_manifest(format!("{pointer} = {number}"), |value| {
                    *value.pointer_mut(pointer).unwrap() = number.clone();
                }),
            );
        }
    }
    for version in [0, 2, 99] {
        cases.push(
            original.with_manifest(format!("version {version}"), |value| {
                value["formatVersion"] = json!(version);
            }),
        );
    }
    let fields: Vec<String> = serde_json::to_value(&original.manifest)
        .unwrap()
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    for field in &fields {
        cases.push(original.with_manifest(format!("without {field}"), |value| {
            value.as_object_mut().unwrap().remove(field);
        }));
        cases.push(
            original.with_manifest(format!("{field} is a list of lists"), |value| {
                if !matches!(field.as_str(), "position" | "verification" | "resource") {
                    value[field] = json!([[1]]);
                } else {
                    value["also"] = json!(1);
                }
            }),
        );
    }
    for pointer in ["", "/cluster", "/plain", "/stored"] {
        cases.push(
            original.with_manifest(format!("unknown field in {pointer:?}"), |value| {
                value.pointer_mut(pointer).unwrap()["unknown"] = json!(1);
            }),
        );
    }
    cases.extend(raw_manifests(original));
    cases
}

/// Manifests that no JSON library writes.
fn raw_manifests(original: &Original) -> Vec<Case> {
    let text = serde_json::to_string(&original.manifest).unwrap();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let mut raw: Vec<(String, Vec<u8>)> = vec![
        ("empty".to_owned(), Vec::new()),
        ("empty object".to_owned(), b"{}".to_vec()),
        ("null".to_owned(), b"null".to_vec()),
        ("nul bytes".to_owned(), vec![0; 500]),
        (
            "invalid UTF-8".to_owned(),
            seal(b"{\"formatVersion\":1,\"engine\":\"\xff\xfe\"}"),
        ),
        ("without checksum".to_owned(), text.clone().into_bytes()),
        (
            "field twice".to_owned(),
            seal(
                text.replacen("\"epoch\":1", "\"epoch\":1,\"epoch\":1", 1)
                    .as_bytes(),
            ),
        ),
        (
            "number of a thousand digits".to_owned(),
            seal(
                text.replacen("\"epoch\":1", &format!("\"epoch\":{}", "9".repeat(1000)), 1)
                    .as_bytes(),
            ),
        ),
        (
            "too large".to_owned(),
            seal(
                text.replacen(
                    "\"kind\"",
                    &format!("\"{}\"", "k".repeat(MAX_MANIFEST_BYTES)),
                    1,
                )
                .as_bytes(),
            ),
        ),
        (
            "bytes after it".to_owned(),
            [original.manifest.encode().unwrap(), b"{}".to_vec()].concat(),
        ),
        (
            "space before it".to_owned(),
            [b" ".to_vec(), original.manifest.encode().unwrap()].concat(),
        ),
    ];
    for depth in [200, 10_000, 200_000] {
        let text = text.replacen("{\"revision\":4711}", &deep(depth), 1);
        raw.push((format!("depth {depth}"), seal(text.as_bytes())));
    }
    raw.into_iter()
        .map(|(name, manifest)| Case {
            manifest,
            ..original.case(name)
        })
        .collect()
}

fn bombs(original: &Original) -> Vec<Case> {
    let mut cases = Vec::new();
    for megabytes in [16_usize, 64] {
        let bomb = compress(&vec![0; megabytes << 20]);
        cases.push(original.with_data(format!("bomb of {megabytes} MiB"), bomb));
    }
    // A frame header with a window of 2 GiB.
    let mut window = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8];
    window.extend_from_slice(&[0x01, 0x00, 0x00]);
    cases.push(original.with_data("window of 2 GiB", window));
    // A header that promises 2^63 bytes.
    let mut promise = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    promise.extend_from_slice(&(1_u64 << 63).to_le_bytes());
    promise.extend_from_slice(&[0x01, 0x00, 0x00]);
    cases.push(original.with_data("promise of 2^63 bytes", promise));
    cases
}

#[tokio::test]
async fn a_thousand_damaged_backups_are_rejected() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, original_backup) = original(&store, 1, 300 << 10).await;
    let (_, other) = original(&store, 2, 300 << 10).await;
    let mut random = Random(0x5eed);
    let cases: Vec<Case> = [
        truncations(&original_backup, &mut random),
        bit_flips(&original_backup, &mut random),
        sealed_bit_flips(&original_backup, &mut random),
        wrong_contents(&original_backup, &other),
        wrong_manifests(&original_backup),
        bombs(&original_backup),
    ]
    .concat();
    assert!(cases.len() >= 1000, "only {} cases", cases.len());

    let directory = tempfile::tempdir().unwrap();
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    for case in cases {
        let reason = require_rejected(&store, &location, case, directory.path()).await;
        *reasons.entry(format!("{reason:?}")).or_default() += 1;
    }
    // Nearly all are damaged; newer formats are not supported.
    assert!(reasons["BackupDamaged"] > 950, "{reasons:?}");

    // The undamaged backup is accepted: the cases above fail for their own reasons.
    let whole = original_backup.case("whole");
    store
        .put(&location.manifest(), Bytes::from(whole.manifest))
        .await
        .unwrap();
    store
        .put(&location.data(), Bytes::from(whole.data))
        .await
        .unwrap();
    let file = directory.path().join("db");
    fetch(&store, &location.to_string(), &file, |_, _| {})
        .await
        .unwrap();
    assert!(std::fs::read(&file).unwrap() == original_backup.plain);
}

#[tokio::test]
async fn damage_at_every_boundary_of_parts_is_noticed() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (location, backup) = original(&store, 3, 36 << 20).await;
    let part = crate::writer::PART_BYTES;
    assert!(backup.data.len() > 2 * part);
    let directory = tempfile::tempdir().unwrap();
    let boundaries = (0..backup.data.len()).step_by(part);
    for position in boundaries.flat_map(|start| [start.saturating_sub(1), start]) {
        let mut flipped = backup.case(format!("flip at {position}"));
        flipped.data[position] ^= 0x10;
        require_rejected(&store, &location, flipped, directory.path()).await;
    }
    let mut swapped = backup.case("swapped parts");
    let (first, second) = swapped.data.split_at_mut(part);
    first.swap_with_slice(&mut second[..part]);
    require_rejected(&store, &location, swapped, directory.path()).await;
    let mut missing = backup.case("missing part");
    missing.data.drain(part..2 * part);
    require_rejected(&store, &location, missing, directory.path()).await;
}

#[tokio::test]
async fn a_swap_of_two_whole_backups_is_noticed_by_the_lineage() {
    let objects = Faulty::new();
    let store = archive(&objects);
    let (_, backup) = original(&store, 4, 1000).await;
    let elsewhere = BackupLocation::parse(
        "evenkeel-v1/etcd/shop/invoices/7f3a9c01/epochs/1/bases/20261118T112345Z-0-0123456789abcdef01234567",
    )
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let case = backup.case("in the place of another cluster");
    let reason = require_rejected(&store, &elsewhere, case, directory.path()).await;
    assert_eq!(reason, FailureReason::BackupDamaged);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_data_breaks_the_unpacker(
        data in proptest::collection::vec(any::<u8>(), 1..400),
        has_header in any::<bool>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let plain = bytes(7, 3000);
        let mut stored = if has_header { compress(&plain) } else { data };
        for (index, byte) in edits {
            let index = index.index(stored.len());
            stored[index] = byte;
        }
        let manifest = Manifest {
            stored: content(&stored),
            plain: content(&plain),
            ..small_manifest()
        };
        match fuzz_fetch(&manifest, &stored) {
            Ok(size) => prop_assert_eq!(size, 3000),
            Err(error) => prop_assert_eq!(error.reason, FailureReason::BackupDamaged),
        }
    }
}

fn small_manifest() -> Manifest {
    serde_json::from_value(json!({
        "formatVersion": 1, "engine": "etcd", "engineVersion": "3.6.16",
        "cluster": {"namespace": "a", "name": "b", "lineage": "c", "clusterId": "d", "member": "e"},
        "epoch": 1, "position": 1, "positionText": "1", "startedAt": "2026-11-18T00:00:00Z",
        "finishedAt": "2026-11-18T00:00:00Z", "plain": {"size": 1, "sha256": ""}, "stored": {"size": 1, "sha256": ""},
        "compression": "zstd", "verification": null, "resource": null, "writtenBy": "x",
    }))
    .unwrap()
}
