//! Helpers for unit tests of engines: a Kubernetes API that answers from a function, and changes of typed objects as JSON.

use std::convert::Infallible;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::service_fn;

use crate::{ClusterRef, EngineInfo, Epoch, Lineage, MemberRef, Serial, Uid};

/// An engine for tests.
pub const ENGINE: EngineInfo = EngineInfo {
    engine: "db",
    kind: "DbCluster",
    api_version: "example.dev/v1",
    cluster_label: "db.example.dev/cluster",
};

/// The cluster `shop/orders` of [`ENGINE`].
pub const CLUSTER: ClusterRef<'static> = ClusterRef {
    engine: &ENGINE,
    name: "orders",
    namespace: "shop",
    uid: Uid(1),
};

/// Returns a member of [`CLUSTER`].
pub fn member(serial: u16) -> MemberRef {
    MemberRef {
        lineage: Lineage(7),
        epoch: Epoch::FIRST,
        serial: Serial(serial),
    }
}

/// Returns the name of a member of [`CLUSTER`].
pub fn member_name(serial: u16) -> String {
    crate::member_name(CLUSTER.name, Lineage(7), Serial(serial))
}

/// Returns a client whose requests are answered by `answer`, which takes the head and the body of a request and returns the
/// status code and the body of the response.
pub fn client(answer: impl Fn(&Parts, &Value) -> (u16, Value) + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (status, body) = answer(&head, &body);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

/// Returns the response to a failed request.
pub fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

/// Returns the response to a request for an object that does not exist.
pub fn not_found() -> (u16, Value) {
    failure(404, "NotFound", "not found")
}

/// Applies a JSON merge patch to a typed object: `null` removes a field, and lists are replaced as a whole.
pub fn change<K: Serialize + DeserializeOwned>(object: &mut K, patch: Value) {
    let mut value = serde_json::to_value(&*object).unwrap();
    merge_json(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}

/// Applies a JSON merge patch to a JSON value.
pub fn merge_json(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(fields) = value else { return };
    for (key, change) in patch {
        if change.is_null() {
            fields.remove(&key);
        } else {
            merge_json(fields.entry(key).or_insert(Value::Null), change);
        }
    }
}
