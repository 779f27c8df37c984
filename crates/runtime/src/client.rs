//! What happens to every request of the client: it ends in time, it is counted, and watches are seen to make progress.
//! kube retries a 429, 503 or 504 up to 15 times inside one call (some 160 s); that is switched off here, because every
//! caller has a loop of its own with a backoff that can be seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body as Answer, Bytes, HttpBody, to_bytes};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use tower::{BoxError, Layer, Service};

use crate::clock::{SharedClock, with_timeout};
use crate::metrics::Metrics;

/// How long a request may take, its answer included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The requests of one client: their limit, their count, and the progress of its watches. Clones share it.
#[derive(Clone, Debug)]
pub struct ClientLayer {
    clock: SharedClock,
    metrics: Metrics,
    limit: Duration,
    progress: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl ClientLayer {
    /// Counts into `metrics`, and gives each request 20 s.
    pub fn new(clock: SharedClock, metrics: Metrics) -> Self {
        Self {
            clock,
            metrics,
            limit: REQUEST_TIMEOUT,
            progress: Arc::default(),
        }
    }

    /// Gives each request this long instead.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The watches that have neither asked nor heard anything for longer than `limit`, by what they watch. A watch that
    /// works hears a bookmark every minute and asks anew after five; one that fails asks again and again, and is not
    /// counted here, because starting the process anew would not help it.
    pub fn stalled(&self, limit: Duration) -> Vec<String> {
        let now = self.clock.uptime();
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let late = progress
            .iter()
            .filter(|(_, last)| now.saturating_sub(**last) > limit);
        late.map(|(what, _)| what.clone()).collect()
    }

    fn advanced(&self, watch: &str) {
        let now = self.clock.uptime();
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(watch.to_owned(), now);
    }
}

/// A client for the API server that `config` names, all of whose requests go through `requests`.
pub fn client(mut config: kube::Config, requests: &ClientLayer) -> kube::Result<kube::Client> {
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

/// A client's inner service, with [`Requests`] around it.
#[derive(Clone, Debug)]
pub struct InstrumentedService<S> {
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
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of(&request);
        let requests = self.requests.clone();
        if let Some(watch) = &call.watch {
            requests.advanced(watch);
        }
        let answer = self.inner.call(request);
        async move {
            let bounded = with_timeout(&*requests.clock, requests.limit, async {
                let response = answer.await.map_err(Into::into)?;
                if call.streams() {
                    Ok(call.streamed(response, &requests))
                } else {
                    whole(response).await
                }
            });
            let outcome = bounded
                .await
                .unwrap_or_else(|| Err(call.late(requests.limit)));
            let status = outcome.as_ref().map_or_else(
                |_| "none".to_owned(),
                |done| done.status().as_str().to_owned(),
            );
            requests
                .metrics
                .requested(&call.verb, &call.resource, &status);
            outcome
        }
        .boxed()
    }
}

/// The answer with its body read: so that the limit covers the body too.
async fn whole<B>(response: Response<B>) -> Result<Response<Answer>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let bytes = to_bytes(Answer::new(body), usize::MAX).await?;
    Ok(Response::from_parts(head, Answer::from(bytes)))
}

/// What a request is, as far as counting goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    verb: String,
    /// The plural of the kind with its group, and the subresource if there is one: `pods`, `leases.coordination.k8s.io`.
    resource: String,
    /// What is watched, when this is a watch or a page of the list before it.
    watch: Option<String>,
}

impl Call {
    fn of(request: &Request<Body>) -> Self {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
        let target = Target::of(path);
        let asks = |name: &str| {
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
        // The list that precedes a watch comes in pages; a live list in between does not, and says nothing of the watch.
        let watch = (verb == "watch" || verb == "list" && asks("limit")).then(|| {
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

    /// Whether the answer has no end that could be waited for.
    fn streams(&self) -> bool {
        self.verb == "watch"
            || ["pods/log", "pods/exec", "pods/attach"].contains(&self.resource.as_str())
    }

    fn streamed<B>(&self, response: Response<B>, requests: &ClientLayer) -> Response<Answer>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (requests, watch) = (requests.clone(), self.watch.clone());
        response.map(|body| {
            Answer::from_stream(Answer::new(body).into_data_stream().inspect(move |_| {
                if let Some(watch) = &watch {
                    requests.advanced(watch);
                }
            }))
        })
    }

    fn late(&self, limit: Duration) -> BoxError {
        format!(
            "{} of {} was not answered within {} s",
            self.verb,
            self.resource,
            limit.as_secs_f64()
        )
        .into()
    }
}

/// What a path leads to.
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
            // Discovery, versions and the like: no resource, and not many of them.
            _ => {
                return Self {
                    resource: "none".into(),
                    named: true,
                };
            }
        };
        // A namespace is a place, unless it is itself what is asked for.
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
