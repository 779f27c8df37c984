//! Whether an operator is running, as the Lease of its leader election shows it.

use std::time::Duration;

use evenkeel_runtime::{ALL_NAMESPACES, LEASE_NAMESPACES, LEASE_PROGRAM};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::error::CliError;
use crate::terminal::format_duration;

/// The name of the program, and the default name of its Lease.
const LEASE_NAME: &str = "evenkeel-operator";
/// The validity of a Lease that does not state it.
const DEFAULT_LEASE_SECONDS: i32 = 15;
/// The tolerated difference between the clocks of the user and the operator.
const CLOCK_SKEW_SECONDS: i64 = 10;
/// How long the request for Leases may take. The result only adds a note, so it is not worth a longer wait.
const LEASE_TIMEOUT: Duration = Duration::from_secs(4);

/// Whether an operator is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperatorStatus {
    /// An operator renews its Lease.
    Running(LeaseHolder),
    /// No operator renews its Lease, or all operators watch other namespaces.
    NotRunning {
        /// The namespace of the Lease and of the operator's pods. `None` if operators run, but do not watch the cluster's
        /// namespace.
        namespace: Option<String>,
        /// The state of the Lease.
        lease: String,
    },
    /// Unknown, for this reason: the user may not list Leases, or the Lease has another name.
    Unknown(String),
}

/// The operator that holds the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseHolder {
    /// The namespace of the Lease and of the operator's pods.
    pub(crate) namespace: String,
    /// The identity of the operator, which begins with the name of its pod.
    pub(crate) identity: String,
    /// The time since the Lease was renewed, in seconds.
    pub(crate) renewed_seconds_ago: i64,
}

impl OperatorStatus {
    /// Looks up the Leases of operators in all namespaces. Operators that do not watch the cluster's namespace are ignored.
    /// If the cluster's own namespace has a Lease, it belongs to a namespaced operator, and the others are ignored.
    pub(crate) async fn query(client: &Client, namespace: Option<&str>, now: Timestamp) -> Self {
        match tokio::time::timeout(LEASE_TIMEOUT, leases(client)).await {
            Ok(Ok(leases)) => Self::from_leases(&leases, namespace, now),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Self::Unknown("this needs list on leases at cluster scope".to_owned())
            }
            Ok(Err(error)) => Self::Unknown(CliError::kubernetes("list Leases", &error).message),
            Err(_) => Self::Unknown(format!(
                "cannot list Leases: no response within {LEASE_TIMEOUT:?}"
            )),
        }
    }

    fn from_leases(leases: &[Lease], namespace: Option<&str>, now: Timestamp) -> Self {
        let is_own =
            |lease: &Lease| namespace.is_some() && lease.namespace().as_deref() == namespace;
        let (watching, others): (Vec<_>, Vec<_>) = leases
            .iter()
            .partition(|lease| namespace.is_none_or(|namespace| may_watch(lease, namespace)));
        if let ([], [other, ..]) = (&watching[..], &others[..]) {
            return Self::of_other_namespaces(other);
        }
        let has_own = watching.iter().copied().any(is_own);
        let states: Vec<_> = watching
            .into_iter()
            .filter(|lease| !has_own || is_own(lease))
            .map(|lease| Self::from_lease(lease, now))
            .collect();
        let running = states
            .iter()
            .find(|state| matches!(state, Self::Running(_)));
        let state = running.or(states.first()).cloned();
        state.unwrap_or_else(|| Self::Unknown(format!("Lease {LEASE_NAME} does not exist")))
    }

    /// The status if all operators watch other namespaces. `other` is the Lease of one of them.
    fn of_other_namespaces(other: &Lease) -> Self {
        let watched = other.annotations().get(LEASE_NAMESPACES);
        let watched = watched.map(|watched| watched.replace(',', ", "));
        Self::NotRunning {
            lease: format!(
                "the operator with Lease {} watches only {}",
                full_name(other),
                watched.unwrap_or_default()
            ),
            namespace: None,
        }
    }

    fn from_lease(lease: &Lease, now: Timestamp) -> Self {
        let namespace = lease.namespace().unwrap_or_default();
        let name = full_name(lease);
        let incomplete = || Self::Unknown(format!("Lease {name} is incomplete"));
        let Some(spec) = &lease.spec else {
            return incomplete();
        };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() {
            return Self::NotRunning {
                lease: format!("Lease {name} was released and has no holder"),
                namespace: Some(namespace),
            };
        }
        let Some(renewed) = &spec.renew_time else {
            return incomplete();
        };
        let lease_seconds = spec.lease_duration_seconds.unwrap_or(DEFAULT_LEASE_SECONDS);
        let seconds_ago = now.as_second() - renewed.0.as_second();
        if seconds_ago <= i64::from(lease_seconds) + CLOCK_SKEW_SECONDS {
            Self::Running(LeaseHolder {
                namespace,
                identity: holder.to_owned(),
                renewed_seconds_ago: seconds_ago.max(0),
            })
        } else {
            Self::NotRunning {
                lease: format!(
                    "Lease {name} was last renewed {} ago",
                    format_duration(seconds_ago)
                ),
                namespace: Some(namespace),
            }
        }
    }

    /// Returns the fact that no operator is running or that none watches the namespace, as a clause; `None` if one is running or
    /// this is unknown.
    pub(crate) fn missing_text(&self) -> Option<String> {
        match self {
            Self::NotRunning {
                namespace: Some(_),
                lease,
            } => Some(format!("no operator is running: {lease}")),
            Self::NotRunning {
                namespace: None,
                lease,
            } => Some(format!("no operator watches this namespace: {lease}")),
            Self::Running(_) | Self::Unknown(_) => None,
        }
    }

    /// Returns whether it is known that no operator is running.
    pub(crate) fn is_not_running(&self) -> bool {
        matches!(self, Self::NotRunning { .. })
    }
}

