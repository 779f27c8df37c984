//! A Kubernetes API that responds with prepared objects, for tests of whole verbs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::connection::Connection;

/// The API. Requests for which nothing was prepared get a 404.
#[derive(Clone, Default)]
pub(super) struct FakeApi {
    state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
struct FakeState {
    /// The responses to a method and a path, in order. The last one is repeated.
    responses: BTreeMap<String, VecDeque<(u16, Value)>>,
    requests: Vec<(String, Value)>,
}

/// The path of the kinds of backups in the namespace `shop`.
pub(super) fn path(kind: &str) -> String {
    format!("/apis/evenkeel.dev/v1alpha1/namespaces/shop/{kind}")
}

/// Returns a list of objects.
pub(super) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    let items: Vec<_> = items.into_iter().collect();
    json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items })
}

impl FakeApi {
    /// Prepares a further response to a request, such as `GET /api/v1/pods`. A string is sent as it is.
    pub(super) fn on(&self, request: &str, code: u16, body: Value) -> &Self {
        let mut state = self.state.lock().unwrap();
        let responses = state.responses.entry(request.to_owned()).or_default();
        responses.push_back((code, body));
        drop(state);
        self
    }

    /// Prepares a rejection for a missing permission.
    pub(super) fn forbid(&self, request: &str, verb: &str, resource: &str) -> &Self {
        let message = format!(
            "{resource} is forbidden: User \"jane\" cannot {verb} resource \"{resource}\" in API group \"evenkeel.dev\" in the \
             namespace \"shop\""
        );
        let body = json!({ "kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403 });
        self.on(request, 403, body)
    }

    /// Returns the requests that change something, with their bodies.
    pub(super) fn changes(&self) -> Vec<(String, Value)> {
        let state = self.state.lock().unwrap();
        let requests = state.requests.iter();
        requests
            .filter(|(request, _)| !request.starts_with("GET "))
            .cloned()
            .collect()
    }

    /// Returns a connection to the API, with the namespace `shop`.
    pub(super) fn connection(&self) -> Connection {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let name = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect_bytes().await?;
                let (code, body) = api.respond(&name, &body);
                let bytes = match body {
                    Value::String(text) => text.into_bytes(),
                    body => body.to_string().into_bytes(),
                };
                let response = Response::builder().status(code).body(Body::from(bytes));
                Ok::<_, tower::BoxError>(response?)
            }
        });
        Connection::for_tests(Client::new(service, "shop"), "shop")
    }

    fn respond(&self, name: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        let sent = serde_json::from_slice(body).unwrap_or_default();
        state.requests.push((name.to_owned(), sent));
        let missing = json!({ "kind": "Status", "status": "Failure", "message": "404 page not found", "code": 404 });
        let Some(responses) = state.responses.get_mut(name) else {
            return (404, missing);
        };
        match responses.len() {
            0 => (404, missing),
            1 => responses[0].clone(),
            _ => responses.pop_front().unwrap(),
        }
    }
}
