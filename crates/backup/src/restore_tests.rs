use std::path::Path;

use evenkeel_archive::tasks::StoreConfig;
use k8s_openapi::api::core::v1::Container;

use super::*;

fn store() -> StoreAccess {
    StoreAccess {
        config: StoreConfig::Directory("/var/lib/evenkeel/store".into()),
        volumes: vec![
            json!({ "name": "store", "persistentVolumeClaim": { "claimName": "backups" } }),
        ],
        mounts: vec![json!({ "name": "store", "mountPath": "/var/lib/evenkeel/store" })],
        service_account: None,
    }
}

fn built() -> Pod {
    let pod = RestorePod {
        metadata: json!({ "name": "orders-kbbbb-restore", "labels": { "a": "b" }, "annotations": { "c": "d" } }),
        placement: json!({ "nodeSelector": { "disk": "ssd" } }),
        agent_image: "registry.example/evenkeel:1",
        store: &store(),
        location: "etcd/shop/orders/1",
        engine: "etcd",
        version: "3.6.16".to_owned(),
        claim: "orders-kbbbb",
        data_directory: "data",
        space_percent: 230,
        restore: json!({ "image": "etcd", "command": ["/usr/local/bin/etcdutl"] }),
        deadline_seconds: 60,
    };
    pod.build().unwrap()
}

fn containers(pod: &Pod) -> Vec<Container> {
    let spec = pod.spec.clone().unwrap();
    let init = spec.init_containers.unwrap();
    init.into_iter().chain(spec.containers).collect()
}

#[test]
fn the_steps_run_in_order_and_only_the_agent_has_the_store() {
    let pod = built();
    let containers = containers(&pod);
    let names: Vec<_> = containers.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, [FETCH, RESTORE, INSTALL]);
    let has_store = |container: &Container| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.name == "store")
    };
    assert_eq!(
        containers.iter().map(has_store).collect::<Vec<_>>(),
        [true, false, true]
    );
    let spec = pod.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
}

#[test]
fn every_step_is_restricted_and_held() {
    let pod = built();
    assert!(pods::is_held(&pod));
    for container in containers(&pod) {
        let security = container.security_context.unwrap();
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.allow_privilege_escalation, Some(false));
        let mut mounts = container.volume_mounts.unwrap().into_iter();
        let data = mounts.find(|mount| mount.name == "data").unwrap();
        assert_eq!(
            data.sub_path_expr.as_deref(),
            Some("$(DATA)"),
            "{}",
            container.name
        );
    }
}

#[test]
fn the_restored_directory_is_renamed_within_one_mount() {
    let pod = built();
    let annotations = pod.metadata.annotations.unwrap();
    let request: Request = serde_json::from_str(&annotations[INSTALL_REQUEST]).unwrap();
    let Task::Install(install) = request.task else {
        panic!("{request:?}")
    };
    assert_eq!(install.from.parent(), Some(Path::new(DATA_PATH)));
    assert_eq!(install.to, Path::new(DATA_PATH).join("data"));
    let request: Request = serde_json::from_str(&annotations[backup_labels::REQUEST]).unwrap();
    let Task::Fetch(fetch) = request.task else {
        panic!("{request:?}")
    };
    assert_eq!(
        (fetch.location.as_str(), fetch.version.as_str()),
        ("etcd/shop/orders/1", "3.6.16")
    );
}
