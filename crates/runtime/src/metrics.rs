//! Prometheus metrics of the operator. No label takes its values from users (names of resources, messages), so that the
//! number of series stays small.

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

/// The metrics of the operator. Clones share them.
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
    /// Returns metrics whose names have this prefix.
    pub fn new(prefix: &str) -> Self {
        let mut registry = Registry::with_prefix(prefix);
        let (reconciles, actions, requests, probes) = (
            Family::default(),
            Family::default(),
            Family::default(),
            Family::default(),
        );
        let (watch_errors, undecodable, lease_held) =
            (Family::default(), Family::default(), Gauge::default());
        // 5 ms to 80 s: from an observation without actions to a reconcile that waited for every timeout.
        let durations: Family<ByKind, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 15)));

        registry.register("reconciles", "Reconciles by outcome", reconciles.clone());
        registry.register(
            "reconcile_seconds",
            "Duration of reconciles",
            durations.clone(),
        );
        registry.register("actions", "Executed actions by name", actions.clone());
        registry.register(
            "lease_held",
            "1 while this process holds the lease",
            lease_held.clone(),
        );
        registry.register("watch_errors", "Errors of watches", watch_errors.clone());
        registry.register(
            "undecodable",
            "Objects skipped because they could not be decoded",
            undecodable.clone(),
        );
        registry.register(
            "requests",
            "Requests to the Kubernetes API",
            requests.clone(),
        );
        registry.register(
            "probes",
            "Probes of the application by outcome",
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

    /// Counts a reconcile; the outcome is `done` or `failed`.
    pub(crate) fn reconciled(&self, kind: &str, outcome: &str, duration: Duration) {
        self.reconciles
            .get_or_create(&ByOutcome {
                kind: kind.into(),
                outcome: outcome.into(),
            })
            .inc();
        self.durations
            .get_or_create(&ByKind { kind: kind.into() })
            .observe(duration.as_secs_f64());
    }

    /// Counts an executed action.
    pub(crate) fn acted(&self, kind: &str, action: &str) {
        self.actions
            .get_or_create(&ByAction {
                kind: kind.into(),
                action: action.into(),
            })
            .inc();
    }

    /// Sets whether the lease is held.
    pub(crate) fn lease(&self, held: bool) {
        self.lease_held.set(i64::from(held));
    }

    /// Counts an error of a watch.
    pub(crate) fn watch_failed(&self, kind: &str) {
        self.watch_errors
            .get_or_create(&ByKind { kind: kind.into() })
            .inc();
    }

    /// Counts an object that could not be decoded.
    pub(crate) fn skipped(&self, kind: &str) {
        self.undecodable
            .get_or_create(&ByKind { kind: kind.into() })
            .inc();
    }

    /// Counts a request; the status is an HTTP status code, or `none` without a response.
    pub(crate) fn requested(&self, verb: &str, resource: &str, status: &str) {
        let labels = ByRequest {
            verb: verb.into(),
            resource: resource.into(),
            status: status.into(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a probe; the outcome is `answered`, `timeout` or `skipped`.
    pub(crate) fn probed(&self, kind: &str, outcome: &str) {
        self.probes
            .get_or_create(&ByOutcome {
                kind: kind.into(),
                outcome: outcome.into(),
            })
            .inc();
    }

    /// Returns the metrics in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail; no metrics are better than a part of them.
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the descriptor lines of all metrics, each with its name, type and help.
    fn descriptors(metrics: &Metrics) -> Vec<(String, String, String)> {
        let text = metrics.encode();
        let after = |start: &str, name: &str| {
            let start = format!("# {start} {name} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&start));
            found.unwrap_or_default().trim_end_matches('.').to_owned()
        };
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
        names
            .map(|name| (name.to_owned(), after("TYPE", name), after("HELP", name)))
            .collect()
    }

    #[test]
    fn the_reference_lists_every_metric_with_its_type_and_help() {
        let metrics = Metrics::new("evenkeel");
        metrics.reconciled("EtcdCluster", "done", Duration::from_millis(7));
        metrics.acted("EtcdCluster", "create-pod");
        metrics.lease(true);
        metrics.watch_failed("Pod");
        metrics.skipped("Pod");
        metrics.requested("get", "pods", "200");
        metrics.probed("EtcdCluster", "answered");
        let page = include_str!("../../../docs/reference/metrics.md");
        let described = descriptors(&metrics);
        assert_eq!(described.len(), 8, "{described:?}");
        for (name, kind, help) in described {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let start = format!("| `{name}{suffix}` | {kind} |");
            let row = page.lines().find(|line| line.starts_with(&start));
            assert!(
                row.is_some_and(|row| row.ends_with(&format!("| {help} |"))),
                "docs/reference/metrics.md should have `{start} … | {help} |`"
            );
        }
    }

    #[test]
    fn metrics_have_the_prefix_of_the_program() {
        let metrics = Metrics::new("greeter");
        metrics.reconciled("EtcdCluster", "done", Duration::from_millis(7));
        metrics.acted("EtcdCluster", "create");
        metrics.lease(true);
        metrics.requested("get", "pods", "200");
        let text = metrics.encode();
        for line in [
            r#"greeter_reconciles_total{kind="EtcdCluster",outcome="done"} 1"#,
            r#"greeter_actions_total{kind="EtcdCluster",action="create"} 1"#,
            "greeter_lease_held 1",
            r#"greeter_requests_total{verb="get",resource="pods",status="200"} 1"#,
            r#"greeter_reconcile_seconds_count{kind="EtcdCluster"} 1"#,
        ] {
            assert!(
                text.lines().any(|have| have == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
