use serde_json::json;

use super::*;
use crate::args::ColorMode;
use crate::scene::Scene;

const NOW: &str = "2026-11-18T12:00:00Z";

fn line(phase: &str, message: &str, undo_until: Option<&str>) -> String {
    let mut cluster = Scene::healthy().cluster();
    let progress = json!({ "name": "back", "phase": phase, "message": message, "replaces": "9c1f", "undoUntil": undo_until });
    if let Some(status) = &mut cluster.status {
        status.restore = serde_json::from_value(progress).unwrap();
    }
    let report = RestoreStateReport::new(&cluster).unwrap();
    report.text(NOW.parse().unwrap(), Terminal::new(ColorMode::Never))
}

#[test]
fn a_restore_is_shown_while_it_is_under_way_or_can_be_undone() {
    assert_eq!(
        line("Preparing", "Filling a volume.", None),
        "Restore      Preparing back: Filling a volume.\n"
    );
    assert_eq!(line("Starting", "", None), "Restore      Starting back\n");
    assert_eq!(
        line("Complete", "Done.", Some("2026-11-21T12:00:00Z")),
        "Restore      Complete back: can be undone until 2026-11-21 12:00 UTC (in 3d0h):\n\
         \x20            `kubectl evenkeel restore undo back`\n"
    );
    assert_eq!(
        line("Pending", "The backup does not exist.", None),
        "Restore      Pending  back: The backup does not exist.\n"
    );
    for (phase, until) in [
        ("Complete", Some("2026-11-18T11:00:00Z")),
        ("Complete", None),
        ("Undone", None),
        ("NotNeeded", None),
    ] {
        assert_eq!(line(phase, "Done.", until), "", "{phase}");
    }
}

#[test]
fn a_cluster_that_was_never_restored_has_no_line() {
    assert_eq!(RestoreStateReport::new(&Scene::healthy().cluster()), None);
}
