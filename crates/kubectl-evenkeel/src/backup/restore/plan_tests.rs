use serde_json::{Value, json};

use super::*;
use crate::args::ColorMode;
use crate::scene::Scene;

const ID: &str = "9c1f4e5a0b7d2c11";
const NOW: &str = "2026-11-18T12:00:00Z";

/// The objects of a restore that can begin. Tests change them.
struct Objects {
    cluster: Value,
    backup: Value,
    restores: Vec<Value>,
    revision: Option<u64>,
}

impl Objects {
    fn new() -> Self {
        Self {
            cluster: json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": { "name": "orders", "namespace": "shop" },
                "spec": { "version": "3.6.16", "members": 3, "storage": { "size": "2Gi" } },
                "status": { "clusterId": ID } }),
            backup: json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
                "metadata": { "name": "nightly", "namespace": "shop" },
                "spec": { "cluster": { "name": "orders" }, "store": "prod" },
                "status": { "phase": "Complete", "position": "revision 4711", "engineVersion": "3.6.16", "clusterId": ID,
                    "size": "25Mi", "finishedAt": "2026-11-18T09:00:00Z",
                    "proven": { "at": "2026-11-18T10:00:00Z", "version": "3.6.16", "seconds": 4 } } }),
            restores: Vec::new(),
            revision: Some(5210),
        }
    }

    fn plan(&self) -> Result<RestorePlanReport, CliError> {
        let parse = |value: &Value| serde_json::from_value(value.clone()).unwrap();
        let restores: Vec<Restore> = self
            .restores
            .iter()
            .map(|it| serde_json::from_value(it.clone()).unwrap())
            .collect();
        PlanInput {
            cluster: &parse(&self.cluster),
            report: &Scene::healthy().report(),
            revision: self.revision,
            backup: &serde_json::from_value(self.backup.clone()).unwrap(),
            restores: &restores,
            name: None,
            keep_old_data_for: "72h",
        }
        .plan()
    }

    fn text(&self) -> String {
        let terminal = Terminal::new(ColorMode::Never);
        text(&self.plan().unwrap(), NOW.parse().unwrap(), terminal)
    }

    fn error(change: impl FnOnce(&mut Self)) -> CliError {
        let mut objects = Self::new();
        change(&mut objects);
        let error = objects.plan().unwrap_err();
        assert!(error.message.ends_with("Nothing was changed"), "{error}");
        assert!(error.help.is_some(), "{error}");
        error
    }
}

fn restore(name: &str, phase: &str) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "from": { "backup": "nightly" }, "replaces": ID },
        "status": { "phase": phase } })
}

#[test]
fn the_plan_says_what_is_given_up_and_what_clients_experience() {
    assert_eq!(
        Objects::new().text(),
        "orders: the restore replaces all data of the cluster. Nothing was changed yet.\n\
         Gives up     cluster ID 9c1f4e5a0b7d2c11, etcd 3.6.16, revision 5210\n\
         Backup       nightly: revision 4711, taken 3h ago, 25Mi, etcd 3.6.16\n\
         Proven       restored by a drill 2h ago, took 4s\n\
         Lost         499 revisions: all writes since the backup, which was taken 3h ago\n\
         Clients      are served until the new data is ready, then not until the new\n\
         \x20            members have started. Revisions continue 1,000,000,000 above that\n\
         \x20            of the backup, and older ones count as compacted: watches end with\n\
         \x20            an error, and clients list again. Leases begin anew\n\
         Needs        a new volume of 2Gi for each member, besides the old ones\n\
         Old data     kept for 72h, then deleted\n\
         Undo         `kubectl evenkeel restore undo orders-nightly-9c1f4e`, as long as\n\
         \x20            the old data is kept\n\
         Next         the same command with --yes restores the backup\n"
    );
}

