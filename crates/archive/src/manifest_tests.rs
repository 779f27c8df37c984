use proptest::prelude::*;
use serde_json::json;

use super::*;

fn location() -> BackupLocation {
    BackupLocation::parse(
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/epochs/1/bases/20261118T112345Z-0-0123456789abcdef01234567",
    )
    .unwrap()
}

fn manifest() -> Manifest {
    Manifest {
        format_version: 1,
        engine: "etcd".to_owned(),
        engine_version: "3.6.16".to_owned(),
        cluster: ClusterInfo {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            lineage: "7f3a9c01".to_owned(),
            cluster_id: "9c1f00aa12345678".to_owned(),
            member: "orders-0".to_owned(),
        },
        epoch: 1,
        position: json!({"revision": 4711}),
        position_text: "revision 4711".to_owned(),
        started_at: "2026-11-18T11:23:45Z".to_owned(),
        finished_at: "2026-11-18T11:23:50Z".to_owned(),
        plain: Content {
            size: 20_512,
            sha256: "ab".repeat(32),
        },
        stored: Content {
            size: 10_000,
            sha256: "cd".repeat(32),
        },
        compression: "zstd".to_owned(),
        verification: json!({"keys": 12}),
        resource: json!({"kind": "EtcdCluster"}),
        written_by: "evenkeel-agent 0.1.0".to_owned(),
    }
}

/// Returns the bytes of any JSON with a right checksum.
fn seal(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap();
    bytes.pop();
    let hash = hex(&Sha256::digest(&bytes));
    bytes.extend_from_slice(format!(",\"sha256\":\"{hash}\"}}\n").as_bytes());
    bytes
}

#[test]
fn a_manifest_survives_encoding() {
    let bytes = manifest().encode().unwrap();
    assert_eq!(Manifest::decode(&bytes, &location()).unwrap(), manifest());
    // The documented way to verify by hand: head -c -78 | sha256sum.
    let (content, end) = bytes.split_at(bytes.len() - 78);
    let expected = format!(",\"sha256\":\"{}\"}}\n", hex(&Sha256::digest(content)));
    assert_eq!(end, expected.as_bytes());
    assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = manifest().encode().unwrap();
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << bit;
            assert!(
                Manifest::decode(&damaged, &location()).is_err(),
                "{index}/{bit}"
            );
        }
        assert!(
            Manifest::decode(&bytes[..index], &location()).is_err(),
            "{index}"
        );
    }
}

#[test]
fn a_newer_format_is_not_called_damaged() {
    let mut value = serde_json::to_value(manifest()).unwrap();
    value["formatVersion"] = json!(2);
    value["newField"] = json!("x");
    for bytes in [seal(&value), serde_json::to_vec(&value).unwrap()] {
        let error = Manifest::decode(&bytes, &location()).unwrap_err();
        assert_eq!(error.reason, FailureReason::NotSupported);
        assert!(
            error.message.contains("newer version of Evenkeel"),
            "{error}"
        );
    }
}

#[test]
fn a_right_checksum_does_not_excuse_wrong_content() {
    let value = serde_json::to_value(manifest()).unwrap();
    assert!(Manifest::decode(&seal(&value), &location()).is_ok());
    for (pointer, wrong) in [
        ("/formatVersion", json!("1")),
        ("/formatVersion", json!(-1)),
        ("/engine", json!("postgres")),
        ("/cluster/namespace", json!("other")),
        ("/cluster/lineage", json!("00000000")),
        ("/epoch", json!(2)),
        ("/epoch", json!(4_294_967_297_u64)),
        ("/plain/size", json!(0)),
        ("/plain/size", json!(-5)),
        ("/plain/size", json!(1.5)),
        ("/plain/size", json!(u64::MAX)),
        ("/stored/size", json!("10")),
        ("/plain/sha256", json!("ab")),
        ("/stored/sha256", json!("CD".repeat(32))),
        ("/compression", json!("gzip")),
        ("/startedAt", json!("yesterday")),
        ("/finishedAt", json!("2026-11-18T11:23:44Z")),
        ("/engineVersion", json!("")),
        ("/cluster/member", json!("a\u{0}b")),
        ("/positionText", json!("x".repeat(300))),
        ("/cluster", json!(null)),
        ("/plain", json!([1, 2])),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = wrong.clone();
        let error = Manifest::decode(&seal(&value), &location()).unwrap_err();
        assert!(
            matches!(
                error.reason,
                FailureReason::BackupDamaged | FailureReason::NotSupported
            ),
            "{pointer} {wrong}: {error}"
        );
    }
    let mut unknown = value.clone();
    unknown["extra"] = json!(1);
    assert!(Manifest::decode(&seal(&unknown), &location()).is_err());
    let mut unknown = value;
    unknown["plain"]["extra"] = json!(1);
    assert!(Manifest::decode(&seal(&unknown), &location()).is_err());
}

#[test]
fn paths_in_text_fields_are_rejected() {
    let value = serde_json::to_value(manifest()).unwrap();
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
    ] {
        for path in [
            "../../etc/passwd",
            "/etc/passwd",
            "a/../../b",
            "..\\..\\b",
            "~/x",
        ] {
            let mut value = value.clone();
            *value.pointer_mut(pointer).unwrap() = json!(path);
            assert!(
                Manifest::decode(&seal(&value), &location()).is_err(),
                "{pointer} {path}"
            );
        }
    }
}

#[test]
fn deep_and_large_manifests_are_rejected() {
    let deep = format!(
        "{{\"position\":{}{}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(Manifest::decode(deep.as_bytes(), &location()).is_err());
    let mut large = manifest();
    large.resource = json!("x".repeat(MAX_MANIFEST_BYTES));
    assert_eq!(
        large.encode().unwrap_err().reason,
        FailureReason::InvalidRequest
    );
    let bytes = seal(&serde_json::to_value(&large).unwrap());
    let error = Manifest::decode(&bytes, &location()).unwrap_err();
    assert_eq!(error.reason, FailureReason::BackupDamaged);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_break_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(!crate::reader::fuzz_manifest(&bytes));
    }

    #[test]
    fn no_change_of_a_manifest_breaks_the_decoder(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        reseal in any::<bool>(),
    ) {
        let original = manifest().encode().unwrap();
        prop_assert!(crate::reader::fuzz_manifest(&original));
        let mut bytes = original.clone();
        for (index, byte) in edits {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 50);
        if reseal {
            // A right checksum over any content: the decoder may accept it, and must not panic.
            bytes.truncate(bytes.len().saturating_sub(78));
            let hash = hex(&Sha256::digest(&bytes));
            bytes.extend_from_slice(format!(",\"sha256\":\"{hash}\"}}\n").as_bytes());
            crate::reader::fuzz_manifest(&bytes);
        } else if bytes != original {
            prop_assert!(!crate::reader::fuzz_manifest(&bytes));
        }
    }
}
