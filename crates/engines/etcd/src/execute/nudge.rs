//! Nudging a stuck member: a new raft log entry makes it serve, see [`crate::observe`]. The entry is a short lease that no
//! client uses: it changes no key and no revision, and expires by itself.

use std::time::Duration;

use super::context::Means;
use super::membership::membership_endpoints;
use crate::client;
use crate::facts::EtcdFacts;
use crate::names::Serial;
use crate::observe::ObservedCluster;

/// The lifetime of the lease in seconds.
const LEASE_TTL_SECONDS: i64 = 10;
/// The time between two nudges of a cluster.
const NUDGE_INTERVAL: Duration = Duration::from_secs(10);

/// Grants a short lease on the leader, unless the cluster was nudged in the last few seconds. Nothing depends on the result:
/// a member that is still stuck is nudged again.
pub(crate) async fn nudge_member(
    means: &Means<'_>,
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    stuck: Serial,
) {
    let (Some(credentials), Some(leader)) = (
        &observed.tls.credentials,
        membership_endpoints(observed, facts).into_iter().next(),
    ) else {
        return;
    };
    if !is_due(&mut means.memory.last_nudge.lock(), means.clock.uptime()) {
        return;
    }
    let connections = &means.memory.connections;
    let granted = client::grant_lease(connections, credentials, &leader, LEASE_TTL_SECONDS).await;
    match granted {
        Ok(()) => {
            tracing::info!(resource = %means.key, member = stuck.0, "granted a short lease to advance the raft log of a stuck member");
        }
        Err(error) => {
            tracing::debug!(resource = %means.key, member = stuck.0, error, "failed to grant a lease for a stuck member");
        }
    }
}

/// Returns true if the last nudge was long enough ago, and records this one.
fn is_due(last_nudge: &mut Option<Duration>, uptime: Duration) -> bool {
    let is_due = last_nudge.is_none_or(|last| uptime.saturating_sub(last) >= NUDGE_INTERVAL);
    if is_due {
        *last_nudge = Some(uptime);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_nudged_at_most_every_ten_seconds() {
        let uptime = Duration::from_secs(1000);
        let mut last_nudge = None;
        assert!(is_due(&mut last_nudge, uptime));
        assert!(!is_due(&mut last_nudge, uptime + Duration::from_secs(9)));
        assert!(is_due(&mut last_nudge, uptime + Duration::from_secs(10)));
    }
}
