//! The `Backup` that a cluster is to start from, or that is to replace its data, and its store. They are read by name, and not watched.

use evenkeel_api::Version;
use evenkeel_api::backup::ClusterKind;
use evenkeel_api::backup::resource::{Backup, BackupPhase};
use evenkeel_api::backup::store::BackupStore;
use evenkeel_runtime::{ResourceKey, cache};
use kube::Client;

use crate::facts::{RestoreRequest, SourceProblem, SourceState};
use crate::identity::{Identity, RestoreOrigin};

/// A `Backup` and its store, as the API has them.
#[derive(Clone, Debug)]
pub struct RestoreSource {
    /// The `Backup`.
    pub backup: Option<Backup>,
    /// The `BackupStore`.
    pub store: Option<BackupStore>,
    /// Whether both were read.
    pub is_readable: bool,
    /// The version of etcd that is to read the data.
    pub version: Version,
    /// Whether the operator can start the agent.
    pub has_agent_image: bool,
}

/// Returns the restore that needs its backup: into the next epoch, into the epoch in bootstrap, or into a cluster that does not
/// exist yet, which begins with the backup in `spec.bootstrap.from`.
pub fn needed<'o>(
    identity: Option<&'o Identity>,
    request: Option<&'o RestoreRequest>,
    bootstrap: Option<&'o RestoreOrigin>,
) -> Option<&'o RestoreOrigin> {
    let Some(identity) = identity else {
        return bootstrap;
    };
    if identity.bootstrapped {
        let request = request.filter(|request| !request.undo);
        return request.map(|request| &request.origin);
    }
    let in_place = identity.restore.as_ref();
    in_place.filter(|origin| origin.is_in_place()).or(bootstrap)
}

impl RestoreSource {
    /// Reads the source of a restore.
    pub async fn read(
        client: &Client,
        key: &ResourceKey,
        origin: &RestoreOrigin,
        version: Version,
    ) -> Self {
        let mut source = Self {
            backup: None,
            store: None,
            is_readable: false,
            version,
            has_agent_image: true,
        };
        match cache::read::<Backup>(client, key, &origin.backup).await {
            Ok(backup) => source.backup = backup,
            Err(error) => {
                tracing::debug!(resource = %key, %error, "failed to read the backup of a restore");
                return source;
            }
        }
        if let Some(backup) = &source.backup {
            match cache::read::<BackupStore>(client, key, &backup.spec.store).await {
                Ok(store) => source.store = store,
                Err(error) => {
                    tracing::debug!(resource = %key, %error, "failed to read the store of a restore");
                    return source;
                }
            }
        }
        source.is_readable = true;
        source
    }

    /// Returns whether the backup can be restored.
    pub fn state(&self) -> SourceState {
        match self.problem() {
            Some(problem) => SourceState::Unusable(problem),
            None => SourceState::Usable,
        }
    }

    fn problem(&self) -> Option<SourceProblem> {
        if !self.has_agent_image {
            return Some(SourceProblem::NoAgentImage);
        }
        if !self.is_readable {
            return Some(SourceProblem::Unreadable);
        }
        let Some(backup) = &self.backup else {
            return Some(SourceProblem::BackupMissing);
        };
        match backup.spec.cluster.kind {
            ClusterKind::EtcdCluster => {}
        }
        let status = backup.status.as_ref();
        let phase = status.map(|status| status.phase).unwrap_or_default();
        let status = match (phase, status) {
            (BackupPhase::Complete, Some(status)) if !status.location.is_empty() => status,
            (BackupPhase::Failed, _) => return Some(SourceProblem::BackupFailed),
            _ => return Some(SourceProblem::BackupIncomplete),
        };
        if status.damaged.is_some() {
            return Some(SourceProblem::BackupDamaged);
        }
        // Nothing but this check guards the way down: etcd 3.5 serves silently on data of 3.6 and 3.7 (tried).
        let minor = |version: Version| (version.major, version.minor);
        let of_backup = status.engine_version.parse::<Version>();
        if of_backup.is_err() || of_backup.is_ok_and(|of| minor(of) > minor(self.version)) {
            return Some(SourceProblem::NewerVersion(status.engine_version.clone()));
        }
        let name = backup.spec.store.clone();
        let Some(store) = &self.store else {
            return Some(SourceProblem::StoreMissing(name));
        };
        let conditions = store.status.as_ref().map(|status| &status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
        (!is_ready).then_some(SourceProblem::StoreNotReady(name))
    }
}
