use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure};

use super::super::fake::{FakeApi, list, path};
use super::*;

const PODS: &str = "GET /api/v1/namespaces/shop/pods";
const NO_DELAY: ListTimes = ListTimes {
    interval: Duration::from_millis(1),
    start: Duration::from_millis(20),
    total: Duration::from_millis(200),
};
const LOCATION: &str = "evenkeel-v1/etcd/shop/orders/k7f2x/epochs/1/bases/20261118T114005Z-1267-0123456789abcdef01234567";

fn pod(phase: &str, terminated: Value) -> Value {
    json!({ "metadata": { "name": "prod-list-1", "namespace": "shop", "annotations": { labels::LIST_REQUEST: "id" } },
        "spec": { "containers": [{ "name": "agent" }] },
        "status": { "phase": phase, "containerStatuses": [{ "name": "agent", "ready": false, "restartCount": 0,
            "image": "", "imageID": "", "state": { "terminated": terminated } }] } })
}

fn succeeded() -> Value {
    pod("Succeeded", json!({ "exitCode": 0 }))
}

fn options(import: &[String]) -> FromStoreOptions<'_> {
    FromStoreOptions {
        store: "prod",
        cluster: None,
        import,
        import_all: false,
        is_wide: false,
    }
}

fn store() -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore", "metadata": { "name": "prod", "namespace": "shop" },
        "spec": { "volume": { "claim": "backups" } } })
}

async fn wait(api: &FakeApi) -> Result<Listing, CliError> {
    wait_for_log(&api.connection(), "prod", "id", NO_DELAY).await
}

#[tokio::test]
async fn the_log_is_read_when_the_pod_of_the_request_has_succeeded() {
    let api = FakeApi::default();
    let mut other = succeeded();
    other["metadata"]["annotations"][labels::LIST_REQUEST] = json!("another");
    other["metadata"]["name"] = json!("prod-list-0");
    api.on(PODS, 200, list([other.clone()]))
        .on(
            PODS,
            200,
            list([other.clone(), pod("Running", json!(null))]),
        )
        .on(PODS, 200, list([other, succeeded()]))
        .on(&format!("{PODS}/prod-list-1/log"), 200, json!("lines\n"));
    assert_eq!(wait(&api).await.unwrap().log, "lines\n");
}

#[tokio::test]
async fn a_log_that_has_lost_its_beginning_is_an_error() {
    let lines: Vec<_> = (0..3)
        .map(|index| {
            format!(
                "{}\n",
                json!({ "location": format!("{LOCATION}{index}"), "state": "Complete" })
            )
        })
        .collect();
    let log = |lines: &[String]| format!("{{\"level\":\"INFO\"}}\n{}", lines.concat());
    let (listed, sha256) = stored::checksum(&log(&lines));
    let outcome =
        json!({ "succeeded": { "listed": { "listed": listed, "omitted": 7, "sha256": sha256 } } });
    let ended = json!({ "exitCode": 0, "message": outcome.to_string() });
    let read = async |lines: &[String]| {
        let api = FakeApi::default();
        api.on(PODS, 200, list([pod("Succeeded", ended.clone())]))
            .on(&format!("{PODS}/prod-list-1/log"), 200, json!(log(lines)));
        wait(&api).await
    };
    assert_eq!(read(&lines).await.unwrap().omitted, 7);
    let error = read(&lines[1..]).await.unwrap_err();
    assert!(
        error
            .message
            .contains("has listed 3 backups, and its log has 2"),
        "{error}"
    );
    // Another content with the same number of lines.
    let other = [lines[1].clone(), lines[1].clone(), lines[2].clone()];
    assert!(read(&other).await.is_err());
}

#[tokio::test]
async fn the_outcome_of_a_failed_pod_is_the_error() {
    let outcome = Outcome::Failed(TaskFailure {
        reason: FailureReason::AccessDenied,
        message: "The credentials do not allow to list the bucket.".to_owned(),
    });
    let message = serde_json::to_string(&outcome).unwrap();
    let api = FakeApi::default();
    let ended = json!({ "exitCode": 1, "message": message });
    api.on(PODS, 200, list([pod("Failed", ended)]));
    let error = wait(&api).await.unwrap_err();
    assert_eq!(
        error.message,
        "cannot list BackupStore prod: AccessDenied: The credentials do not allow to list the bucket"
    );
    let api = FakeApi::default();
    api.on(PODS, 200, list([pod("Failed", json!({ "exitCode": 137 }))]));
    assert_eq!(
        wait(&api).await.unwrap_err().message,
        "cannot list BackupStore prod: the agent ended with exit code 137 and without a report"
    );
    let mut evicted = pod("Failed", json!(null));
    evicted["status"]["reason"] = json!("Evicted");
    evicted["status"]["message"] = json!("The node was low on memory.");
    let api = FakeApi::default();
    api.on(PODS, 200, list([evicted]));
    assert_eq!(
        wait(&api).await.unwrap_err().message,
        "cannot list BackupStore prod: the pod ended without a report: Evicted: The node was low on memory"
    );
}

