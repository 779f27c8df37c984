//! Limits how long a request to the Kubernetes API may take, and prints it for `-v`. Every request of the client passes
//! through this layer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use tower::{BoxError, Layer, Service};

use crate::terminal::clean;

/// The layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLayer {
    /// How long the response may take. `None` means no limit.
    pub(crate) timeout: Option<Duration>,
    /// Whether requests are printed to standard error.
    pub(crate) prints: bool,
}

/// The error of a request that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTimedOut(pub(crate) Duration);

impl fmt::Display for RequestTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no response within {:?}", self.0)
    }
}

impl std::error::Error for RequestTimedOut {}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestService {
            inner,
            options: *self,
        }
    }
}

/// The service that the layer adds.
#[derive(Clone, Debug)]
pub(crate) struct RequestService<S> {
    inner: S,
    options: RequestLayer,
}

impl<S, B, R> Service<Request<B>> for RequestService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let RequestLayer { timeout, prints } = self.options;
        let started = Instant::now();
        let name = prints.then(|| format!("{} {}", request.method(), request.uri()));
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = match timeout {
                None => response.await.map_err(Into::into),
                Some(timeout) => match tokio::time::timeout(timeout, response).await {
                    Ok(result) => result.map_err(Into::into),
                    Err(_) => Err(RequestTimedOut(timeout).into()),
                },
            };
            if let Some(name) = name {
                eprintln!("{}", line(&name, &result, started.elapsed()));
            }
            result
        })
    }
}

/// Returns the line about a request: method, path, code or error, and duration.
fn line<R>(name: &str, result: &Result<Response<R>, BoxError>, elapsed: Duration) -> String {
    let outcome = match result {
        Ok(response) => response.status().as_u16().to_string(),
        Err(error) => error.to_string(),
    };
    clean(&format!("{name} {outcome} in {} ms", elapsed.as_millis()))
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};

    use super::*;

    async fn send(layer: RequestLayer, answers: bool) -> Result<Response<()>, BoxError> {
        let server = service_fn(move |_: Request<()>| async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::io::Error>(Response::new(()))
        });
        layer.layer(server).oneshot(Request::new(())).await
    }

    #[tokio::test]
    async fn a_request_without_a_response_ends_at_the_timeout() {
        let timeout = Duration::from_millis(20);
        let layer = |timeout| RequestLayer {
            timeout,
            prints: false,
        };
        let error = send(layer(Some(timeout)), false).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&RequestTimedOut(timeout)));
        assert!(send(layer(Some(timeout)), true).await.is_ok());
        assert!(send(layer(None), true).await.is_ok());
    }

    #[test]
    fn a_line_has_method_path_code_and_duration() {
        let response = Response::builder().status(404).body(()).unwrap();
        assert_eq!(
            line("GET /api/v1/pods", &Ok(response), Duration::from_millis(12)),
            "GET /api/v1/pods 404 in 12 ms"
        );
        let error = Err::<Response<()>, _>(RequestTimedOut(Duration::from_secs(2)).into());
        assert_eq!(
            line("GET /api", &error, Duration::from_secs(2)),
            "GET /api no response within 2s in 2000 ms"
        );
    }
}
