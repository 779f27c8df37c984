//! The HTTP endpoints for the kubelet and Prometheus: liveness, readiness and metrics. They serve no secrets and change
//! nothing.

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

/// The time without progress after which a watch is stalled. A watch is requested again after 295 s at the latest, also
/// without events or with a dead connection.
const STALLED_AFTER: Duration = Duration::from_secs(360);

/// The stage of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The caches are not synced yet.
    Starting = 0,
    /// Another replica holds the lease.
    StandingBy = 1,
    /// The caches are synced, and the controllers run.
    Running = 2,
}

/// The health of the process. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    stage: Arc<AtomicU8>,
    requests: ClientLayer,
}

impl Health {
    /// Returns a health in stage Starting. The process is live while the watches through `requests` make progress.
    pub(crate) fn new(requests: ClientLayer) -> Self {
        Self {
            stage: Arc::new(AtomicU8::new(Stage::Starting as u8)),
            requests,
        }
    }

    /// Sets the stage.
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Returns true if the controllers run, or another replica leads.
    pub(crate) fn is_ready(&self) -> bool {
        self.stage.load(Ordering::Acquire) != Stage::Starting as u8
    }

    /// Returns the reasons for a restart of the process.
    pub(crate) fn problems(&self) -> Vec<String> {
        let stalled = self.requests.stalled(STALLED_AFTER);
        stalled
            .into_iter()
            .map(|watch| format!("no progress in watch {watch}"))
            .collect()
    }
}

/// Serves `/livez`, `/readyz` and `/metrics` on `addr` (port 0 selects a free one) until `shutdown`. Returns the bound
/// address, and the server to be polled.
pub(crate) async fn serve(
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
        .route("/metrics", get(show_metrics))
        .with_state(metrics);
    let server = axum::serve(listener, app).with_graceful_shutdown(shutdown.cancelled_owned());
    Ok((bound, server.into_future().boxed()))
}

async fn livez(State(health): State<Health>) -> (StatusCode, String) {
    match health.problems() {
        problems if problems.is_empty() => (StatusCode::OK, "ok\n".into()),
        problems => (
            StatusCode::INTERNAL_SERVER_ERROR,
            problems.join("\n") + "\n",
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

async fn show_metrics(State(metrics): State<Metrics>) -> impl IntoResponse {
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
