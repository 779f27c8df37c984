//! A backup of etcd: the snapshot of one member is spooled to a file, uploaded at the same time, and read back from the file,
//! so that revision and counts come from the data itself.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, StatusResponse};
use evenkeel_archive::tasks::{BackupSummary, EtcdSnapshotTask, FailureReason, TaskResult};
use evenkeel_archive::writer::{BackupWriter, ManifestDraft, find_attempt};
use evenkeel_archive::{ArchiveStore, BackupPlace, LineagePath};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::ENGINE;
use super::connect::{call, call_failure, check_cluster, connect};
use super::contents::SnapshotContents;
use super::trailer::TrailerCheck;
use super::verify::{EtcdVerification, KvHash, KvHashResult};
use crate::space::require_free;
use crate::spool::{SpoolReader, SpoolWriter, blocking, create};
use crate::{AgentFailure, StopSignal};

/// The free space that is needed beyond the size of the database, in bytes.
const SPOOL_MARGIN_BYTES: u64 = 64 << 20;
/// The growth of the member's database that is always allowed while it is read, in bytes. A member cannot reuse free pages
/// while a snapshot is read from it, so that every write lets the database grow (tried on 3.6.16).
const ALLOWED_GROWTH_BYTES: u64 = 256 << 20;
/// The part of the quota that a growing database may fill while it is read, in percent.
const MAX_FILL_PERCENT: u64 = 85;
/// The time that the last requests may take after the task was stopped.
const COMMIT_GRACE: Duration = Duration::from_secs(10);

/// The time limits of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotLimits {
    /// The time limit of connecting and of a request.
    pub request: Duration,
    /// The time limit without new data.
    pub stall: Duration,
    /// The interval at which the size of the member's database is read.
    pub status_interval: Duration,
    /// The time limit of the hash over all keys.
    pub hash: Duration,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            status_interval: Duration::from_secs(5),
            hash: Duration::from_secs(60),
        }
    }
}

/// Reads a snapshot and stores it as a backup. `work` is a directory for the spooled data. After a failure no complete backup
/// remains.
pub async fn snapshot(
    store: &ArchiveStore,
    task: &EtcdSnapshotTask,
    work: &Path,
    limits: &SnapshotLimits,
    stop: &StopSignal,
) -> Result<TaskResult, AgentFailure> {
    let cluster = &task.cluster;
    let lineage = LineagePath::new(ENGINE, &cluster.namespace, &cluster.name, &cluster.lineage)?;
    let mut place = BackupPlace {
        lineage,
        epoch: task.epoch,
        label: "0".to_owned(),
        attempt: task.name.clone(),
    };
    let earlier = async { Ok(find_attempt(store, &place).await?) };
    if let Some((location, manifest)) = stop.limit(earlier).await? {
        tracing::info!(%location, "the backup exists already");
        return Ok(TaskResult::Backup {
            location: location.to_string(),
            summary: BackupSummary::of(&manifest),
        });
    }
    let started_at = Timestamp::now();
    let source = stop.limit(SnapshotSource::open(task, limits)).await?;
    require_free(
        work,
        size(&source.before) + SPOOL_MARGIN_BYTES,
        "Give the agent's pod a larger work volume.",
    )?;
    let revision = source.before.header().map_or(0, |header| header.revision());
    place.label = format!("{revision:016x}");
    let begin = async { Ok(BackupWriter::begin(store, place).await?) };
    let mut writer = stop.limit(begin).await?;
    let read = stop.limit(source.read(work, &mut writer)).await;
    let draft = match read {
        Ok((contents, hash)) => source.draft(task, started_at, contents, hash),
        Err(failure) => Err(failure),
    };
    let draft = match draft {
        Ok(draft) => draft,
        Err(failure) => {
            writer.abort().await;
            return Err(failure);
        }
    };
    let commit = writer.commit(draft);
    let (location, manifest) = tokio::select! {
        committed = commit => committed?,
        cause = stopped_for(stop, COMMIT_GRACE) => return Err(cause),
    };
    Ok(TaskResult::Backup {
        location: location.to_string(),
        summary: BackupSummary::of(&manifest),
    })
}

