//! Helm, built from the Go module in `lab/helm`: the charts are rendered and tried with the real one.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::{self, Key};
use crate::parts::go::{Build, Go};
use crate::parts::sources;
use crate::progress::Stage;

/// Builds the program, or finds it; returns its path.
pub fn get() -> Result<PathBuf> {
    let module = sources().join("helm");
    let key = Key::default().tree(&module)?;
    let dir = cache::get("helm", key, |dir| {
        let go = Go::get()?;
        let stage = Stage::begin("Helm", "built from source, about 2 minutes the first time");
        let package = "helm.sh/helm/v3/cmd/helm";
        go.build(
            &Build {
                module: &module,
                package,
                linker: "",
                output: &dir.join("helm"),
            },
            &stage,
        )?;
        stage.done();
        Ok(())
    })?;
    Ok(dir.join("helm"))
}
