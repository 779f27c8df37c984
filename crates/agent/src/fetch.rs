//! The first step of a restore: a backup is downloaded to a file and verified. A backup that the application cannot read is
//! rejected before the download.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_archive::ArchiveStore;
use evenkeel_archive::manifest::Manifest;
use evenkeel_archive::reader::{fetch as download, read_manifest};
use evenkeel_archive::tasks::{FailureReason, FetchTask};

use crate::AgentFailure;
use crate::certificates::write_certificates;
use crate::etcd;
use crate::space::require_free;
use crate::spool::blocking;

/// The interval of log messages about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Downloads a backup, verifies it and writes it to a file. After a failure the file does not exist.
pub async fn fetch(store: &ArchiveStore, task: &FetchTask) -> Result<(), AgentFailure> {
    let manifest = read_manifest(store, &task.location).await?;
    check_supported(&manifest, task)?;
    let Some(dir) = task.file.parent() else {
        return Err(invalid(format!("{} is not a file.", task.file.display())));
    };
    // An earlier run may have been interrupted after the download: its file is replaced, and its space counts as free.
    remove(&task.file)?;
    let percent = u64::from(task.space_percent.max(100));
    let needed = manifest.plain.size.saturating_mul(percent) / 100;
    require_free(dir, needed, "Restore into a larger volume.")?;
    let mut reported = Instant::now();
    let progress = move |done: u64, total: u64| {
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            tracing::info!(done, total, "download in progress");
        }
    };
    let fetched = download(store, &task.location, &task.file, progress).await?;
    let (path, is_same) = (task.file.clone(), fetched == manifest);
    let verified = if is_same {
        blocking(move || verify(&path, &fetched)).await.flatten()
    } else {
        Err(AgentFailure::new(
            FailureReason::BackupDamaged,
            "The manifest of the backup changed while the backup was read. Use another backup.",
        ))
    };
    if verified.is_err() {
        remove(&task.file)?;
    }
    verified?;
    match &task.certificates {
        Some(dir) => write_certificates(dir),
        None => Ok(()),
    }
}

fn verify(path: &Path, manifest: &Manifest) -> Result<(), AgentFailure> {
    let file = File::open(path).map_err(|error| AgentFailure::file("open", path, &error))?;
    etcd::verify::verify(&file, manifest)
}

fn remove(path: &Path) -> Result<(), AgentFailure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(AgentFailure::file("delete", path, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Rejects a backup of another engine or of a newer version.
fn check_supported(manifest: &Manifest, task: &FetchTask) -> Result<(), AgentFailure> {
    let unsupported = |message| AgentFailure::new(FailureReason::NotSupported, message);
    if manifest.engine != task.engine {
        return Err(unsupported(format!(
            "The backup is of engine {}, not of {}. Choose a backup of the same kind.",
            manifest.engine, task.engine
        )));
    }
    if manifest.engine != etcd::ENGINE {
        return Err(unsupported(format!(
            "This version of the agent cannot restore backups of engine {}. Update the operator.",
            manifest.engine
        )));
    }
    let Some(target) = minor(&task.version) else {
        return Err(invalid(format!(
            "The version {:?} is not a version.",
            task.version
        )));
    };
    // An older etcd that reads newer data may start and serve it without a warning (tried: 3.6 to 3.5, 3.7 to 3.5).
    match minor(&manifest.engine_version) {
        Some(source) if source <= target => Ok(()),
        Some(_) => Err(unsupported(format!(
            "The backup is of etcd {}, which is newer than {}. Set spec.version to {} or a newer version.",
            manifest.engine_version, task.version, manifest.engine_version
        ))),
        None => Err(unsupported(format!(
            "The backup is of etcd {:?}, which is not a version.",
            manifest.engine_version
        ))),
    }
}

/// Returns the major and minor number of a version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn invalid(message: String) -> AgentFailure {
    AgentFailure::new(FailureReason::InvalidRequest, message)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
