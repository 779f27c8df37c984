//! A Kubernetes API for unit tests: a function from requests to responses, behind a real client.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http::{Request, Response, request::Parts};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// Returns a client whose requests are answered by `answer`.
pub(crate) fn client<F, A>(answer: F) -> Client
where
    F: Fn(Parts, Value) -> A + Send + Sync + 'static,
    A: Future<Output = (u16, Value)> + Send + 'static,
{
    Client::new(service(answer), "default")
}

/// Returns the service below such a client.
pub(crate) fn service<F, A>(
    answer: F,
) -> impl tower::Service<
    Request<Body>,
    Response = Response<Body>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
> + Send
+ 'static
where
    F: Fn(Parts, Value) -> A + Send + Sync + 'static,
    A: Future<Output = (u16, Value)> + Send + 'static,
{
    let answer = Arc::new(answer);
    service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (status, body) = answer(head, body).await;
            Ok(Response::builder()
                .status(status)
                .body(Body::from(lines(&body)))
                .unwrap())
        }
    })
}

/// Returns the body of a response: one document, or the lines of a watch.
fn lines(body: &Value) -> Vec<u8> {
    match body {
        Value::Array(events) => events
            .iter()
            .map(|event| format!("{event}\n"))
            .collect::<String>()
            .into_bytes(),
        one => one.to_string().into_bytes(),
    }
}

/// Returns the response to a request that fails.
pub(crate) fn failure(code: u16, message: &str) -> (u16, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "InternalError",
    };
    (
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}
