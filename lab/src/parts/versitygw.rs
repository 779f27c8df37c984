//! The S3 server versitygw, built from the Go module in `lab/versitygw`. It stores an object as a file with the path of
//! its key.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::{self, CacheKey};
use crate::parts::go::{GoBuild, GoToolchain};
use crate::parts::sources;
use crate::progress::Progress;

/// The version of the module.
pub const VERSION: &str = "1.8.0";

/// Returns the path of `versitygw`; builds it when it is missing in the cache.
pub fn get() -> Result<PathBuf> {
    let module = sources().join("versitygw");
    let key = CacheKey::default().tree(&module)?;
    let dir = cache::get_or_build("versitygw", key, |dir| {
        let go = GoToolchain::get()?;
        let progress = Progress::start(
            "S3 server versitygw",
            "built from source, about 2 minutes the first time",
        );
        go.build(
            &GoBuild {
                module: &module,
                package: "github.com/versity/versitygw/cmd/versitygw",
                linker_flags: "",
                output: &dir.join("versitygw"),
            },
            &progress,
        )?;
        progress.finish();
        Ok(())
    })?;
    Ok(dir.join("versitygw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_pinned_in_go_mod() {
        let module = std::fs::read_to_string(sources().join("versitygw/go.mod")).unwrap();
        let pin = format!("github.com/versity/versitygw v{VERSION} ");
        assert!(module.contains(&pin), "{module}");
    }
}
