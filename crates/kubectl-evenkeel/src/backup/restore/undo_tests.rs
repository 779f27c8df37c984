use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::fake::{FakeApi, list, path};
use super::*;
use crate::args::{ColorMode, OutputFormat};

const NOW: &str = "2026-11-18T12:00:00Z";

fn restore(phase: &str, until: Option<&str>) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": "back", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "from": { "backup": "nightly" }, "replaces": "9c1f" },
        "status": { "phase": phase, "clusterId": "77aa", "undoUntil": until, "finishedAt": "2026-11-18T10:00:00Z" } })
}

fn cluster(last: &str) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop" }, "spec": { "version": "3.6.16", "members": 3 },
        "status": { "clusterId": "77aa", "restore": { "name": last, "phase": "Complete", "replaces": "9c1f" } } })
}

fn options(is_confirmed: bool) -> RequestOptions {
    RequestOptions {
        is_confirmed,
        waits: false,
        timeout: Duration::from_secs(60),
    }
}

async fn undo(api: &FakeApi, is_confirmed: bool) -> Result<u8, CliError> {
    let output = OutputOptions::new(OutputFormat::Text, Terminal::new(ColorMode::Never));
    run(&api.connection(), "back", options(is_confirmed), output).await
}

#[test]
fn an_undo_is_possible_as_long_as_the_old_data_is_kept() {
    let check = |phase: &str, until: Option<&str>, last: &str| {
        let restore = serde_json::from_value(restore(phase, until)).unwrap();
        let cluster = serde_json::from_value(cluster(last)).unwrap();
        require_possible(&restore, &cluster, NOW.parse().unwrap())
            .map_err(|error| error.message)
            .err()
            .unwrap_or_default()
    };
    let (ahead, past) = (Some("2026-11-21T10:00:00Z"), Some("2026-11-18T11:00:00Z"));
    assert_eq!(check("Complete", ahead, "back"), "");
    assert_eq!(check("Undoing", None, "back"), "");
    for (phase, until, last, text) in [
        (
            "Complete",
            past,
            "back",
            "was kept until 2026-11-18T11:00:00Z only",
        ),
        ("Complete", None, "back", "is not kept any more"),
        (
            "Complete",
            ahead,
            "later",
            "Restore later has replaced the data since",
        ),
        ("Undone", None, "back", "was undone already"),
        ("Preparing", None, "back", "its phase is Preparing"),
        ("NotNeeded", None, "other", "its phase is NotNeeded"),
    ] {
        let message = check(phase, until, last);
        assert!(message.contains(text), "{phase}: {message}");
        assert!(message.ends_with("Nothing was changed"), "{message}");
    }
}

#[tokio::test]
async fn without_yes_nothing_is_changed_and_with_yes_the_spec_is_patched() {
    let api = FakeApi::default();
    let ahead = (Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let patch = format!("PATCH {}", path("restores/back"));
    api.on(
        &format!("GET {}", path("restores/back")),
        200,
        restore("Complete", Some(&ahead)),
    )
    .on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster("back"),
    )
    .on(&patch, 200, restore("Complete", Some(&ahead)));
    assert_eq!(undo(&api, false).await.unwrap(), 0);
    assert!(api.changes().is_empty());
    assert_eq!(undo(&api, true).await.unwrap(), 0);
    let changes = api.changes();
    assert_eq!(changes, [(patch, json!({ "spec": { "undo": true } }))]);
}

#[tokio::test]
async fn an_unknown_restore_is_answered_with_the_known_ones() {
    let api = FakeApi::default();
    let missing = json!({ "kind": "Status", "status": "Failure", "message": "not found", "code": 404,
        "reason": "NotFound", "details": { "name": "back" } });
    let mut other = restore("Complete", None);
    other["metadata"]["name"] = json!("other");
    api.on(&format!("GET {}", path("restores/back")), 404, missing)
        .on(&format!("GET {}", path("restores")), 200, list([other]));
    let error = undo(&api, false).await.unwrap_err();
    assert_eq!(error.exit_code, EXIT_NOT_FOUND);
    assert_eq!(error.help.as_deref(), Some("existing restores: other"));
}

#[test]
fn the_plan_of_an_undo_says_what_is_lost() {
    let restore = restore("Complete", Some("2026-11-21T10:00:00Z"));
    let restore: Restore = serde_json::from_value(restore).unwrap();
    let terminal = Terminal::new(ColorMode::Never);
    assert_eq!(
        text(
            &RestoreReport::new(&restore),
            true,
            NOW.parse().unwrap(),
            terminal
        ),
        "orders: the undo of Restore back brings the old data back. Nothing was changed\n\
         yet.\n\
         Gives up     cluster ID 77aa, the data of Backup nightly\n\
         Brings back  cluster ID 9c1f\n\
         Lost         all writes since the restore, which ended 2h ago\n\
         Clients      are not served while the members are exchanged. Revisions fall back\n\
         \x20            to those of the old data. A watch from a revision of the restored\n\
         \x20            data gets no error and no events: restart clients that watch\n\
         Possible     until 2026-11-21 10:00 UTC (in 2d22h)\n\
         Note         the cluster is paused. The undo begins when it is resumed: `kubectl\n\
         \x20            evenkeel resume orders`\n\
         Next         the same command with --yes undoes the restore\n"
    );
}
