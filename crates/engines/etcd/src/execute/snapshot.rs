//! Forcing a snapshot on every member. etcd takes one after `--snapshot-count` log entries, so the
//! operator appends more than that. Each entry is a request for the list of alarms, which passes through
//! the raft log like a write and changes no data.

use std::time::Duration;

use futures::future::try_join_all;

use super::context::ExecuteContext;
use super::membership::membership_endpoints;
use crate::build::pod::CONTAINER;
use crate::client::{self, Connections, Endpoint, RaftPosition, TlsCredentials};
use crate::facts::EtcdFacts;
use crate::memory::SnapshotProgress;
use crate::observe::endpoints::member_endpoint;
use crate::observe::{ObservedCluster, member_ref};

/// etcd's default of `--snapshot-count` since 3.6 (`etcd --help`).
const DEFAULT_SNAPSHOT_COUNT: u64 = 10_000;
/// The number of entries beyond `--snapshot-count`: a snapshot is taken after entries were applied, many at once.
const MARGIN: u64 = 500;
/// The number of concurrent requests.
const CONCURRENT_REQUESTS: u64 = 50;
/// The number of entries between two checks of the members' positions.
const BATCH_SIZE: u64 = 500;
/// The longest time of one run: the plan must be decided again in between.
const MAX_RUN: Duration = Duration::from_secs(2);
/// The time between two checks of members that lag behind.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The progress of a forced snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotResult {
    /// Every member has taken a snapshot.
    Done,
    /// The slowest member has applied this many entries of the target.
    InProgress {
        /// The index of the last entry that the slowest member applied.
        applied_index: u64,
        /// The index that it must apply.
        target_index: u64,
    },
}

/// Appends entries until every member has applied so many that it must have taken a snapshot, or until the run is over. The
/// start position is kept in memory: a restarted operator begins again, which costs some entries.
pub(super) async fn force_snapshot(context: &ExecuteContext<'_>) -> Result<SnapshotResult, String> {
    let (observed, facts) = (context.observed, context.facts);
    let log = RaftLog {
        connections: context.connections(),
        credentials: context
            .credentials()
            .ok_or("the operator's certificate is missing")?,
        members: member_endpoints(observed, facts),
    };
    let leader = membership_endpoints(observed, facts)
        .into_iter()
        .next()
        .ok_or("no member can be queried")?;
    let first_index = first_index(context, &log).await?;
    let target_index = first_index + snapshot_count(observed) + MARGIN;
    let deadline = context.clock.uptime() + MAX_RUN;
    loop {
        let position = log.position().await?;
        if position.applied_index >= target_index {
            // The snapshot follows the last applied entry.
            context.clock.sleep(CHECK_INTERVAL).await;
            *context.memory.snapshot.lock() = None;
            return Ok(SnapshotResult::Done);
        }
        if !(context.holds_lease)() || context.clock.uptime() >= deadline {
            return Ok(SnapshotResult::InProgress {
                applied_index: position.applied_index,
                target_index,
            });
        }
        let missing = (target_index + 1).saturating_sub(position.last_index);
        match missing.min(BATCH_SIZE) {
            0 => context.clock.sleep(CHECK_INTERVAL).await,
            entries => log.append(&leader, entries).await?,
        }
    }
}

/// Returns the index of the last entry when the snapshot was begun; begins it if it was not. Entries up to this one must not
/// be read by a later version.
async fn first_index(context: &ExecuteContext<'_>, log: &RaftLog<'_>) -> Result<u64, String> {
    let identity = context.observed.identity.as_ref();
    let cluster_id = identity.and_then(|(_, identity)| identity.cluster_id);
    let begun = *context.memory.snapshot.lock();
    if let Some(progress) = begun.filter(|progress| progress.cluster_id == cluster_id) {
        return Ok(progress.first_index);
    }
    let first_index = log.position().await?.last_index;
    *context.memory.snapshot.lock() = Some(SnapshotProgress {
        cluster_id,
        first_index,
    });
    tracing::info!(resource = %context.key(), first_index, "forcing a snapshot");
    Ok(first_index)
}

/// The raft log of a cluster.
struct RaftLog<'a> {
    connections: &'a Connections,
    credentials: &'a TlsCredentials,
    members: Vec<Endpoint>,
}

impl RaftLog<'_> {
    /// Returns the highest index of any member, and the lowest applied index.
    async fn position(&self) -> Result<RaftPosition, String> {
        let queries = self
            .members
            .iter()
            .map(|member| client::raft_position(self.connections, self.credentials, member));
        let positions = try_join_all(queries).await?;
        positions
            .into_iter()
            .reduce(|one, other| RaftPosition {
                last_index: one.last_index.max(other.last_index),
                applied_index: one.applied_index.min(other.applied_index),
            })
            .ok_or_else(|| "etcd lists no members".to_owned())
    }

    /// Appends this many entries.
    async fn append(&self, leader: &Endpoint, entries: u64) -> Result<(), String> {
        let entries_per_task = entries.div_ceil(CONCURRENT_REQUESTS);
        let tasks = (0..CONCURRENT_REQUESTS.min(entries)).map(|_| async {
            for _ in 0..entries_per_task {
                client::list_alarms(self.connections, self.credentials, leader).await?;
            }
            Ok(())
        });
        try_join_all(tasks).await.map(|_: Vec<()>| ())
    }
}

/// Returns the addresses of all listed members: each of them may restart, and must have taken a snapshot.
fn member_endpoints(observed: &ObservedCluster, facts: &EtcdFacts) -> Vec<Endpoint> {
    let membership = facts.membership.present();
    membership
        .into_iter()
        .flat_map(|membership| &membership.members)
        .filter_map(|member| member_endpoint(observed, member.serial))
        .collect()
}

/// Returns the largest `--snapshot-count` of the running pods.
fn snapshot_count(observed: &ObservedCluster) -> u64 {
    let members = observed
        .pods
        .values()
        .filter(|pod| member_ref(&pod.metadata).is_some());
    members
        .filter_map(|pod| pod.spec.as_ref())
        .flat_map(|spec| &spec.containers)
        .filter(|container| container.name == CONTAINER)
        .flat_map(|container| container.args.iter().flatten())
        .filter_map(|arg| arg.strip_prefix("--snapshot-count=")?.parse().ok())
        .fold(DEFAULT_SNAPSHOT_COUNT, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scene;

    #[test]
    fn the_snapshot_count_is_read_from_the_running_pods() {
        let mut scene = Scene::converged(3);
        assert_eq!(snapshot_count(&scene.observed), DEFAULT_SNAPSHOT_COUNT);
        for (pod, count) in scene.observed.pods.values_mut().zip([20_000, 50_000, 100]) {
            let spec = pod.spec.as_mut().unwrap();
            let args = spec.containers[0].args.get_or_insert_default();
            args.push(format!("--snapshot-count={count}"));
        }
        assert_eq!(snapshot_count(&scene.observed), 50_000);
    }
}
