//! The last step of a restore: restored data is made durable and moved into place. A run that was interrupted at any point is
//! finished by the next run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use evenkeel_archive::tasks::{FailureReason, InstallTask};

use crate::AgentFailure;

/// A step of the installation, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStep {
    /// All restored files are durable.
    Synced,
    /// The mark is durable: data in the target is from a restore from now on.
    Marked,
    /// The target, which was empty, does not exist.
    Cleared,
    /// The restored directory is the target.
    Renamed,
    /// The rename is durable.
    RenameSynced,
    /// The leftovers of the restore are deleted.
    Removed,
}

/// Installs restored data.
pub fn install(task: &InstallTask) -> Result<(), AgentFailure> {
    install_in_steps(task, &mut |_| Ok(()))
}

/// Installs restored data and calls `after` after each step. Tests interrupt the installation with it.
pub(crate) fn install_in_steps(
    task: &InstallTask,
    after: &mut dyn FnMut(InstallStep) -> io::Result<()>,
) -> Result<(), AgentFailure> {
    let (from_parent, to_parent) = check_paths(task)?;
    let mark = mark_of(&task.to, to_parent);
    let done = |action: &'static str, path: &Path, result: io::Result<()>| {
        result.map_err(|error| AgentFailure::file(action, path, &error))
    };
    let mut step = |step| done("complete the installation in", &task.to, after(step));
    let is_restored = has_entries(&task.from)?;
    let has_data = has_entries(&task.to)?;
    let is_marked = exists(&mark)?;
    match (is_restored, has_data) {
        (true, false) => {
            done("sync", &task.from, sync_tree(&task.from))?;
            step(InstallStep::Synced)?;
            done("write", &mark, write_mark(&mark, to_parent))?;
            step(InstallStep::Marked)?;
            if exists(&task.to)? {
                done("delete", &task.to, fs::remove_dir(&task.to))?;
            }
            step(InstallStep::Cleared)?;
            done("rename", &task.from, fs::rename(&task.from, &task.to))?;
            step(InstallStep::Renamed)?;
        }
        // An earlier run has installed the data: the rename is atomic, so the data is complete.
        (_, true) if is_marked => {
            done("delete", &task.from, remove_path(&task.from))?;
        }
        (true, true) => {
            return Err(AgentFailure::new(
                FailureReason::Other,
                format!(
                    "The directory {} contains data that is not from this restore. A restore never replaces data: restore into \
                     an empty volume.",
                    task.to.display()
                ),
            ));
        }
        (false, _) => {
            return Err(AgentFailure::new(
                FailureReason::Other,
                format!(
                    "The directory {} contains no restored data. Run the restore again.",
                    task.from.display()
                ),
            ));
        }
    }
    done("sync", to_parent, sync_dir(to_parent))?;
    done("sync", from_parent, sync_dir(from_parent))?;
    step(InstallStep::RenameSynced)?;
    for path in &task.remove {
        done("delete", path, remove_path(path))?;
        if let Some(parent) = path.parent().filter(|parent| parent.is_dir()) {
            done("sync", parent, sync_dir(parent))?;
        }
    }
    step(InstallStep::Removed)
}

/// Checks that no path is relative, and that no deletion can hit the data. Returns the parents of both directories.
fn check_paths(task: &InstallTask) -> Result<(&Path, &Path), AgentFailure> {
    let invalid = |problem: String| AgentFailure::new(FailureReason::InvalidRequest, problem);
    let paths = task.remove.iter().chain([&task.from, &task.to]);
    for path in paths {
        let is_plain = path.is_absolute()
            && !path
                .components()
                .any(|part| matches!(part, std::path::Component::ParentDir));
        if !is_plain {
            let problem = format!("The path {} is not absolute and plain.", path.display());
            return Err(invalid(problem));
        }
    }
    let overlaps = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    if overlaps(&task.from, &task.to) {
        return Err(invalid(format!(
            "The directories {} and {} overlap.",
            task.from.display(),
            task.to.display()
        )));
    }
    if let Some(path) = task.remove.iter().find(|path| overlaps(path, &task.to)) {
        let problem = format!("The path {} overlaps the installed data.", path.display());
        return Err(invalid(problem));
    }
    if let Some(path) = task.remove.iter().find(|path| task.from.starts_with(path)) {
        let problem = format!("The path {} contains the restored data.", path.display());
        return Err(invalid(problem));
    }
    match (task.from.parent(), task.to.parent()) {
        (Some(from), Some(to)) => Ok((from, to)),
        (None, _) | (_, None) => Err(invalid("The root directory cannot be installed.".into())),
    }
}

/// Returns the file beside the target that marks data of a restore.
fn mark_of(to: &Path, parent: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    parent.join(format!(".{name}.restored"))
}

fn write_mark(mark: &Path, parent: &Path) -> io::Result<()> {
    let mut file = File::create(mark)?;
    file.write_all(b"The data beside this file was installed by a restore.\n")?;
    file.sync_all()?;
    sync_dir(parent)
}

fn exists(path: &Path) -> Result<bool, AgentFailure> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(AgentFailure::file("read", path, &error)),
    }
}

/// Returns true if a directory exists and contains an entry.
fn has_entries(dir: &Path) -> Result<bool, AgentFailure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries
            .next()
            .transpose()
            .map(|entry| entry.is_some())
            .map_err(|error| AgentFailure::file("read", dir, &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(AgentFailure::file("read", dir, &error)),
    }
}

/// Makes all files and directories of a tree durable.
fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        } else {
            let problem = format!("{} is not a file", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
    }
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Deletes a file or directory, if it exists. A symbolic link is deleted, not followed.
fn remove_path(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
