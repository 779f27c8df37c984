//! What the kubelet and Prometheus ask this process: whether it lives, whether it is ready, and its metrics. Nothing
//! secret is served, and nothing can be changed here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::ClientLayer;
use crate::metrics::Metrics;

/// A watch is asked anew after 295 s at the latest, even when nothing happens and the connection is dead.
const STALLED: Duration = Duration::from_secs(360);

/// How far the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Its stores are being filled.
    Starting = 0,
    /// Somebody else holds the lease; all is well.
    StandingBy = 1,
    /// It has seen everything once, and acts.
    Running = 2,
}

/// How the process is. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    stage: Arc<AtomicU8>,
    requests: ClientLayer,
}

impl Health {
    /// Starting; alive for as long as the watches that go through `requests` make progress.
    pub fn new(requests: ClientLayer) -> Self {
        Self {
            stage: Arc::new(AtomicU8::new(Stage::Starting as u8)),
            requests,
        }
    }

    /// It has come this far.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Whether it may be sent work, or is rightly idle.
    pub fn is_ready(&self) -> bool {
        self.stage.load(Ordering::Acquire) != Stage::Starting as u8
    }

    /// Why it should be started anew; nothing when all is well.
    pub fn problems(&self) -> Vec<String> {
        let stalled = self.requests.stalled(STALLED);
        stalled
            .into_iter()
            .map(|watch| format!("no progress in watching {watch}"))
            .collect()
    }
}

/// Serves `/livez`, `/readyz` and `/metrics` on `addr` (port 0 picks one) until `shutdown`: the address that was bound,
/// and the serving itself, to be polled.
pub async fn serve(
    addr: SocketAddr,
    health: Health,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, BoxFuture<'static, io::Result<()>>)> {
    let listener = TcpListener::bind(addr).await?;
    let bound = listener.local_addr()?;
    let app = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health)
        .route("/metrics", get(show))
        .with_state(metrics);
    let serving = axum::serve(listener, app).with_graceful_shutdown(shutdown.cancelled_owned());
    Ok((bound, serving.into_future().boxed()))
}

async fn livez(State(health): State<Health>) -> (StatusCode, String) {
    match health.problems() {
        well if well.is_empty() => (StatusCode::OK, "ok\n".into()),
        ailments => (
            StatusCode::INTERNAL_SERVER_ERROR,
            ailments.join("\n") + "\n",
        ),
    }
}

async fn readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}

async fn show(State(metrics): State<Metrics>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        metrics.encode(),
    )
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
