//! Writes the CustomResourceDefinitions into the directory in the first argument, or to the standard output.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use evenkeel_api::{Backup, BackupSchedule, BackupStore, EtcdCluster, Restore};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt;

/// Returns the file name and content of each definition.
pub fn files() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let head = "# Generated from crates/api: run make generate.";
    definitions()
        .into_iter()
        .map(|definition| {
            let text = serde_saphyr::to_string(&definition)?;
            let name = definition.metadata.name.unwrap_or_default();
            Ok((format!("{name}.yaml"), format!("{head}\n{text}")))
        })
        .collect()
}

/// Returns all definitions.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        Backup::crd(),
        BackupSchedule::crd(),
        BackupStore::crd(),
        EtcdCluster::crd(),
        Restore::crd(),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args().nth(1);
    for (name, text) in files()? {
        match &directory {
            Some(directory) => {
                fs::create_dir_all(directory)?;
                let file = Path::new(directory).join(name);
                fs::write(&file, text)?;
                println!("{}", file.display());
            }
            None => print!("{text}"),
        }
    }
    Ok(())
}
