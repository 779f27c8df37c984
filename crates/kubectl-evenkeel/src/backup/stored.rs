//! The backups in a store, as the agent lists them: one JSON object per line. Pure.

use std::cmp::Reverse;

use evenkeel_api::{Backup, BackupSpec, ClusterKind, ClusterReference};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::report::StoredBackupReport;
use crate::error::{CliError, EXIT_NOT_FOUND};

/// The state of a backup that can be restored.
const COMPLETE: &str = "Complete";
/// The engine whose backups can be imported.
const ENGINE: &str = "etcd";
/// The number of characters of the parts of a derived name: at most 63 with two dashes.
const MAX_CLUSTER_LENGTH: usize = 40;
const TIME_DIGITS: usize = 12;
const HASH_DIGITS: usize = 6;
/// The deadline of an imported Backup, as in the CRD. Only the manifest is read.
const DEADLINE: &str = "30m";

/// Parses the log of an agent that has listed a store. Lines of another form are ignored: the log also has messages, and a
/// newer agent may print further fields.
pub(super) fn parse(log: &str) -> Vec<StoredBackupReport> {
    let mut backups: Vec<_> = log.lines().filter_map(parse_line).collect();
    backups.sort_by_key(|backup| Reverse((time(backup), backup.location.clone())));
    backups.dedup_by(|one, other| one.location == other.location);
    backups
}

/// Returns the number of the lines of backups in a log, and the SHA-256 of these lines.
pub(super) fn checksum(log: &str) -> (u64, String) {
    let (mut hash, mut count) = (Sha256::new(), 0);
    let lines = log.lines().filter(|line| parse_line(line).is_some());
    for line in lines {
        hash.update(line);
        hash.update("\n");
        count += 1;
    }
    let digest = hash.finalize();
    (
        count,
        digest.iter().map(|byte| format!("{byte:02x}")).collect(),
    )
}

fn parse_line(line: &str) -> Option<StoredBackupReport> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| line.pointer(pointer)?.as_str().map(str::to_owned);
    let location = text("/location")?;
    let of_location = |index: usize| {
        let mut segments = location.split('/');
        segments.nth(index).unwrap_or_default().to_owned()
    };
    Some(StoredBackupReport {
        name: derived_name(&location),
        has_object: false,
        state: text("/state")?,
        problem: text("/problem").unwrap_or_default(),
        engine: text("/engine").unwrap_or_else(|| of_location(1)),
        engine_version: text("/summary/engineVersion").unwrap_or_default(),
        namespace: text("/cluster/namespace").unwrap_or_else(|| of_location(2)),
        cluster: text("/cluster/name").unwrap_or_else(|| of_location(3)),
        position: text("/summary/position").unwrap_or_default(),
        size_bytes: line.pointer("/summary/size").and_then(Value::as_u64),
        stored_bytes: line.pointer("/summary/storedSize").and_then(Value::as_u64),
        finished_at: text("/summary/finishedAt"),
        location,
    })
}

/// Returns the time of a backup: when it was complete, or the time in its location.
pub(super) fn time(backup: &StoredBackupReport) -> Option<Timestamp> {
    if let Some(finished) = &backup.finished_at {
        return finished.parse().ok();
    }
    let digits = time_digits(&backup.location)?;
    let part = |from: usize, to: usize| digits.get(from..to);
    format!(
        "{}-{}-{}T{}:{}:00Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?
    )
    .parse()
    .ok()
}

/// Returns the name of the Backup object for a location: the cluster, the minute, and a hash of the whole location. The name of
/// a location never changes, so that a second import finds the object of the first.
pub(super) fn derived_name(location: &str) -> String {
    let segment = location.split('/').nth(3).unwrap_or_default();
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let cluster: String = segment
        .chars()
        .map(|letter| if is_allowed(letter) { letter } else { '-' })
        .take(MAX_CLUSTER_LENGTH)
        .collect();
    let cluster = match cluster.trim_matches('-') {
        "" => "backup",
        cluster => cluster,
    };
    let hash = Sha256::digest(location.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = &hash[..HASH_DIGITS];
    match time_digits(location) {
        Some(digits) => {
            let (day, minute) = digits.split_at(8);
            format!("{cluster}-{day}-{minute}-{hash}")
        }
        None => format!("{cluster}-{hash}"),
    }
}

/// Returns the digits of year to minute at the begin of a location's last segment.
fn time_digits(location: &str) -> Option<String> {
    let last = location.rsplit('/').next()?;
    let time = last.split('-').next()?;
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    digits.get(..TIME_DIGITS).map(str::to_owned)
}

/// Records which backups of a store are represented by a Backup object.
pub(super) fn mark(items: &mut [StoredBackupReport], store: &str, backups: &[Backup]) {
    for item in items {
        let represents = |backup: &&Backup| {
            let status = backup.status.as_ref();
            let location = status.map(|status| status.location.as_str());
            backup.spec.store == store
                && (backup.spec.existing.as_deref() == Some(&item.location)
                    || location == Some(&item.location))
        };
        if let Some(backup) = backups.iter().find(represents) {
            item.name = backup.name_any();
            item.has_object = true;
        }
    }
}

/// The backups to import.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Imports {
    /// The positions of the backups in the list.
    pub(super) chosen: Vec<usize>,
    /// The backups that are not imported, and why.
    pub(super) skipped: Vec<String>,
}

/// Chooses the backups to import: those with these locations or names, or all that are complete.
pub(super) fn choose(
    items: &[StoredBackupReport],
    wanted: &[String],
    all: bool,
) -> Result<Imports, CliError> {
    let mut imports = Imports::default();
    for (index, item) in items.iter().enumerate() {
        let is_named = wanted
            .iter()
            .any(|one| *one == item.location || *one == item.name);
        match obstacle(item) {
            _ if !is_named && !all => {}
            None => imports.chosen.push(index),
            Some(reason) if is_named && !item.has_object => {
                return Err(CliError::new(format!(
                    "cannot import {}: {reason}",
                    item.location
                )));
            }
            Some(reason) => imports
                .skipped
                .push(format!("{} is not imported: {reason}", item.name)),
        }
    }
    let is_missing = |one: &&String| {
        let mut items = items.iter();
        !items.any(|item| item.location == **one || item.name == **one)
    };
    match wanted.iter().find(is_missing) {
        None => Ok(imports),
        Some(missing) => Err(
            CliError::new(format!("the store has no backup {missing}. Nothing was imported"))
                .help("without --import, the command lists the backups in the store; -o wide shows their locations")
                .exit_code(EXIT_NOT_FOUND),
        ),
    }
}

/// Returns the reason why a backup cannot be imported.
fn obstacle(item: &StoredBackupReport) -> Option<String> {
    if item.has_object {
        return Some(format!("Backup {} represents it already", item.name));
    }
    if item.state != COMPLETE {
        let problem = match item.problem.as_str() {
            "" => String::new(),
            problem => format!(" ({problem})"),
        };
        return Some(format!("its state is {}{problem}", item.state));
    }
    (item.engine != ENGINE).then(|| format!("its engine is {}", item.engine))
}

/// Returns the Backup object that represents a backup in a store.
pub(super) fn object(item: &StoredBackupReport, store: &str) -> Backup {
    let spec = BackupSpec {
        cluster: ClusterReference {
            kind: ClusterKind::EtcdCluster,
            name: item.cluster.clone(),
        },
        store: store.to_owned(),
        deadline: DEADLINE.to_owned(),
        existing: Some(item.location.clone()),
    };
    Backup::new(&item.name, spec)
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
