use std::path::Path;

use evenkeel_api::BackupStore;
use evenkeel_archive::tasks::Task;

use super::*;

fn store(spec: Value) -> BackupStore {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "BackupStore",
        "metadata": { "name": "prod", "namespace": "shop", "uid": "1c9e8a1f-33aa-4bcd-9e01-0123456789ab" },
        "spec": spec,
    }))
    .unwrap()
}

fn pod(spec: Value) -> Value {
    let store = store(spec);
    let access = StoreAccess::of(&store.spec).unwrap();
    let request = Request {
        store: access.config.clone(),
        task: Task::CheckStore,
        deadline_seconds: 60,
    };
    let pod = AgentPod {
        name: "prod-store-check",
        namespace: "shop",
        owner: owner_reference(&store),
        task: "check-store",
        labels: [(labels::STORE.to_owned(), "prod".to_owned())].into(),
        annotations: BTreeMap::new(),
        image: "agent:1",
        store: &access,
        request: &request,
        tls_secret: Some("orders-etcd-operator-tls"),
        spool_bytes: Some(2 << 30),
        placement: &store_placement(&store.spec),
    };
    serde_json::to_value(pod.build().unwrap()).unwrap()
}

fn s3(credentials: Value) -> Value {
    json!({ "s3": {
        "bucket": "backups", "prefix": "eu1", "region": "eu-central-1", "endpoint": "https://s3.example",
        "pathStyle": true, "credentials": credentials, "ca": { "configMap": "corp-ca" }, "encryption": {},
    } })
}

#[test]
fn the_pod_of_a_check_is_as_described() {
    let pod = pod(s3(json!({ "secret": "s3-keys" })));
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "prod-store-check",
            "namespace": "shop",
            "labels": {
                "app.kubernetes.io/name": "evenkeel-agent",
                "app.kubernetes.io/managed-by": "evenkeel",
                "backup.evenkeel.dev/task": "check-store",
                "backup.evenkeel.dev/store": "prod",
            },
            "annotations": { "backup.evenkeel.dev/request": pod["metadata"]["annotations"]["backup.evenkeel.dev/request"] },
            "ownerReferences": [{
                "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore", "name": "prod",
                "uid": "1c9e8a1f-33aa-4bcd-9e01-0123456789ab", "controller": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 90,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 15,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "agent",
                "image": "agent:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/evenkeel-agent"],
                "args": ["--request", "/etc/evenkeel/request/request.json"],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {
                    "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "128Mi" },
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [
                    { "name": "store-credentials", "mountPath": "/etc/evenkeel/store/credentials", "readOnly": true },
                    { "name": "store-ca", "mountPath": "/etc/evenkeel/store/ca", "readOnly": true },
                    { "name": "request", "mountPath": "/etc/evenkeel/request", "readOnly": true },
                    { "name": "work", "mountPath": "/work" },
                    { "name": "tls", "mountPath": "/etc/evenkeel/tls", "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "store-credentials", "secret": { "secretName": "s3-keys", "defaultMode": 0o440 } },
                { "name": "store-ca", "configMap": { "name": "corp-ca", "defaultMode": 0o444,
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "name": "request", "downwardAPI": { "defaultMode": 0o444, "items": [{ "path": "request.json",
                    "fieldRef": { "fieldPath": "metadata.annotations['backup.evenkeel.dev/request']" } }] } },
                { "name": "work", "emptyDir": { "sizeLimit": "2112Mi" } },
                { "name": "tls", "secret": { "secretName": "orders-etcd-operator-tls", "defaultMode": 0o440 } },
            ],
        },
    });
    assert_eq!(pod, expected);
}

#[test]
fn the_store_places_pods_that_serve_no_cluster() {
    let mut spec = s3(json!({ "secret": "s3-keys" }));
    spec["pods"] = json!({ "pullSecrets": ["corp"], "nodeSelector": { "pool": "db" },
        "tolerations": [{ "key": "db", "operator": "Exists" }] });
    let spec = &pod(spec)["spec"];
    assert_eq!(spec["imagePullSecrets"], json!([{ "name": "corp" }]));
    assert_eq!(spec["nodeSelector"], json!({ "pool": "db" }));
    assert_eq!(
        spec["tolerations"],
        json!([{ "key": "db", "operator": "Exists" }])
    );
}

#[test]
fn the_agent_reads_the_request_that_the_annotation_has() {
    let pod = pod(s3(json!({ "secret": "s3-keys" })));
    let request = pod["metadata"]["annotations"]["backup.evenkeel.dev/request"]
        .as_str()
        .unwrap();
    let request: Request = serde_json::from_str(request).unwrap();
    let StoreConfig::S3(config) = request.store else {
        panic!("not a bucket")
    };
    assert_eq!(
        (&*config.bucket, &*config.prefix, config.path_style),
        ("backups", "eu1", true)
    );
    assert_eq!(
        config.credentials,
        CredentialSource::Directory("/etc/evenkeel/store/credentials".into())
    );
    assert_eq!(
        config.ca_file.as_deref(),
        Some(Path::new("/etc/evenkeel/store/ca/ca.crt"))
    );
    assert_eq!(config.encryption, Some(ServerEncryption::Server));
}

#[test]
fn only_web_identity_gives_a_pod_a_token_and_it_is_for_one_audience() {
    let identity = json!({ "webIdentity": {
        "roleARN": "arn:aws:iam::123456789012:role/backup", "serviceAccount": "backup",
    } });
    let pod = pod(s3(identity));
    assert_eq!(pod["spec"]["serviceAccountName"], "backup");
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    let token = &pod["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(token["audience"], "sts.amazonaws.com");
    assert!(!pod.to_string().contains("s3-keys"));
}

#[test]
fn a_volume_store_is_a_directory_on_the_mounted_claim() {
    let spec = json!({ "volume": { "claim": "backups", "path": "etcd/eu1" } });
    let access = StoreAccess::of(&store(spec.clone()).spec).unwrap();
    assert_eq!(
        access.config,
        StoreConfig::Directory("/var/lib/evenkeel/store/etcd/eu1".into())
    );
    let pod = pod(spec);
    assert_eq!(
        pod["spec"]["volumes"][0],
        json!({ "name": "store", "persistentVolumeClaim": { "claimName": "backups" } })
    );
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][0],
        json!({ "name": "store", "mountPath": "/var/lib/evenkeel/store" })
    );
}
