//! Has every member take a snapshot of its log: etcd does so after a number of entries, so it is given that many. Each is a request
//! for the list of alarms, which goes through the log like a write, and changes nothing.

use std::time::Duration;

use evenkeel_runtime::Observation;
use futures::future::try_join_all;
use tokio::time::{Instant, sleep};

use super::membership::{endpoint_of, membership_endpoints};
use super::writer::EtcdWriter;
use crate::build::pod::CONTAINER;
use crate::identity::ClusterId;
use crate::observe::etcd::{self, Endpoint, RaftPosition, SharedConnections, TlsCredentials};
use crate::observe::member_ref;
use crate::reconciler::EtcdReconciler;

/// After how many entries etcd takes a snapshot unless it is told otherwise, from 3.6 on (`etcd --help`).
const SNAPSHOT_COUNT: u64 = 10_000;
/// How many more are written than that: a snapshot is taken when entries were applied, and they are applied many at once.
const MARGIN: u64 = 500;
/// How many are asked for at once.
const AT_ONCE: u64 = 50;
/// How many are asked for between two looks at how far all are.
const BETWEEN: u64 = 500;
/// For how long it is written in one go: what was decided is to be looked at again meanwhile.
const ONE_GO: Duration = Duration::from_secs(2);
/// How long members that are behind are waited for before they are looked at again.
const SHORTLY: Duration = Duration::from_millis(200);

/// Writes until everybody has applied so much that it must have taken a snapshot since this began, or for a while; says which. How far
/// to go is remembered only by this operator: another one begins again, which costs some entries.
pub(super) async fn force_snapshot(
    writer: &EtcdWriter<'_>,
    observation: &Observation<EtcdReconciler>,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Renewed, String> {
    let access = observation
        .objects
        .tls
        .credentials
        .as_ref()
        .ok_or("there is no certificate to ask etcd with")?;
    let log = Log {
        connections: writer.reconciler.connections(writer.key),
        access,
        members: members(observation),
    };
    let leader = membership_endpoints(observation)
        .into_iter()
        .next()
        .ok_or("nobody leads")?;
    let cluster = observation
        .objects
        .identity
        .as_ref()
        .and_then(|(_, identity)| identity.cluster_id);
    let begun = writer.reconciler.update_snapshot(writer.key, |begun| {
        begun.filter(|begun| begun.cluster == cluster)
    });
    let begins = match begun {
        Some(begun) => begun.begins,
        None => {
            // What is in the log before this is what nobody is to read again.
            let begins = log.extent().await?.last_index;
            writer
                .reconciler
                .update_snapshot(writer.key, |_| Some(SnapshotProgress { cluster, begins }));
            tracing::info!(resource = %writer.key, begins, "renewing the logs");
            begins
        }
    };
    let ends = begins + snapshot_count(observation) + MARGIN;
    let until = Instant::now() + ONE_GO;
    loop {
        let RaftPosition {
            last_index: written,
            applied_index: applied,
        } = log.extent().await?;
        if applied >= ends {
            // What was applied last is followed by the snapshot.
            sleep(SHORTLY).await;
            writer.reconciler.update_snapshot(writer.key, |_| None);
            return Ok(Renewed::All);
        }
        if !holds() || Instant::now() >= until {
            return Ok(Renewed::UpTo { applied, ends });
        }
        match (ends + 1).saturating_sub(written).min(BETWEEN) {
            0 => sleep(SHORTLY).await,
            left => log.write(&leader, left).await?,
        }
    }
}

/// From where on the logs of a cluster are being renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotProgress {
    cluster: Option<ClusterId>,
    begins: u64,
}

/// How far they got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// All are renewed.
    All,
    /// The hindmost has got so far, of so much.
    UpTo {
        /// What it has applied.
        applied: u64,
        /// What it is to apply.
        ends: u64,
    },
}

/// The log of a cluster.
struct Log<'s> {
    connections: SharedConnections,
    access: &'s TlsCredentials,
    members: Vec<Endpoint>,
}

impl Log<'_> {
    /// How far the log goes, and how much of it everybody has applied.
    async fn extent(&self) -> Result<RaftPosition, String> {
        let ask = |one| etcd::raft_position(&self.connections, self.access, one);
        let all = try_join_all(self.members.iter().map(ask)).await?;
        let one = |one: RaftPosition, other: RaftPosition| RaftPosition {
            last_index: one.last_index.max(other.last_index),
            applied_index: one.applied_index.min(other.applied_index),
        };
        all.into_iter()
            .reduce(one)
            .ok_or_else(|| "nobody answers".to_owned())
    }

    /// Adds so many entries to it.
    async fn write(&self, leader: &Endpoint, entries: u64) -> Result<(), String> {
        let each = entries.div_ceil(AT_ONCE);
        let writers = (0..AT_ONCE.min(entries)).map(|_| async {
            for _ in 0..each {
                etcd::list_alarms(&self.connections, self.access, leader).await?;
            }
            Ok(())
        });
        try_join_all(writers).await.map(|_: Vec<()>| ())
    }
}

/// Where the members answer, all of them: whoever may start again must have taken part.
fn members(observation: &Observation<EtcdReconciler>) -> Vec<Endpoint> {
    let told = observation
        .facts
        .membership
        .present()
        .map(|told| told.members.as_slice())
        .unwrap_or_default();
    told.iter()
        .filter_map(|entry| endpoint_of(observation, entry.serial))
        .collect()
}

/// After how many entries members take a snapshot, by the flags that they run with: the most of all.
fn snapshot_count(observation: &Observation<EtcdReconciler>) -> u64 {
    let pods = observation
        .objects
        .pods
        .values()
        .filter(|pod| member_ref(&pod.metadata).is_some());
    let containers = pods
        .filter_map(|pod| pod.spec.as_ref())
        .flat_map(|spec| &spec.containers);
    let args = containers
        .filter(|one| one.name == CONTAINER)
        .flat_map(|one| one.args.iter().flatten());
    let counts = args.filter_map(|arg| arg.strip_prefix("--snapshot-count=")?.parse().ok());
    counts.fold(SNAPSHOT_COUNT, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scene;

    #[test]
    fn as_much_is_written_as_the_pods_themselves_say() {
        assert_eq!(
            snapshot_count(&Scene::converged(3).observation()),
            SNAPSHOT_COUNT
        );
        let mut scene = Scene::converged(3);
        for (pod, count) in scene.observed.pods.values_mut().zip([20_000, 50_000, 100]) {
            let container = pod
                .spec
                .as_mut()
                .and_then(|spec| spec.containers.first_mut())
                .unwrap();
            container
                .args
                .get_or_insert_default()
                .push(format!("--snapshot-count={count}"));
        }
        assert_eq!(snapshot_count(&scene.observation()), 50_000);
    }
}
