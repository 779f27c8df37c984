use serde_json::{Value, json};

use super::*;
use crate::args::ColorMode;

const NOW: &str = "2026-11-18T12:00:00Z";
const OPTIONS: RestoresOptions<'static> = RestoresOptions {
    cluster: None,
    all_namespaces: false,
};

fn restore(name: &str, created: &str, status: Value) -> Restore {
    serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": name, "namespace": "shop", "creationTimestamp": created },
        "spec": { "cluster": { "name": "orders" }, "from": { "backup": "nightly" }, "replaces": "9c1f" },
        "status": status }))
    .unwrap()
}

fn restores() -> Vec<Restore> {
    vec![
        restore(
            "first",
            "2026-11-17T12:00:00Z",
            json!({ "phase": "Complete", "message": "The cluster serves the data.", "undoUntil": "2026-11-18T11:00:00Z" }),
        ),
        restore(
            "second",
            "2026-11-18T10:00:00Z",
            json!({ "phase": "Complete", "undoUntil": "2026-11-21T10:00:00Z" }),
        ),
        restore(
            "third",
            "2026-11-18T11:59:00Z",
            json!({ "phase": "Pending", "message": "Backup nightly does not exist." }),
        ),
    ]
}

#[test]
fn the_newest_is_first_and_a_restore_that_waits_says_why() {
    let list = report(&restores(), OPTIONS, NOW.parse().unwrap());
    let terminal = Terminal::new(ColorMode::Never);
    assert_eq!(
        text(&list, Some("shop"), OPTIONS, terminal),
        "NAME    CLUSTER  BACKUP   AGE  PHASE     UNDO UNTIL\n\
         third   orders   nightly  60s  Pending   -\n\
         second  orders   nightly  2h   Complete  2026-11-21T10:00Z\n\
         first   orders   nightly  24h  Complete  -\n\
         \n\
         Pending      third: Backup nightly does not exist.\n"
    );
    let all = text(&list, None, OPTIONS, terminal);
    assert!(all.starts_with("NAMESPACE  NAME"), "{all}");
}

#[test]
fn restores_of_other_clusters_are_left_out() {
    let options = RestoresOptions {
        cluster: Some("baskets"),
        ..OPTIONS
    };
    let list = report(&restores(), options, NOW.parse().unwrap());
    assert!(list.items.is_empty());
    let text = text(
        &list,
        Some("shop"),
        options,
        Terminal::new(ColorMode::Never),
    );
    assert!(
        text.starts_with("No Restores found for baskets in namespace shop."),
        "{text}"
    );
    assert!(text.contains("baskets --from BACKUP` shows"), "{text}");
}
