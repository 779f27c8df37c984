use evenkeel_archive::manifest::{ClusterInfo, Content};
use serde_json::Value;

use super::*;

fn manifest(engine: &str, version: &str) -> Manifest {
    let content = Content {
        size: 1,
        sha256: String::new(),
    };
    Manifest {
        format_version: 1,
        engine: engine.to_owned(),
        engine_version: version.to_owned(),
        cluster: ClusterInfo {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            lineage: "k7f2x".to_owned(),
            cluster_id: "9c1f".to_owned(),
            member: "orders-a".to_owned(),
        },
        epoch: 1,
        position: Value::Null,
        position_text: String::new(),
        started_at: String::new(),
        finished_at: String::new(),
        plain: content.clone(),
        stored: content,
        compression: "zstd".to_owned(),
        verification: Value::Null,
        resource: Value::Null,
        written_by: String::new(),
    }
}

fn reason(engine: &str, from: &str, to: &str) -> Option<FailureReason> {
    let task = FetchTask {
        location: String::new(),
        file: "/data/snapshot.db".into(),
        engine: "etcd".to_owned(),
        version: to.to_owned(),
        space_percent: 220,
        certificates: None,
    };
    let checked = check_supported(&manifest(engine, from), &task);
    checked.err().map(|failure| failure.reason)
}

#[test]
fn a_backup_is_restored_to_the_same_or_a_newer_minor_version() {
    for (from, to) in [
        ("3.6.16", "3.6.16"),
        ("3.6.16", "3.6.2"),
        ("3.5.35", "3.7.3"),
        ("3.9.0", "3.10.0"),
        ("3.7.3", "4.0.0"),
    ] {
        assert_eq!(reason("etcd", from, to), None, "{from} to {to}");
    }
    for (from, to) in [
        ("3.6.16", "3.5.35"),
        ("3.7.3", "3.6.16"),
        ("3.10.0", "3.9.0"),
        ("4.0.0", "3.7.3"),
        ("", "3.7.3"),
        ("unknown", "3.7.3"),
    ] {
        let rejected = Some(FailureReason::NotSupported);
        assert_eq!(reason("etcd", from, to), rejected, "{from} to {to}");
    }
}

#[test]
fn a_backup_of_another_engine_is_rejected() {
    let rejected = Some(FailureReason::NotSupported);
    assert_eq!(reason("postgres", "3.6.16", "3.6.16"), rejected);
}

#[test]
fn an_invalid_target_version_is_an_invalid_request() {
    let rejected = Some(FailureReason::InvalidRequest);
    assert_eq!(reason("etcd", "3.6.16", "latest"), rejected);
}
