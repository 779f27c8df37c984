//! Work that is done once per test run. Each test is a process, so a file lock orders them, and a marker file records that the
//! work is done.

use std::fs::File;
use std::path::PathBuf;

/// The variable that names the directory of a run, which `hack/test` creates.
const RUN: &str = "EVENKEEL_RUN";

/// Returns the directory of this run; `None` if the story is run without `hack/test`.
pub(crate) fn run_directory() -> Option<PathBuf> {
    std::env::var_os(RUN).map(PathBuf::from)
}

/// Does some work once per run; other tests that need it wait until it is done. Without a run directory each test does it, so the
/// work must be repeatable.
pub fn once_per_run(what: &str, work: impl FnOnce()) {
    let Some(run) = run_directory() else {
        return work();
    };
    let dir = run.join("once");
    std::fs::create_dir_all(&dir).expect("the run directory is writable");
    let name = what.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    let lock =
        File::create(dir.join(format!("{name}.lock"))).expect("the lock file can be created");
    // Held until the file is closed. If this test fails here, the next one does the work.
    lock.lock().expect("the file can be locked");
    let done = dir.join(name);
    if !done.exists() {
        work();
        File::create(done).expect("the marker file can be created");
    }
}
