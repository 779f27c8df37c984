//! A layer around every request of the client: a timeout, metrics, and the progress of watches. kube retries a 429, 503
//! or 504 up to 15 times inside one call (about 160 s); this is switched off, because every caller has its own backoff.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body as ResponseBody, Bytes, HttpBody, to_bytes};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use parking_lot::Mutex;
use tower::{BoxError, Layer, Service};

use crate::clock::{SharedClock, with_timeout};
use crate::metrics::Metrics;

/// The timeout of a request, including the body of its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The layer around the requests of one client. Clones share the progress of watches.
#[derive(Clone, Debug)]
pub(crate) struct ClientLayer {
    clock: SharedClock,
    metrics: Metrics,
    timeout: Duration,
    /// The uptime of the last progress of each watch.
    progress: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl ClientLayer {
    /// Returns a layer with a timeout of 20 s.
    pub(crate) fn new(clock: SharedClock, metrics: Metrics) -> Self {
        Self {
            clock,
            metrics,
            timeout: REQUEST_TIMEOUT,
            progress: Arc::default(),
        }
    }

    /// Returns the paths of watches without any request or event for longer than `limit`. A working watch receives a
    /// bookmark every minute and is requested again after five. A watch that fails is retried and not listed here: a
    /// restart of the process would not help.
    pub(crate) fn stalled(&self, limit: Duration) -> Vec<String> {
        let now = self.clock.uptime();
        let progress = self.progress.lock();
        let stalled = progress
            .iter()
            .filter(|(_, last)| now.saturating_sub(**last) > limit);
        stalled.map(|(path, _)| path.clone()).collect()
    }

    fn record_progress(&self, watch: &str) {
        let now = self.clock.uptime();
        self.progress.lock().insert(watch.to_owned(), now);
    }
}

/// Returns a client for the API server in `config`, all of whose requests go through `requests`.
pub(crate) fn client(
    mut config: kube::Config,
    requests: &ClientLayer,
) -> kube::Result<kube::Client> {
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(requests)
        .build())
}

impl<S> Layer<S> for ClientLayer {
    type Service = InstrumentedService<S>;

    fn layer(&self, inner: S) -> InstrumentedService<S> {
        InstrumentedService {
            inner,
            requests: self.clone(),
        }
    }
}

/// The inner service of a client, with a [`ClientLayer`] around it.
#[derive(Clone, Debug)]
pub(crate) struct InstrumentedService<S> {
    inner: S,
    requests: ClientLayer,
}

impl<S, B> Service<Request<Body>> for InstrumentedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of(&request);
        let requests = self.requests.clone();
        if let Some(watch) = &call.watch {
            requests.record_progress(watch);
        }
        let response = self.inner.call(request);
        async move {
            let result = with_timeout(&*requests.clock, requests.timeout, async {
                let response = response.await.map_err(Into::into)?;
                if call.is_stream() {
                    Ok(call.observe_stream(response, &requests))
                } else {
                    read_body(response).await
                }
            });
            let result = result
                .await
                .unwrap_or_else(|| Err(call.timeout_error(requests.timeout)));
            let status = result.as_ref().map_or_else(
                |_| "none".to_owned(),
                |response| response.status().as_str().to_owned(),
            );
            requests
                .metrics
                .requested(&call.verb, &call.resource, &status);
            result
        }
        .boxed()
    }
}

/// Reads the body of a response, so that the timeout covers the body.
async fn read_body<B>(response: Response<B>) -> Result<Response<ResponseBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let bytes = to_bytes(ResponseBody::new(body), usize::MAX).await?;
    Ok(Response::from_parts(head, ResponseBody::from(bytes)))
}

/// A request, for metrics and progress.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    verb: String,
    /// The plural of the kind with its group, and the subresource if there is one: `pods`, `leases.coordination.k8s.io`.
    resource: String,
    /// The path and selector of a watch, or of a page of the list before it.
    watch: Option<String>,
}

impl Call {
    fn of(request: &Request<Body>) -> Self {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
        let target = Target::of(path);
        let has_parameter = |name: &str| {
            query
                .split('&')
                .any(|part| part.split('=').next() == Some(name))
        };
        let selector = query
            .split('&')
            .find(|part| part.starts_with("labelSelector="));
        let verb = match request.method().as_str() {
            "GET"
                if query
                    .split('&')
                    .any(|part| matches!(part, "watch=true" | "watch=1")) =>
            {
                "watch"
            }
            "GET" if target.named => "get",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if target.named => "delete",
            "DELETE" => "deletecollection",
            other => other,
        };
        // The list before a watch has pages. A live list has none, and does not count as progress of the watch.
        let watch = (verb == "watch" || verb == "list" && has_parameter("limit")).then(|| {
            let accept = request
                .headers()
                .get(http::header::ACCEPT)
                .and_then(|accept| accept.to_str().ok());
            let metadata = accept.is_some_and(|accept| accept.contains("as=PartialObjectMeta"));
            [
                path,
                selector.map_or("", |_| "?"),
                selector.unwrap_or(""),
                if metadata { " (metadata)" } else { "" },
            ]
            .concat()
        });
        Self {
            verb: verb.to_owned(),
            resource: target.resource,
            watch,
        }
    }

    /// Returns true if the response has no end to wait for.
    fn is_stream(&self) -> bool {
        self.verb == "watch"
            || ["pods/log", "pods/exec", "pods/attach"].contains(&self.resource.as_str())
    }

    fn observe_stream<B>(
        &self,
        response: Response<B>,
        requests: &ClientLayer,
    ) -> Response<ResponseBody>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (requests, watch) = (requests.clone(), self.watch.clone());
        response.map(|body| {
            ResponseBody::from_stream(ResponseBody::new(body).into_data_stream().inspect(
                move |_| {
                    if let Some(watch) = &watch {
                        requests.record_progress(watch);
                    }
                },
            ))
        })
    }

    fn timeout_error(&self, timeout: Duration) -> BoxError {
        format!(
            "{} of {} timed out after {} s",
            self.verb,
            self.resource,
            timeout.as_secs_f64()
        )
        .into()
    }
}

/// The target of a path.
struct Target {
    resource: String,
    named: bool,
}

impl Target {
    /// `/api/v1/namespaces/shop/pods/orders-1/log` is `pods/log`; `/apis/apps/v1/deployments` is `deployments.apps`.
    fn of(path: &str) -> Self {
        let mut parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        let group = match parts.first().copied() {
            Some("api") if parts.len() > 2 => {
                parts.drain(..2);
                String::new()
            }
            Some("apis") if parts.len() > 3 => {
                let group = format!(".{}", parts[1]);
                parts.drain(..3);
                group
            }
            // Discovery, version and similar requests: no resource.
            _ => {
                return Self {
                    resource: "none".into(),
                    named: true,
                };
            }
        };
        // The namespace of another resource, unless the Namespace itself is requested.
        if parts[0] == "namespaces"
            && parts.len() > 2
            && !["status", "finalize"].contains(&parts[2])
        {
            parts.drain(..2);
        }
        let sub = parts
            .get(2)
            .map(|sub| format!("/{sub}"))
            .unwrap_or_default();
        Self {
            resource: format!("{}{group}{sub}", parts[0]),
            named: parts.len() > 1,
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
