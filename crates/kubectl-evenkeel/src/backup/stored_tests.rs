use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::BackupSummary;
use serde_json::json;

use super::super::report::StoredBackupList;
use super::super::stored_text;
use super::*;
use crate::args::ColorMode;
use crate::report::API_VERSION;
use crate::terminal::Terminal;

const NEW: &str = "evenkeel-v1/etcd/shop/orders/k7f2x/epochs/1/bases/20261118T114005Z-1267-0123456789abcdef01234567";
const OLD: &str = "evenkeel-v1/etcd/shop/orders/k7f2x/epochs/1/bases/20261117T114005Z-1200-0123456789abcdef01234567";
const UNFINISHED: &str =
    "evenkeel-v1/etcd/web/users/z9c3a/epochs/1/bases/20261118T113000Z-9-0123456789abcdef01234567";

fn line(location: &str, finished: &str) -> Value {
    let cluster = ClusterInfo {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
        lineage: "k7f2x".to_owned(),
        cluster_id: "26937bbebc2c7cf".to_owned(),
        member: "orders-gv2z5".to_owned(),
    };
    let summary = BackupSummary {
        position: "revision 4711".to_owned(),
        engine_version: "3.6.16".to_owned(),
        cluster_id: "26937bbebc2c7cf".to_owned(),
        member: "orders-gv2z5".to_owned(),
        size: 26_214_400,
        stored_size: 8_388_608,
        keys: Some(1200),
        started_at: finished.to_owned(),
        finished_at: finished.to_owned(),
    };
    json!({ "location": location, "state": "Complete", "engine": "etcd", "cluster": cluster, "epoch": 1,
        "summary": summary, "future": true })
}

fn log() -> String {
    let message = json!({ "timestamp": "t", "level": "INFO", "message": "the backup exists already", "location": NEW });
    let unfinished = json!({ "location": UNFINISHED, "state": "Unfinished" });
    let old = line(OLD, "2026-11-17T11:40:09Z");
    let new = line(NEW, "2026-11-18T11:40:09Z");
    format!("{message}\n{old}\nnot JSON\n{unfinished}\n{new}\n[1]\n")
}

fn backup(name: &str, location: &str, is_imported: bool) -> Backup {
    let existing = is_imported.then_some(location);
    serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup", "metadata": { "name": name },
        "spec": { "cluster": { "name": "orders" }, "store": "prod", "existing": existing },
        "status": { "phase": "Complete", "location": if is_imported { "" } else { location } } }))
    .unwrap()
}

#[test]
fn the_lines_of_the_agent_are_read_and_others_ignored() {
    let backups = parse(&log());
    let locations: Vec<_> = backups.iter().map(|it| it.location.as_str()).collect();
    assert_eq!(locations, [NEW, UNFINISHED, OLD]);
    let newest = &backups[0];
    assert_eq!(newest.position, "revision 4711");
    assert_eq!(
        (newest.size_bytes, newest.stored_bytes),
        (Some(26_214_400), Some(8_388_608))
    );
    let unfinished = &backups[1];
    assert_eq!(
        (unfinished.namespace.as_str(), unfinished.cluster.as_str()),
        ("web", "users")
    );
    assert_eq!(
        time(unfinished).unwrap().to_string(),
        "2026-11-18T11:30:00Z"
    );
}

#[test]
fn names_are_stable_valid_and_differ_by_location() {
    assert_eq!(derived_name(NEW), "orders-20261118-1140-e74c0b");
    assert_ne!(derived_name(NEW), derived_name(OLD));
    let elsewhere = NEW.replace("/shop/", "/web/");
    assert_ne!(derived_name(NEW), derived_name(&elsewhere));
    for location in [
        "",
        "x",
        "a/b/c/-UPPER.case-/d",
        &NEW.replace("orders", &"o".repeat(253)),
    ] {
        let name = derived_name(location);
        assert!((1..=63).contains(&name.len()), "{name}");
        assert!(
            name.starts_with(|it: char| it.is_ascii_alphanumeric()),
            "{name}"
        );
        assert!(
            name.chars()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-'),
            "{name}"
        );
    }
}

