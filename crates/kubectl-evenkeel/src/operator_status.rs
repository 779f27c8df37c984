//! Whether an operator looks after the clusters: told by the lease that the one that acts renews.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::terminal::span;

/// What the lease is called unless somebody has called it otherwise.
const LEASE: &str = "evenkeel-operator";
/// Clocks differ.
const MARGIN: i64 = 10;
/// How long it may take to look.
const LIMIT: Duration = Duration::from_secs(4);

/// Whether an operator is at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Overseer {
    /// One is.
    AtWork,
    /// None is, and what is known of it.
    Away(String),
    /// It cannot be told: the user may not look, or the lease is called otherwise.
    Unknown,
}

impl Overseer {
    /// Looks for the lease in all namespaces. One in the cluster's own namespace is that of an operator for this namespace: then
    /// no other counts.
    pub(crate) async fn of(client: &Client, namespace: Option<&str>, now: Timestamp) -> Self {
        let api: Api<Lease> = Api::all(client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        // It is not worth waiting for.
        match tokio::time::timeout(LIMIT, api.list(&named)).await {
            Ok(Ok(list)) => Self::told(&list.items, namespace, now),
            Ok(Err(_)) | Err(_) => Self::Unknown,
        }
    }

    fn told(leases: &[Lease], namespace: Option<&str>, now: Timestamp) -> Self {
        let own = |lease: &&Lease| namespace.is_some() && lease.namespace().as_deref() == namespace;
        let one_is_own = leases.iter().any(|lease| own(&lease));
        let judged: Vec<_> = leases
            .iter()
            .filter(|lease| !one_is_own || own(lease))
            .map(|lease| judge(lease, now))
            .collect();
        if judged.contains(&Self::AtWork) {
            return Self::AtWork;
        }
        judged.into_iter().next().unwrap_or(Self::Unknown)
    }

    /// What to say of it, if anything.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Away(what) => Some(format!(
                "no operator is at work: {what}. What is told here is as it was seen last"
            )),
            Self::AtWork | Self::Unknown => None,
        }
    }
}

fn judge(lease: &Lease, now: Timestamp) -> Overseer {
    let (namespace, Some(spec)) = (lease.namespace().unwrap_or_default(), &lease.spec) else {
        return Overseer::Unknown;
    };
    let look = format!("`kubectl -n {namespace} get pods` shows why");
    if spec.holder_identity.as_ref().is_none_or(String::is_empty) {
        return Overseer::Away(format!(
            "the last one has given its lease back, and none has taken it; {look}"
        ));
    }
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    match &spec.renew_time {
        Some(renewed) => {
            let ago = now.as_second() - renewed.0.as_second();
            if ago <= lasts + MARGIN {
                Overseer::AtWork
            } else {
                Overseer::Away(format!("the last one was heard {} ago; {look}", span(ago)))
            }
        }
        None => Overseer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({ "metadata": { "name": LEASE, "namespace": "evenkeel-system" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed } }))
        .unwrap()
    }

    #[test]
    fn a_lease_that_is_renewed_tells_of_an_operator_at_work() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let told = |leases: &[Lease]| Overseer::told(leases, Some("shop"), now);
        let (fresh, old) = ("2026-11-16T11:59:50.000000Z", "2026-11-16T11:00:00.000000Z");
        assert_eq!(told(&[lease("a", fresh)]), Overseer::AtWork);
        assert_eq!(
            told(&[lease("a", old), lease("b", fresh)]),
            Overseer::AtWork
        );
        assert_eq!(told(&[]), Overseer::Unknown);
        let Overseer::Away(what) = told(&[lease("a", old)]) else {
            unreachable!()
        };
        assert!(
            what.contains("60m ago") && what.contains("evenkeel-system"),
            "{what}"
        );
        assert!(matches!(told(&[lease("", fresh)]), Overseer::Away(_)));
    }

    #[test]
    fn the_operator_of_the_clusters_own_namespace_is_the_one_that_counts() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let (fresh, old) = ("2026-11-16T11:59:50.000000Z", "2026-11-16T11:00:00.000000Z");
        let mut own = lease("a", old);
        own.metadata.namespace = Some("shop".to_owned());
        let leases = [lease("b", fresh), own];
        assert!(matches!(
            Overseer::told(&leases, Some("shop"), now),
            Overseer::Away(_)
        ));
        assert_eq!(Overseer::told(&leases, Some("web"), now), Overseer::AtWork);
        assert_eq!(Overseer::told(&leases, None, now), Overseer::AtWork);
    }
}