/// Waits until the task was stopped and the grace period is over. A commit that is nearly done is better than an aborted one.
async fn stopped_for(stop: &StopSignal, grace: Duration) -> AgentFailure {
    let cause = stop.stopped().await;
    tokio::time::sleep(grace).await;
    cause.failure()
}

/// The member that the snapshot is read from.
struct SnapshotSource<'a> {
    client: Client,
    cluster_id: u64,
    member_id: u64,
    quota: u64,
    before: StatusResponse,
    limits: &'a SnapshotLimits,
}

impl<'a> SnapshotSource<'a> {
    async fn open(
        task: &EtcdSnapshotTask,
        limits: &'a SnapshotLimits,
    ) -> Result<Self, AgentFailure> {
        let cluster_id = u64::from_str_radix(&task.cluster.cluster_id, 16).map_err(|error| {
            AgentFailure::new(
                FailureReason::InvalidRequest,
                format!(
                    "The cluster ID {:?} is invalid: {error}.",
                    task.cluster.cluster_id
                ),
            )
        })?;
        let mut client = connect(&task.endpoint, &task.tls, limits.request).await?;
        let before = call(
            "read the status of the member",
            limits.request,
            client.status(),
        )
        .await?;
        let member_id = check_cluster(before.header(), cluster_id)?;
        Ok(Self {
            client,
            cluster_id,
            member_id,
            quota: task.quota,
            before,
            limits,
        })
    }

    /// Spools and uploads the snapshot, and reads its contents back.
    async fn read(
        &self,
        work: &Path,
        writer: &mut BackupWriter,
    ) -> Result<(SnapshotContents, KvHashResult), AgentFailure> {
        let (spool, reader) = create(work)?;
        let read = async {
            // The member is guarded while the snapshot is read. It does not matter how long the upload takes.
            let (file, database) = tokio::select! {
                received = download(self.client.clone(), spool, self.limits) => received?,
                failure = self.guard() => return Err(failure),
            };
            tracing::info!(bytes = database, "snapshot received");
            let contents = blocking(move || SnapshotContents::read(&*file, database)).await?;
            let contents = contents.map_err(|error| {
                AgentFailure::new(
                    FailureReason::SourceFailed,
                    format!(
                        "The snapshot that the member sent is damaged: {error}. Check the member for corruption."
                    ),
                )
            })?;
            let hash = self.hash_kv(&contents).await;
            Ok((contents, hash))
        };
        let (read, ()) = tokio::try_join!(read, upload(reader, writer))?;
        Ok(read)
    }

    /// Reads the size of the member's database at intervals, and returns when the snapshot must be aborted.
    async fn guard(&self) -> AgentFailure {
        let limits = self.limits;
        let mut client = self.client.clone();
        loop {
            tokio::time::sleep(limits.status_interval).await;
            match call(
                "read the status of the member",
                limits.request,
                client.status(),
            )
            .await
            {
                Ok(status) => {
                    let (before, now) = (size(&self.before), size(&status));
                    tracing::info!(database_bytes = now, "snapshot in progress");
                    if let Some(failure) = growth_failure(before, now, self.quota) {
                        return failure;
                    }
                }
                // The time limit without new data ends the snapshot of a member that does not answer.
                Err(failure) => tracing::warn!(%failure, "the member does not answer"),
            }
        }
    }

    /// Asks the same member for its hash over all keys at the snapshot's revision.
    async fn hash_kv(&self, contents: &SnapshotContents) -> KvHashResult {
        let revision = contents.revision;
        let mut client = self.client.clone();
        let answer = call(
            "read the hash of all keys",
            self.limits.hash,
            client.hash_kv(revision),
        );
        let result = match answer.await {
            Err(failure) => Err(failure.message),
            Ok(answer) => match check_cluster(answer.header(), self.cluster_id) {
                Err(failure) => Err(failure.message),
                Ok(id) if id != self.member_id => Err("another member answered".to_owned()),
                Ok(_) => {
                    // etcd answers -1 if nothing was compacted.
                    let compact_revision = answer.compact_version().max(0);
                    if compact_revision == contents.compact_revision {
                        Ok(KvHash {
                            revision,
                            compact_revision,
                            hash: answer.hash(),
                        })
                    } else {
                        Err("the member compacted its history after the snapshot".to_owned())
                    }
                }
            },
        };
        match result {
            Ok(hash) => KvHashResult::Known(hash),
            Err(reason) => {
                tracing::warn!(reason, "the manifest has no hash of all keys");
                KvHashResult::Missing { reason }
            }
        }
    }