/// Lists the Leases of operators. A Lease can have another name, and the Lease of an older operator has no label.
async fn leases(client: &Client) -> Result<Vec<Lease>, kube::Error> {
    let api: Api<Lease> = Api::all(client.clone());
    let by_name = ListParams::default().fields(&format!("metadata.name={LEASE_NAME}"));
    let by_label = ListParams::default().labels(&format!("{LEASE_PROGRAM}={LEASE_NAME}"));
    let (named, labelled) = futures::try_join!(api.list(&by_name), api.list(&by_label))?;
    Ok(merge(named.items, labelled.items))
}

/// Returns all Leases once.
fn merge(named: Vec<Lease>, labelled: Vec<Lease>) -> Vec<Lease> {
    let mut leases = named;
    for lease in labelled {
        if leases
            .iter()
            .all(|known| full_name(known) != full_name(&lease))
        {
            leases.push(lease);
        }
    }
    leases
}

fn full_name(lease: &Lease) -> String {
    let namespace = lease.namespace().unwrap_or_default();
    format!("{namespace}/{}", lease.name_any())
}

/// Returns whether the operator of a Lease may watch a namespace. An older operator does not say which it watches.
fn may_watch(lease: &Lease, namespace: &str) -> bool {
    let Some(watched) = lease.annotations().get(LEASE_NAMESPACES) else {
        return true;
    };
    let mut watched = watched.split(',').map(str::trim);
    watched.any(|watched| watched == namespace || watched == ALL_NAMESPACES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RECENT: &str = "2026-11-16T11:59:50.000000Z";
    const OLD: &str = "2026-11-16T11:00:00.000000Z";

    fn now() -> Timestamp {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({ "metadata": { "name": LEASE_NAME, "namespace": "evenkeel-system" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed } }))
        .unwrap()
    }

    fn running(holder: &str) -> OperatorStatus {
        OperatorStatus::Running(LeaseHolder {
            namespace: "evenkeel-system".to_owned(),
            identity: holder.to_owned(),
            renewed_seconds_ago: 10,
        })
    }

    #[test]
    fn an_operator_that_renews_its_lease_is_running() {
        let status = |leases: &[Lease]| OperatorStatus::from_leases(leases, Some("shop"), now());
        assert_eq!(status(&[lease("a", RECENT)]), running("a"));
        assert_eq!(status(&[lease("a", OLD), lease("b", RECENT)]), running("b"));
        let unknown = OperatorStatus::Unknown("Lease evenkeel-operator does not exist".to_owned());
        assert_eq!(status(&[]), unknown);
        assert_eq!(
            status(&[lease("a", OLD)]),
            OperatorStatus::NotRunning {
                namespace: Some("evenkeel-system".to_owned()),
                lease: "Lease evenkeel-system/evenkeel-operator was last renewed 60m ago"
                    .to_owned(),
            }
        );
        assert!(status(&[lease("", RECENT)]).is_not_running());
    }

    #[test]
    fn a_lease_in_the_clusters_namespace_takes_precedence() {
        let mut own = lease("a", OLD);
        own.metadata.namespace = Some("shop".to_owned());
        let leases = [lease("b", RECENT), own];
        assert!(OperatorStatus::from_leases(&leases, Some("shop"), now()).is_not_running());
        assert_eq!(
            OperatorStatus::from_leases(&leases, Some("web"), now()),
            running("b")
        );
        assert_eq!(
            OperatorStatus::from_leases(&leases, None, now()),
            running("b")
        );
    }

    fn watching(lease: Lease, namespaces: &str) -> Lease {
        let mut lease = lease;
        lease
            .annotations_mut()
            .insert(LEASE_NAMESPACES.to_owned(), namespaces.to_owned());
        lease
    }

    #[test]
    fn an_operator_of_other_namespaces_does_not_count() {
        let status = |leases: &[Lease], namespace| {
            OperatorStatus::from_leases(leases, Some(namespace), now())
        };
        let other = watching(lease("a", RECENT), "web,billing");
        assert_eq!(status(std::slice::from_ref(&other), "web"), running("a"));
        assert_eq!(
            status(std::slice::from_ref(&other), "shop"),
            OperatorStatus::NotRunning {
                namespace: None,
                lease: "the operator with Lease evenkeel-system/evenkeel-operator watches only web, billing"
                    .to_owned(),
            }
        );
        let all = watching(lease("b", RECENT), ALL_NAMESPACES);
        assert_eq!(status(&[other.clone(), all], "shop"), running("b"));
        assert_eq!(
            status(&[other, lease("old", RECENT)], "shop"),
            running("old"),
            "an older operator does not say which namespaces it watches"
        );
    }

    #[test]
    fn a_lease_with_another_name_is_found_by_its_label() {
        let mut renamed = lease("b", RECENT);
        renamed.metadata.name = Some("evenkeel-shop".to_owned());
        let merged = merge(vec![lease("a", OLD)], vec![lease("a", OLD), renamed]);
        let names: Vec<_> = merged.iter().map(full_name).collect();
        assert_eq!(
            names,
            [
                "evenkeel-system/evenkeel-operator",
                "evenkeel-system/evenkeel-shop"
            ]
        );
    }
}