#[test]
fn the_loss_is_only_counted_within_one_history() {
    let lost = |change: fn(&mut Objects)| {
        let mut objects = Objects::new();
        change(&mut objects);
        let text = objects.text();
        let line = text.lines().find(|line| line.starts_with("Lost")).unwrap();
        line["Lost".len()..].trim().to_owned()
    };
    assert_eq!(
        lost(|it| it.revision = Some(4711)),
        "nothing: there was no write since the backup"
    );
    assert!(lost(|it| it.revision = Some(4712)).starts_with("1 revision: "));
    assert!(lost(|it| it.revision = None).starts_with("all writes since"));
    let other = lost(|it| it.backup["status"]["clusterId"] = json!("77aa"));
    assert!(other.starts_with("all current data"), "{other}");
}

#[test]
fn a_backup_that_was_never_proven_or_is_of_another_cluster_is_said() {
    let mut objects = Objects::new();
    objects.backup["status"]["proven"] = json!(null);
    objects.backup["spec"]["cluster"]["name"] = json!("baskets");
    objects.cluster["spec"]["paused"] = json!(true);
    let text = objects.text();
    assert!(text.contains("Proven       never"), "{text}");
    assert!(text.contains("Note         the backup is of EtcdCluster baskets."));
    assert!(
        text.contains("Note         the cluster is paused."),
        "{text}"
    );
}

#[test]
fn a_restore_that_could_never_begin_is_rejected() {
    for (change, text) in [
        (
            (|it| it.cluster["status"]["clusterId"] = json!("")) as fn(&mut Objects),
            "the bootstrap of EtcdCluster orders is not finished",
        ),
        (
            |it| it.cluster["spec"]["storage"] = json!({ "ephemeral": true }),
            "has no volumes",
        ),
        (
            |it| it.backup["status"]["phase"] = json!("Running"),
            "is not complete: its phase is Running",
        ),
        (
            |it| it.backup["status"]["phase"] = json!("Failed"),
            "has failed",
        ),
        (
            |it| {
                it.backup["status"]["damaged"] =
                    json!({ "at": NOW, "message": "The hash differs." });
            },
            "is damaged: The hash differs",
        ),
        (
            |it| it.backup["status"]["engineVersion"] = json!("3.7.3"),
            "is of etcd 3.7.3, which etcd 3.6.16",
        ),
        (
            |it| it.backup["status"]["engineVersion"] = json!(""),
            "is unknown",
        ),
        (
            |it| it.restores = vec![restore("first", "Pending")],
            "Restore first of EtcdCluster orders comes first",
        ),
        (
            |it| {
                it.cluster["status"]["restore"] =
                    json!({ "name": "other", "phase": "Preparing", "replaces": ID });
            },
            "Restore other of EtcdCluster orders comes first",
        ),
    ] {
        let error = Objects::error(change);
        assert!(error.message.contains(text), "{error}");
    }
}

#[test]
fn a_restore_that_has_ended_does_not_block_and_its_name_is_not_used_again() {
    let name = |restores: Vec<Value>| {
        let objects = Objects {
            restores,
            ..Objects::new()
        };
        objects.plan().unwrap().name
    };
    assert_eq!(name(vec![]), "orders-nightly-9c1f4e");
    // The same command again continues a Restore that has not ended.
    let own = "orders-nightly-9c1f4e";
    assert_eq!(name(vec![restore(own, "Preparing")]), own);
    assert_eq!(
        name(vec![restore(own, "Undone")]),
        "orders-nightly-9c1f4e-2"
    );
    let both = vec![
        restore(own, "Undone"),
        restore(&format!("{own}-2"), "Undone"),
    ];
    assert_eq!(name(both), "orders-nightly-9c1f4e-3");
}

#[test]
fn names_are_short_enough_and_name_the_cluster_once() {
    let mut objects = Objects::new();
    objects.backup["metadata"]["name"] = json!("orders-20261118-114000");
    assert_eq!(
        objects.plan().unwrap().name,
        "orders-20261118-114000-9c1f4e"
    );
    objects.backup["metadata"]["name"] = json!("b".repeat(63));
    assert_eq!(objects.plan().unwrap().name.len(), 63);
    objects.backup["metadata"]["name"] = json!(format!("{}-{}", "b".repeat(48), "c".repeat(14)));
    let name = objects.plan().unwrap().name;
    assert!(!name.contains("--"), "{name}");
}
