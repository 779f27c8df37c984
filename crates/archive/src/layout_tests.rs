use proptest::prelude::*;

use super::*;

const LOCATION: &str = "evenkeel-v1/etcd/shop/orders/7f3a9c01/epochs/3/bases/20261118T112345Z-000000000000126f-0123456789abcdef01234567";

#[test]
fn a_location_has_its_documented_form() {
    let location = BackupLocation::parse(LOCATION).unwrap();
    assert_eq!(location.to_string(), LOCATION);
    assert_eq!(location.epoch(), 3);
    assert_eq!(location.lineage().lineage(), "7f3a9c01");
    assert_eq!(location.data(), format!("{LOCATION}/data.zst"));
    assert_eq!(
        location.tombstone(),
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/tombstones/3/20261118T112345Z-000000000000126f-0123456789abcdef01234567"
    );
    assert!(location.is_of_attempt("0123456789abcdef"));
    assert!(!location.is_of_attempt("0123456789abcdee"));
}

#[test]
fn keys_of_all_parts_are_parsed() {
    let location = BackupLocation::parse(LOCATION).unwrap();
    for (key, part) in [
        (location.data(), Part::Data),
        (location.manifest(), Part::Manifest),
        (location.tombstone(), Part::Tombstone),
    ] {
        assert_eq!(parse_key(&key), Some((location.clone(), part)));
    }
    for key in [
        LOCATION,
        "",
        "evenkeel-v1",
        "manifest.json",
        "/manifest.json",
        "evenkeel-v1/etcd/shop/orders/7f3a9c01/cluster.json",
    ] {
        assert_eq!(parse_key(key), None, "{key}");
    }
}

#[test]
fn nothing_but_a_location_is_parsed() {
    for (from, to) in [
        ("evenkeel-v1", "evenkeel-v2"),
        ("etcd", ".."),
        ("etcd", ""),
        ("shop", "Shop"),
        ("shop", "../shop"),
        ("orders", "orders/x"),
        ("orders", "-orders"),
        ("orders", "a..b"),
        ("orders", ".a"),
        ("orders", "%2e%2e"),
        ("orders", "or\u{0}ders"),
        ("7f3a9c01", "7f3a 9c01"),
        ("epochs/3", "epochs/03"),
        ("epochs/3", "epochs/+3"),
        ("epochs/3", "epochs/4294967296"),
        ("epochs/3", "epochs/"),
        ("bases", "base"),
        ("20261118T112345Z", "20261118 112345Z"),
        ("20261118T112345Z", "2026"),
        ("126f", "126F"),
        ("-000000000000126f-", "--"),
        ("01234567", "0123456"),
        ("abcdef01234567", "ABCDEF01234567"),
        ("01234567", "01234567/"),
    ] {
        let text = LOCATION.replacen(from, to, 1);
        assert_ne!(text, LOCATION);
        let error = BackupLocation::parse(&text).unwrap_err();
        assert_eq!(error.reason, FailureReason::InvalidRequest, "{text}");
    }
    assert!(BackupLocation::parse(&LOCATION.replace("orders", &"o".repeat(800))).is_err());
}

#[test]
fn locations_of_one_attempt_share_digits_and_differ() {
    let place = crate::testing::place("backup-uid-1");
    let other = crate::testing::place("backup-uid-2");
    let now = Timestamp::from_second(1_795_000_000).unwrap();
    let first = place.location(now).unwrap();
    let second = place.location(now).unwrap();
    assert_ne!(first, second);
    assert!(first.is_of_attempt(&place.attempt_digits()));
    assert!(second.is_of_attempt(&place.attempt_digits()));
    assert!(!first.is_of_attempt(&other.attempt_digits()));
    assert_eq!(BackupLocation::parse(&first.to_string()).unwrap(), first);
}

#[test]
fn places_that_cannot_be_keys_are_rejected() {
    let now = Timestamp::now();
    for (label, attempt) in [("", "a"), ("A", "a"), ("a/b", "a"), ("a-b", "a"), ("a", "")] {
        let place = BackupPlace {
            label: label.to_owned(),
            attempt: attempt.to_owned(),
            ..crate::testing::place("a")
        };
        assert!(place.location(now).is_err(), "{label:?} {attempt:?}");
    }
    let long = "a".repeat(250);
    let place = BackupPlace {
        lineage: LineagePath::new("etcd", &long, &long, &long).unwrap(),
        ..crate::testing::place("a")
    };
    assert!(place.location(now).is_err());
}

proptest! {
    #[test]
    fn any_text_that_parses_is_its_own_location(text in "(evenkeel-v1|\\PC{0,4})(/[a-z0-9.]{0,3}){4}/epochs/[0-9]{0,11}/bases/[0-9TZ]{15,17}-[a-z0-9/]{0,3}-[0-9a-f]{23,25}") {
        if let Ok(location) = BackupLocation::parse(&text) {
            prop_assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn no_key_leaves_its_directory(key in "\\PC{0,60}") {
        if let Some((location, _)) = parse_key(&key) {
            let text = location.to_string();
            prop_assert!(!text.contains(".."));
            prop_assert!(!text.contains("//"));
        }
    }
}
