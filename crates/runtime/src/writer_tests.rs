//! Every write is pinned, and noted.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Pod, Secret};

use super::*;
use crate::clock::TestClock;
use crate::expectations::CachedVersion;
use crate::fake;

type Said = Arc<Mutex<Vec<(String, Value)>>>;

/// A client whose every write is answered so, and what was written.
fn answering(code: u16) -> (Client, Said) {
    let said = Said::default();
    let heard = said.clone();
    let client = fake::client(move |head, body| {
        heard.lock().unwrap().push((head.method.to_string(), body));
        async move {
            let there = json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "8" } });
            if code == 200 {
                (200, there)
            } else {
                fake::failure(code, "no")
            }
        }
    });
    (client, said)
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".into(),
        name: "a".into(),
    }
}

fn found<K: DeserializeOwned>() -> K {
    serde_json::from_value(
        json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" } }),
    )
    .unwrap()
}

#[tokio::test]
async fn a_change_and_a_deletion_name_the_object_that_they_were_decided_on() {
    let (client, said) = answering(200);
    let (written, key) = (Expectations::new(TestClock::default().shared()), key());
    let hand = ObjectWriter {
        client: &client,
        expectations: &written,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &[],
    };
    let pod: Pod = found();
    hand.patch(&pod, json!({ "metadata": { "labels": { "a": "b" } } }))
        .await
        .unwrap();
    hand.delete(&pod).await.unwrap();
    let said = said.lock().unwrap();
    assert_eq!(said[0].1["metadata"]["resourceVersion"], "7");
    assert_eq!(said[0].1["metadata"]["uid"], "u");
    assert_eq!(
        said[1].1["preconditions"],
        json!({ "uid": "u", "resourceVersion": "7" })
    );
}

#[tokio::test]
async fn what_was_written_is_waited_for_unless_nobody_watches_it() {
    let (client, _) = answering(200);
    let (written, key) = (Expectations::new(TestClock::default().shared()), key());
    let hand = ObjectWriter {
        client: &client,
        expectations: &written,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &["Secret"],
    };
    hand.create(&found::<Secret>()).await.unwrap();
    assert!(
        written.satisfied(&key, |_| None),
        "there is no store of secrets"
    );
    hand.create(&found::<Pod>()).await.unwrap();
    assert!(!written.satisfied(&key, |_| None));
    assert!(written.satisfied(&key, |_| Some(CachedVersion {
        uid: "u".into(),
        version: "8".into()
    })));
}

#[tokio::test]
async fn a_conflict_says_look_again_and_a_refusal_names_what_was_tried() {
    let (written, key) = (Expectations::new(TestClock::default().shared()), key());
    for (code, overtaken) in [(409, true), (404, true), (403, false)] {
        let (client, _) = answering(code);
        let hand = ObjectWriter {
            client: &client,
            expectations: &written,
            key: &key,
            field_manager: "m",
            unwatched_kinds: &[],
        };
        match hand.create(&found::<Pod>()).await {
            Ok(outcome) => assert!(overtaken && outcome == Outcome::Conflict),
            Err(error) => assert!(!overtaken && error.to_string() == "cannot create the Pod a: no"),
        }
    }
}

#[tokio::test]
async fn what_was_not_found_is_neither_changed_nor_deleted() {
    let (client, said) = answering(200);
    let (written, key) = (Expectations::new(TestClock::default().shared()), key());
    let hand = ObjectWriter {
        client: &client,
        expectations: &written,
        key: &key,
        field_manager: "m",
        unwatched_kinds: &[],
    };
    assert_eq!(
        hand.delete_if_observed::<Pod>(None).await.unwrap(),
        Outcome::Conflict
    );
    assert_eq!(
        hand.patch_if_observed::<Pod>(None, json!({}))
            .await
            .unwrap(),
        Outcome::Conflict
    );
    assert!(said.lock().unwrap().is_empty());
    let nonsense = hand
        .create_json::<Pod>(json!({ "metadata": 7 }))
        .await
        .unwrap_err();
    assert!(
        nonsense.to_string().starts_with("cannot build a Pod: "),
        "{nonsense}"
    );
}