    fn draft(
        &self,
        task: &EtcdSnapshotTask,
        started_at: Timestamp,
        contents: SnapshotContents,
        hash: KvHashResult,
    ) -> Result<ManifestDraft, AgentFailure> {
        let position = json!({
            "revision": contents.revision,
            "compactRevision": contents.compact_revision,
        });
        let position_text = format!("revision {}", contents.revision);
        let verification = EtcdVerification {
            contents,
            hash_kv: hash,
        };
        let verification = serde_json::to_value(verification).map_err(|error| {
            AgentFailure::new(
                FailureReason::Other,
                format!("failed to encode the manifest: {error}"),
            )
        })?;
        Ok(ManifestDraft {
            // The version that runs, which may be newer than the one that the operator saw.
            engine_version: self.before.version().to_owned(),
            cluster_id: task.cluster.cluster_id.clone(),
            member: task.cluster.member.clone(),
            position,
            position_text,
            started_at,
            verification,
            resource: task.resource.clone(),
            written_by: format!("evenkeel {}", env!("CARGO_PKG_VERSION")),
        })
    }
}

fn size(status: &StatusResponse) -> u64 {
    status.db_size().max(0).unsigned_abs()
}

/// Returns why a snapshot must be aborted if the member's database has grown too much while it was read.
fn growth_failure(before: u64, now: u64, quota: u64) -> Option<AgentFailure> {
    let growth = now.saturating_sub(before);
    let allowed = ALLOWED_GROWTH_BYTES.max(quota / 10);
    let is_full = quota > 0 && now > quota / 100 * MAX_FILL_PERCENT;
    let cause = if growth > allowed {
        format!("grew by {} MiB", growth >> 20)
    } else if growth > 0 && is_full {
        format!("fills {} % of its quota", now.saturating_mul(100) / quota)
    } else {
        return None;
    };
    Some(AgentFailure::new(
        FailureReason::MemberTooFull,
        format!(
            "The member's database {cause} while the snapshot was read. The snapshot was aborted, because the member cannot reuse \
             space meanwhile. Take the backup when fewer writes arrive, or raise spec.etcd.quota."
        ),
    ))
}

/// Reads the snapshot of a member into the spool. Returns the file and the size of the database in it, without the trailer.
async fn download(
    mut client: Client,
    mut spool: SpoolWriter,
    limits: &SnapshotLimits,
) -> Result<(Arc<File>, u64), AgentFailure> {
    let action = "read the snapshot";
    let mut stream = call(action, limits.request, client.snapshot()).await?;
    let mut check = TrailerCheck::default();
    let mut no_progress = Instant::now() + limits.stall;
    loop {
        let message = match timeout_at(no_progress, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(call_failure(action, &error)),
            Err(_) => {
                return Err(AgentFailure::new(
                    FailureReason::NoProgress,
                    format!(
                        "The member sent no data for {} s. Check the member and the network.",
                        limits.stall.as_secs()
                    ),
                ));
            }
        };
        // A member whose own read failed sends empty messages for ever (read in 3.6.16).
        if message.blob().is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        no_progress = Instant::now() + limits.stall;
        check.update(message.blob());
        spool.write(message.blob()).await?;
    }
    let database = check.finish().map_err(|problem| {
        AgentFailure::new(
            FailureReason::SourceFailed,
            format!("The snapshot that the member sent is incomplete: {problem}."),
        )
    })?;
    let (file, _) = spool.finish().await?;
    Ok((file, database))
}

async fn upload(mut spool: SpoolReader, writer: &mut BackupWriter) -> Result<(), AgentFailure> {
    while let Some(block) = spool.next().await? {
        writer.write(&block).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
