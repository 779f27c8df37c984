//! Writes the CustomResourceDefinitions into the directory in the first argument, or to the standard output.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use evenkeel_api::EtcdCluster;
use kube::core::CustomResourceExt;

/// Returns the file name and content of each definition.
pub fn files() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let definition = EtcdCluster::crd();
    let text = serde_saphyr::to_string(&definition)?;
    let head = "# Generated from crates/api: run make generate.";
    Ok(vec![(
        format!("{}.yaml", EtcdCluster::crd_name()),
        format!("{head}\n{text}"),
    )])
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
