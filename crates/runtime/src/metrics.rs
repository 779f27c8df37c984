//! What the operator counts, for Prometheus. Only what is filled is here, and no label takes its values from users
//! (names of resources, messages), so that the number of series stays small.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    kind: String,
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAction {
    kind: String,
    action: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    verb: String,
    resource: String,
    status: String,
}

/// The operator's metrics. Clones count into the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<ByOutcome, Counter>,
    durations: Family<ByKind, Histogram>,
    actions: Family<ByAction, Counter>,
    lease_held: Gauge,
    watch_errors: Family<ByKind, Counter>,
    undecodable: Family<ByKind, Counter>,
    requests: Family<ByRequest, Counter>,
    probes: Family<ByOutcome, Counter>,
}

impl Metrics {
    /// All at nothing.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("evenkeel");
        let (reconciles, actions, requests, probes) = (
            Family::default(),
            Family::default(),
            Family::default(),
            Family::default(),
        );
        let (watch_errors, undecodable, lease_held) =
            (Family::default(), Family::default(), Gauge::default());
        // 5 ms to 80 s: from a look that finds nothing to do, to one that waited for every timeout.
        let durations: Family<ByKind, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 15)));

        registry.register(
            "reconciles",
            "Reconciles, by their outcome",
            reconciles.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "How long reconciles took",
            durations.clone(),
        );
        registry.register(
            "actions",
            "Changes made, by what they were",
            actions.clone(),
        );
        registry.register(
            "lease_held",
            "1 while this process holds the lease",
            lease_held.clone(),
        );
        registry.register(
            "watch_errors",
            "Errors of watches, each retried",
            watch_errors.clone(),
        );
        registry.register(
            "undecodable",
            "Objects skipped because they could not be read",
            undecodable.clone(),
        );
        registry.register(
            "requests",
            "Requests to the Kubernetes API",
            requests.clone(),
        );
        registry.register(
            "probes",
            "Questions to the application, by their outcome",
            probes.clone(),
        );
        let registry = Arc::new(registry);
        Self {
            registry,
            reconciles,
            durations,
            actions,
            lease_held,
            watch_errors,
            undecodable,
            requests,
            probes,
        }
    }

    /// A resource of this kind was reconciled, and how it went (`done`, `waiting`, `failed`…).
    pub fn reconciled(&self, kind: &str, outcome: &str, took: Duration) {
        self.reconciles
            .get_or_create(&ByOutcome {
                kind: kind.into(),
                outcome: outcome.into(),
            })
            .inc();
        self.durations
            .get_or_create(&ByKind { kind: kind.into() })
            .observe(took.as_secs_f64());
    }

    /// Something was changed for a resource of this kind (`create`, `apply`, or the name of a step).
    pub fn acted(&self, kind: &str, action: &str) {
        self.actions
            .get_or_create(&ByAction {
                kind: kind.into(),
                action: action.into(),
            })
            .inc();
    }

    /// The lease is held, or is not.
    pub fn lease(&self, held: bool) {
        self.lease_held.set(i64::from(held));
    }

    /// A watch of this kind failed, and will be retried.
    pub fn watch_failed(&self, kind: &str) {
        self.watch_errors
            .get_or_create(&ByKind { kind: kind.into() })
            .inc();
    }

    /// An object of this kind could not be read, and was skipped.
    pub fn skipped(&self, kind: &str) {
        self.undecodable
            .get_or_create(&ByKind { kind: kind.into() })
            .inc();
    }

    /// A request was answered with this status, or with none.
    pub fn requested(&self, verb: &str, resource: &str, status: &str) {
        let labels = ByRequest {
            verb: verb.into(),
            resource: resource.into(),
            status: status.into(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// An application of this kind was asked how it is, and whether it answered (`answered`, `silent`).
    pub fn probed(&self, kind: &str, outcome: &str) {
        self.probes
            .get_or_create(&ByOutcome {
                kind: kind.into(),
                outcome: outcome.into(),
            })
            .inc();
    }

    /// All of it, as Prometheus reads it.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail; if it did, half a page would be worse than none.
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown_under_our_prefix() {
        let metrics = Metrics::new();
        metrics.reconciled("EtcdCluster", "done", Duration::from_millis(7));
        metrics.acted("EtcdCluster", "create");
        metrics.lease(true);
        metrics.requested("get", "pods", "200");
        let text = metrics.encode();
        for line in [
            r#"evenkeel_reconciles_total{kind="EtcdCluster",outcome="done"} 1"#,
            r#"evenkeel_actions_total{kind="EtcdCluster",action="create"} 1"#,
            "evenkeel_lease_held 1",
            r#"evenkeel_requests_total{verb="get",resource="pods",status="200"} 1"#,
            r#"evenkeel_reconcile_seconds_count{kind="EtcdCluster"} 1"#,
        ] {
            assert!(
                text.lines().any(|have| have == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
