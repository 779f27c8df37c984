//! A Kubernetes API that is a function, for unit tests.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, request::Parts};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// A client whose every request, with its body, is answered by `answer`.
pub(crate) fn client(
    answer: impl Fn(&Parts, &Value) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
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

/// What Kubernetes says when it does not do what it was asked for.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

/// What Kubernetes says of something that is not there.
pub(crate) fn not_found() -> (u16, Value) {
    failure(404, "NotFound", "there is none")
}
