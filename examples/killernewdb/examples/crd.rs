//! Writes the CustomResourceDefinition: to the file named, or to the terminal without one.

use std::error::Error;
use std::{env, fs};

use killernewdb::KillerNewDb;
use kube::core::CustomResourceExt;

/// The definition, as it is committed.
pub fn text() -> Result<String, Box<dyn Error>> {
    let definition = serde_saphyr::to_string(&KillerNewDb::crd())?;
    Ok(format!(
        "# Generated from examples/killernewdb: run make generate.\n{definition}"
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(file) => fs::write(file, text()?)?,
        None => print!("{}", text()?),
    }
    Ok(())
}
