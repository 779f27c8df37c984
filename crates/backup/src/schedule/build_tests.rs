use evenkeel_api::BackupStoreSpec;
use evenkeel_archive::tasks::EtcdDrillTask;

use super::*;
use crate::schedule::facts::due_of;
use crate::schedule::observe::ScheduleObjects;
use crate::schedule::testing::{at, location};

fn schedule() -> BackupSchedule {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-11-18T12:00:05Z" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod", "schedule": "@hourly", "deadline": "20m" },
    }))
    .unwrap()
}

fn store() -> StoreAccess {
    let spec = json!({ "s3": { "bucket": "prod", "credentials": { "secret": "keys" } } });
    let spec: BackupStoreSpec = serde_json::from_value(spec).unwrap();
    StoreAccess::of(&spec).unwrap()
}

fn complete_backup() -> Backup {
    let due = at("2026-11-18T12:00:00Z");
    let mut backup = backup(
        &schedule(),
        &crate::schedule::facts::backup_name("orders", due),
        1,
    );
    backup.metadata.uid = Some("b-uid".to_owned());
    let status = json!({ "phase": "Complete", "location": location("b1") });
    backup.status = serde_json::from_value(status).unwrap();
    backup
}

fn drill() -> Pod {
    let (schedule, store, backup) = (schedule(), store(), complete_backup());
    let params = PodParams {
        schedule: &schedule,
        store: &store,
        image: "agent:1",
    };
    let drill = DrillParams {
        backup: &backup,
        size: 1 << 30,
        due: at("2026-11-18T12:00:35Z"),
        deadline_seconds: 1800,
        engine: "etcd",
    };
    let parts = DrillParts {
        version: "3.6.16".to_owned(),
        restore: json!({ "name": "restore", "image": "etcd:1" }),
        serve: json!({ "name": "serve", "image": "etcd:1" }),
        certificates: None,
        compare: Task::DrillEtcd(EtcdDrillTask {
            tls: None,
            location: location("b1"),
            endpoint: "http://127.0.0.1:2379".to_owned(),
            started_at: "2026-11-18T12:01:00Z".to_owned(),
        }),
        placement: json!({ "nodeSelector": { "disk": "fast" } }),
    };
    drill_pod(params, drill, &parts).unwrap()
}

#[test]
fn a_backup_outlives_its_schedule() {
    let backup = complete_backup();
    assert_eq!(backup.metadata.owner_references, None);
    assert_eq!(backup.labels()[labels::SCHEDULE], "orders");
    assert_eq!(
        (backup.spec.deadline.as_str(), backup.spec.store.as_str()),
        ("20m", "prod")
    );
    assert_eq!(
        due_of("orders", &backup.name_any()),
        Some(at("2026-11-18T12:00:00Z"))
    );
    assert!(backup.name_any().len() <= 63);
}

#[test]
fn a_drill_fetches_restores_serves_and_compares() {
    let pod = drill();
    let spec = pod.spec.as_ref().unwrap();
    let names = |containers: &[k8s_openapi::api::core::v1::Container]| {
        containers
            .iter()
            .map(|it| it.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(spec.init_containers.as_ref().unwrap()),
        ["fetch", "restore"]
    );
    assert_eq!(names(&spec.containers), ["serve", "drill"]);
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.node_selector.as_ref().unwrap()["disk"], "fast");
    let requests = [
        (
            labels::REQUEST,
            spec.init_containers.as_ref().unwrap()[0].args.clone(),
        ),
        (labels::DRILL_REQUEST, spec.containers[1].args.clone()),
    ];
    for (annotation, args) in requests {
        let request: Request = serde_json::from_str(&pod.annotations()[annotation]).unwrap();
        assert_eq!(request.deadline_seconds, 1800);
        let file = args.unwrap().pop().unwrap();
        let volumes = serde_json::to_string(&spec.volumes).unwrap();
        assert!(volumes.contains(file.rsplit('/').next().unwrap()) && volumes.contains(annotation));
    }
}

#[test]
fn the_volume_of_a_drill_holds_more_than_twice_the_data() {
    let pod = drill();
    let volumes = pod.spec.unwrap().volumes.unwrap();
    let work = volumes.iter().find(|volume| volume.name == "work").unwrap();
    let limit = work.empty_dir.as_ref().unwrap().size_limit.clone().unwrap();
    let bytes = evenkeel_api::quantity::bytes(&limit).unwrap();
    assert!(bytes as f64 >= 2.2 * f64::from(1 << 30), "{bytes}");
}

#[test]
fn pods_are_observed_as_they_were_built() {
    let mut objects = ScheduleObjects {
        schedule: schedule(),
        backups: vec![complete_backup()],
        store: None,
        pods: vec![drill()],
        cluster: None,
    };
    objects.pods[0].metadata.uid = Some("p1".to_owned());
    let now = at("2026-11-18T12:02:00Z");
    let facts = objects.facts(now);
    let observed = facts.drill.unwrap();
    assert_eq!(observed.due, at("2026-11-18T12:00:35Z"));
    assert_eq!(
        (&*observed.backup_uid, &*observed.version),
        ("b-uid", "3.6.16")
    );
    assert!(facts.reading.contains(&location("b1")));

    let task = PruneTask {
        engine: "etcd".to_owned(),
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
        lineage: "0000abcd".to_owned(),
        delete: vec![location("b1")],
    };
    let (schedule, store) = (schedule(), store());
    let params = PodParams {
        schedule: &schedule,
        store: &store,
        image: "agent:1",
    };
    let placement = json!({ "nodeSelector": { "disk": "fast" } });
    let pod = prune_pod(params, task, &placement).unwrap();
    assert_eq!(json!(pod)["spec"]["nodeSelector"]["disk"], "fast");
    objects.pods = vec![pod];
    let observed = objects.facts(now).prune.unwrap();
    assert!(observed.delete.contains(&location("b1")) && observed.outcome.is_none());
    assert!(!observed.has_started);
}