#[test]
fn a_backup_with_an_object_is_not_imported_again() {
    let mut items = parse(&log());
    mark(
        &mut items,
        "prod",
        &[backup("hourly-1", NEW, false), backup("mine", OLD, true)],
    );
    assert_eq!(
        (items[0].name.as_str(), items[0].has_object),
        ("hourly-1", true)
    );
    assert_eq!(
        (items[2].name.as_str(), items[2].has_object),
        ("mine", true)
    );
    let imports = choose(&items, &[], true).unwrap();
    assert!(imports.chosen.is_empty());
    assert_eq!(
        imports.skipped,
        [
            "hourly-1 is not imported: Backup hourly-1 represents it already".to_owned(),
            format!("{} is not imported: its state is Unfinished", items[1].name),
            "mine is not imported: Backup mine represents it already".to_owned(),
        ]
    );
    mark(&mut items, "other", &[]);
    let mut fresh = parse(&log());
    mark(&mut fresh, "other", &[backup("hourly-1", NEW, false)]);
    assert!(!fresh[0].has_object, "another store has other backups");
}

#[test]
fn backups_are_chosen_by_location_or_name() {
    let items = parse(&log());
    let chosen = |wanted: &[&str], all| {
        let wanted: Vec<_> = wanted.iter().map(|one| (*one).to_owned()).collect();
        choose(&items, &wanted, all)
    };
    assert_eq!(chosen(&[OLD], false).unwrap().chosen, [2]);
    assert_eq!(chosen(&[&derived_name(NEW)], false).unwrap().chosen, [0]);
    assert_eq!(chosen(&[], true).unwrap().chosen, [0, 2]);
    assert_eq!(chosen(&[], false), Ok(Imports::default()));
    let error = chosen(&["nowhere"], false).unwrap_err();
    assert_eq!(error.exit_code, EXIT_NOT_FOUND);
    let error = chosen(&[UNFINISHED], false).unwrap_err();
    assert!(
        error.message.ends_with("its state is Unfinished"),
        "{error}"
    );
    let object = object(&items[0], "prod");
    assert_eq!(object.spec.existing.as_deref(), Some(NEW));
    assert_eq!(object.spec.cluster.name, "orders");
}

#[test]
fn the_table_says_how_to_import_and_what_follows() {
    let mut list = StoredBackupList {
        api_version: API_VERSION,
        kind: "StoredBackupList",
        time: "2026-11-18T12:00:00Z".to_owned(),
        namespace: "shop".to_owned(),
        store: "prod".to_owned(),
        items: parse(&log())
            .into_iter()
            .filter(|it| it.cluster == "orders")
            .collect(),
        imported: Vec::new(),
        not_imported: Vec::new(),
        omitted: 0,
    };
    let render = |list: &_| stored_text::text(list, false, Terminal::new(ColorMode::Never));
    let name = derived_name(NEW);
    let old = derived_name(OLD);
    assert_eq!(
        render(&list),
        format!(
            "NAME                         CLUSTER  AGE  STATE     POSITION       OBJECT\n\
             {name}  orders   19m  Complete  revision 4711  no\n\
             {old}  orders   24h  Complete  revision 4711  no\n\
             \n\
             Import       `kubectl evenkeel backups --from-store prod --import NAME` creates\n\
             \x20            a Backup object for a backup, and --import-all for all that are\n\
             \x20            complete. New clusters can begin with them\n"
        )
    );
    list.imported = vec![name.clone()];
    list.items[0].has_object = true;
    let text = render(&list);
    assert!(
        text.ends_with(&format!(
            "Imported     {name}\n\
             Next         a new cluster begins with a backup if its manifest has:\n\
             \n  spec:\n    bootstrap: {{from: {{backup: {name}}}}}\n"
        )),
        "{text}"
    );
    list.items.clear();
    assert_eq!(render(&list), "BackupStore prod has no backups.\n");
}
