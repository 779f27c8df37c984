//! The `Restore` that is carried out: of all Restores of a cluster at most one.

use std::time::Duration;

use evenkeel_api::{ClusterKind, Restore, RestorePhase, duration};
use evenkeel_runtime::UnixTime;
use kube::ResourceExt;

use crate::facts::RestoreRequest;
use crate::identity::{ClusterId, Identity, RestoreOrigin};

/// How long the volumes of a replaced cluster are kept if the spec has an invalid duration, which an older schema admitted.
const DEFAULT_KEEP: Duration = Duration::from_secs(72 * 3600);

/// Returns true if a Restore is one of this etcd cluster.
pub fn is_of_cluster(restore: &Restore, cluster: &str) -> bool {
    let reference = &restore.spec.cluster;
    reference.kind == ClusterKind::EtcdCluster
        && reference.name == cluster
        && restore.metadata.deletion_timestamp.is_none()
}

/// Selects the Restore to carry out: one whose undo is asked for, or the one under way, or the oldest that replaces this
/// cluster.
pub fn select(restores: &[Restore], identity: &Identity) -> Option<RestoreRequest> {
    let mut requests: Vec<_> = restores
        .iter()
        .filter_map(|restore| Some((restore, request_of(restore)?)))
        .collect();
    requests.sort_by_key(|(restore, _)| (created_at(restore), restore.name_any()));
    let undone = identity.replaced.as_ref().filter(|replaced| {
        // An undo is done when the replaced epoch is current.
        !replaced.is_undone(identity.epoch)
    });
    let is_undo = |request: &RestoreRequest| {
        request.undo && undone.is_some_and(|epoch| epoch.replaced_by.id == request.origin.id)
    };
    let under_way = |request: &RestoreRequest| {
        let next = identity.next_epoch.as_ref();
        let next = next.map(|next| &next.restore);
        let current = identity.restore.as_ref();
        let current = current.filter(|_| !identity.bootstrapped);
        !request.undo
            && next
                .or(current)
                .is_some_and(|it| it.id == request.origin.id)
    };
    // A Restore that is deleted and created again after its undo has lost its status.
    let is_done = |request: &RestoreRequest| {
        let replaced = identity.replaced.as_ref();
        replaced.is_some_and(|replaced| replaced.replaced_by.id == request.origin.id)
    };
    let is_wanted = |restore: &Restore, request: &RestoreRequest| {
        !request.undo
            && !is_final(restore)
            && !is_done(request)
            && Some(request.replaces) == identity.cluster_id
    };
    let find = |is: &dyn Fn(&Restore, &RestoreRequest) -> bool| {
        let mut all = requests.iter();
        all.find(|(restore, request)| is(restore, request))
    };
    let (_, request) = find(&|_, request| is_undo(request))
        .or_else(|| find(&|_, request| under_way(request)))
        .or_else(|| find(&is_wanted))?;
    Some(request.clone())
}

/// Returns the request of a Restore; `None` if its cluster ID is not one.
fn request_of(restore: &Restore) -> Option<RestoreRequest> {
    let spec = &restore.spec;
    let replaces = ClusterId(u64::from_str_radix(&spec.replaces, 16).ok()?);
    let keep = duration::parse(&spec.keep_old_data_for)
        .ok()
        .flatten()
        .unwrap_or(DEFAULT_KEEP);
    Some(RestoreRequest {
        origin: RestoreOrigin::in_place(&restore.name_any(), &spec.from.backup, replaces),
        replaces,
        keep_seconds: keep.as_secs(),
        undo: spec.undo,
    })
}

/// Returns true if the restore is over, whatever the cluster looks like now.
fn is_final(restore: &Restore) -> bool {
    let phase = restore.status.as_ref().map(|status| status.phase);
    matches!(
        phase,
        Some(RestorePhase::Complete | RestorePhase::Undone | RestorePhase::NotNeeded)
    )
}

fn created_at(restore: &Restore) -> UnixTime {
    let created = restore.metadata.creation_timestamp.as_ref();
    created.map_or(UnixTime(0), |at| UnixTime(at.0.as_second()))
}

#[cfg(test)]
#[path = "restore_request_tests.rs"]
mod tests;