#[tokio::test]
async fn a_listing_that_does_not_start_or_end_is_an_error() {
    let api = FakeApi::default();
    api.on(PODS, 200, list([]));
    let error = wait(&api).await.unwrap_err();
    assert!(
        error.message.starts_with("the operator has started no pod"),
        "{error}"
    );
    let api = FakeApi::default();
    api.on(PODS, 200, list([pod("Running", json!(null))]));
    let error = wait(&api).await.unwrap_err();
    assert!(
        error
            .message
            .starts_with("BackupStore prod was not listed within")
            && error.message.ends_with("the agent reads the store"),
        "{error}"
    );
}

#[tokio::test]
async fn a_listing_is_requested_and_the_chosen_backup_imported() {
    let line = json!({ "location": LOCATION, "state": "Complete" });
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("backupstores")),
        200,
        list([store()]),
    )
    .on(&format!("GET {}", path("backups")), 200, list([]))
    .on(
        &format!("PATCH {}", path("backupstores/prod")),
        200,
        store(),
    )
    .on(
        &format!("{PODS}/prod-list-1/log"),
        200,
        json!(format!("{line}\n")),
    );
    let created = stored::object(&stored::parse(&line.to_string())[0], "prod");
    api.on(
        &format!("POST {}", path("backups")),
        201,
        serde_json::to_value(&created).unwrap(),
    );
    // The pod has the identifier of the request, which is known only then.
    let answering = api.clone();
    let answer = async move {
        loop {
            if let Some((_, patch)) = answering.changes().first() {
                let mut pod = succeeded();
                pod["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
                answering.on(PODS, 200, list([pod]));
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    api.on(PODS, 200, list([]));
    let import = [LOCATION.to_owned()];
    let connection = api.connection();
    let (listed, ()) = futures::join!(
        list_and_import(
            &connection,
            options(&import),
            ListTimes {
                start: Duration::from_secs(20),
                ..NO_DELAY
            }
        ),
        answer
    );
    let listed = listed.unwrap();
    assert_eq!(listed.imported, [created.name_any()]);
    assert!(listed.items[0].has_object);
    let changes = api.changes();
    assert_eq!(changes[0].0, format!("PATCH {}", path("backupstores/prod")));
    let id = changes[0].1["metadata"]["annotations"][labels::LIST_REQUEST]
        .as_str()
        .unwrap();
    assert_eq!(id.len(), 16);
    assert_eq!(changes[1].1["spec"]["existing"], LOCATION);
    assert_eq!(changes[1].1["spec"]["cluster"]["name"], "orders");
}

#[tokio::test]
async fn an_import_that_was_done_meanwhile_is_no_error() {
    let line = json!({ "location": LOCATION, "state": "Complete" });
    let backup = stored::object(&stored::parse(&line.to_string())[0], "prod");
    let name = backup.name_any();
    let exists = json!({ "kind": "Status", "status": "Failure", "message": "exists", "reason": "AlreadyExists", "code": 409 });
    let api = FakeApi::default();
    api.on(&format!("POST {}", path("backups")), 409, exists)
        .on(
            &format!("GET {}", path(&format!("backups/{name}"))),
            200,
            serde_json::to_value(&backup).unwrap(),
        );
    assert_eq!(import(&api.connection(), &backup).await, Ok(()));
    let mut other = backup.clone();
    other.spec.existing = Some("elsewhere".to_owned());
    assert!(import(&api.connection(), &other).await.is_err());
}

#[tokio::test]
async fn an_unknown_store_is_not_asked_for_a_listing() {
    let api = FakeApi::default();
    let mut other = store();
    other["metadata"]["name"] = json!("test");
    api.on(&format!("GET {}", path("backupstores")), 200, list([other]))
        .on(&format!("GET {}", path("backups")), 200, list([]));
    let error = list_and_import(&api.connection(), options(&[]), NO_DELAY)
        .await
        .unwrap_err();
    assert_eq!(error.help.as_deref(), Some("existing stores: test"));
    assert!(api.changes().is_empty());
}

#[test]
fn identifiers_are_random() {
    assert_ne!(request_id(), request_id());
}
