//! Why a volume is not provisioned, according to the events of its PVC: the status of a pending PVC does not say so.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;

use crate::claims;

/// How long a PVC may be pending before its events are read: provisioning takes seconds.
const MIN_AGE: Duration = Duration::from_secs(5);
/// The time after which events are read again.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// The last known problems of one cluster's PVCs.
#[derive(Debug, Default)]
pub struct VolumeEvents {
    cached: Mutex<HashMap<String, CachedProblem>>,
}

#[derive(Clone, Debug)]
struct CachedProblem {
    problem: Option<String>,
    /// The uptime at which the events were read.
    read_at: Duration,
}

impl VolumeEvents {
    /// Returns the problems of pending PVCs, by the names of the PVCs. An error, as of an operator that may not read
    /// events, counts as no problem: the pod of the PVC is reported as unschedulable then.
    pub async fn problems(
        &self,
        client: &Client,
        now: UnixTime,
        uptime: Duration,
        claims: &[PersistentVolumeClaim],
    ) -> BTreeMap<String, String> {
        let pending: Vec<_> = claims
            .iter()
            .filter(|claim| is_pending(claim, now))
            .collect();
        let uids: Vec<_> = pending.iter().filter_map(|claim| claim.uid()).collect();
        self.cached.lock().retain(|uid, _| uids.contains(uid));
        let mut problems = BTreeMap::new();
        for claim in pending {
            let problem = self.problem(client, uptime, claim).await;
            problems.extend(problem.map(|problem| (claim.name_any(), problem)));
        }
        problems
    }

    async fn problem(
        &self,
        client: &Client,
        uptime: Duration,
        claim: &PersistentVolumeClaim,
    ) -> Option<String> {
        let uid = claim.uid()?;
        if let Some(cached) = self.cached.lock().get(&uid)
            && uptime.saturating_sub(cached.read_at) < CACHE_TTL
        {
            return cached.problem.clone();
        }
        let api: Api<Event> = Api::namespaced(client.clone(), &claim.namespace()?);
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
        let problem = match api.list(&about).await {
            Ok(events) => latest(&events.items),
            Err(error) => {
                tracing::debug!(claim = claim.name_any(), %error, "failed to list events of a PersistentVolumeClaim");
                None
            }
        };
        let cached = CachedProblem {
            problem: problem.clone(),
            read_at: uptime,
        };
        self.cached.lock().insert(uid, cached);
        problem
    }
}

fn is_pending(claim: &PersistentVolumeClaim, now: UnixTime) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    let age = created.map(|created| now.since(UnixTime(created.0.as_second())));
    claims::volume_name(claim).is_none() && age.is_some_and(|age| age >= MIN_AGE)
}

/// Returns reason and message of the latest event.
fn latest(events: &[Event]) -> Option<String> {
    let time = |event: &&Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.max(event.event_time.as_ref().map(|time| time.0))
    };
    let event = events.iter().max_by_key(time)?;
    let message = event.message.as_deref().unwrap_or_default().trim();
    let reason = event.reason.as_deref().unwrap_or("Warning");
    let first_line = message.lines().next().unwrap_or_default();
    Some(format!("{reason}: {first_line}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(second: u8, reason: &str, message: &str) -> Event {
        let time = format!("2027-01-15T07:00:{second:02}Z");
        serde_json::from_value(
            json!({ "metadata": {}, "involvedObject": {}, "lastTimestamp": time,
            "reason": reason, "message": message }),
        )
        .unwrap()
    }

    #[test]
    fn the_latest_warning_explains_a_pending_claim() {
        let events = [
            event(9, "ProvisioningFailed", "no space in pool\nrpc details"),
            event(3, "Other", "earlier"),
        ];
        let problem = latest(&events).unwrap();
        assert_eq!(problem, "ProvisioningFailed: no space in pool");
        assert_eq!(latest(&[]), None);
    }

    #[test]
    fn a_claim_is_pending_while_it_has_no_volume_for_some_seconds() {
        let claim = |volume: Option<&str>| -> PersistentVolumeClaim {
            serde_json::from_value(
                json!({ "metadata": { "creationTimestamp": "2027-01-15T07:00:00Z" },
                "spec": { "volumeName": volume } }),
            )
            .unwrap()
        };
        let created = UnixTime(1_799_996_400);
        assert!(is_pending(&claim(None), created.after(MIN_AGE)));
        assert!(!is_pending(&claim(None), created));
        assert!(!is_pending(&claim(Some("pv-1")), created.after(MIN_AGE)));
    }
}
