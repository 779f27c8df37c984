use std::path::PathBuf;

use super::*;
use crate::testing::resource;

fn parts(spec: Value) -> DrillParts {
    let desired = DesiredCluster::of(&resource(spec)).unwrap();
    let source = DrillSource {
        location: "place".to_owned(),
        file: PathBuf::from("/work/backup"),
        directory: PathBuf::from("/work/restored"),
        started_at: "2026-11-18T12:00:00Z".to_owned(),
    };
    drill_parts(&desired, source)
}

#[test]
fn a_drill_restores_with_the_version_of_the_cluster_and_skips_no_revision() {
    let placed = parts(json!({ "version": "3.6.16" }));
    assert_eq!(placed.version, "3.6.16");
    let text = placed.restore.to_string();
    assert!(
        text.contains("etcdutl") && text.contains("/work/backup"),
        "{text}"
    );
    assert!(text.contains("v3.6.16") && !text.contains("bump"), "{text}");
    assert_eq!(placed.restore["name"], "restore");
}

#[test]
fn the_restored_data_is_served_on_loopback_only() {
    let parts = parts(json!({}));
    for arg in parts.serve["args"].as_array().unwrap() {
        let arg = arg.as_str().unwrap();
        if arg.contains("://") {
            assert!(arg.contains("://127.0.0.1:"), "{arg}");
        }
    }
    let Task::DrillEtcd(task) = parts.compare else {
        panic!();
    };
    assert_eq!(
        (task.endpoint.as_str(), task.location.as_str()),
        (CLIENT_URL, "place")
    );
    // Authentication of the restored data asks for a certificate, which the pod makes for itself.
    assert_eq!(task.tls, parts.certificates);
    let args = parts.serve["args"].to_string();
    assert!(
        args.contains("--client-cert-auth") && args.contains("=/work/tls/ca.crt"),
        "{args}"
    );
    for container in [&parts.serve, &parts.restore] {
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 1, "no credentials of the store");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    }
}

#[test]
fn a_drill_runs_where_members_run() {
    let placed = parts(json!({
        "image": { "pullSecrets": ["corp"] },
        "scheduling": { "nodeSelector": { "disk": "fast" }, "tolerations": [{ "key": "db", "operator": "Exists" }] },
    }));
    assert_eq!(placed.placement["nodeSelector"]["disk"], "fast");
    assert_eq!(placed.placement["imagePullSecrets"][0]["name"], "corp");
    assert_eq!(placed.placement["tolerations"][0]["key"], "db");
    assert_eq!(parts(json!({})).placement, json!({}));
}
