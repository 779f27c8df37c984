use serde_json::{Value, json};

use super::super::testing::{OLD_ID, restore};
use super::*;

fn backup(status: Value) -> Backup {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": "nightly", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod" },
        "status": status,
    }))
    .unwrap()
}

fn state(backup: Option<&Backup>) -> RestoreBackup {
    RestoreBackup::of(&restore(|_| ()), backup, |version| version == "3.6.16")
}

#[test]
fn only_a_complete_backup_without_damage_of_a_readable_version_is_usable() {
    let damaged = json!({ "at": "2027-01-15T08:00:00Z", "message": "The hash differs." });
    for (status, expected) in [
        (json!({}), RestoreBackup::Incomplete),
        (json!({ "phase": "Running" }), RestoreBackup::Incomplete),
        (json!({ "phase": "Archived" }), RestoreBackup::Incomplete),
        (json!({ "phase": "Failed" }), RestoreBackup::Failed),
        (
            json!({ "phase": "Complete", "engineVersion": "3.6.16" }),
            RestoreBackup::Usable,
        ),
        (
            json!({ "phase": "Complete", "engineVersion": "3.6.16", "damaged": damaged }),
            RestoreBackup::Damaged("The hash differs.".to_owned()),
        ),
        (
            json!({ "phase": "Complete", "engineVersion": "3.7.3" }),
            RestoreBackup::UnreadableVersion("3.7.3".to_owned()),
        ),
        (
            json!({ "phase": "Complete" }),
            RestoreBackup::UnreadableVersion(String::new()),
        ),
    ] {
        assert_eq!(state(Some(&backup(status.clone()))), expected, "{status}");
    }
    assert_eq!(state(None), RestoreBackup::Absent);
    let mut deleted = backup(json!({ "phase": "Complete", "engineVersion": "3.6.16" }));
    deleted.metadata.deletion_timestamp = Some(conditions::time(UnixTime(1_800_000_000)));
    assert_eq!(state(Some(&deleted)), RestoreBackup::Absent);
}

#[test]
fn the_oldest_restore_of_the_same_cluster_id_comes_first() {
    let named = |name: &str, change: fn(&mut Value)| {
        restore(|it| {
            it["metadata"]["name"] = json!(name);
            change(it);
        })
    };
    let own = restore(|_| ());
    let earlier =
        |it: &mut Value| it["metadata"]["creationTimestamp"] = json!("2027-01-15T07:59:59Z");
    let first = |others: Vec<Restore>| older(&own, others.iter().chain([&own]));
    assert_eq!(first(vec![]), None);
    assert_eq!(
        first(vec![named("zebra", earlier)]).as_deref(),
        Some("zebra")
    );
    // At the same time, the name decides.
    assert_eq!(first(vec![named("a", |_| ())]).as_deref(), Some("a"));
    assert_eq!(first(vec![named("c", |_| ())]), None);
    let two = vec![named("a", |_| ()), named("zebra", earlier)];
    assert_eq!(first(two).as_deref(), Some("zebra"));
    let changes: [fn(&mut Value); 6] = [
        |it| it["spec"]["replaces"] = json!("77aa"),
        |it| it["spec"]["cluster"]["name"] = json!("baskets"),
        |it| it["spec"]["undo"] = json!(true),
        |it| it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z"),
        |it| it["status"] = json!({ "phase": "NotNeeded" }),
        |it| it["status"] = json!({ "phase": "Complete" }),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert_eq!(first(vec![named("a", change)]), None, "{index}");
    }
}

#[test]
fn the_progress_of_another_cluster_id_is_not_the_own_one() {
    let progress = |name: &str, replaces: &str| RestoreProgressFacts {
        name: name.to_owned(),
        replaces: replaces.to_owned(),
        ..super::super::testing::own(RestorePhase::Complete)
    };
    for (name, replaces, is_own) in [
        ("back", OLD_ID, true),
        ("back", "77aa", false),
        ("other", OLD_ID, false),
    ] {
        let facts = super::super::testing::with(
            super::super::testing::facts(RestorePhase::Pending),
            OLD_ID,
            progress(name, replaces),
        );
        assert_eq!(facts.own_progress().is_some(), is_own);
        assert_eq!(facts.other_progress().is_some(), !is_own);
    }
}
