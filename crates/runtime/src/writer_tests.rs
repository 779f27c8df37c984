//! Preconditions and expectations of writes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use parking_lot::Mutex;

use super::*;
use crate::clock::TestClock;
use crate::expectations::CachedVersion;
use crate::fake;

type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// Returns a client whose requests are answered with this status, and the requests.
fn answering(code: u16) -> (Client, Requests) {
    let requests = Requests::default();
    let recorded = requests.clone();
    let client = fake::client(move |head, body| {
        recorded.lock().push((head.method.to_string(), body));
        async move {
            let object = json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "8" } });
            if code == 200 {
                (200, object)
            } else {
                fake::failure(code, "no")
            }
        }
    });
    (client, requests)
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".into(),
        name: "a".into(),
    }
}

fn observed<K: DeserializeOwned>() -> K {
    serde_json::from_value(
        json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" } }),
    )
    .unwrap()
}

#[tokio::test]
async fn a_patch_and_a_deletion_have_the_observed_object_as_precondition() {
    let (client, requests) = answering(200);
    let (expectations, key) = (Expectations::new(TestClock::default().shared()), key());
    let writer = ObjectWriter {
        client: &client,
        expectations: &expectations,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &[],
    };
    let pod: Pod = observed();
    writer
        .patch(&pod, json!({ "metadata": { "labels": { "a": "b" } } }))
        .await
        .unwrap();
    writer.delete(&pod).await.unwrap();
    let requests = requests.lock();
    assert_eq!(requests[0].1["metadata"]["resourceVersion"], "7");
    assert_eq!(requests[0].1["metadata"]["uid"], "u");
    assert_eq!(
        requests[1].1["preconditions"],
        json!({ "uid": "u", "resourceVersion": "7" })
    );
}

#[tokio::test]
async fn a_write_of_a_watched_kind_is_expected_in_the_cache() {
    let (client, _) = answering(200);
    let (expectations, key) = (Expectations::new(TestClock::default().shared()), key());
    let writer = ObjectWriter {
        client: &client,
        expectations: &expectations,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &["Secret"],
    };
    writer.create(&observed::<Secret>()).await.unwrap();
    assert!(
        expectations.satisfied(&key, |_| None),
        "Secrets are not watched"
    );
    writer.create(&observed::<Pod>()).await.unwrap();
    assert!(!expectations.satisfied(&key, |_| None));
    assert!(expectations.satisfied(&key, |_| Some(CachedVersion {
        uid: "u".into(),
        version: "8".into()
    })));
}

#[tokio::test]
async fn a_conflict_is_an_outcome_and_a_rejection_is_an_error() {
    let (expectations, key) = (Expectations::new(TestClock::default().shared()), key());
    for (code, is_conflict) in [(409, true), (404, true), (403, false)] {
        let (client, _) = answering(code);
        let writer = ObjectWriter {
            client: &client,
            expectations: &expectations,
            key: &key,
            field_manager: "m",
            unwatched_kinds: &[],
        };
        match writer.create(&observed::<Pod>()).await {
            Ok(outcome) => assert!(is_conflict && outcome == Outcome::Conflict),
            Err(error) => {
                assert!(!is_conflict && error.to_string() == "failed to create Pod a: no")
            }
        }
    }
}

#[tokio::test]
async fn a_write_of_a_kind_that_is_not_served_is_rejected() {
    // The API server answers with a text.
    let client = fake::client(|_, _| async { (404, json!("404 page not found")) });
    let (expectations, key) = (Expectations::new(TestClock::default().shared()), key());
    let writer = ObjectWriter {
        client: &client,
        expectations: &expectations,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &[],
    };
    let error = writer.create(&observed::<Pod>()).await.unwrap_err();
    assert!(error.is_rejected());
    assert!(
        error
            .to_string()
            .contains("does not serve this kind. Apply the CustomResourceDefinitions"),
        "{error}"
    );
}

#[tokio::test]
async fn an_object_that_was_not_observed_is_neither_patched_nor_deleted() {
    let (client, requests) = answering(200);
    let (expectations, key) = (Expectations::new(TestClock::default().shared()), key());
    let writer = ObjectWriter {
        client: &client,
        expectations: &expectations,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &[],
    };
    assert_eq!(
        writer.delete_if_observed::<Pod>(None).await.unwrap(),
        Outcome::Conflict
    );
    assert_eq!(
        writer
            .patch_if_observed::<Pod>(None, json!({}))
            .await
            .unwrap(),
        Outcome::Conflict
    );
    assert!(requests.lock().is_empty());
    let error = writer
        .create_json::<Pod>(json!({ "metadata": 7 }))
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("failed to build a Pod: "),
        "{error}"
    );
}
