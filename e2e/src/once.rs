//! Work that the tests of a run share. Each test is a process of its own, so a lock on a file keeps them apart, and a mark
//! beside it says that the work is done.

use std::fs::File;
use std::path::PathBuf;

/// The variable that names the directory of a run, which `hack/test` makes for each one.
const RUN: &str = "EVENKEEL_RUN";

/// The directory of this run; `None` where a story is run without `hack/test`.
pub(crate) fn run_directory() -> Option<PathBuf> {
    std::env::var_os(RUN).map(PathBuf::from)
}

/// Does some work once per run; the other tests that ask for it wait until it is done. Where there is no directory of the run,
/// each test does it, so it must do no harm to repeat it.
pub fn once_per_run(what: &str, work: impl FnOnce()) {
    let Some(run) = run_directory() else {
        return work();
    };
    let dir = run.join("once");
    std::fs::create_dir_all(&dir).expect("the run's directory can be written");
    let name = what.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    let lock = File::create(dir.join(format!("{name}.lock"))).expect("a lock can be made");
    // Held until the file is closed, also by a test that fails here: the next one then tries again.
    lock.lock().expect("a file can be locked");
    let done = dir.join(name);
    if !done.exists() {
        work();
        File::create(done).expect("a mark can be made");
    }
}
