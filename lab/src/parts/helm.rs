//! Helm, built from the Go module in `lab/helm`, to render and test the charts.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::{self, CacheKey};
use crate::parts::go::{GoBuild, GoToolchain};
use crate::parts::sources;
use crate::progress::Progress;

/// Returns the path of `helm`; builds it when it is missing in the cache.
pub fn get() -> Result<PathBuf> {
    let module = sources().join("helm");
    let key = CacheKey::default().tree(&module)?;
    let dir = cache::get_or_build("helm", key, |dir| {
        let go = GoToolchain::get()?;
        let progress = Progress::start("Helm", "built from source, about 2 minutes the first time");
        let package = "helm.sh/helm/v3/cmd/helm";
        go.build(
            &GoBuild {
                module: &module,
                package,
                linker_flags: "",
                output: &dir.join("helm"),
            },
            &progress,
        )?;
        progress.finish();
        Ok(())
    })?;
    Ok(dir.join("helm"))
}
