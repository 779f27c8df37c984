//! Canaries: keys and credentials never appear in the output of the agent, at the most detailed log level.

use evenkeel_archive::tasks::{CredentialSource, Outcome, S3Config, StoreConfig, Task};

use crate::scene::Scene;

const CANARY: &str = "canary4711secret";

fn assert_secret(scene: &Scene, output: &str, secrets: &[String]) {
    let result = std::fs::read_to_string(scene.path("result.json")).unwrap();
    for secret in secrets {
        assert!(
            !output.contains(secret.as_str()),
            "the output contains {secret}"
        );
        assert!(
            !result.contains(secret.as_str()),
            "the outcome contains {secret}"
        );
    }
}

#[test]
fn the_tls_key_never_appears_in_the_output() {
    let scene = Scene::start("3.6.16");
    scene.fill(3, 100);
    let path = scene.path("tls/tls.key");
    let key = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<String> = key
        .lines()
        .filter(|line| !line.starts_with('-'))
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty());
    let request = scene.request(Task::SnapshotEtcd(
        scene.snapshot_task(scene.address, "first"),
    ));
    let (outcome, output) = scene.run_agent(&request);
    assert!(matches!(outcome, Outcome::Succeeded(_)));
    assert!(output.contains("snapshot received"), "the log is missing");
    assert_secret(&scene, &output, &lines);
    // Keys that cannot be parsed, and one that belongs to no certificate.
    let header = "-----BEGIN PRIVATE KEY-----";
    for bad in [
        CANARY.to_owned(),
        format!("{header}\n{CANARY}\n-----END PRIVATE KEY-----\n"),
        key.replacen(&lines[0][..8], "AAAAAAAA", 1),
    ] {
        std::fs::write(&path, bad).unwrap();
        let request = scene.request(Task::SnapshotEtcd(
            scene.snapshot_task(scene.address, "second"),
        ));
        let (outcome, output) = scene.run_agent(&request);
        assert!(matches!(outcome, Outcome::Failed(_)));
        let mut secrets = lines.clone();
        secrets.push(CANARY.to_owned());
        assert_secret(&scene, &output, &secrets);
    }
}

#[test]
fn credentials_of_a_store_never_appear_in_the_output() {
    let scene = Scene::start("3.6.16");
    let credentials = scene.path("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("accessKeyID"), "AKIAEXAMPLE").unwrap();
    std::fs::write(credentials.join("secretAccessKey"), CANARY).unwrap();
    std::fs::write(credentials.join("sessionToken"), format!("token-{CANARY}")).unwrap();
    for endpoint in ["http://127.0.0.1:9", "https://127.0.0.1:9"] {
        let mut request = scene.request(Task::CheckStore);
        request.deadline_seconds = 3;
        request.store = StoreConfig::S3(S3Config {
            bucket: "backups".to_owned(),
            prefix: String::new(),
            region: "eu-central-1".to_owned(),
            endpoint: Some(endpoint.to_owned()),
            path_style: true,
            credentials: CredentialSource::Directory(credentials.clone()),
            ca_file: None,
            encryption: None,
            allow_http: true,
            allow_private_addresses: true,
        });
        let (outcome, output) = scene.run_agent(&request);
        assert!(matches!(outcome, Outcome::Failed(_)));
        assert_secret(&scene, &output, &[CANARY.to_owned()]);
    }
}
